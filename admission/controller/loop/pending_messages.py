"""Why Workloads wait, and when each is told.

A reason is told once it has held for a moment: most Workloads of a busy queue get their quota within it, and
a write to each of them would cost more than the admissions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.timers import Timers
from admission.decisions.decision import Decision, Plan, Wait
from api.workload import WorkloadKey

# A Workload that gets its quota within this time is never told why it waited.
TELL_AFTER_SECONDS = 1.0
# How long a new wording of a reason that was told waits before the next try to write it.
REWORD_AFTER_SECONDS = 60.0


class PendingMessages:
    """The latest reason of each Workload that has yet to be told one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[WorkloadKey, Wait] = {}
        self._timers: Timers[WorkloadKey] = Timers()

    def clear(self) -> None:
        """Owe nobody a reason."""
        self._waits.clear()
        self._timers.clear()

    def seconds_to_next(self) -> float | None:
        """Return how long until somebody is to be told, or None."""
        at = self._timers.next_at()
        return None if at is None else at - self._clock.monotonic()

    def collect(self, decisions: Sequence[Decision]) -> None:
        """Take note of a cycle: who waits has a reason, who does not wait any more has none."""
        for decision in decisions:
            if isinstance(decision, Wait):
                self._waits[decision.key] = decision
                self.tell_in(decision, TELL_AFTER_SECONDS)
            elif not isinstance(decision, Plan):
                # A Plan says when, not why not: whoever is promised a start still waits for its reason.
                self._waits.pop(decision.key, None)
                self._timers.put(decision.key, None)

    def tell_in(self, decision: Wait, seconds: float) -> None:
        """Tell in so many seconds, or earlier where that was planned already: the latest word."""
        at, planned = self._clock.monotonic() + seconds, self._timers.at(decision.key)
        self._waits.setdefault(decision.key, decision)
        self._timers.put(decision.key, at if planned is None else min(at, planned))

    def take_due(self) -> Iterator[Wait]:
        """Yield those that are to be told now, each once."""
        for key in self._timers.take_due(self._clock.monotonic()):
            if (decision := self._waits.pop(key, None)) is not None:
                yield decision
