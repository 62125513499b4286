"""Lanes of a pending queue: Workloads that are tried in one order, equal ones as one class.

Within a lane the order never changes by itself (priority, level, queue timestamp, uid), so it is kept as
heaps:

    lane ──▶ class (priority 200, 8 GPUs) ──▶ w1, w7, w9        heap by queue timestamp
         ──▶ class (priority 100, 1 GPU)  ──▶ w2, w3

As a rule a ClusterQueue is one lane. With admission fair sharing each of its LocalQueues is one: whose turn
it is moves with every admission and every sample, so that is asked when a head is wanted, of a few lanes,
rather than sorted in again for every Workload, as Kueue does.

Heap entries that no longer hold (their Workload left, or changed) stay until they surface, or are swept when
too many. A class that is parked stays out of its lane's heap; who is parked is the queue's to know.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import heapify, heappop, heappush, heapreplace

from api.workload import WorkloadKey
from queues.entries import Pending

# Heaps below this size are not worth sweeping.
_SMALL_HEAP = 64

# Priority, level and shape: what does not fit for one of a class fits for none of it.
ClassKey = tuple[int, int, bytes]
_Entry = tuple[float, str, WorkloadKey, int, Pending]


class ShapeClass:
    """Workloads of one priority, level and shape, the first queued on top."""

    __slots__ = ("announced", "entries", "key", "size")

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        # The ticket under which the class stands in the lane's heap; 0: it does not.
        self.announced = 0
        self.entries: list[_Entry] = []
        self.size = 0

    def add(self, pending: Pending) -> None:
        """Take in a Workload under the ticket that it has been given."""
        workload = pending.workload
        heappush(self.entries, (pending.place_at, workload.uid, workload.key, pending.ticket, pending))
        self.size += 1

    def discard(self, pending: Pending) -> None:
        """Let a member go."""
        pending.ticket = 0
        self.size -= 1
        if len(self.entries) > max(_SMALL_HEAP, 2 * self.size):
            self.entries = [entry for entry in self.entries if entry[4].ticket == entry[3]]
            heapify(self.entries)

    def top(self) -> _Entry | None:
        """Return the entry of the first queued, None where nobody is left."""
        entries = self.entries
        while entries and entries[0][4].ticket != entries[0][3]:
            heappop(entries)
        return entries[0] if entries else None

    def pop(self) -> None:
        """Let the first go, who must be on top."""
        *_, pending = heappop(self.entries)
        pending.ticket = 0
        self.size -= 1

    def members(self) -> Iterator[Pending]:
        """Return all, in no order."""
        return (entry[4] for entry in self.entries if entry[4].ticket == entry[3])


class Lane:
    """Classes in one order, and the heap of their first."""

    __slots__ = ("_ready", "classes")

    def __init__(self) -> None:
        self.classes: dict[ClassKey, ShapeClass] = {}
        self._ready: list[tuple[int, int, float, str, WorkloadKey, int, ShapeClass]] = []

    def add(self, key: ClassKey, pending: Pending) -> ShapeClass:
        """Put a Workload into its class and return that."""
        class_ = self.classes.get(key)
        if class_ is None:
            class_ = self.classes[key] = ShapeClass(key)
        class_.add(pending)
        return class_

    def discard(self, key: ClassKey, pending: Pending, *, is_parked: bool) -> None:
        """Take a Workload out of its class; the next of it may be first in the lane."""
        class_ = self.classes[key]
        top = class_.top()
        was_top = top is not None and top[4] is pending
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
        class_.pop()
        if class_.size == 0:
            heappop(self._ready)
            del self.classes[class_.key]
            return first
        top = class_.top()
        assert top is not None, "a class with members has a first"
        class_.announced = top[3]
        priority, level, _ = class_.key
        heapreplace(self._ready, (-priority, level, top[0], top[1], top[2], top[3], class_))
        return first

    def announce(self, class_: ShapeClass) -> None:
        """Let the heap know the class by its present first, unless it does already."""
        top = class_.top()
        if top is None or top[3] == class_.announced:
            return
        class_.announced = top[3]
        if len(self._ready) > max(_SMALL_HEAP, 4 * len(self.classes)):
            self._ready = [entry for entry in self._ready if entry[6].announced == entry[5]]
            heapify(self._ready)
        priority, level, _ = class_.key
        heappush(self._ready, (-priority, level, top[0], top[1], top[2], top[3], class_))

    def peek(self, parked: Container[ClassKey]) -> Pending | None:
        """Return the first of those whose class is not parked, None where there is none."""
        while self._ready:
            *_, ticket, class_ = self._ready[0]
            top = None if class_.key in parked else class_.top()
            if top is not None and top[3] == ticket:
                return top[4]
            heappop(self._ready)
            if class_.announced == ticket:
                class_.announced = 0
        return None
