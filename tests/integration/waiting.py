"""Waiting for what must happen: a probe is asked until it answers, or a deadline says what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# What must happen within a second or two on a free machine gets this long on a busy one.
PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.05


def wait_for(
    probe: Callable[[], Found | None],
    what: str | Callable[[], str],
    *,
    timeout_seconds: float = PATIENCE_SECONDS,
) -> Found:
    """Return the first answer of `probe` that is true: what is empty, or none so far, is not there yet.

    Raises AssertionError naming `what` when there was none in time, asked then where it has to look; what the
    probe raises passes through.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            missing = what if isinstance(what, str) else what()
            raise AssertionError(f"not seen in {timeout_seconds:.0f} s: {missing}")
        time.sleep(_PAUSE_SECONDS)
