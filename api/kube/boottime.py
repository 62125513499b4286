"""The clock by which a lease runs: it goes on while the machine is suspended, unlike the monotonic clock.

On Linux CLOCK_MONOTONIC stops during a suspend, and with it a lease would: a leader that wakes up after an
hour would believe that it holds its lease, and write. Timers of asyncio run on that clock too, so they are
late after a suspend. What must not be late reads this clock before it acts.
"""

from __future__ import annotations

import time

# macOS has no such clock: there CLOCK_MONOTONIC itself counts the time of a suspend.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime() -> float:
    """Return the seconds since a fixed instant, the time included in which the machine was suspended."""
    return time.clock_gettime(_CLOCK)
