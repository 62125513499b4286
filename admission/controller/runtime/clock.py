"""The two clocks: wall time for what is written on objects, monotonic time for deadlines and the lease."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the shell reads; the core is handed `now`."""

    def now(self) -> float:
        """Return Unix seconds, UTC. May jump when the host's clock is set."""

    def monotonic(self) -> float:
        """Return seconds that never go back, also while the process is stopped."""


class SystemClock:
    """The clocks of this host."""

    def now(self) -> float:
        """Return time.time()."""
        return time.time()

    def monotonic(self) -> float:
        """Return time.monotonic()."""
        return time.monotonic()
