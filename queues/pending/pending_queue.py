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
from dataclasses import dataclass
from math import inf

from api.queueing import QueueingStrategy
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from queues.pending.entries import FlavorScan, LocalQueueKey, Pending, retry_at
from queues.pending.equivalence_classes import EquivalenceClasses, Reason, class_key
from queues.pending.lanes import ClassKey
from queues.pending.members import Members
from queues.pending.parked_alone import ParkedAlone
from queues.pending.precedence import Precedence, UsageOf
from queues.pending.requeuing import FOR_A_PROMISE, RequeueCause, is_immediate, is_of_whole_class

__all__ = ["FlavorScan", "LocalQueueKey", "Pending", "PendingQueue", "RequeueCause", "UsageOf", "retry_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStatistics:
    """How many Workloads of a queue are active, with the one that is being decided on, and parked."""

    active: int
    parked: int


class PendingQueue:
    """The pending Workloads of one ClusterQueue. One task owns it; it reads no clock.

    It adds its name to `backing_off` when a back-off begins, and leaves it to the owner to remove it.
    """

    def __init__(
        self,
        name: str,
        strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO,
        *,
        backing_off: set[str] | None = None,
    ) -> None:
        self.name = name
        self.strategy = strategy
        self.precedence = Precedence()
        self.parked_alone = ParkedAlone(name, backing_off if backing_off is not None else set())
        self._classes = EquivalenceClasses()
        self.members = Members(self._classes, self.parked_alone)
        # The head that is being decided on. Queries still report it as pending, but it is no member.
        self._in_flight: Pending | None = None
        self._usage_of: UsageOf | None = None
        # How often a Workload was held back for a promised start since capacity last came free.
        self.held_back = 0
        # Capacity came free in its cohort and no head was requeued since: its next heads may start, too, so
        # what they leave is not known yet.
        self.may_start_more = False
        # How many times a head was popped. Flavor scans are dated by it.
        self.pop_cycle = 0
        self._wake_cycle = -1

    # --- questions ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.members) + (self._in_flight is not None)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self.members or (self._in_flight is not None and self._in_flight.key == key)

    def head(self) -> WorkloadKey | None:
        """Return the Workload to be tried next, None where there is none."""
        head = self._peek()
        return head.key if head is not None else None

    def has_head(self) -> bool:
        """Return whether anything is to be tried."""
        # Any Workload will do: finding the first of dozens with held capacity would look at all of them.
        return (
            self._active_sticky() is not None
            or bool(self._classes.heads())
            or any(self.members.is_active(one) for one in self.precedence.ahead.values())
        )

    def is_active(self, key: WorkloadKey) -> bool:
        """Return whether the Workload is here and to be tried."""
        pending = self.members.get(key)
        return pending is not None and self.members.is_active(pending)

    def statistics(self) -> PendingStatistics:
        """Return how many Workloads are active, and how many are parked."""
        parked = self.members.parked_count()
        return PendingStatistics(active=len(self) - parked, parked=parked)

    def in_order(self) -> list[Pending]:
        """Return all Workloads, parked ones included, in the order in which they would be tried now.

        With admission fair sharing every admission changes this order.
        """
        in_flight = () if self._in_flight is None else (self._in_flight,)
        order = self.precedence.order(self._sticky(), self._usage_of)
        return sorted((*in_flight, *self.members.values()), key=order)

    def groups(self) -> Iterator[tuple[Pending, int, bool]]:
        """Yield the Workloads as groups of equal requests: the first queued, their number, whether parked.

        A group costs one step, whatever its size.
        """
        yield from self.members.groups()
        if self._in_flight is not None:
            yield self._in_flight, 1, False

    # --- changes -----------------------------------------------------------------------------------------

    def share_by(self, usage_of: UsageOf | None) -> None:
        """Order by the past usage of LocalQueues from now on; None: without regard to LocalQueues."""
        # Only turning sharing on or off rebuilds the lanes. Another function for the same usage does not
        # change how they are divided.
        has_changed = (usage_of is None) != (self._usage_of is None)
        self._usage_of = usage_of
        if has_changed:
            self._classes.part(by_local_queue=usage_of is not None)

    def push_or_update(self, pending: Pending, *, now: float) -> bool:
        """Add a Workload, or update it. Return whether that changed what will be tried.

        A parked Workload stays parked unless something changed that could make it fit.
        """
        key = pending.key
        old = self.members.get(key)
        if old is None:
            return self._place(pending, now=now)
        if not self.members.is_active(old):
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
        pending = self.members.get(key)
        if pending is None:
            return False
        self._take_out(pending)
        self.precedence.end_hold(key)
        return True

    def pop(self) -> Pending | None:
        """Remove and return the head, None where nothing is to be tried.

        A BestEffortFIFO queue returns the Workload that preempted others first, until it
        is admitted or replaced.
        """
        self.pop_cycle += 1
        # The common case needs no order across lanes: with one lane the classes know their first Workload.
        if self._usage_of is None and self.precedence.preemptor is None and not self.precedence.ahead:
            head = self.members.pop()
        else:
            head = self._peek()
            if head is not None:
                self._take_out(head)
        self._in_flight = head
        self.may_start_more = self.may_start_more and head is not None
        return head

    def pop_member(self, key: WorkloadKey) -> Pending | None:
        """Remove and return this Workload as if it were the head, None where it is not to be tried."""
        pending = self.members.get(key)
        if pending is None or not self.members.is_active(pending):
            return None
        self.pop_cycle += 1
        self._take_out(pending)
        self._in_flight = pending
        return pending

    def put_back(self, pending: Pending) -> None:
        """Put a popped Workload back without a decision, as if it had not been popped."""
        self._in_flight = None
        # The pop is not counted either; otherwise a wake in between would look older than it is.
        self.pop_cycle -= 1
        self._activate(pending)

    def note_admitted(self, key: WorkloadKey) -> None:
        """Record that a popped Workload has its quota. What was freed for it is in use.

        If it is evicted later, it returns without the precedence of a preemptor.
        """
        self._in_flight = None
        self.precedence.end_hold(key)

    def requeue(
        self, pending: Pending, cause: RequeueCause, *, now: float, reported: Reason | None = None
    ) -> bool:
        """Put a popped Workload back after a decision. Return whether it was parked.

        It stays active if its failure is temporary, if the queue was woken while it was tried, or if flavors
        remain to be tried. `reported` is why it did not fit, which applies to all of its class while that is
        parked.
        Source: Kueue, cluster_queue.go, requeueIfNotPresent.
        """
        self._in_flight = None
        self.may_start_more = False
        self.precedence.note_tried(pending, cause)
        # Counted in every case: the number shows how much trying promised starts have cost.
        self.held_back += cause in FOR_A_PROMISE
        is_backing_off = pending.retry_at > now
        is_parked = is_backing_off or not self._is_to_be_tried(pending, cause)
        if is_parked:
            self._park(pending, cause, is_backing_off=is_backing_off)
        else:
            self._activate(pending)
        if reported is not None:
            self._classes.set_reason(pending, reported)
        return is_parked

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
        self._wake_cycle = self.pop_cycle
        self.held_back = 0
        moved = self._classes.wake(is_hopeless)
        for pending in self.parked_alone.take(now=now, may_enter=may_enter):
            self._activate(pending)
            moved = True
        return moved

    def release_due(self, *, now: float) -> bool:
        """Make Workloads active whose back-off has ended. Return whether there were any."""
        moved = False
        for pending in self.parked_alone.take_due(now=now):
            moved |= self._place(pending, now=now)
        return moved

    def validate(self) -> None:
        """Raise AssertionError where a member is in no bucket or in two, or comes first without a reason."""
        self.members.validate()
        self.precedence.validate(self.members)

    # --- within ------------------------------------------------------------------------------------------

    def _sticky(self) -> WorkloadKey | None:
        # StrictFIFO needs no such rule: its head stays the head.
        return self.precedence.preemptor if self.strategy is QueueingStrategy.BEST_EFFORT_FIFO else None

    def _active_sticky(self) -> Pending | None:
        sticky = self._sticky()
        pending = self.members.get(sticky) if sticky is not None else None
        return pending if pending is not None and self.members.is_active(pending) else None

    def _peek(self) -> Pending | None:
        sticky = self._active_sticky()
        # With sharing, past usage takes precedence over the preemptor, so that is compared with the heads.
        if sticky is not None and self._usage_of is None:
            return sticky
        heads = self._classes.heads()
        # Added individually: of a class only its first Workload is a head.
        heads += (one for one in self.precedence.ahead.values() if self.members.is_active(one))
        # It may be among the heads already, which does not affect the minimum.
        if sticky is not None:
            heads.append(sticky)
        if len(heads) < 2:
            return heads[0] if heads else None
        order = self.precedence.order(sticky.key if sticky is not None else None, self._usage_of)
        return min(heads, key=order)

    def _is_to_be_tried(self, pending: Pending, cause: RequeueCause) -> bool:
        """Return whether a popped Workload stays active. `_wake_cycle` shows a wake while it was tried."""
        if is_immediate(pending, cause, self.strategy) or self._wake_cycle >= self.pop_cycle:
            return True
        return pending.scan is not None and pending.scan.has_flavors_left

    def _place(self, pending: Pending, *, now: float) -> bool:
        """Add a Workload. Return whether it is active: neither its back-off runs nor is its class parked."""
        if pending.retry_at > now:
            self.members.park(pending)
            return False
        self._activate(pending)
        return self.members.is_active(pending)

    def _activate(self, pending: Pending) -> None:
        self.members.add(pending)
        self.precedence.note_active(pending)

    def _park(self, pending: Pending, cause: RequeueCause, *, is_backing_off: bool) -> None:
        """Park a popped Workload, alone or with its class, or limit its class to shorter Workloads."""
        # It runs too long to finish before a promised start. Shorter Workloads of its class may fit, so the
        # class is limited and not parked.
        if cause is RequeueCause.TOO_LONG and pending.seconds < inf and not is_backing_off:
            self._classes.limit(pending)
            self.members.add(pending)
            return
        is_whole_class = is_of_whole_class(cause, self.strategy)
        # It is added to its class first, so that it is parked and woken together with it.
        if is_whole_class and not is_backing_off:
            self.members.add(pending)
        else:
            self.members.park(pending)
        if is_whole_class:
            self._classes.park(pending)

    def _take_out(self, pending: Pending) -> None:
        self.members.remove(pending)
        self.precedence.note_left(pending.key)


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
        or before.closed_gates != after.closed_gates
        or any(
            before.conditions.get(type_) != after.conditions.get(type_)
            for type_ in (ConditionType.EVICTED, ConditionType.REQUEUED)
        )
    )
