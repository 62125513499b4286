"""Rate limits per client: each client has a bucket of tokens that fills at a steady rate.

The least recently seen clients are forgotten, so that a client with a new name for each request uses a
bounded amount of memory. A forgotten client gets a full bucket, like a new one.
"""

from __future__ import annotations

from collections import OrderedDict

MOST_REMEMBERED = 10_000


class TokenBuckets:
    """Buckets of `burst` tokens each, refilled at `per_second`. Times are monotonic seconds."""

    def __init__(self, *, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        # By client: the tokens that were left, and at which time.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, *, now: float) -> float:
        """Take one token. Return 0 if there was one, else in how many seconds there will be one."""
        left, at = self._left.get(who, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._per_second
        self._left[who] = (left - 1 if not wait else left, now)
        self._left.move_to_end(who)
        if len(self._left) > MOST_REMEMBERED:
            self._left.popitem(last=False)
        return wait
