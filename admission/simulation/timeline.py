"""The virtual clock's schedule: a heap of calls, ordered by time and then by when they were planned."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf


class Timeline:
    """Calls with the times at which to make them. A call must not be planned in the past."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0

    @property
    def next_at(self) -> float:
        """Return the time of the next call, infinity without one."""
        return self._calls[0][0] if self._calls else inf

    def plan(self, at: float, call: Callable[[], None]) -> None:
        """Schedule `call` for the time `at`."""
        self._planned += 1
        heappush(self._calls, (at, self._planned, call))

    def run_until(self, now: float) -> None:
        """Make every call that is due at `now`, including those that these calls add."""
        while self._calls and self._calls[0][0] <= now:
            heappop(self._calls)[2]()
