"""How long a task of the controller may run before it yields the event loop."""

from __future__ import annotations

import asyncio

from admission.controller.runtime.clock import Clock

# The event loop is yielded after this time at the latest: lease renewal and watches share it.
SLICE_SECONDS = 0.01


class YieldBudget:
    """Yields the event loop whenever a slice of time is used up."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = clock.monotonic() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        """Return whether the slice is used up. Cheap enough to be asked at every step."""
        return self._clock.monotonic() > self._until

    async def yield_if_due(self) -> bool:
        """Yield the event loop if the slice is used up. Return whether it was yielded."""
        if not self.is_over:
            return False
        await asyncio.sleep(0)
        # The new slice begins after the other tasks have run: their time does not count.
        self._until = self._clock.monotonic() + SLICE_SECONDS
        return True
