"""Failpoints: exit at a named step, so that tests can kill the controller at exactly that point.

A failpoint is armed by `--enable-failpoints` and BERTH_FAILPOINT=STEP[:N]. The process exits with
status 137 when STEP is reached for the Nth time (default: the first), without any clean-up, as after
kill -9. STEP:N:stop stops the process instead (SIGSTOP), so that a test can continue a leader that was
suspended past its lease. STEP:N:block never returns, and blocks the event loop.
"""

from __future__ import annotations

import os
import signal
import time
from enum import StrEnum


class Step(StrEnum):
    """The steps at which a failpoint can be set."""

    AFTER_RESERVE = "after-reserve"
    BEFORE_PATCH = "before-patch"
    AFTER_PATCH = "after-patch"
    BEFORE_START = "before-start"
    AFTER_START = "after-start"
    AFTER_CREATE = "after-create"
    AFTER_REQUEST = "after-request"
    AFTER_ASK = "after-ask"
    AFTER_CANCEL = "after-cancel"
    AFTER_EVICT = "after-evict"
    AFTER_STOP = "after-stop"
    AFTER_RELEASE = "after-release"


_MODES = ("", "stop", "block")


class Failpoint:
    """Counts how often one step is reached, and exits, stops or blocks the process at the Nth time."""

    def __init__(self, text: str | None) -> None:
        """Parse `STEP[:N[:stop|block]]`; None or "" arms nothing. Raises ValueError on an unknown step."""
        self.step: Step | None = None
        self.left = 0
        self.mode = ""
        if not text:
            return
        name, _, rest = text.partition(":")
        count, _, mode = rest.partition(":")
        if name not in set(Step) or not (count or "1").isdigit() or mode not in _MODES:
            form, known = "STEP[:N[:stop|block]]", ", ".join(sorted(Step))
            raise ValueError(f"BERTH_FAILPOINT={text!r}: expected {form} with STEP one of {known}")
        self.step, self.left, self.mode = Step(name), int(count or 1), mode

    def reach(self, step: Step) -> None:
        """Record that `step` was reached. Does not return if the failpoint exits the process."""
        if step != self.step or self.left <= 0:
            return
        self.left -= 1
        if self.left:
            return
        match self.mode:
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "block":
                # Longer than any test lasts.
                time.sleep(3600.0)
            case _:
                os._exit(137)
