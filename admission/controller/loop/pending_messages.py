"""Why Workloads wait, and when each reason is reported.

A reason is reported once it has held for a moment. Most Workloads of a busy queue are admitted within that
time, and a write on each of them would cost more than the admissions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.timers import Timers
from admission.decisions.decision import Decision, Plan, Wait
from api.workload import WorkloadKey

# A Workload that is admitted within this time never gets a wait reason.
TELL_AFTER_SECONDS = 1.0
# How long a new message for a reason that was reported waits before the next attempt to write it.
REWORD_AFTER_SECONDS = 60.0


class PendingMessages:
    """The latest reason of each Workload whose reason has yet to be reported."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[WorkloadKey, Wait] = {}
        self._timers: Timers[WorkloadKey] = Timers()

    def clear(self) -> None:
        """Drop all reasons."""
        self._waits.clear()
        self._timers.clear()

    def seconds_to_next(self) -> float | None:
        """Return in how many seconds the next reason is due; None if there is none."""
        at = self._timers.next_at()
        return None if at is None else at - self._clock.monotonic()

    def collect(self, decisions: Sequence[Decision]) -> None:
        """Take the decisions of a cycle: a Wait sets the Workload's reason, an Admit or Evict removes it."""
        for decision in decisions:
            if isinstance(decision, Wait):
                self._waits[decision.key] = decision
                self.report_in(decision, TELL_AFTER_SECONDS)
            elif not isinstance(decision, Plan):
                # A Plan says when a Workload will start, not why it waits, so its reason stays.
                self._waits.pop(decision.key, None)
                self._timers.put(decision.key, None)

    def report_in(self, decision: Wait, seconds: float) -> None:
        """Report the latest reason in `seconds`, or earlier if that was planned already."""
        at, planned = self._clock.monotonic() + seconds, self._timers.at(decision.key)
        self._waits.setdefault(decision.key, decision)
        self._timers.put(decision.key, at if planned is None else min(at, planned))

    def take_due(self) -> Iterator[Wait]:
        """Yield the reasons that are due now, each once."""
        for key in self._timers.take_due(self._clock.monotonic()):
            if (decision := self._waits.pop(key, None)) is not None:
                yield decision
