"""When to look at an object again: one instant per key, and growing pauses after refused writes."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# A heap of at most this size is not worth sweeping.
_SMALL_HEAP = 64

# The pause of an object whose write was refused doubles from the first to the last value.
FIRST_REST_SECONDS = 1.0
LAST_REST_SECONDS = 300.0
# With this exponent the last pause has long been reached. A larger one would overflow after days.
_MAX_DOUBLINGS = 16


class Timers(Generic[K]):
    """Holds at most one instant per key. It reads no clock: the caller chooses the unit and the epoch.

    An object is looked at many times before its deadline, and each look sets the same deadline again, so a
    key that is put again replaces its earlier instant.
    """

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        # (instant, sequence, key). An entry whose instant is not that of `_at` is outdated and ignored.
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._at)

    def put(self, key: K, at: float | None) -> None:
        """Set the instant of `key`, which replaces an earlier one; None removes the key."""
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
        """Return the instant of `key`; None if it has none."""
        return self._at.get(key)

    def take_due(self, now: float) -> list[K]:
        """Remove and return the keys whose instant has come, the earliest first."""
        due = []
        # `next_at` drops outdated entries on the way.
        while (at := self.next_at()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            due.append(key)
        return due

    def next_at(self) -> float | None:
        """Return the earliest instant; None if there is none."""
        heap = self._heap
        # `_at` is authoritative: the heap may hold older instants of the same key.
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def clear(self) -> None:
        """Remove all keys."""
        self._at.clear()
        self._heap.clear()

    def _sweep(self) -> None:
        # Keep only current entries: a deadline that moves with every look would fill the heap.
        self._heap = [entry for entry in self._heap if self._at.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)


@dataclass(slots=True)
class _Rest:
    failures: int = 0
    until: float = 0.0


class Backoffs(Generic[K]):
    """Records which objects are left alone because a write on them was refused. Each pause is longer."""

    def __init__(self) -> None:
        self._rests: dict[K, _Rest] = {}
        self._timers: Timers[K] = Timers()

    def __len__(self) -> int:
        return len(self._rests)

    def fail(self, key: K, now: float) -> float:
        """Leave `key` alone and return for how many seconds. A failure during a pause leaves it as is."""
        rest = self._rests.setdefault(key, _Rest())
        # A second failure within the same pause is no further evidence.
        if rest.until <= now:
            doubled = FIRST_REST_SECONDS * 2.0 ** min(rest.failures, _MAX_DOUBLINGS)
            rest.until = now + min(doubled, LAST_REST_SECONDS)
            rest.failures += 1
            self._timers.put(key, rest.until)
        return rest.until - now

    def is_resting(self, key: K, now: float) -> bool:
        """Return whether `key` is to be left alone at `now`."""
        rest = self._rests.get(key)
        return rest is not None and rest.until > now

    def take_due(self, now: float) -> list[K]:
        """Return the keys whose pause has ended since the last call. Their failures still count."""
        return self._timers.take_due(now)

    def next_at(self) -> float | None:
        """Return the earliest end of a pause that `take_due` has not returned yet; None if there is none."""
        return self._timers.next_at()

    def forget(self, key: K) -> None:
        """Reset `key`: a write succeeded, or the object is gone."""
        if self._rests.pop(key, None) is not None:
            self._timers.put(key, None)

    def clear(self) -> None:
        """Reset all keys."""
        self._rests.clear()
        self._timers.clear()
