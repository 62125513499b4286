"""What happens when on the virtual clock: a heap of calls, in order of time and then of planning."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf


class Timeline:
    """Calls to be made at instants. Nothing may be planned before the present one."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0

    @property
    def next_at(self) -> float:
        """The instant of the next call, infinity without one."""
        return self._calls[0][0] if self._calls else inf

    def plan(self, at: float, call: Callable[[], None]) -> None:
        """Let `call` be made at `at`."""
        self._planned += 1
        heappush(self._calls, (at, self._planned, call))

    def run_until(self, now: float) -> None:
        """Make every call that is due."""
        while self._calls and self._calls[0][0] <= now:
            heappop(self._calls)[2]()
