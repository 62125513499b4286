"""Failpoints: die at a named step, so that tests can kill the controller exactly there.

Armed by `--enable-failpoints` and BERTH_FAILPOINT=STEP[:N]; the process exits with status 137 when STEP is
reached for the Nth time (default the first), without any clean-up, as after kill -9. STEP:N:stop stops it
instead (SIGSTOP), so that a test can continue a leader that has slept past its lease.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum


class Step(StrEnum):
    """Where a failpoint can be set."""

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


class Failpoint:
    """Counts the passes of one step and ends or stops the process at the Nth."""

    def __init__(self, text: str | None) -> None:
        """Parse `STEP[:N[:stop]]`; None or "" arms nothing. Raises ValueError naming the known steps."""
        self.step: Step | None = None
        self.left = 0
        self.is_stop = False
        if not text:
            return
        name, _, rest = text.partition(":")
        count, _, mode = rest.partition(":")
        if name not in set(Step) or not (count or "1").isdigit() or mode not in ("", "stop"):
            known = ", ".join(sorted(Step))
            raise ValueError(f"BERTH_FAILPOINT={text!r}: expected STEP[:N[:stop]] with STEP one of {known}")
        self.step, self.left, self.is_stop = Step(name), int(count or 1), mode == "stop"

    def reach(self, step: Step) -> None:
        """Note that `step` was reached; does not return where the failpoint fires as an exit."""
        if step != self.step or self.left <= 0:
            return
        self.left -= 1
        if self.left:
            return
        if self.is_stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            os._exit(137)
