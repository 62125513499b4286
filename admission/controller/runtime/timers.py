"""When to look at what again: one instant a key, and the growing rests of what was refused."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# Heaps below this size are not worth sweeping.
_SMALL_HEAP = 64

# The rest of an object whose write was refused doubles from the first to the last.
FIRST_REST_SECONDS = 1.0
LAST_REST_SECONDS = 300.0
# Beyond this exponent the last rest has long been reached; a larger one would overflow after days.
_MAX_DOUBLINGS = 16


class Timers(Generic[K]):
    """At most one instant a key. It reads no clock: instants are whatever the caller counts in.

    An object is looked at many times before its deadline, and each look asks for the same one again; so a
    key is kept once, however often it is put.
    """

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        # (instant, sequence, key); an entry that the table no longer confirms is passed over.
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._at)

    def put(self, key: K, at: float | None) -> None:
        """Look at `key` when the instant has come, and no longer at another; None: not at all."""
        if self._at.get(key) == at:
            return
        if at is None:
            self._at.pop(key, None)
            return
        self._at[key] = at
        self._sequence += 1
        heapq.heappush(self._heap, (at, self._sequence, key))
        if len(self._heap) > max(_SMALL_HEAP, 2 * len(self._at)):
            self._sweep()

    def at(self, key: K) -> float | None:
        """Return the instant of `key`, None where it has none."""
        return self._at.get(key)

    def take_due(self, now: float) -> list[K]:
        """Return the keys whose instant has come, the earliest first, and cross them off."""
        due = []
        # Entries that are outdated are dropped by `next_at` on the way.
        while (at := self.next_at()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            due.append(key)
        return due

    def next_at(self) -> float | None:
        """Return the earliest instant, None where there is none."""
        heap = self._heap
        # The table says what counts; the heap may hold older instants of the same key.
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def clear(self) -> None:
        """Cross off everything."""
        self._at.clear()
        self._heap.clear()

    def _sweep(self) -> None:
        # Only what the table confirms: a deadline that moves at every look would fill the heap.
        self._heap = [entry for entry in self._heap if self._at.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)


@dataclass(slots=True)
class _Rest:
    failures: int = 0
    until: float = 0.0


class Backoffs(Generic[K]):
    """Which objects are left alone for a while, because a write on them was refused; each time for longer."""

    def __init__(self) -> None:
        self._rests: dict[K, _Rest] = {}
        self._timers: Timers[K] = Timers()

    def __len__(self) -> int:
        return len(self._rests)

    def fail(self, key: K, now: float) -> float:
        """Leave `key` alone and return for how many seconds. One that rests already rests no longer by it."""
        rest = self._rests.setdefault(key, _Rest())
        # A second failure within the same rest is no further proof.
        if rest.until <= now:
            doubled = FIRST_REST_SECONDS * 2.0 ** min(rest.failures, _MAX_DOUBLINGS)
            rest.until = now + min(doubled, LAST_REST_SECONDS)
            rest.failures += 1
            self._timers.put(key, rest.until)
        return rest.until - now

    def is_resting(self, key: K, now: float) -> bool:
        """Return whether `key` is to be left alone."""
        rest = self._rests.get(key)
        return rest is not None and rest.until > now

    def take_due(self, now: float) -> list[K]:
        """Return whose rest is over since the last call; what failed before is not forgotten by that."""
        return self._timers.take_due(now)

    def next_at(self) -> float | None:
        """Return the earliest end of a rest that `take_due` has not told of."""
        return self._timers.next_at()

    def forget(self, key: K) -> None:
        """Take note that a write succeeded, or that the object is gone."""
        if self._rests.pop(key, None) is not None:
            self._timers.put(key, None)

    def clear(self) -> None:
        """Forget all failures."""
        self._rests.clear()
        self._timers.clear()
