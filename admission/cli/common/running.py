"""Runs the asynchronous commands: one event loop, and an orderly end by Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_STOPS = (signal.SIGINT, signal.SIGTERM)


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run `work` to its end and return its exit code.

    The first Ctrl-C or SIGTERM cancels it, so that it can clean up, and ends in KeyboardInterrupt; a second
    one does not wait for the cleaning.
    """
    with asyncio.Runner() as runner:
        return runner.run(_until_stopped(work))


async def _until_stopped(work: Coroutine[Any, Any, int]) -> int:
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    stops = 0

    def stop() -> None:
        nonlocal stops
        stops += 1
        if stops > 1:
            raise KeyboardInterrupt
        task.cancel()

    for number in _STOPS:
        # Python's own handler is missing where a shell started us in the background, with SIGINT ignored.
        # Signals reach the main thread only; a command that is run elsewhere does without.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        return await work
    except asyncio.CancelledError:
        if stops:
            raise KeyboardInterrupt from None
        raise
