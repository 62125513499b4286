"""One run: a cluster, its replicas and their trouble, from a schedule to what it showed.

draw ─▶ faults and Jobs for 2 min ─▶ everything is healed ─▶ rest ─▶ laws at rest
          laws at each commit, all along
"""

from __future__ import annotations

import gc
import hashlib
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from admission.controller.runtime import yield_budget
from api.kube import lease
from tests.faults.apiserver import REQUEST_SECONDS, ApiServer, Request
from tests.faults.etcd import Change, Etcd, Key
from tests.faults.laws import CommitLaws, SendLaws, broken_at_rest
from tests.faults.loop import ShuffledLoop
from tests.faults.phases import Phase
from tests.faults.redis import ModelRedis
from tests.faults.replica import Replica, ReplicaClock
from tests.faults.schedule import HORIZON_SECONDS, Event, Fault, Schedule
from tests.faults.standins import StandIns
from tests.faults.trouble import Trouble

# A phase counts as under way for this long after it was reached.
_PHASE_SECONDS = 0.05
# The cluster rests when no write took effect for this long; the longest pause of an object whose writes were
# refused a few times is shorter.
_REST_SECONDS = 40.0
# Within this time after all is healed, the cluster has to rest: a lease that has to run out, late writes, the
# Jobs that still wait, and the pauses after refused writes.
RECOVERY_SECONDS = 600.0


@dataclass(slots=True)
class Outcome:
    """What a run showed. `digest` tells one run from another; `recovery_seconds` None: no rest was reached.

    `coverage`: how often each fault struck in each phase.
    """

    broken: list[str] = field(default_factory=list)
    digest: str = ""
    coverage: Counter[tuple[Fault, Phase]] = field(default_factory=Counter)
    recovery_seconds: float | None = None

    @property
    def law(self) -> str:
        """Return the word for the first law that was broken, "" if none was."""
        return self.broken[0].partition(":")[0] if self.broken else ""


def run(schedule: Schedule) -> Outcome:
    """Run a schedule to the end, or until a law is broken."""
    # What is left in mid-air is closed at the end. Its complaints that the loop is gone say nothing.
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    world = World(schedule)
    try:
        outcome = world.run()
    finally:
        # A log record with a traceback keeps a world alive for longer than the collector is asked here.
        world.loop.drop_tasks()
        gc.collect()
        sys.unraisablehook = hook
    return outcome


