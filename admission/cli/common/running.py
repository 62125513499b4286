"""Runs asynchronous commands in one event loop: their ready line, and an orderly end by Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
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


def announce(urls: Mapping[str, str]) -> None:
    """Print one line of JSON with the URL of each port by name."""
    # The only line on stdout, unless serving begins again. A caller that set port 0 learns the port from it.
    sys.stdout.write(json.dumps({"event": "listening", **urls}) + "\n")
    sys.stdout.flush()


def serve(service: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run a service to its end; the event that it is given is set by the first Ctrl-C or SIGTERM."""

    async def until_stopped() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _STOPS:
            # Windows has no such handlers; there, Ctrl-C ends the loop by an exception.
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, stop.set)
        await service(stop)

    asyncio.run(until_stopped())
