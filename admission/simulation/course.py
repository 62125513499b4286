"""The course of one Job on the virtual clock: what it has done, what was lost, and when it would be done.

    submit ── waits ──┬── restart ──┬── useful work ──┬── save ──┐
                      │ start       │ work_from       │ stop     │ gone: waits again
    the first attempt has no restart before it

Time that a Job held GPUs and that is in no useful work kept is lost: saving, restarting, and after a crash or
the loss of a node what was done since the last periodic checkpoint. Periodic checkpoints cost nothing here
(published overheads are below 4%), and an attempt begins with everything saved.
All instants and lengths are virtual seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from admission.simulation.traces import TraceJob


@dataclass(slots=True, eq=False)
class JobCourse:
    """One Job. `token` changes whenever a planned end is no longer true."""

    job: TraceJob
    remaining: float = field(init=False)
    token: int = 0
    attempts: int = 0
    evictions: int = 0
    is_running: bool = False
    started_at: float = 0.0
    work_from: float = 0.0
    first_start_at: float | None = None
    # The first start that it was promised.
    promised_at: float | None = None
    # From when on the reservation that it joins was there for it, None: it has none, or has had no use of it.
    reserved_from: float | None = None
    finished_at: float | None = None
    # When it held GPUs, and the useful work in that which was kept, as intervals in order.
    held: list[tuple[float, float]] = field(default_factory=list)
    useful: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.remaining = self.job.duration_seconds

    def start(self, now: float, *, restart_seconds: float) -> float:
        """Begin an attempt. Returns when the Job will be done if nothing stops it."""
        self.token += 1
        self.is_running = True
        self.started_at = now
        self.work_from = now + (restart_seconds if self.attempts else 0.0)
        self.attempts += 1
        if self.first_start_at is None:
            self.first_start_at = now
        return self.work_from + self.remaining

    def stop_work(self, now: float, *, keeps_every: float | None = None) -> None:
        """End useful work; the GPUs are held until `leave`. All of it is kept, or what the last periodic
        checkpoint holds where only every `keeps_every` seconds are.
        """
        self.token += 1
        done = min(max(0.0, now - self.work_from), self.remaining)
        if keeps_every is not None and done < self.remaining:
            done = math.floor(done / keeps_every) * keeps_every
        if done > 0:
            self.useful.append((self.work_from, self.work_from + done))
        self.remaining -= done

    def leave(self, now: float) -> None:
        """Give the GPUs back."""
        self.is_running = False
        self.held.append((self.started_at, now))

    def crash(self, now: float, *, keeps_every: float, restart_seconds: float) -> float:
        """Lose what is not saved and go on in place. Returns when the Job will be done then."""
        self.stop_work(now, keeps_every=keeps_every)
        self.work_from = now + restart_seconds
        return self.work_from + self.remaining

    def finish(self, now: float) -> None:
        """Be done."""
        self.stop_work(now)
        self.leave(now)
        self.finished_at = now
        self.remaining = 0.0

    @property
    def useful_seconds(self) -> float:
        """All useful work that was kept."""
        return sum(end - begin for begin, end in self.useful)

    @property
    def held_seconds(self) -> float:
        """All the time that it held its GPUs."""
        return sum(end - begin for begin, end in self.held)
