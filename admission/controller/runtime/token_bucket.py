"""How often somebody may ask: a bucket of tokens for each, which fills at a steady rate.

Who has asked in the past is forgotten from the least recent on, so that a stranger who comes under a new name
each time costs a bounded amount of memory; a forgotten one finds a full bucket, as a new one does.
"""

from __future__ import annotations

from collections import OrderedDict

MOST_REMEMBERED = 10_000


class TokenBuckets:
    """Buckets of `burst` tokens each, refilled at `per_second`. Instants are monotonic seconds."""

    def __init__(self, *, per_second: float, burst: float, most: int = MOST_REMEMBERED) -> None:
        self._per_second = per_second
        self._burst = burst
        self._most = most
        # Who: what was left, and when.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, *, now: float) -> float:
        """Take one token. Returns 0 where there was one, else in how many seconds there will be."""
        left, at = self._left.get(who, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._per_second
        self._left[who] = (left - 1 if not wait else left, now)
        self._left.move_to_end(who)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return wait
