"""Calls about decisions whose writes were refused, each to be made after a pause.

An admission and an eviction of the same Workload may be decided on the same version, where the admission has
no answer yet. They are two decisions: what becomes of one says nothing of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from admission.controller.runtime.timers import Timers
from admission.decisions.decision import DecisionId

Call = Callable[[], None]


class PostponedCalls:
    """The calls, by decision and whether that is an admission. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._due: Timers[tuple[DecisionId, bool]] = Timers()
        self._calls: dict[tuple[DecisionId, bool], Call] = {}

    def put(self, decision: DecisionId, call: Call, *, at: float, is_admission: bool) -> None:
        """Have a call made from then on. Only the latest call about a decision is made."""
        self._due.put((decision, is_admission), at)
        self._calls[decision, is_admission] = call

    def next_at(self) -> float | None:
        """Return when the first call is due; None if there is none."""
        return self._due.next_at()

    def take_due(self, now: float) -> Iterator[Call]:
        """Yield the calls that are due, and forget them."""
        for decision in self._due.take_due(now):
            yield self._calls.pop(decision)

    def clear(self) -> None:
        """Forget all calls."""
        self._due.clear()
        self._calls.clear()
