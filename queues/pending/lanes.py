"""Lanes of a pending queue: Workloads tried in one order, with equal requests grouped into classes.

Within a lane the order never changes by itself (priority, level, queue timestamp, uid), so it is kept as
heaps:

    lane ──▶ class (priority 200, 8 GPUs) ──▶ w1, w7, w9        heap by level and queue timestamp
         ──▶ class (priority 100, 1 GPU)  ──▶ w2, w3

Where the shortest Workload goes first, nearly every Workload has a level of its own. The level then
only orders them. Only where a Workload may preempt one level and not another does each level form a
class of its own.

As a rule a ClusterQueue has one lane. With admission fair sharing each of its LocalQueues is a lane. Which of
them is next changes with every admission and every sample, so the few lanes are compared when a head is
wanted, while Kueue sorts every Workload again.

Stale heap entries, whose Workload left or changed, stay until they reach the top, or are removed together
when there are too many. A parked class is not in its lane's heap; the queue knows which classes are parked.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from math import inf, log2

from api.workload import WorkloadKey
from queues.pending.entries import Pending

# Smaller heaps are not cleaned of stale entries.
_SMALL_HEAP = 64
# The bucket of Workloads without a known run time.
_LAST_BUCKET = 10_000

# Priority, level where it matters, and shape: what does not fit for one of a class fits for none of it.
ClassKey = tuple[int, int, bytes]
_Entry = tuple[int, float, str, WorkloadKey, int, Pending]


class ByAge:
    """Entries by level and age, the first on top. Stale entries are removed lazily."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.size = 0

    def add(self, entry: _Entry) -> None:
        """Add an entry."""
        heappush(self.entries, entry)
        self.size += 1

    def discard(self) -> None:
        """Record that one entry, whose Workload has another ticket by now, is stale."""
        self.size -= 1
        if len(self.entries) > max(_SMALL_HEAP, 2 * self.size):
            # An entry is valid while its ticket is the Workload's: a Workload gets a new ticket each time it
            # is added, and 0 when it is removed.
            self.entries = [entry for entry in self.entries if entry[5].ticket == entry[4]]
            heapify(self.entries)

    def top(self) -> _Entry | None:
        """Return the first valid entry, None where there is none."""
        entries = self.entries
        while entries and entries[0][5].ticket != entries[0][4]:
            heappop(entries)
        return entries[0] if entries else None

    def holding(self) -> Iterator[_Entry]:
        """Return all valid entries, in no particular order."""
        return (entry for entry in self.entries if entry[5].ticket == entry[4])


class ShapeClass:
    """Workloads of one priority and shape, and of one level where levels matter; the first on top.

    With a `limit` only Workloads that run for less than so many seconds count, because one of that length
    would delay a promised start. They are found in buckets of similar run time, each ordered by age:

        limit 500 s      32–63 s ──▶ w4     64–127 s ──▶ w2, w8     …     256–511 s ──▶ w1 (480 s), w5 (510 s)
                         top             top                              searched one by one

    The buckets are made when a limit is first set, so queues without backfill have none.
    """

    __slots__ = ("_all", "_by_length", "_first", "announced", "key", "limit")

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        # The ticket of the class's entry in the lane's heap; 0 where it has none.
        self.announced = 0
        self.limit = inf
        self._all = ByAge()
        self._by_length: dict[int, ByAge] | None = None
        # The result of the last search below the limit, while it is valid.
        self._first: tuple[_Entry | None] | None = None

    @property
    def size(self) -> int:
        """How many Workloads there are."""
        return self._all.size

    def add(self, pending: Pending) -> None:
        """Add a Workload under the ticket that it has been given."""
        workload = pending.workload
        entry = (pending.level, pending.place_at, workload.uid, workload.key, pending.ticket, pending)
        # Entries never compare `pending`, because key and ticket come before it and are unique.
        self._all.add(entry)
        self._first = None
        if self._by_length is not None:
            self._by_length.setdefault(_bucket(pending.seconds), ByAge()).add(entry)

    def discard(self, pending: Pending) -> None:
        """Remove a member."""
        pending.ticket = 0
        self._all.discard()
        self._first = None
        # Empty buckets are removed, so that a search looks at few.
        if self._by_length is not None:
            bucket = self._by_length[_bucket(pending.seconds)]
            bucket.discard()
            if not bucket.size:
                del self._by_length[_bucket(pending.seconds)]

    def top(self) -> _Entry | None:
        """Return the entry of the first queued Workload below the limit, None where there is none."""
        if self.limit == inf:
            return self._all.top()
        # A search without a result is valid until a Workload is added, any other until its result is stale.
        if self._first is None or (self._first[0] is not None and not _holds(self._first[0])):
            self._first = (self._first_below(self.limit),)
        return self._first[0]

    def set_limit(self, seconds: float) -> None:
        """Count only Workloads that run for less than `seconds`; infinity: all."""
        self.limit = seconds
        self._first = None
        if seconds < inf and self._by_length is None:
            self._by_length = {}
            for entry in self._all.holding():
                self._by_length.setdefault(_bucket(entry[5].seconds), ByAge()).add(entry)

    def beyond_limit(self) -> int:
        """Return how many Workloads the limit excludes."""
        if self.limit == inf:
            return 0
        return sum(1 for entry in self._all.holding() if entry[5].seconds >= self.limit)

    def members(self) -> Iterator[Pending]:
        """Return all Workloads, in no particular order."""
        return (entry[5] for entry in self._all.holding())

    def _first_below(self, limit: float) -> _Entry | None:
        assert self._by_length is not None, "made when the limit was set"
        last = _bucket(limit)
        tops = [one.top() for number, one in self._by_length.items() if number < last]
        found = [top for top in tops if top is not None]
        # The limit falls into this bucket, so its members are checked one by one.
        border = self._by_length.get(last)
        if border is not None:
            found += [entry for entry in border.holding() if entry[5].seconds < limit]
        return min(found, default=None)


