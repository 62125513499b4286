"""An event loop whose time passes only when there is nothing to do: hours of waiting take milliseconds.

Every timer of the code under test (sleeps, timeouts, probes, rests) runs on the loop's own clock, so nothing
is faked but the clock itself, and equal runs are equal to the last step.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

# As many turns in one stretch of waiting as mean that something spins.
MAX_TURNS = 50_000

# Where wall time starts: whole seconds, as Kubernetes writes them.
EPOCH = 1_800_000_000.0


class _Jump(selectors.SelectSelector):
    """Waits for nothing: it reports to the loop how much time would have passed."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen again: every task waits for another"
        self._loop.turns += 1
        assert self._loop.turns < MAX_TURNS, "something is looked at over and over while nothing happens"
        self._loop.passed += timeout + self._loop.turn_seconds
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; as a `Clock` it serves the code that runs on it."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.turns = 0
        # How long the process waits for a processor in each turn.
        self.turn_seconds = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        """Return the seconds that have passed."""
        return self.passed

    def monotonic(self) -> float:
        """Return the same."""
        return self.passed

    def now(self) -> float:
        """Return Unix seconds."""
        return EPOCH + self.passed

    def run_for(self, seconds: float) -> None:
        """Let everything happen that happens within `seconds`."""
        self.turns = 0
        self.run_until_complete(asyncio.sleep(seconds))


@contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    """Give a loop, and close it with every task that still runs on it."""
    loop = VirtualLoop()
    try:
        yield loop
    finally:
        end(loop)


def end(loop: VirtualLoop) -> None:
    """Cancel what runs, and close."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def run_virtually(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own."""
    with virtual_loop() as loop:
        return loop.run_until_complete(coroutine)
