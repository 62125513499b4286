"""The course of one Job on the virtual clock: its work so far, its losses, and when it will finish.

    submit ── waits ──┬── restart ──┬── useful work ──┬── save ──┐
                      │ start       │ work_from       │ stop     │ gone: waits again
    the first attempt has no restart

Time during which a Job holds GPUs without doing work that is kept counts as lost: saves, restarts, and after
a crash or the loss of a node the work since the last periodic checkpoint. Periodic checkpoints cost nothing
here (published overheads are below 4%), and an attempt begins with everything saved.

All times and durations are virtual seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from admission.simulation.traces import TraceJob

_SECONDS_PER_HOUR = 3600.0


@dataclass(slots=True, eq=False)
class JobCourse:
    """The state of one Job. `token` changes whenever a planned end becomes invalid."""

    job: TraceJob
    remaining: float = field(init=False)
    token: int = 0
    attempts: int = 0
    evictions: int = 0
    # Of a GPU-hour where it runs, and of all GPU-hours that it has held so far.
    price: float = 0.0
    cost: float = 0.0
    is_running: bool = False
    started_at: float = 0.0
    work_from: float = 0.0
    first_start_at: float | None = None
    # The first promised start, None without one.
    promised_at: float | None = None
    # When both the Job and the reservation that it joins existed. None: it has no reservation, or
    # could not use it.
    reserved_from: float | None = None
    finished_at: float | None = None
    # The intervals in which it held GPUs, and those of useful work that was kept, in order.
    held: list[tuple[float, float]] = field(default_factory=list)
    useful: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.remaining = self.job.duration_seconds

    def start(self, now: float, *, restart_seconds: float, price: float = 0.0) -> float:
        """Begin an attempt on GPUs with this price per hour. Return when the Job will finish undisturbed."""
        self.price = price
        self.token += 1
        self.is_running = True
        self.started_at = now
        self.work_from = now + (restart_seconds if self.attempts else 0.0)
        self.attempts += 1
        if self.first_start_at is None:
            self.first_start_at = now
        return self.work_from + self.remaining

    def stop_work(self, now: float, *, keeps_every: float | None = None) -> None:
        """End useful work; the GPUs are held until `leave`.

        All work is kept if `keeps_every` is None. Otherwise only the work up to the last periodic checkpoint
        is kept, with checkpoints every `keeps_every` seconds.
        """
        self.token += 1
        done = min(max(0.0, now - self.work_from), self.remaining)
        if keeps_every is not None and done < self.remaining:
            done = math.floor(done / keeps_every) * keeps_every
        if done > 0:
            self.useful.append((self.work_from, self.work_from + done))
        self.remaining -= done

    def leave(self, now: float) -> None:
        """Release the GPUs."""
        self.is_running = False
        self.held.append((self.started_at, now))
        self.cost += self.price * self.job.gpus * (now - self.started_at) / _SECONDS_PER_HOUR

    def crash(self, now: float, *, keeps_every: float, restart_seconds: float) -> float:
        """Lose the unsaved work and restart on the same nodes. Return when the Job will finish."""
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
        """Return the seconds of useful work that was kept."""
        return sum(end - begin for begin, end in self.useful)

    @property
    def held_seconds(self) -> float:
        """Return the seconds during which it held its GPUs."""
        return sum(end - begin for begin, end in self.held)
