"""Lanes: writes on one object in order, and which of the objects is served next.

Writes on one object form a *lane* and are sent in order. A lane has the priority of its most urgent order:
first admissions, then what frees quota, then all other writes that start or stop something, then reports
(`priorities`); of one priority the longest waiting first. A write that follows another in its lane is rebuilt
from the answer to the one before, so that the controller never conflicts with itself.

A lane that is served, or pauses between two attempts, is not ready: it has no entry in the heap.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field

from admission.controller.runtime.clock import Clock
from admission.controller.writer.delivery import Delivery
from admission.controller.writer.priorities import Priority
from admission.controller.writer.write_order import Moot, ObjectTarget, Result, WriteOrder, Written

# From when on the lane would be an admission's equal (monotonic seconds), a number, and the lane.
_Entry = tuple[float, int, ObjectTarget]


@dataclass(slots=True)
class Lane:
    """The orders on one object that have not ended."""

    target: ObjectTarget
    orders: deque[WriteOrder] = field(default_factory=deque)
    # The answer to the last write of this lane while more orders wait; b"" if there is none.
    latest: bytes = b""
    # The first order, once it has been tried.
    delivery: Delivery | None = None
    # The priority of its most urgent order, and the entry in the heap; None while it is served or pauses.
    priority: Priority = Priority.REASON
    entry: _Entry | None = None

    def first(self) -> Delivery:
        """Return the first order with what its attempts have met."""
        if self.delivery is None:
            order = self.orders[0]
            # Without `rebuild` it is not known whether the previous order has changed anything.
            latest = self.latest if order.rebuild is not None else b""
            self.delivery = Delivery(order, order.write, latest or _changed(order))
        return self.delivery


class Lanes:
    """All lanes of one term, and a heap of those that are ready."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A lane stays until its last order has ended.
        self._lanes: dict[ObjectTarget, Lane] = {}
        # By priority and age. An entry that is not that of its lane is outdated.
        self._ready: list[_Entry] = []
        self._sequence = itertools.count()
        # How many lanes wait for a place or have one, and do more than report.
        self._acting = 0

    def __len__(self) -> int:
        return len(self._lanes)

    def __contains__(self, target: ObjectTarget) -> bool:
        return target in self._lanes

    @property
    def ready(self) -> int:
        """Return how many entries wait for a place, some of which may be outdated."""
        return len(self._ready)

    @property
    def is_behind(self) -> bool:
        """Return whether lanes that do more than report wait for a place or for their answer."""
        return self._acting > 0

    @property
    def tried(self) -> dict[ObjectTarget, Delivery]:
        """Return the orders that have been tried and have not ended."""
        return {target: lane.delivery for target, lane in self._lanes.items() if lane.delivery is not None}

    def add(self, order: WriteOrder) -> bool:
        """Queue an order behind the others on the same object; return whether its lane became ready."""
        order.queued_at = self._clock.monotonic()
        lane = self._lanes.setdefault(order.target, Lane(order.target))
        lane.orders.append(order)
        # A lane with several orders waits already, unless it has a place or pauses. Its priority may rise: an
        # admission does not wait behind other lanes because of a report before it in its own.
        if len(lane.orders) > 1 and (lane.entry is None or order.priority >= lane.priority):
            return False
        self.make_ready(lane)
        return True

    def make_ready(self, lane: Lane) -> None:
        """Let a lane wait for a place."""
        if lane.entry is not None:
            self._acting -= not lane.priority.is_report
        lane.priority = min(order.priority for order in lane.orders)
        self._acting += not lane.priority.is_report
        lane.entry = self._clock.monotonic() + lane.priority, next(self._sequence), lane.target
        heapq.heappush(self._ready, lane.entry)

    def take(self) -> Lane | None:
        """Give the next entry a place and return its lane, None if it is outdated."""
        entry = heapq.heappop(self._ready)
        lane = self._lanes.get(entry[2])
        if lane is None or lane.entry is not entry:
            return None
        lane.entry = None
        return lane

    def give_up_place(self, lane: Lane) -> None:
        """Note that a lane which was served is so no longer: its order has ended, or it pauses."""
        self._acting -= not lane.priority.is_report

    def end_first(self, lane: Lane, result: Result) -> bool:
        """Drop the first order of a lane, which ended in this way; return whether the lane became ready."""
        lane.orders.popleft()
        lane.delivery = None
        # The next order of this lane is rebuilt from this answer, so it does not conflict with this write.
        lane.latest = result.raw if isinstance(result, Written | Moot) else b""
        if lane.orders:
            self.make_ready(lane)
            return True
        del self._lanes[lane.target]
        return False


def _changed(order: WriteOrder) -> bytes:
    """Return the object as last seen if it has changed while its write waited, b"" otherwise."""
    seen = order.look_up() if order.look_up is not None else None
    # A write on any version stays as it is.
    return seen[1] if seen is not None and order.write.resource_version not in ("", seen[0]) else b""