class World:
    """The cluster of one schedule; `run` it once."""

    def __init__(self, schedule: Schedule) -> None:
        chance = random.Random(f"world {schedule.seed}")
        self._schedule = schedule
        self.loop = ShuffledLoop(random.Random(f"order {schedule.seed}") if schedule.is_shuffled else None)
        self.etcd = Etcd()
        self.server = ApiServer(
            self.etcd, self.loop, chance, on_send=self._note_request, on_commit=self._note_write
        )
        self.redis = ModelRedis(self.loop, chance, on_call=self._note_call)
        self.stand_ins = StandIns(self.etcd, self.loop, chance)
        self._laws = CommitLaws(self.etcd, self.server, self.loop, tolerated=self.stand_ins.admitted)
        self._send_laws = SendLaws(self.loop)
        self.replicas: list[Replica] = []
        self._trouble = Trouble(self)
        self._armed: list[tuple[Event, list[int]]] = []
        self._reached: tuple[float, Phase] = (-1.0, Phase.IDLE)
        self._trace = hashlib.sha256()
        self._outcome = Outcome()
        self._born = 0
        self._last_write_at = 0.0
        self._failures: list[str] = []
        self.loop.set_exception_handler(self._note_failure)
        self.etcd.listeners.append(self._note_commit)

    def add_replica(self, number: int) -> Replica:
        """Start a process on the machine of this number, counted from 0."""
        self._born += 1
        skews, rates = self._schedule.skews, self._schedule.rates
        at = number % len(skews)
        clock = ReplicaClock(self.loop, skews[at], rates[at])
        replica = Replica(f"replica-{self._born}", number, self.server, self.redis, clock)
        self.replicas.append(replica)
        replica.start()
        return replica

    def run(self) -> Outcome:
        """Run to the end, or until a law is broken."""
        before, slice_seconds = random.getstate(), yield_budget.SLICE_SECONDS
        unsettled_seconds, lease.UNSETTLED_SECONDS = lease.UNSETTLED_SECONDS, REQUEST_SECONDS
        # Of informers and electors, which draw from the process's own generator.
        random.seed(self._schedule.seed)
        # Half of the worlds yield to all else after each step of a cycle.
        yield_budget.SLICE_SECONDS = -1.0 if self._schedule.seed % 2 else slice_seconds
        collects = gc.isenabled()
        # Tasks of killed processes must not be closed at some moment by the collector.
        gc.disable()
        try:
            self._run()
        finally:
            self.loop.abandon()
            yield_budget.SLICE_SECONDS = slice_seconds
            lease.UNSETTLED_SECONDS = unsettled_seconds
            random.setstate(before)
            if collects:
                gc.enable()
        self._outcome.digest = self._trace.hexdigest()
        return self._outcome

    def _run(self) -> None:
        schedule = self._schedule
        self.stand_ins.make_queues()
        for number in range(len(schedule.skews)):
            self.add_replica(number)
        for number, plan in enumerate(schedule.jobs):
            self.loop.later(plan.at, self.stand_ins.submit, number, plan)
        for event in schedule.events:
            self.loop.later(event.at, self._begin, event)
        if self._passes(HORIZON_SECONDS):
            self._armed.clear()
            self._trouble.heal()
            self._recover()

    def _passes(self, seconds: float) -> bool:
        """Let time pass; return False as soon as something is broken."""
        until = self.loop.passed + seconds
        while self.loop.passed < until and not self._outcome.broken:
            try:
                self.loop.run_for(min(1.0, until - self.loop.passed))
            # By the loop: something spins, or nothing will ever happen again.
            except AssertionError as error:
                self._failures.append(f"spinning: {error}")
            for replica in [one for one in self.replicas if one.has_met_restore()]:
                # As `run_controller` does: another begins in its place, with nothing that it knew.
                replica.kill()
                self.replicas.remove(replica)
                self.add_replica(replica.machine)
            failures = [failure for one in self.replicas if (failure := one.failure()) is not None]
            broken = (*self._laws.broken, *self._send_laws.broken, *self._failures, *failures)
            self._outcome.broken += broken
        return not self._outcome.broken

    def _recover(self) -> None:
        healed_at = self._last_write_at = self.loop.passed
        while self._passes(5.0):
            if self.loop.passed - self._last_write_at >= _REST_SECONDS:
                at_rest = broken_at_rest(self.etcd, self.redis, self.replicas)
                self._outcome.recovery_seconds = self._last_write_at - healed_at
                if not at_rest or self.loop.passed - healed_at >= RECOVERY_SECONDS:
                    self._outcome.broken += at_rest
                    return
            if self.loop.passed - healed_at >= RECOVERY_SECONDS:
                self._outcome.broken.append("rest: writes go on though nothing happens")
                return

    # --- what is seen on the way ------------------------------------------------------------------

    def _begin(self, event: Event) -> None:
        if event.phase is None:
            self._strike(event, "", None)
        else:
            self._armed.append((event, [event.nth]))

    def _note_request(self, request: Request) -> None:
        self._send_laws.see(request)
        key = request.key
        name = key.name or str(request.body.get("metadata", {}).get("name", ""))
        self._reach(request.process, request.phase, key._replace(name=name))

    def _note_call(self, process: str, name: str, phase: Phase | None) -> None:
        self._trace.update(f"{self.loop.passed:.6f} {process} {name}\n".encode())
        self._reach(process, phase)

    def _reach(self, process: str, phase: Phase | None, key: Key | None = None) -> None:
        if phase is None:
            return
        self._reached = self.loop.passed, phase
        for armed in list(self._armed):
            event, left = armed
            if event.phase is phase:
                left[0] -= 1
                # One that cannot happen yet waits for the next time.
                if left[0] <= 0 and self._strike(event, process, key):
                    self._armed.remove(armed)

    def _strike(self, event: Event, process: str, key: Key | None) -> bool:
        """Let a fault happen, to this process and object if they are given; return whether it could."""
        at, phase = self._reached
        if self.loop.passed - at > _PHASE_SECONDS:
            phase = Phase.IDLE
        if not self._trouble.strike(event, process, key):
            return False
        self._outcome.coverage[event.fault, phase] += 1
        self._trace.update(f"{self.loop.passed:.6f} {event.fault}\n".encode())
        return True

    def _note_write(self, request: Request) -> None:
        if request.key.plural != "leases":
            self._last_write_at = self.loop.passed

    def _note_commit(self, change: Change) -> None:
        self._trace.update(f"{self.loop.passed:.6f} {change.version} {change.type} {change.key}\n".encode())
        # A lease carries the time of the real clock.
        if change.key.plural != "leases":
            self._trace.update(change.after.raw)

    def _note_failure(self, _: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # A future whose error is not asked for says nothing; a callback that failed is a fault of the world.
        if "handle" in context:
            self._failures.append(f"the world failed: {error!r}")
