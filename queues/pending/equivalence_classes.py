"""The classes of equal requests in one pending queue: which are active, which are parked, which are limited.

What does not fit for one Workload of a class does not fit for any of it, so a class is parked and woken as a
whole, in all lanes at once: the quota that it lacks is the ClusterQueue's. Of a *limited* class only those
Workloads are tried that run for less time than one that was refused because it would delay a promised start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from api.reasons import PendingReason
from queues.pending.entries import LocalQueueKey, Pending
from queues.pending.lanes import ClassKey, Lane, ShapeClass
from queues.pending.least_attained import FIRST

# A reason for machines and a message for people.
Reason = tuple[PendingReason, str]
_NO_QUEUE: LocalQueueKey = ("", "")


class EquivalenceClasses:
    """Classes by lane. Each member has a ticket; 0 means that a Workload is in no class."""

    def __init__(self) -> None:
        # With admission fair sharing each LocalQueue is a lane; otherwise there is one lane for all.
        self._by_local_queue = False
        self._lanes: dict[LocalQueueKey, Lane] = {}
        # Why the Workload that was tried for its whole class did not fit; None while no reason is recorded.
        self._parked: dict[ClassKey, Reason | None] = {}
        # The run time in seconds from which on Workloads of a class are not tried, and the
        # reason given to one.
        self._limits: dict[ClassKey, tuple[float, Reason | None]] = {}
        self._tickets = 0

    # --- questions ---------------------------------------------------------------------------------------

    def heads(self) -> list[Pending]:
        """Return the first active Workload of each lane that has one."""
        tops = [lane.peek(self._parked) for lane in self._lanes.values()]
        return [top for top in tops if top is not None]

    def is_parked(self, pending: Pending) -> bool:
        """Return whether a member is parked with its class or excluded by a limit."""
        return class_key(pending) in self._parked or self._is_too_long(pending)

    def reason_of(self, pending: Pending) -> Reason | None:
        """Return the reason recorded for the member's class or limit, None where there is none."""
        # Kept once per class, because thousands of Workloads may wait for one reason.
        key = class_key(pending)
        return self._limits[key][1] if self._is_too_long(pending) else self._parked.get(key)

    def parked_count(self) -> int:
        """Return how many members are parked or excluded by a limit."""
        beyond = sum(class_.beyond_limit() for _, class_ in self._of(self._limits))
        return sum(class_.size for _, class_ in self._of(self._parked)) + beyond

    def groups(self) -> Iterator[tuple[Pending, int, bool]]:
        """Yield for each class and lane the first queued Workload, the size, and whether it is parked."""
        for lane in self._lanes.values():
            for key, class_ in lane.classes.items():
                top = class_.top()
                if top is not None:
                    yield top[5], class_.size, key in self._parked

    # --- changes -----------------------------------------------------------------------------------------

    def add(self, pending: Pending) -> None:
        """Add a Workload. It is parked where its class is."""
        key, name = class_key(pending), self._lane_of(pending)
        # Empty lanes are removed, because each lane is asked for its head in every cycle.
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane()
        self._tickets += 1
        # A new number each time. An older heap entry of the same Workload has an older number and is skipped
        # when it reaches the top.
        pending.ticket = self._tickets
        limit = self._limits[key][0] if key in self._limits else inf
        class_ = lane.add(key, pending, limit=limit)
        # A parked class gets no heap entry, which would only be dropped again.
        if key not in self._parked:
            lane.announce(class_)

    def discard(self, pending: Pending) -> None:
        """Remove a member."""
        key, name = class_key(pending), self._lane_of(pending)
        lane = self._lanes[name]
        lane.discard(key, pending, is_parked=key in self._parked)
        if not lane.classes:
            del self._lanes[name]

    def pop(self) -> Pending | None:
        """Remove and return the first active Workload of the common lane, None where there is none."""
        lane = self._lanes.get(_NO_QUEUE)
        if lane is None:
            return None
        head = lane.pop(self._parked)
        if not lane.classes:
            del self._lanes[_NO_QUEUE]
        return head

    def part(self, *, by_local_queue: bool) -> None:
        """Make each LocalQueue a lane, or all of them one. Parked classes stay parked."""
        lanes, self._lanes = self._lanes, {}
        self._by_local_queue = by_local_queue
        for lane in lanes.values():
            for class_ in lane.classes.values():
                # `add` gives new tickets and rebuilds the heaps. That is acceptable because turning sharing
                # on or off is rare.
                for pending in class_.members():
                    self.add(pending)

    def set_reason(self, pending: Pending, reported: Reason) -> None:
        """Record why a Workload did not fit. While its class is parked, the reason applies to all of it."""
        key = class_key(pending)
        if key in self._parked:
            self._parked[key] = reported
        elif key in self._limits:
            self._limits[key] = self._limits[key][0], reported

    def park(self, pending: Pending) -> None:
        """Park the Workload's class."""
        key = class_key(pending)
        # None until a reason is recorded: an older reason belongs to an older attempt.
        self._parked[key] = None
        for _, class_ in self._of((key,)):
            # This makes the class's entry in the heap stale, so it need not be searched for.
            class_.announced = 0

    def limit(self, pending: Pending) -> None:
        """Try only Workloads of the class that run for less time than this one."""
        key = class_key(pending)
        known, reported = self._limits.get(key, (inf, None))
        # The shortest refused run time counts; a longer one adds nothing.
        if pending.seconds < known:
            self._limits[key] = pending.seconds, reported
            for lane, class_ in self._of((key,)):
                class_.set_limit(pending.seconds)
                class_.announced = 0
                lane.announce(class_)

    def wake(self, is_hopeless: Callable[[Pending], bool] | None) -> bool:
        """Make all classes active whose first Workload is not hopeless. Return whether any became active."""
        # `|` and not `or`, because the second operand must be evaluated in any case.
        moved = bool(self._limits) | self._unpark(is_hopeless)
        limited = list(self._of(self._limits))
        # Cleared before classes get heap entries, so that no member is held to a limit that is gone.
        self._limits.clear()
        for lane, class_ in limited:
            class_.set_limit(inf)
            if class_.key not in self._parked:
                lane.announce(class_)
        return moved

    def validate(self) -> int:
        """Return the number of members. Raises AssertionError where a class has a wrong count."""
        classes = [class_ for lane in self._lanes.values() for class_ in lane.classes.values()]
        for class_ in classes:
            held = sum(1 for _ in class_.members())
            assert held == class_.size, f"a class counts {class_.size} but holds {held}"
        return sum(class_.size for class_ in classes)

    # --- within ------------------------------------------------------------------------------------------

    def _unpark(self, is_hopeless: Callable[[Pending], bool] | None) -> bool:
        """Make parked classes active. Return whether any became active."""
        # Common: this is asked of every queue of a tree, and few of a thousand have anything parked.
        if not self._parked:
            return False
        staying: set[ClassKey] = set()
        waking: set[ClassKey] = set()
        for _, class_ in self._of(self._parked):
            top = class_.top()
            is_staying = is_hopeless is not None and top is not None and is_hopeless(top[5])
            (staying if is_staying else waking).add(class_.key)
        # A class is parked in all lanes at once. Where the first of one lane may fit, the class becomes
        # active in all of them. A class that every lane finds hopeless stays parked and keeps its reason.
        self._parked = {key: reported for key, reported in self._parked.items() if key in staying - waking}
        for lane, class_ in self._of(waking):
            lane.announce(class_)
        return bool(waking)

    def _is_too_long(self, pending: Pending) -> bool:
        """Return whether a limit excludes the Workload because of its run time."""
        limit = self._limits.get(class_key(pending)) if self._limits else None
        return limit is not None and pending.seconds >= limit[0]

    def _lane_of(self, pending: Pending) -> LocalQueueKey:
        return pending.local_queue if self._by_local_queue else _NO_QUEUE

    def _of(self, keys: Iterable[ClassKey]) -> Iterator[tuple[Lane, ShapeClass]]:
        """Yield the classes of these keys that have members, with their lane."""
        # From the keys to the lanes: there are at most as many lanes as LocalQueues, while a
        # lane may have thousands of classes.
        for key in keys:
            for lane in self._lanes.values():
                if key in lane.classes:
                    yield lane, lane.classes[key]


def class_key(pending: Pending) -> ClassKey:
    """Return what identifies a Workload's class.

    A Workload that has waited too long (level FIRST) is always in a class of its own level: while only run
    times prevent its start, no other Workload may pass it.
    """
    level = pending.level if pending.is_apart or pending.level == FIRST else 0
    return pending.workload.priority, level, pending.shape
