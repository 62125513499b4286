"""Lanes of a pending queue: Workloads that are tried in one order, equal ones as one class.

Within a lane the order never changes by itself (priority, level, queue timestamp, uid), so it is kept as
heaps:

    lane ──▶ class (priority 200, 8 GPUs) ──▶ w1, w7, w9        heap by level and queue timestamp
         ──▶ class (priority 100, 1 GPU)  ──▶ w2, w3

Where the shortest goes first nearly every Workload has a level of its own. It orders them then and no more;
only where somebody may give way to one level and not to another is each level a class.

As a rule a ClusterQueue is one lane. With admission fair sharing each of its LocalQueues is one: whose turn
it is moves with every admission and every sample, so that is asked when a head is wanted, of a few lanes,
rather than sorted in again for every Workload, as Kueue does.

Heap entries that no longer hold (their Workload left, or changed) stay until they surface, or are swept when
too many. A class that is parked stays out of its lane's heap; who is parked is the queue's to know.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from math import inf, log2

from api.workload import WorkloadKey
from queues.pending.entries import Pending

# Heaps below this size are not worth sweeping.
_SMALL_HEAP = 64
# Of those that run for ever, as far as anybody knows.
_LAST_BUCKET = 10_000

# Priority, level as far as it matters, and shape: what does not fit for one of a class fits for none of it.
ClassKey = tuple[int, int, bytes]
_Entry = tuple[int, float, str, WorkloadKey, int, Pending]


class ByAge:
    """Entries by level and age, the first on top; those that no longer hold are left behind."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.size = 0

    def add(self, entry: _Entry) -> None:
        """Put an entry in."""
        heappush(self.entries, entry)
        self.size += 1

    def discard(self) -> None:
        """Take note that an entry, whose ticket has been taken, no longer holds."""
        self.size -= 1
        if len(self.entries) > max(_SMALL_HEAP, 2 * self.size):
            # The ticket tells an entry that holds: a Workload gets a new one each time it is put
            # in, 0 where it is out.
            self.entries = [entry for entry in self.entries if entry[5].ticket == entry[4]]
            heapify(self.entries)

    def top(self) -> _Entry | None:
        """Return the first that holds, None where none is left."""
        entries = self.entries
        while entries and entries[0][5].ticket != entries[0][4]:
            heappop(entries)
        return entries[0] if entries else None

    def holding(self) -> Iterator[_Entry]:
        """Return all that hold, in no order."""
        return (entry for entry in self.entries if entry[5].ticket == entry[4])


class ShapeClass:
    """Workloads of one priority and shape, and of one level where levels are told apart; the first on top.

    With a `limit` only those that run for less than so many seconds count: one that long has been refused
    because it would be in the way of a promise. They are found by buckets of like lengths, each by age:

        limit 500 s      32–63 s ──▶ w4     64–127 s ──▶ w2, w8     …     256–511 s ──▶ w1 (480 s), w5 (510 s)
                         top             top                              searched one by one

    The buckets are made when a limit is set for the first time, so that queues without backfill have none.
    """

    __slots__ = ("_all", "_by_length", "_first", "announced", "key", "limit")

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        # The ticket under which the class stands in the lane's heap; 0: it does not.
        self.announced = 0
        self.limit = inf
        self._all = ByAge()
        self._by_length: dict[int, ByAge] | None = None
        # What the last search below the limit found, where nothing has changed since.
        self._first: tuple[_Entry | None] | None = None

    @property
    def size(self) -> int:
        """How many there are."""
        return self._all.size

    def add(self, pending: Pending) -> None:
        """Take in a Workload under the ticket that it has been given."""
        workload = pending.workload
        entry = (pending.level, pending.place_at, workload.uid, workload.key, pending.ticket, pending)
        # `pending` itself is never compared: key and ticket come before it.
        self._all.add(entry)
        self._first = None
        if self._by_length is not None:
            self._by_length.setdefault(_bucket(pending.seconds), ByAge()).add(entry)

    def discard(self, pending: Pending) -> None:
        """Let a member go."""
        pending.ticket = 0
        self._all.discard()
        self._first = None
        # With no bucket left over for lengths that nobody has, a search looks at few.
        if self._by_length is not None:
            bucket = self._by_length[_bucket(pending.seconds)]
            bucket.discard()
            if not bucket.size:
                del self._by_length[_bucket(pending.seconds)]

    def top(self) -> _Entry | None:
        """Return the entry of the first queued below the limit, None where nobody is left."""
        if self.limit == inf:
            return self._all.top()
        # A search that found nobody holds until somebody comes; one that found somebody,
        # until that one leaves.
        if self._first is None or (self._first[0] is not None and not _holds(self._first[0])):
            self._first = (self._first_below(self.limit),)
        return self._first[0]

    def set_limit(self, seconds: float) -> None:
        """Let only those count that run for less; infinity: all."""
        self.limit = seconds
        self._first = None
        if seconds < inf and self._by_length is None:
            self._by_length = {}
            for entry in self._all.holding():
                self._by_length.setdefault(_bucket(entry[5].seconds), ByAge()).add(entry)

    def beyond_limit(self) -> int:
        """Return how many do not count at present."""
        if self.limit == inf:
            return 0
        return sum(1 for entry in self._all.holding() if entry[5].seconds >= self.limit)

    def members(self) -> Iterator[Pending]:
        """Return all, in no order."""
        return (entry[5] for entry in self._all.holding())

    def _first_below(self, limit: float) -> _Entry | None:
        assert self._by_length is not None, "made when the limit was set"
        last = _bucket(limit)
        tops = [one.top() for number, one in self._by_length.items() if number < last]
        found = [top for top in tops if top is not None]
        # Lengths on both sides of the limit share this bucket, so its members are looked at one by one.
        border = self._by_length.get(last)
        if border is not None:
            found += [entry for entry in border.holding() if entry[5].seconds < limit]
        return min(found, default=None)


