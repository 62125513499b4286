"""How long a task of the controller may keep the event loop to itself."""

from __future__ import annotations

import asyncio

from admission.controller.runtime.clock import Clock

# The event loop is given back after this long at the latest; lease renewal and watches share it.
SLICE_SECONDS = 0.01


class YieldBudget:
    """Gives the event loop back whenever a slice of time is used up."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = clock.monotonic() + SLICE_SECONDS

    @property
    # Asked at each step: to read the clock costs little beside the smallest of them.
    def is_over(self) -> bool:
        """Whether the slice is used up."""
        return self._clock.monotonic() > self._until

    async def breathe(self) -> bool:
        """Let others have their turn if it is time. Returns whether they had it."""
        if not self.is_over:
            return False
        await asyncio.sleep(0)
        # From after the others' turn: theirs must not count as ours.
        self._until = self._clock.monotonic() + SLICE_SECONDS
        return True
