"""Runs the asynchronous commands in one event loop, with an orderly end by Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_STOPS = (signal.SIGINT, signal.SIGTERM)


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run `work` to its end and return its exit code.

    The first Ctrl-C or SIGTERM cancels it, so that it can clean up, and raises KeyboardInterrupt afterwards.
    A second one does not wait for the cleanup.
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
        # A shell that starts the process in the background ignores SIGINT, and Python then installs no
        # handler. Signals reach only the main thread, so a command in another thread runs without handlers.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        return await work
    except asyncio.CancelledError:
        if stops:
            raise KeyboardInterrupt from None
        raise