def _bucket(seconds: float) -> int:
    """Return the bucket of a length: two for each doubling."""
    return int(2 * log2(max(1.0, seconds))) if seconds < inf else _LAST_BUCKET


def _holds(entry: _Entry) -> bool:
    return entry[5].ticket == entry[4]


class Lane:
    """Classes in one order, and the heap of their first."""

    __slots__ = ("_ready", "classes")

    def __init__(self) -> None:
        self.classes: dict[ClassKey, ShapeClass] = {}
        self._ready: list[tuple[int, int, float, str, WorkloadKey, int, ShapeClass]] = []

    def add(self, key: ClassKey, pending: Pending, *, limit: float = inf) -> ShapeClass:
        """Put a Workload into its class and return that. `limit` is that of the class, should it be new."""
        class_ = self.classes.get(key)
        if class_ is None:
            class_ = self.classes[key] = ShapeClass(key)
            if limit < inf:
                class_.set_limit(limit)
        class_.add(pending)
        return class_

    def discard(self, key: ClassKey, pending: Pending, *, is_parked: bool) -> None:
        """Take a Workload out of its class; the next of it may be first in the lane."""
        class_ = self.classes[key]
        # Asked before it goes: afterwards nobody can say whether it stood for the class in the heap.
        top = class_.top()
        was_top = top is not None and top[5] is pending
        class_.discard(pending)
        if class_.size == 0:
            del self.classes[key]
        elif was_top and not is_parked:
            self.announce(class_)

    def pop(self, parked: Container[ClassKey]) -> Pending | None:
        """Take out the first of those whose class is not parked, None where there is none.

        Its class stands on top of the heap then, and what follows it there is put in the same step.
        """
        first = self.peek(parked)
        if first is None:
            return None
        class_ = self._ready[0][-1]
        class_.discard(first)
        # The class's place in the heap is taken over by its next: one step, not a pop and a push.
        if class_.size == 0:
            heappop(self._ready)
            del self.classes[class_.key]
            return first
        top = class_.top()
        if top is None:
            # Those that are left do not count at present.
            heappop(self._ready)
            class_.announced = 0
            return first
        class_.announced = top[4]
        heapreplace(self._ready, (-class_.key[0], *top[:5], class_))
        return first

    def announce(self, class_: ShapeClass) -> None:
        """Let the heap know the class by its present first, unless it does already."""
        # The ticket of the first is the class's in the heap: equal, and nothing has changed there.
        top = class_.top()
        if top is None or top[4] == class_.announced:
            return
        class_.announced = top[4]
        if len(self._ready) > max(_SMALL_HEAP, 4 * len(self.classes)):
            self._ready = [entry for entry in self._ready if entry[6].announced == entry[5]]
            heapify(self._ready)
        heappush(self._ready, (-class_.key[0], *top[:5], class_))

    def peek(self, parked: Container[ClassKey]) -> Pending | None:
        """Return the first of those whose class is not parked, None where there is none."""
        while self._ready:
            *_, ticket, class_ = self._ready[0]
            # A parked class is dropped from the heap; waking it announces it again.
            top = None if class_.key in parked else class_.top()
            if top is not None and top[4] == ticket:
                return top[5]
            heappop(self._ready)
            # Only the entry by which the class is known now: an older one that surfaces says nothing of it.
            if class_.announced == ticket:
                class_.announced = 0
        return None
