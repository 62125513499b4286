"""How long an answer is awaited: time in which this process could have taken it.

A process that gets no processor, or whose event loop is busy with one long step, takes an answer late that
Redis sent in time. asyncio.timeout would then call Redis lost. Here the time is counted in steps, and a step
that begins late counts as one all the same:

    asyncio.timeout    |------------ no processor ------------| over, with the answer unread in the socket
    answer_within      |-- 1 --|-- 2, however late it begins --|-- 3 --|-- 4 --|-- 5 --| over
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# The loop has looked for an answer as many times before it is given up.
_STEPS = 5


@asynccontextmanager
async def answer_within(seconds: float) -> AsyncIterator[None]:
    """Cancel the block and raise TimeoutError after `seconds` in which the event loop ran."""
    async with asyncio.timeout(None) as limit:
        countdown = _Countdown(limit, seconds / _STEPS)
        try:
            yield
        finally:
            countdown.timer.cancel()


class _Countdown:
    """Ends a time limit after `_STEPS` steps of the loop, each at least `seconds` after the one before."""

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._left = _STEPS
        self._loop = asyncio.get_running_loop()
        self.timer = self._loop.call_later(seconds, self._count)

    def _count(self) -> None:
        self._left -= 1
        if self._left:
            self.timer = self._loop.call_later(self._seconds, self._count)
        else:
            # An answer that came in this very turn of the loop is taken first.
            self._limit.reschedule(self._loop.time())
