"""The two clocks: wall-clock time for what objects show, monotonic time for deadlines and the lease."""

from __future__ import annotations

import time
from typing import Protocol

from api.kube.boottime import boottime


class Clock(Protocol):
    """Reads the time for the shell. The core never reads a clock: it is given `now`."""

    def now(self) -> float:
        """Return Unix seconds, UTC. May jump when the host's clock is set."""

    def monotonic(self) -> float:
        """Return seconds that never go back and that go on while process or machine are suspended."""


class SystemClock:
    """The clocks of this host."""

    def now(self) -> float:
        """Return time.time()."""
        return time.time()

    def monotonic(self) -> float:
        """Return the clock of the lease, so that the instants of both compare."""
        return boottime()
