"""The classes of equal requests in one pending queue: which are tried, which are parked, which are limited.

What does not fit for one of a class does not fit for any of it, so a class is parked and woken as a whole, in
all lanes at once: what it lacks is the ClusterQueue's. Of a *limited* class only those are tried that run for
less than one that was refused because it would delay a promised start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from api.reasons import PendingReason
from queues.pending.entries import LocalQueueKey, Pending
from queues.pending.lanes import ClassKey, Lane, ShapeClass
from queues.pending.least_attained import FIRST

# A reason, for machines, and a message, for people.
Told = tuple[PendingReason, str]
_NO_QUEUE: LocalQueueKey = ("", "")


class EquivalenceClasses:
    """Classes by lane. Each member has a ticket, which is 0 for whoever is in no class."""

    def __init__(self) -> None:
        # Each LocalQueue is a lane where past usage decides between them; else there is one for all.
        self._by_local_queue = False
        self._lanes: dict[LocalQueueKey, Lane] = {}
        # Why the Workload that was tried for all of its class did not fit; None while nobody was told.
        self._parked: dict[ClassKey, Told | None] = {}
        # From which length on a class need not be tried, and what those were told who were tried.
        self._limits: dict[ClassKey, tuple[float, Told | None]] = {}
        self._tickets = 0

    # --- questions ---------------------------------------------------------------------------------------

    def heads(self) -> list[Pending]:
        """Return the first that is to be tried of each lane that has one."""
        tops = [lane.peek(self._parked) for lane in self._lanes.values()]
        return [top for top in tops if top is not None]

    def is_parked(self, pending: Pending) -> bool:
        """Return whether a member need not be tried."""
        return class_key(pending) in self._parked or self._is_too_long(pending)

    def told(self, pending: Pending) -> Told | None:
        # Kept with the class and not with each Workload: thousands wait for one reason.
        """Return what the one was told that was tried for a member that is parked."""
        key = class_key(pending)
        return self._limits[key][1] if self._is_too_long(pending) else self._parked.get(key)

    def parked_count(self) -> int:
        """Return how many need not be tried."""
        beyond = sum(class_.beyond_limit() for _, class_ in self._of(self._limits))
        return sum(class_.size for _, class_ in self._of(self._parked)) + beyond

    def groups(self) -> Iterator[tuple[Pending, int, bool]]:
        """Yield the first queued of each class and lane, how many they are, and whether they are parked."""
        for lane in self._lanes.values():
            for key, class_ in lane.classes.items():
                top = class_.top()
                if top is not None:
                    yield top[5], class_.size, key in self._parked

    # --- changes -----------------------------------------------------------------------------------------

    def add(self, pending: Pending) -> None:
        """Take in a Workload; where its class is parked, it is parked with it."""
        key, name = class_key(pending), self._lane_of(pending)
        # Lanes come and go with their members; an empty one would be asked for its head in every cycle.
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane()
        self._tickets += 1
        # A new number each time: an older heap entry of the same Workload carries the older number,
        # and is passed over when it comes up.
        pending.ticket = self._tickets
        limit = self._limits[key][0] if key in self._limits else inf
        class_ = lane.add(key, pending, limit=limit)
        # A parked class is not announced: its head would come up only to be passed over.
        if key not in self._parked:
            lane.announce(class_)

    def discard(self, pending: Pending) -> None:
        """Let a member go."""
        key, name = class_key(pending), self._lane_of(pending)
        lane = self._lanes[name]
        lane.discard(key, pending, is_parked=key in self._parked)
        if not lane.classes:
            del self._lanes[name]

    def pop(self) -> Pending | None:
        """Take out the first of the one lane there is, None where there is nobody to be tried."""
        lane = self._lanes.get(_NO_QUEUE)
        if lane is None:
            return None
        head = lane.pop(self._parked)
        if not lane.classes:
            del self._lanes[_NO_QUEUE]
        return head

    def part(self, *, by_local_queue: bool) -> None:
        """Let each LocalQueue be a lane from now on, or all of them one. What is parked stays so."""
        lanes, self._lanes = self._lanes, {}
        self._by_local_queue = by_local_queue
        for lane in lanes.values():
            for class_ in lane.classes.values():
                # Tickets are given anew by `add`: a queue that changes over is rare, and
                # its heaps are rebuilt.
                for pending in class_.members():
                    self.add(pending)

    def tell(self, pending: Pending, told: Told) -> None:
        """Keep why a Workload did not fit: while its class is parked, that holds for all of it."""
        key = class_key(pending)
        if key in self._parked:
            self._parked[key] = told
        elif key in self._limits:
            self._limits[key] = self._limits[key][0], told

    def park(self, pending: Pending) -> None:
        """Let nobody of the Workload's class be tried."""
        key = class_key(pending)
        # None until somebody tells why: an older reason is of an older attempt.
        self._parked[key] = None
        for _, class_ in self._of((key,)):
            # Whatever heap entry stands for it is outdated by that, without being searched for.
            class_.announced = 0

    def limit(self, pending: Pending) -> None:
        """Let only those of the Workload's class be tried that run for less than it does."""
        key = class_key(pending)
        known, told = self._limits.get(key, (inf, None))
        # The shortest that was refused; a longer one tells nothing new.
        if pending.seconds < known:
            self._limits[key] = pending.seconds, told
            for lane, class_ in self._of((key,)):
                class_.set_limit(pending.seconds)
                class_.announced = 0
                lane.announce(class_)

    def wake(self, is_hopeless: Callable[[Pending], bool] | None) -> bool:
        """Let all be tried again, except the classes whose first is hopeless. Returns whether any may be."""
        # `|` and not `or`: the second has to happen in any case.
        moved = bool(self._limits) | self._unpark(is_hopeless)
        limited = list(self._of(self._limits))
        # Cleared before classes are announced, so that no member is held to a limit that is gone.
        self._limits.clear()
        for lane, class_ in limited:
            class_.set_limit(inf)
            if class_.key not in self._parked:
                lane.announce(class_)
        return moved

    def validate(self) -> int:
        """Return how many members there are. Raises AssertionError where a class miscounts its own."""
        classes = [class_ for lane in self._lanes.values() for class_ in lane.classes.values()]
        for class_ in classes:
            held = sum(1 for _ in class_.members())
            assert held == class_.size, f"a class counts {class_.size} but holds {held}"
        return sum(class_.size for class_ in classes)

    # --- within ------------------------------------------------------------------------------------------

    def _unpark(self, is_hopeless: Callable[[Pending], bool] | None) -> bool:
        """Let parked classes be tried again. Returns whether any may be."""
        staying: set[ClassKey] = set()
        waking: set[ClassKey] = set()
        for _, class_ in self._of(self._parked):
            top = class_.top()
            is_staying = is_hopeless is not None and top is not None and is_hopeless(top[5])
            (staying if is_staying else waking).add(class_.key)
        # A class is parked in all lanes at once: where the first of one lane may fit, all are tried.
        # Only those that every lane finds hopeless stay, and what they were told stays with them.
        self._parked = {key: told for key, told in self._parked.items() if key in staying - waking}
        for lane, class_ in self._of(waking):
            lane.announce(class_)
        return bool(waking)

    def _is_too_long(self, pending: Pending) -> bool:
        """Return whether one as long was refused for a promise, so that it need not be tried."""
        limit = self._limits.get(class_key(pending)) if self._limits else None
        return limit is not None and pending.seconds >= limit[0]

    def _lane_of(self, pending: Pending) -> LocalQueueKey:
        return pending.local_queue if self._by_local_queue else _NO_QUEUE

    # From few keys to lanes, of which there are as many as LocalQueues at the most; the classes of
    # a lane may be thousands.
    def _of(self, keys: Iterable[ClassKey]) -> Iterator[tuple[Lane, ShapeClass]]:
        """Yield the classes of these keys that have members, by lane."""
        for key in keys:
            for lane in self._lanes.values():
                if key in lane.classes:
                    yield lane, lane.classes[key]


def class_key(pending: Pending) -> ClassKey:
    """Return what a Workload's class is known by.

    Who has waited too long is always told from others: nobody passes it while only run times are in its way.
    """
    level = pending.level if pending.is_apart or pending.level == FIRST else 0
    return pending.workload.priority, level, pending.shape