def _bucket(seconds: float) -> int:
    """Return the bucket of a run time: two buckets for each doubling."""
    return int(2 * log2(max(1.0, seconds))) if seconds < inf else _LAST_BUCKET


def _holds(entry: _Entry) -> bool:
    return entry[5].ticket == entry[4]


class Lane:
    """Classes in one order, and a heap of their first Workloads."""

    __slots__ = ("_ready", "classes")

    def __init__(self) -> None:
        self.classes: dict[ClassKey, ShapeClass] = {}
        self._ready: list[tuple[int, int, float, str, WorkloadKey, int, ShapeClass]] = []

    def add(self, key: ClassKey, pending: Pending, *, limit: float = inf) -> ShapeClass:
        """Add a Workload to its class and return the class. `limit` applies to a class that is new."""
        class_ = self.classes.get(key)
        if class_ is None:
            class_ = self.classes[key] = ShapeClass(key)
            if limit < inf:
                class_.set_limit(limit)
        class_.add(pending)
        return class_

    def discard(self, key: ClassKey, pending: Pending, *, is_parked: bool) -> None:
        """Remove a Workload from its class. The next one of the class may become first in the lane."""
        class_ = self.classes[key]
        # Read before the removal: afterwards the entry no longer shows whether it was the
        # class's in the heap.
        top = class_.top()
        was_top = top is not None and top[5] is pending
        class_.discard(pending)
        if class_.size == 0:
            del self.classes[key]
        elif was_top and not is_parked:
            self.announce(class_)

    def pop(self, parked: Container[ClassKey]) -> Pending | None:
        """Remove and return the first Workload whose class is not parked, None where there is none.

        The heap entry of the class is replaced by that of its next Workload in the same step.
        """
        first = self.peek(parked)
        if first is None:
            return None
        class_ = self._ready[0][-1]
        class_.discard(first)
        # The next of the class takes over its entry: one heap operation, not a pop and a push.
        if class_.size == 0:
            heappop(self._ready)
            del self.classes[class_.key]
            return first
        top = class_.top()
        if top is None:
            # The limit excludes the remaining Workloads.
            heappop(self._ready)
            class_.announced = 0
            return first
        class_.announced = top[4]
        heapreplace(self._ready, (-class_.key[0], *top[:5], class_))
        return first

    def announce(self, class_: ShapeClass) -> None:
        """Add an entry for the class's present first Workload to the heap, unless it is there already."""
        # A class's entry carries the ticket of its first Workload, so equal tickets mean no change.
        top = class_.top()
        if top is None or top[4] == class_.announced:
            return
        class_.announced = top[4]
        if len(self._ready) > max(_SMALL_HEAP, 4 * len(self.classes)):
            self._ready = [entry for entry in self._ready if entry[6].announced == entry[5]]
            heapify(self._ready)
        heappush(self._ready, (-class_.key[0], *top[:5], class_))

    def peek(self, parked: Container[ClassKey]) -> Pending | None:
        """Return the first Workload whose class is not parked, None where there is none."""
        while self._ready:
            entry = self._ready[0]
            ticket, class_ = entry[5], entry[6]
            # The entry of a parked class is dropped; waking the class adds it again.
            top = None if class_.key in parked else class_.top()
            if top is not None and top[4] == ticket:
                return top[5]
            heappop(self._ready)
            # Only the present entry of the class is recorded; a stale one that surfaces changes nothing.
            if class_.announced == ticket:
                class_.announced = 0
        return None
