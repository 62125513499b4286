"""How long the event loop is held up: the longest step between two of its looks at what else is due."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

# A piece of work like that of most steps, and what it takes of a processor that does nothing else.
_ROWS = [{"name": f"w{n}", "namespace": "team", "position": n, "labels": {"a": "b"}} for n in range(600)]
_USUAL_SECONDS = 0.002
# Shorter steps are not worth comparing with it.
_WORTH_SECONDS = 0.01


@dataclass
class Steps:
    """The steps so far. `what` names the callback of the longest one."""

    longest_seconds: float = 0.0
    what: str = ""


@contextmanager
def measured_steps() -> Iterator[Steps]:
    """Measure each step that the event loop of this thread runs, in CPU time of the thread.

    CPU time, because other programs of the machine must not fail a test; nor must a collection that goes
    through what the tests before have left. As other programs take caches and half of a core as well, a step
    counts as much less as the same work is slower right after it.
    """
    steps, run = Steps(), asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        seconds = time.thread_time() - began
        if seconds > _WORTH_SECONDS:
            seconds /= _slowness()
        if seconds > steps.longest_seconds:
            steps.longest_seconds, steps.what = seconds, repr(handle)

    gc.freeze()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", timed)
            yield steps
    finally:
        gc.unfreeze()


def _slowness() -> float:
    """Return how many times longer a known piece of work takes now than usual; 1 on a faster machine."""
    return max(1.0, *(_known_work() / _USUAL_SECONDS for _ in range(3)))


def _known_work() -> float:
    """Return the CPU seconds of that work. It makes no containers, so that no collection begins."""
    began = time.thread_time()
    for _ in range(2):
        json.dumps(_ROWS)
    sorted(_ROWS, key=lambda row: str(row["name"]))
    return time.thread_time() - began
