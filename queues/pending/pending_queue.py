"""The pending Workloads of one ClusterQueue: who is next, who is parked, and what brings them back.

A Workload is *active* (it will be tried) or *parked* (it was tried in vain, or backs off; Kueue's word is
inadmissible). Workloads that ask for the same at the same priority are one class: what does not fit for one
of them does not fit for any, so a class is parked and woken as a whole:

    ready heap ──▶ class (priority 200, 8 GPUs) ──▶ w1, w7, w9        heap by queue timestamp
               ──▶ class (priority 100, 1 GPU)  ──▶ w2, w3
    limited    ──▶ class (priority 100, 2 GPUs) ──▶ w10 (60 s)       w3 (900 s) would delay a promised start:
                                                                      only shorter ones are tried
    parked     ──▶ class (priority 100, 8 GPUs) ──▶ w4, w5, w6
               ──▶ w8                                                 alone: backs off until 12:05

Kueue keeps one heap of Workloads and moves each of them; with thousands queued, every finished Workload would
then cost thousands of moves. Here it costs one per class, and the order is the same (`queues.pending.lanes`).

With admission fair sharing the Workloads of the LocalQueue that has used least go first, whatever their
priority; between LocalQueues of equal usage, and within one, the order is the usual one. A class is parked in
all LocalQueues at once: what it lacks is the ClusterQueue's.

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


# What a LocalQueue has used in the past, see `queues.pending.admission_fair_sharing`.
UsageOf = Callable[[LocalQueueKey], float]


class PendingQueue:
    """The pending Workloads of one ClusterQueue. One task owns it; it reads no clock."""

    def __init__(self, name: str, strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> None:
        self.name = name
        self.strategy = strategy
        # The Workload that evicted others and waits for their quota, and its generation then.
        self.preemptor: WorkloadKey | None = None
        self.preemptor_generation = 0
        # For whom room is kept, and their generations then; the queue goes on while they wait.
        self._kept: dict[WorkloadKey, int] = {}
        # Those of them that are to be tried again.
        self._ahead: dict[WorkloadKey, Pending] = {}
        self._members: dict[WorkloadKey, Pending] = {}
        # The head that is being decided on. It waits here for everybody who asks, and is in no bucket.
        self._in_flight: Pending | None = None
        self._usage_of: UsageOf | None = None
        self._classes = EquivalenceClasses()
        # Those that are parked by themselves, not with a class.
        self._parked: dict[WorkloadKey, Pending] = {}
        self._retries: list[tuple[float, int, Pending]] = []
        # How many have been held back for a promised start since capacity last came free.
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
        """Return the Workload's entry, None where it does not wait here."""
        return self._members.get(key)

    def head(self) -> WorkloadKey | None:
        """Return who is to be tried next, None for nobody."""
        head = self._peek()
        return head.key if head is not None else None

    def told(self, key: WorkloadKey) -> Told | None:
        """Return what the one that was tried for the Workload's whole parked class was told."""
        pending = self._members.get(key)
        if pending is None or pending.ticket == 0:
            return None
        return self._classes.told(pending)

    @property
    def pop_cycle(self) -> int:
        """How often a head was taken; it dates flavor scans."""
        return self._pop_cycle

    @property
    def parked_count(self) -> int:
        """How many wait for something to change."""
        return len(self._parked) + self._classes.parked_count()

    @property
    def active_count(self) -> int:
        """How many will be tried."""
        return len(self) - self.parked_count

    def is_parked(self, key: WorkloadKey) -> bool:
        """Return whether the Workload waits here and is parked."""
        pending = self._members.get(key)
        return pending is not None and self._is_parked(pending)

    def is_preemptor(self, pending: Pending) -> bool:
        """Return whether others give way for this Workload, which is unchanged since: the queue waits for
        that, or room is kept.
        """
        workload = pending.workload
        if self._kept.get(workload.key) == workload.generation:
            return True
        return self.preemptor == workload.key and self.preemptor_generation == workload.generation

    def in_order(self) -> list[Pending]:
        """Return all, parked ones too, in the order in which they would be tried now.

        With admission fair sharing every admission changes it.
        """
        in_flight = () if self._in_flight is None else (self._in_flight,)
        return sorted((*in_flight, *self._members.values()), key=self._order(self._sticky()))

    def groups(self) -> Iterator[tuple[Pending, int, bool]]:
        """Yield who waits as groups of equal requests: one of them, how many they are, and whether parked.

        A group costs one step however many it holds. The one that is given is the first queued of its group.
        """
        yield from self._classes.groups()
        for pending in self._parked.values():
            yield pending, 1, True
        if self._in_flight is not None:
            yield self._in_flight, 1, False

    @property
    def has_retries(self) -> bool:
        """Whether a back-off may be running."""
        return bool(self._retries)

    def next_retry_at(self) -> float | None:
        """Return the earliest end of a back-off, None where none is running."""
        # An entry outlives its Workload's leaving or its back-off's being set anew; such ones are
        # dropped as they surface.
        while self._retries and not self._is_due_later(self._retries[0][2], self._retries[0][0]):
            heappop(self._retries)
        return self._retries[0][0] if self._retries else None

    # --- changes -----------------------------------------------------------------------------------------

    def tell(self, pending: Pending, told: Told) -> None:
        """Keep why a Workload did not fit: while its class is parked, that holds for all of it."""
        self._classes.tell(pending, told)

    def share_by(self, usage_of: UsageOf | None) -> None:
        """Let the LocalQueue that has used least go first from now on; None: no regard to LocalQueues."""
        # Only the change from or to sharing parts the lanes anew: a new function for the usage says
        # the same of all.
        has_changed = (usage_of is None) != (self._usage_of is None)
        self._usage_of = usage_of
        if has_changed:
            self._classes.part(by_local_queue=usage_of is not None)

    def offer(self, pending: Pending, *, now: float) -> bool:
        """Take in a Workload, new or changed. Returns whether what will be tried has changed by it.

        A parked Workload stays parked unless something changed that could make it fit.
        """
        key = pending.key
        old = self._members.get(key)
        if old is None:
            return self._place(pending, now=now)
        if self._is_parked(old):
            if not _may_fit_now(old, pending):
                # A parked one is told apart first: a mere status write must not bring it back,
                # or every Condition would.
                old.workload = pending.workload
                return False
        elif _position(old) == _position(pending):
            old.workload, old.requests, old.problem = pending.workload, pending.requests, pending.problem
            return False
        # Same request: what its last search has found of the flavors still holds, and the next goes on there.
        if old.shape == pending.shape:
            pending.scan = old.scan
        self._take_out(old)
        self._place(pending, now=now)
        return True

    def discard(self, key: WorkloadKey) -> bool:
        """Remove a Workload that waits no longer. Returns whether it was here."""
        pending = self._members.get(key)
        if pending is None:
            return False
        self._take_out(pending)
        self.forgive(key)
        return True

    def pop(self) -> Pending | None:
        """Take out the head, None where nothing is to be tried.

        A BestEffortFIFO queue keeps the Workload that evicted others first until it is admitted or replaced.
        """
        self._pop_cycle += 1
        # The common way, without asking for an order across lanes: the classes know their first themselves.
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
        """Put a popped Workload back as if it had not been popped: nothing was decided."""
        self._in_flight = None
        # The pop counts as not having been, or a wake in between would look older than it is.
        self._pop_cycle -= 1
        self._members[pending.key] = pending
        self._classes.add(pending)
        if pending.key in self._kept:
            self._ahead[pending.key] = pending

    def has_head(self) -> bool:
        """Return whether something is to be tried."""
        # Whoever it is: to find the first of dozens that room is kept for takes a look at all of them.
        return (
            self._active_sticky() is not None
            or bool(self._classes.heads())
            or any(not self._is_parked(one) for one in self._ahead.values())
        )

    def note_admitted(self, key: WorkloadKey) -> None:
        """Take note that a popped Workload has its quota: what was freed for it is in use.

        Should it be evicted in its turn, it comes back as any other, not as one that is owed something.
        """
        self._in_flight = None
        self.forgive(key)

    def owe(self, workload: Workload) -> None:
        """Take note that others were evicted for a Workload that waits here: it comes first.

        Nothing changes where there is such a one already.
        """
        if self.preemptor is None:
            self.preemptor, self.preemptor_generation = workload.key, workload.generation

    def keep_for(self, workload: Workload) -> None:
        """Take note that room is kept for a Workload: it comes first among those of its priority.

        There may be many of these, as nobody waits for them.
        """
        self._kept[workload.key] = workload.generation

    def forgive(self, key: WorkloadKey) -> None:
        """Take note that nothing is kept for a Workload any more: it comes first no longer."""
        self._kept.pop(key, None)
        self._ahead.pop(key, None)
        if self.preemptor == key:
            self.preemptor = None

    def requeue(self, pending: Pending, reason: RequeueCause, *, now: float) -> bool:
        """Put a popped Workload back. Returns whether it was parked.

        It stays active where its failure is passing, where the queue was woken while it was tried, or where
        flavors are left to try. Source: Kueue, cluster_queue.go, requeueIfNotPresent.
        """
        self._in_flight = None
        self._remember_preemptor(pending, reason)
        is_backing_off = pending.retry_at > now
        # Counted whatever becomes of it: an observer wants to know how many a promise has cost.
        self.held_back += reason in FOR_A_PROMISE
        self._members[pending.key] = pending
        if not is_backing_off and self._is_to_be_tried(pending, reason):
            self._classes.add(pending)
            self._put_ahead(pending)
            return False
        # Too long for the room before a promise: shorter ones of the class may fit, so it
        # is limited, not parked.
        if reason is RequeueCause.TOO_LONG and pending.seconds < inf and not is_backing_off:
            self._classes.limit(pending)
            self._classes.add(pending)
            return True
        is_whole_class = is_of_whole_class(reason, self.strategy)
        # Into its class first, so that it is parked with the others and woken with them.
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
        """Make active again what is parked and may enter, as capacity came free.

        A class whose first is hopeless, as whoever asks can tell without trying it, stays parked.
        Returns whether anything moved.
        """
        # Whoever is in flight now was decided on with what was known before; `requeue` reads this.
        self._wake_cycle = self._pop_cycle
        self.held_back = 0
        moved = self._classes.wake(is_hopeless)
        # A copy, since members leave it on the way.
        for pending in list(self._parked.values()):
            if pending.retry_at <= now and may_enter(pending.workload):
                del self._parked[pending.key]
                self._classes.add(pending)
                if pending.key in self._kept:
                    self._ahead[pending.key] = pending
                moved = True
        return moved

    def release_due(self, *, now: float) -> bool:
        """Make active again those whose back-off has ended. Returns whether there were any."""
        moved = False
        while self._retries and self._retries[0][0] <= now:
            at, _, pending = heappop(self._retries)
            # The Workload may have left, or backs off for longer by now: then its newer entry speaks for it.
            if self._is_due_later(pending, at):
                del self._parked[pending.key]
                moved |= self._place(pending, now=now)
        return moved

    def validate(self) -> None:
        """Raise AssertionError where the books disagree: a member in no bucket or in two."""
        for key, pending in self._members.items():
            in_class = pending.ticket != 0
            alone = key in self._parked
            assert in_class != alone, f"{self.name}: {key} is in {int(in_class) + int(alone)} buckets, not 1"
        for key, pending in self._ahead.items():
            is_here = key in self._kept and self._members.get(key) is pending
            assert is_here, f"{self.name}: {key} comes first, but waits not or nothing is kept for it"
        held = self._classes.validate()
        assert held + len(self._parked) == len(self._members), f"{self.name}: classes hold {held}"

    # --- within ------------------------------------------------------------------------------------------

    def _sticky(self) -> WorkloadKey | None:
        # StrictFIFO needs no such rule: its head stays its head anyway.
        return self.preemptor if self.strategy is QueueingStrategy.BEST_EFFORT_FIFO else None

    def _is_parked(self, pending: Pending) -> bool:
        return pending.ticket == 0 or self._classes.is_parked(pending)

    def _is_to_be_tried(self, pending: Pending, reason: RequeueCause) -> bool:
        """Return whether a popped Workload stays active; `_wake_cycle` tells a wake while it was tried."""
        if is_immediate(pending, reason, self.strategy) or self._wake_cycle >= self._pop_cycle:
            return True
        return pending.scan is not None and pending.scan.has_flavors_left

    def _is_due_later(self, pending: Pending, at: float) -> bool:
        return self._parked.get(pending.key) is pending and pending.retry_at == at

    def _peek(self) -> Pending | None:
        sticky = self._active_sticky()
        # With sharing, past usage comes before stickiness, so the sticky one has to be
        # compared with the heads.
        if sticky is not None and self._usage_of is None:
            return sticky
        heads = self._classes.heads()
        # By itself and not with its class: of a class only the first is a head.
        heads += (one for one in self._ahead.values() if not self._is_parked(one))
        # It may be one of the heads already; twice in a comparison does no harm.
        if sticky is not None:
            heads.append(sticky)
        if len(heads) < 2:
            return heads[0] if heads else None
        return min(heads, key=self._order(sticky.key if sticky is not None else None))

    def _order(self, sticky: WorkloadKey | None) -> Callable[[Pending], _Order]:
        """Return the sort key of Workloads: past usage, the sticky one, priority, for whom room is kept, age,
        uid.

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
        """Let whoever has room kept for it come first of its priority, whatever has become of its place."""
        if pending.key in self._kept and pending.key not in self._parked:
            self._ahead[pending.key] = pending

    def _park(self, pending: Pending) -> None:
        pending.ticket = 0
        self._parked[pending.key] = pending
        # Without an end in sight it waits for an event, not for the clock.
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
        # It was tried and asked for no evictions this time: nothing is owed to it.
        elif self.preemptor == pending.key:
            self.preemptor = None


_Order = tuple[float, bool, int, bool, int, float, str, WorkloadKey]


def _rank(pending: Pending) -> tuple[ClassKey, int, float, str, LocalQueueKey]:
    return class_key(pending), pending.level, pending.place_at, pending.workload.uid, pending.local_queue


def _position(pending: Pending) -> object:
    """Return all by which the Workload's place among those that are tried is found."""
    return _rank(pending), pending.retry_at, pending.seconds


def _may_fit_now(old: Pending, new: Pending) -> bool:
    """Return whether the change could make a parked Workload fit, or moves it in the order."""
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
