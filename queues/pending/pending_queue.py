"""The pending Workloads of one ClusterQueue: which is next, which are parked, what makes them active.

A Workload is *active* (it will be tried) or *parked* (it was tried and did not fit, or its back-off runs;
Kueue calls this inadmissible). Workloads with equal requests and equal priority form one class: what does not
fit for one of them does not fit for any, so a class is parked and woken as a whole:

    ready heap ──▶ class (priority 200, 8 GPUs) ──▶ w1, w7, w9        heap by queue timestamp
               ──▶ class (priority 100, 1 GPU)  ──▶ w2, w3
    limited    ──▶ class (priority 100, 2 GPUs) ──▶ w10 (60 s)       w3 (900 s) would delay a promised start:
                                                                      only shorter ones are tried
    parked     ──▶ class (priority 100, 8 GPUs) ──▶ w4, w5, w6
               ──▶ w8                                                 alone: backs off until 12:05

Kueue keeps one heap of Workloads and moves each of them; with thousands queued, every finished Workload would
then cost thousands of moves. Here it costs one per class, and the order is the same (`queues.pending.lanes`).

With admission fair sharing the Workloads of the LocalQueue with the least past usage go first, whatever their
priority. Between LocalQueues of equal usage, and within one, the usual order applies. A class is parked in
all LocalQueues at once, because the quota that it lacks is the ClusterQueue's.

StrictFIFO never parks its head, so nothing behind it is tried; BestEffortFIFO parks it and tries the next.
Source: Kueue, pkg/cache/queue/cluster_queue.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import inf

from api.queueing import QueueingStrategy
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from queues.pending.entries import FlavorScan, LocalQueueKey, Pending, retry_at
from queues.pending.equivalence_classes import EquivalenceClasses, Told, class_key
from queues.pending.lanes import ClassKey
from queues.pending.requeuing import FOR_A_PROMISE, RequeueCause, is_immediate, is_of_whole_class

__all__ = ["FlavorScan", "LocalQueueKey", "Pending", "PendingQueue", "RequeueCause", "UsageOf", "retry_at"]


# The past usage of a LocalQueue, see `queues.pending.admission_fair_sharing`.
UsageOf = Callable[[LocalQueueKey], float]


class PendingQueue:
    """The pending Workloads of one ClusterQueue. One task owns it; it reads no clock."""

    def __init__(self, name: str, strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> None:
        self.name = name
        self.strategy = strategy
        # The Workload that evicted others and waits for their quota, and its generation then.
        self.preemptor: WorkloadKey | None = None
        self.preemptor_generation = 0
        # Workloads for which capacity is held, and their generations then. The queue goes on while they wait.
        self._kept: dict[WorkloadKey, int] = {}
        # Those of them that are to be tried again.
        self._ahead: dict[WorkloadKey, Pending] = {}
        self._members: dict[WorkloadKey, Pending] = {}
        # The head that is being decided on. Queries still report it as pending, but it is in no bucket.
        self._in_flight: Pending | None = None
        self._usage_of: UsageOf | None = None
        self._classes = EquivalenceClasses()
        # Workloads parked individually, not with their class.
        self._parked: dict[WorkloadKey, Pending] = {}
        self._retries: list[tuple[float, int, Pending]] = []
        # How often a Workload was held back for a promised start since capacity last came free.
        self.held_back = 0
        self._sequence = 0
        self._pop_cycle = 0
        self._wake_cycle = -1

    # --- questions ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._members) + (self._in_flight is not None)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._members or (self._in_flight is not None and self._in_flight.key == key)

    def get(self, key: WorkloadKey) -> Pending | None:
        """Return the Workload's entry, None where it is not pending here."""
        return self._members.get(key)

    def head(self) -> WorkloadKey | None:
        """Return the Workload to be tried next, None where there is none."""
        head = self._peek()
        return head.key if head is not None else None

    def told(self, key: WorkloadKey) -> Told | None:
        """Return the reason that was given for the Workload's whole class or limit, None without one."""
        pending = self._members.get(key)
        if pending is None or pending.ticket == 0:
            return None
        return self._classes.told(pending)

    @property
    def pop_cycle(self) -> int:
        """How many times a head was popped. Flavor scans are dated by it."""
        return self._pop_cycle

    @property
    def parked_count(self) -> int:
        """How many Workloads are parked."""
        return len(self._parked) + self._classes.parked_count()

    @property
    def active_count(self) -> int:
        """How many Workloads are active."""
        return len(self) - self.parked_count

    def is_parked(self, key: WorkloadKey) -> bool:
        """Return whether the Workload is pending here and parked."""
        pending = self._members.get(key)
        return pending is not None and self._is_parked(pending)

    def is_preemptor(self, pending: Pending) -> bool:
        """Return whether Workloads were evicted for this one, which has not changed since.

        Either the queue waits for their quota, or capacity is held for it.
        """
        workload = pending.workload
        if self._kept.get(workload.key) == workload.generation:
            return True
        return self.preemptor == workload.key and self.preemptor_generation == workload.generation

    def in_order(self) -> list[Pending]:
        """Return all Workloads, parked ones included, in the order in which they would be tried now.

        With admission fair sharing every admission changes this order.
        """
        in_flight = () if self._in_flight is None else (self._in_flight,)
        return sorted((*in_flight, *self._members.values()), key=self._order(self._sticky()))

    def groups(self) -> Iterator[tuple[Pending, int, bool]]:
        """Yield the Workloads as groups of equal requests: the first queued, their number, whether parked.

        A group costs one step, whatever its size.
        """
        yield from self._classes.groups()
        for pending in self._parked.values():
            yield pending, 1, True
        if self._in_flight is not None:
            yield self._in_flight, 1, False

    @property
    def has_retries(self) -> bool:
        """Whether any back-off may be running."""
        return bool(self._retries)

    def next_retry_at(self) -> float | None:
        """Return the earliest end of a back-off, None where none is running."""
        # A heap entry may be stale: the Workload has left, or has a new back-off. Stale entries are dropped
        # when they reach the top.
        while self._retries and not self._is_due_later(self._retries[0][2], self._retries[0][0]):
            heappop(self._retries)
        return self._retries[0][0] if self._retries else None

    # --- changes -----------------------------------------------------------------------------------------

    def tell(self, pending: Pending, told: Told) -> None:
        """Record why a Workload did not fit. While its class is parked, the reason applies to all of it."""
        self._classes.tell(pending, told)

    def share_by(self, usage_of: UsageOf | None) -> None:
        """Order by the past usage of LocalQueues from now on; None: without regard to LocalQueues."""
        # Only turning sharing on or off rebuilds the lanes. Another function for the same usage does not
        # change how they are divided.
        has_changed = (usage_of is None) != (self._usage_of is None)
        self._usage_of = usage_of
        if has_changed:
            self._classes.part(by_local_queue=usage_of is not None)

    def offer(self, pending: Pending, *, now: float) -> bool:
        """Add a Workload, or update it. Return whether that changed what will be tried.

        A parked Workload stays parked unless something changed that could make it fit.
        """
        key = pending.key
        old = self._members.get(key)
        if old is None:
            return self._place(pending, now=now)
        if self._is_parked(old):
            if not _may_fit_now(old, pending):
                # Checked before the position: a mere status write must not activate a parked
                # Workload, or every condition would.
                old.workload = pending.workload
                return False
        elif _position(old) == _position(pending):
            old.workload, old.requests, old.problem = pending.workload, pending.requests, pending.problem
            return False
        # With an equal shape, the flavor scan is still valid and the next search continues from it.
        if old.shape == pending.shape:
            pending.scan = old.scan
        self._take_out(old)
        self._place(pending, now=now)
        return True

    def discard(self, key: WorkloadKey) -> bool:
        """Remove a Workload that is no longer pending. Return whether it was here."""
        pending = self._members.get(key)
        if pending is None:
            return False
        self._take_out(pending)
        self.forgive(key)
        return True

    def pop(self) -> Pending | None:
        """Remove and return the head, None where nothing is to be tried.

        A BestEffortFIFO queue returns the Workload that preempted others first, until it
        is admitted or replaced.
        """
        self._pop_cycle += 1
        # The common case needs no order across lanes: with one lane the classes know their first Workload.
        if self._usage_of is None and self.preemptor is None and not self._ahead:
            head = self._classes.pop()
            if head is not None:
                del self._members[head.key]
        else:
            head = self._peek()
            if head is not None:
                self._take_out(head)
        self._in_flight = head
        return head

    def put_back(self, pending: Pending) -> None:
        """Put a popped Workload back without a decision, as if it had not been popped."""
        self._in_flight = None
        # The pop is not counted either; otherwise a wake in between would look older than it is.
        self._pop_cycle -= 1
        self._members[pending.key] = pending
        self._classes.add(pending)
        if pending.key in self._kept:
            self._ahead[pending.key] = pending

    def has_head(self) -> bool:
        """Return whether anything is to be tried."""
        # Any Workload will do: finding the first of dozens with held capacity would look at all of them.
        return (
            self._active_sticky() is not None
            or bool(self._classes.heads())
            or any(not self._is_parked(one) for one in self._ahead.values())
        )

    def note_admitted(self, key: WorkloadKey) -> None:
        """Record that a popped Workload has its quota. What was freed for it is in use.

        If it is evicted later, it returns without the precedence of a preemptor.
        """
        self._in_flight = None
        self.forgive(key)

    def owe(self, workload: Workload) -> None:
        """Record that others were evicted for a Workload that is pending here, so it comes first.

        No effect where another Workload already has that place.
        """
        if self.preemptor is None:
            self.preemptor, self.preemptor_generation = workload.key, workload.generation

    def keep_for(self, workload: Workload) -> None:
        """Record that capacity is held for a Workload: it comes first among those of its priority.

        There may be many such Workloads, because the queue does not wait for them.
        """
        self._kept[workload.key] = workload.generation

    def forgive(self, key: WorkloadKey) -> None:
        """Record that no capacity is held for a Workload any more. It loses its precedence."""
        self._kept.pop(key, None)
        self._ahead.pop(key, None)
        if self.preemptor == key:
            self.preemptor = None

    def requeue(self, pending: Pending, reason: RequeueCause, *, now: float) -> bool:
        """Put a popped Workload back after a decision. Return whether it was parked.

        It stays active if its failure is temporary, if the queue was woken while it was tried, or if flavors
        remain to be tried.
        Source: Kueue, cluster_queue.go, requeueIfNotPresent.
        """
        self._in_flight = None
        self._remember_preemptor(pending, reason)
        is_backing_off = pending.retry_at > now
        # Counted in every case: the number shows how much trying promised starts have cost.
        self.held_back += reason in FOR_A_PROMISE
        self._members[pending.key] = pending
        if not is_backing_off and self._is_to_be_tried(pending, reason):
            self._classes.add(pending)
            self._put_ahead(pending)
            return False
        # It runs too long to finish before a promised start. Shorter Workloads of its class may fit, so the
        # class is limited and not parked.
        if reason is RequeueCause.TOO_LONG and pending.seconds < inf and not is_backing_off:
            self._classes.limit(pending)
            self._classes.add(pending)
            return True
        is_whole_class = is_of_whole_class(reason, self.strategy)
        # It is added to its class first, so that it is parked and woken together with it.
        if is_whole_class and not is_backing_off:
            self._classes.add(pending)
        else:
            self._park(pending)
        if is_whole_class:
            self._classes.park(pending)
        return True

    def wake(
        self,
        *,
        now: float,
        may_enter: Callable[[Workload], bool],
        is_hopeless: Callable[[Pending], bool] | None = None,
    ) -> bool:
        """Make parked Workloads that may enter active again, after capacity came free.

        A class stays parked where `is_hopeless` says so of its first Workload, without a trial. Return
        whether anything became active.
        """
        # A Workload in flight was decided on with what was known before; `requeue` reads this.
        self._wake_cycle = self._pop_cycle
        self.held_back = 0
        moved = self._classes.wake(is_hopeless)
        # A copy, because the loop removes members.
        for pending in list(self._parked.values()):
            if pending.retry_at <= now and may_enter(pending.workload):
                del self._parked[pending.key]
                self._classes.add(pending)
                if pending.key in self._kept:
                    self._ahead[pending.key] = pending
                moved = True
        return moved

    def release_due(self, *, now: float) -> bool:
        """Make Workloads active whose back-off has ended. Return whether there were any."""
        moved = False
        while self._retries and self._retries[0][0] <= now:
            at, _, pending = heappop(self._retries)
            # The Workload may have left or have a later back-off, which has an entry of its own.
            if self._is_due_later(pending, at):
                del self._parked[pending.key]
                moved |= self._place(pending, now=now)
        return moved

    def validate(self) -> None:
        """Raise AssertionError where the indexes disagree, such as for a member in no bucket or in two."""
        for key, pending in self._members.items():
            in_class = pending.ticket != 0
            alone = key in self._parked
            assert in_class != alone, f"{self.name}: {key} is in {int(in_class) + int(alone)} buckets, not 1"
        for key, pending in self._ahead.items():
            is_here = key in self._kept and self._members.get(key) is pending
            assert is_here, f"{self.name}: {key} comes first, but is not pending or has no held capacity"
        held = self._classes.validate()
        assert held + len(self._parked) == len(self._members), f"{self.name}: classes hold {held}"

    # --- within ------------------------------------------------------------------------------------------

    def _sticky(self) -> WorkloadKey | None:
        # StrictFIFO needs no such rule: its head stays the head.
        return self.preemptor if self.strategy is QueueingStrategy.BEST_EFFORT_FIFO else None

    def _is_parked(self, pending: Pending) -> bool:
        return pending.ticket == 0 or self._classes.is_parked(pending)

    def _is_to_be_tried(self, pending: Pending, reason: RequeueCause) -> bool:
        """Return whether a popped Workload stays active. `_wake_cycle` shows a wake while it was tried."""
        if is_immediate(pending, reason, self.strategy) or self._wake_cycle >= self._pop_cycle:
            return True
        return pending.scan is not None and pending.scan.has_flavors_left

    def _is_due_later(self, pending: Pending, at: float) -> bool:
        return self._parked.get(pending.key) is pending and pending.retry_at == at

    def _peek(self) -> Pending | None:
        sticky = self._active_sticky()
        # With sharing, past usage takes precedence over the preemptor, so that is compared with the heads.
        if sticky is not None and self._usage_of is None:
            return sticky
        heads = self._classes.heads()
        # Added individually: of a class only its first Workload is a head.
        heads += (one for one in self._ahead.values() if not self._is_parked(one))
        # It may be among the heads already, which does not affect the minimum.
        if sticky is not None:
            heads.append(sticky)
        if len(heads) < 2:
            return heads[0] if heads else None
        return min(heads, key=self._order(sticky.key if sticky is not None else None))

    def _order(self, sticky: WorkloadKey | None) -> Callable[[Pending], _Order]:
        """Return the sort key: past usage, preemptor, priority, held capacity, level, age, uid.

        Source: Kueue, pkg/cache/queue/cluster_queue.go, queueOrderingFunc.
        """
        usage_of = self._usage_of

        def order(pending: Pending) -> _Order:
            workload = pending.workload
            usage = usage_of(pending.local_queue) if usage_of is not None else 0.0
            is_behind = pending.key != sticky
            is_owed_nothing = pending.key not in self._kept
            rank = -workload.priority, is_owed_nothing, pending.level, pending.place_at, workload.uid
            return usage, is_behind, *rank, pending.key

        return order

    def _active_sticky(self) -> Pending | None:
        sticky = self._sticky()
        pending = self._members.get(sticky) if sticky is not None else None
        return pending if pending is not None and not self._is_parked(pending) else None

    def _place(self, pending: Pending, *, now: float) -> bool:
        self._members[pending.key] = pending
        if pending.retry_at > now:
            self._park(pending)
            return False
        self._classes.add(pending)
        self._put_ahead(pending)
        return not self._is_parked(pending)

    def _put_ahead(self, pending: Pending) -> None:
        """Give a Workload with held capacity its precedence, unless it is parked individually."""
        if pending.key in self._kept and pending.key not in self._parked:
            self._ahead[pending.key] = pending

    def _park(self, pending: Pending) -> None:
        pending.ticket = 0
        self._parked[pending.key] = pending
        # Without a known end the Workload waits for an event, not for the clock.
        if 0 < pending.retry_at < inf:
            self._sequence += 1
            heappush(self._retries, (pending.retry_at, self._sequence, pending))

    def _take_out(self, pending: Pending) -> None:
        del self._members[pending.key]
        self._ahead.pop(pending.key, None)
        if self._parked.pop(pending.key, None) is not None:
            return
        self._classes.discard(pending)

    def _remember_preemptor(self, pending: Pending, reason: RequeueCause) -> None:
        if reason is RequeueCause.PENDING_PREEMPTION:
            self.preemptor = pending.key
            self.preemptor_generation = pending.workload.generation
        # It was tried and preempted none this time, so it loses its precedence.
        elif self.preemptor == pending.key:
            self.preemptor = None


_Order = tuple[float, bool, int, bool, int, float, str, WorkloadKey]


def _rank(pending: Pending) -> tuple[ClassKey, int, float, str, LocalQueueKey]:
    return class_key(pending), pending.level, pending.place_at, pending.workload.uid, pending.local_queue


def _position(pending: Pending) -> object:
    """Return everything that determines where an active Workload is found."""
    return _rank(pending), pending.retry_at, pending.seconds


def _may_fit_now(old: Pending, new: Pending) -> bool:
    """Return whether the change could make a parked Workload fit, or changes its position."""
    before, after = old.workload, new.workload
    return (
        _position(old) != _position(new)
        or before.generation != after.generation
        or old.problem != new.problem
        or before.reclaimable != after.reclaimable
        or before.open_gates != after.open_gates
        or any(
            before.conditions.get(type_) != after.conditions.get(type_)
            for type_ in (ConditionType.EVICTED, ConditionType.REQUEUED)
        )
    )
