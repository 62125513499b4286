"""How long the event loop is held up: the longest step between two of its looks at what else is due."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest


@dataclass
class Steps:
    """The steps so far. `what` names the callback of the longest one."""

    longest_seconds: float = 0.0
    what: str = ""


@contextmanager
def measured_steps() -> Iterator[Steps]:
    """Measure each step that the event loop of this thread runs, in CPU time of the thread.

    CPU time, because other programs of the machine must not fail a test; nor must a collection that goes
    through what the tests before have left.
    """
    steps, run = Steps(), asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        seconds = time.thread_time() - began
        if seconds > steps.longest_seconds:
            steps.longest_seconds, steps.what = seconds, repr(handle)

    gc.freeze()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", timed)
            yield steps
    finally:
        gc.unfreeze()
