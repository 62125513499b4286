"""Pending Workloads: which ClusterQueue each waits in, and when it is tried again.

One of three layers of the Workload bookkeeping. `admission.cache.admitted_workloads` adds the Workloads that
hold quota, and `admission.cache.workload_store` the changes of their objects. This layer decides for a
Workload without quota which ClusterQueue it belongs to, its level there, whose turn it is, and which events
make inadmissible Workloads active again.

Nothing is scheduled here. A change only marks a quota tree, as `unsettled` (its heads are to be tried) or as
`woken` (inadmissible Workloads in it may become active again). Both are worked off before the next cycle, so
that a burst of events costs one pass over each tree and not one per event.
"""

from __future__ import annotations

from collections.abc import Callable

from admission.cache.cache import Cache
from admission.cache.workload_record import LocalQueueKey, WorkloadRecord, reservation_problem
from admission.calendar.advance_reservations import reservation_of
from admission.flavors.feasibility import may_have_quota, may_have_room, moves_others, never_preempts
from admission.preemption.checkpoint_before_eviction import has_given_way
from admission.preemption.least_attained import LeastAttained, least_attained, pending_level, predicted_level
from admission.snapshot.attained_service import AttainedService
from admission.snapshot.snapshot import HeldWorkload, QueueState, QueueTree
from api.policy import Aliases, OrderingMode
from api.queueing import LocalQueue, PreemptionPolicy
from api.selectors import matches_selector
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import kind_of
from queues.pending.least_attained import RETURNING
from queues.pending.ordering import RequeuingTimestamp
from queues.pending.pending_queue import Pending


class PendingWorkloads:
    """The pending Workloads, each in its queue. `records` holds all Workloads known, whatever their state."""

    def __init__(self, cache: Cache, *, requeuing_timestamp: RequeuingTimestamp) -> None:
        self.records: dict[WorkloadKey, WorkloadRecord] = {}
        # Workloads that have not finished, by the LocalQueue that they name.
        self.by_local_queue: dict[LocalQueueKey, dict[WorkloadKey, WorkloadRecord]] = {}
        # Trees where something may fit that did not before, to be woken before the next cycle.
        self.woken: set[QueueTree] = set()
        # Trees that were built again: every parked Workload is tried, to learn what it fails at now.
        self.renewed: set[QueueTree] = set()
        # Trees whose heads have not been tried since something changed, those marked first coming first.
        self.unsettled: dict[QueueTree, None] = {}
        # Trees where a head was refused only for places that heads of other trees reserved in that
        # cycle. Each is woken alone, once no other tree is to be tried: two of them at once could block
        # each other for ever.
        self.displaced: dict[QueueTree, None] = {}
        self.touched_queues: set[str] = set()
        self.touched_local_queues: set[LocalQueueKey] = set()
        # Workloads to be put into their place once changed specs have taken effect.
        self._unplaced: dict[WorkloadKey, WorkloadRecord] = {}
        # Workloads that name an advance reservation; whether they may queue depends on it.
        self.joining: dict[WorkloadKey, WorkloadRecord] = {}
        # Pending Workloads without a reported reason why they wait.
        self.untold: dict[WorkloadKey, None] = {}
        # Those of a ClusterQueue for which no reason was known when one was to be reported.
        self.unexplained: dict[str, dict[WorkloadKey, None]] = {}
        # By waiting ClusterQueue: when a Workload that a policy spares for now may be evicted.
        self.wakes: dict[str, float] = {}
        # Preemptors, with their uid, that Workloads were evicted for, as recorded in the evicted objects.
        self.owed: dict[WorkloadKey, str] = {}
        # Pending Workloads whose run time is predicted from runs of their kind, by that kind.
        self._alike: dict[tuple[str, str], dict[WorkloadKey, WorkloadRecord]] = {}
        self.turns = LeastAttained()
        # The orderings that places in the queues were computed by. A change means to compute them again.
        self._orderings: dict[str, object] = {}
        self._cache = cache
        self._timestamp = requeuing_timestamp

    @property
    def now(self) -> float:
        """The instant of the engine's latest call."""
        return self._cache.schedule_plan.now

    @now.setter
    def now(self, now: float) -> None:
        self._cache.schedule_plan.now = now

    # --- into a queue and out of it ----------------------------------------------------------------------

    def _route(self, record: WorkloadRecord) -> None:
        """Put a Workload without quota into the queue it belongs to, or into none."""
        queue = self._queue_for(record)
        # It leaves the old queue first: a Workload is in one queue at most.
        if record.queued_in is not None and (queue is None or queue.name != record.queued_in):
            self.unqueue(record)
        if queue is None:
            return
        record.queued_in = queue.name
        if queue.policy.estimates is not None:
            self._alike.setdefault(kind_of(record.workload), {})[record.workload.key] = record
        # No reason has been reported for it here. If it is not tried itself, it gets that of its class.
        if record.last_wait is None:
            self.untold[record.workload.key] = None
        pending = record.to_pending(
            self._timestamp, level=self._level_of(record, queue), is_apart=levels_matter(queue)
        )
        schedule_plan = self._cache.schedule_plan
        if schedule_plan.is_on:
            # Its run time decides whether it may start before a promise; only backfill needs it.
            pending.seconds = schedule_plan.lengths.span(record.workload, queue.name)
        # Only if what is tried has changed: a status write of a parked Workload must not wake a tree.
        if queue.pending.offer(pending, now=self.now):
            self.unsettled[queue.tree] = None
        self.touched_queues.add(queue.name)
        self._put_first(record)

    def _put_first(self, record: WorkloadRecord) -> None:
        """Let a preemptor that other Workloads were evicted for come first in its queue."""
        # The uid is compared too, since a new object of the same name has no such claim.
        if self.owed.get(record.workload.key) != record.workload.uid or record.queued_in is None:
            return
        queue = self._cache.queues.get(record.queued_in)
        # Without preemption rules in a policy the queue keeps Kueue's order, which knows no such claim.
        if queue is not None and queue.policy.preemption is not None:
            queue.pending.owe(record.workload)

    def _level_of(self, record: WorkloadRecord, queue: QueueState) -> int:
        """Return the level at which a Workload waits in the queue."""
        ordering = queue.policy.ordering
        if ordering is None or ordering.mode is OrderingMode.PRIORITY:
            return RETURNING if _returns_first(record.workload, queue) else 0
        # It also moves up by waiting alone, which no event reports.
        self.turns.watch_waiting(record.workload, ordering, now=self.now)
        if ordering.mode is OrderingMode.SHORTEST_PREDICTED:
            estimate = self._cache.schedule_plan.lengths.estimator.estimate(record.workload, queue.policy)
            return predicted_level(record.workload, estimate, ordering, now=self.now)
        return pending_level(record.workload, record.requests, ordering, now=self.now)

    def leave(self, record: WorkloadRecord) -> None:
        """Record that the Workload is in no queue any more."""
        record.queued_in = None
        self._cache.holds.note_left(record.workload.key)
        if self._alike:
            kind = kind_of(record.workload)
            alike = self._alike.get(kind, {})
            alike.pop(record.workload.key, None)
            if not alike:
                self._alike.pop(kind, None)

    def note_run(self, ended: Workload) -> None:
        """Have pending Workloads of the same kind placed again: their expected run time has changed.

        It decides whether a Workload starts before or after a promise, and by a predicting policy its
        place in the queue. With its former estimate a Workload could keep waiting although it is
        short enough to start.
        """
        self._unplaced.update(self._alike.get(kind_of(ended), {}))

    def unqueue(self, record: WorkloadRecord) -> None:
        """Take a Workload out of the queue where it waits, if any."""
        if record.queued_in is None:
            return
        queue = self._cache.queues.get(record.queued_in)
        # Marked as left first, so that everything below finds it outside the queue.
        self.leave(record)
        self.untold.pop(record.workload.key, None)
        self._cache.schedule_plan.withdraw(record.workload.key)
        if queue is not None and queue.pending.discard(record.workload.key):
            # Another Workload may be the head now.
            self.unsettled[queue.tree] = None
            self.touched_queues.add(queue.name)
            # Parked Workloads may use what was held for it, and what its targets will leave.
            if record.workload.key in self._cache.holds.kept:
                self.woken.add(queue.tree)

    def explain_again(self, cluster_queue: str) -> None:
        """Report reasons again for those Workloads of the queue for which none was known before."""
        for key in self.unexplained.pop(cluster_queue, ()):
            record = self.records.get(key)
            # It may have left the queue, or been given a reason in the meantime.
            if record is not None and record.queued_in == cluster_queue and record.last_wait is None:
                self.untold[key] = None

    def _index(self, record: WorkloadRecord) -> None:
        """Update the index of the LocalQueue's Workloads; the Workload may have changed its LocalQueue."""
        key, present = record.workload.key, (record.workload.key.namespace, record.workload.queue_name)
        # A user has moved it to another LocalQueue.
        if record.local_queue != present:
            self.by_local_queue.get(record.local_queue, {}).pop(key, None)
            self.touched_local_queues.add(record.local_queue)
            record.local_queue = present
        self.by_local_queue.setdefault(present, {})[key] = record
        # Indexed apart, so that the start of a reservation concerns these few and not all pending Workloads.
        if reservation_of(record.workload) is not None:
            self.joining[key] = record
        else:
            self.joining.pop(key, None)
        self.touched_local_queues.add(present)

    def _queue_for(self, record: WorkloadRecord) -> QueueState | None:
        """Return the ClusterQueue the Workload may wait in; None if its object or its queues forbid it."""
        if not record.may_queue:
            return None
        local_queue = self._cache.specs.local_queues.get(record.local_queue)
        if local_queue is None or local_queue.is_stopped:
            return None
        unreadable = self._cache.specs.unreadable
        if unreadable and (
            (Workload, record.workload.key) in unreadable or (LocalQueue, record.local_queue) in unreadable
        ):
            return None
        joins = record.workload.key in self.joining
        if joins and reservation_problem(self._cache, record.workload) is not None:
            return None
        return self._cache.queues.get(local_queue.cluster_queue)

    # --- which Workloads are tried again ------------------------------------------------------------------

    def wake_at(self, cluster_queue: str, at: float) -> None:
        """Try the ClusterQueue's tree again at `at` (Unix seconds), unless an earlier time is set."""
        # The earliest time wins, since all Workloads of the tree are looked at then.
        self.wakes[cluster_queue] = min(at, self.wakes.get(cluster_queue, at))

    def _wake_due(self) -> None:
        """Wake what may fit now or has finished its back-off. Changed specs have taken effect before."""
        if self.displaced and not self.woken and not any(map(_has_head, self.unsettled)):
            first = next(iter(self.displaced))
            del self.displaced[first]
            self.woken.add(first)
        # This comes before the trees are woken, since a turn that has come wakes its tree.
        self._pass_turns()
        # A list, since entries are deleted on the way.
        for name in [name for name, at in self.wakes.items() if at <= self.now]:
            del self.wakes[name]
            if name in self._cache.queues:
                self.woken.add(self._cache.queues[name].tree)
        # Sorted, since the order of a set differs from run to run and that of the trees tried must not.
        for tree in sorted(self.woken, key=_by_root):
            self.unsettled[tree] = None
            for queue in tree.queues:
                # In a tree built again every Workload is tried: what it failed at may not exist any more.
                is_hopeless = None if tree in self.renewed else self._hopeless_in(queue)
                if queue.pending.wake(now=self.now, may_enter=self._matcher(queue), is_hopeless=is_hopeless):
                    self.touched_queues.add(queue.name)
        self.woken.clear()
        self.renewed.clear()
        # In all trees, woken or not: a back-off ends by the clock alone.
        for queue in self._cache.queues.values():
            if queue.pending.has_retries and queue.pending.release_due(now=self.now):
                self.unsettled[queue.tree] = None
                self.touched_queues.add(queue.name)

    def _wake_queue_of(self, key: LocalQueueKey) -> None:
        local_queue = self._cache.specs.local_queues.get(key)
        queue = self._cache.queues.get(local_queue.cluster_queue) if local_queue is not None else None
        if queue is not None:
            self.woken.add(queue.tree)

    def _matcher(self, queue: QueueState) -> _Entrance:
        return _Entrance(self._cache, queue)

    def _hopeless_in(self, queue: QueueState) -> Callable[[Pending], bool] | None:
        """Return a cheap test for parked Workloads that cannot start now; None if there is none.

        A Workload that has no room may get some by evictions, or be promised some for later; for those the
        test never says that it is hopeless. Where only quota counts, scheduling costs no more than the test
        (`admission.flavors.assignment_cache`), so there is none.
        """
        # The test pays only where the answer depends on nodes; see above.
        if not never_preempts(queue) or not self._cache.topology_cache.has_flavors:
            return None
        snapshot, schedule_plan = self._cache.snapshot(), self._cache.schedule_plan
        # A Workload that others may be moved for can start on nodes that are full now.
        may_start = may_have_quota if moves_others(queue) else may_have_room

        def is_hopeless(pending: Pending) -> bool:
            return not schedule_plan.may_be_promised(pending, queue) and not may_start(
                snapshot, queue, pending
            )

        return is_hopeless

    # --- taking turns ------------------------------------------------------------------------------------

    def next_turn_at(self) -> float | None:
        """Return when time alone may change whose turn it is (Unix seconds), None for never."""
        queues = self._cache.queues
        # Turns matter only in queues in which Workloads wait.
        return self.turns.next_at(name for name in self.turns.books if len(queues[name].pending))

    def _watch(self, held: HeldWorkload, queue: QueueState | None) -> None:
        if queue is not None:
            self.turns.watch_running(held, queue, now=self.now)

    def _pass_turns(self) -> None:
        """Move Workloads that have waited long enough to their new level, and wake queues for preemption.

        A queue is woken where running work has attained so much service that it may be preempted now.
        """
        # Routed again, since the level is part of the place in the queue.
        for key in self.turns.aged(now=self.now):
            record = self.records.get(key)
            if record is not None and record.queued_in is not None:
                self._route(record)
        for name in self.turns.books:
            queue = self._cache.queues[name]
            if self.turns.look(queue, now=self.now):
                self.woken.add(queue.tree)

    def _update_turns(self) -> None:
        """Update the turns, and the places of pending Workloads, for policies that may have changed."""
        queues = self._cache.queues
        orderings = {name: _order_of(queue) for name, queue in queues.items()}
        changed = {name for name in queues if orderings.get(name) != self._orderings.get(name)}
        self._orderings = orderings
        # A ClusterQueue that no longer exists has no turns either.
        kept = queues.keys() - changed
        self.turns.books = {name: book for name, book in self.turns.books.items() if name in kept}
        for record in self.records.values() if changed else ():
            if record.queued_in in changed:
                # Placed only later, by `refresh`: the turn books of their queues are made below.
                self._unplaced[record.workload.key] = record
        # Running work attains service by the new ordering from here on.
        for name in changed:
            for held in queues[name].held.values():
                self._watch(held, queues[name])
        for name, queue in queues.items():
            takes_turns = least_attained(queue) is not None
            queue.turns = self.turns.books.setdefault(name, AttainedService()) if takes_turns else None


class _Entrance:
    """Whether a parked Workload of a queue may become active again.

    Its namespace must match, its promised start must have come, and the Workloads it waits for must have
    left or there must be room elsewhere.
    """

    __slots__ = ("_cache", "_queue")

    def __init__(self, cache: Cache, queue: QueueState) -> None:
        self._cache = cache
        self._queue = queue

    def __call__(self, workload: Workload) -> bool:
        # A Workload with a promised start is woken when that is due.
        if self._cache.schedule_plan.waits_for_its_time(workload):
            return False
        if self._cache.holds.is_awaiting(workload.key, self._cache.held) and not self._has_room(workload):
            # Its capacity is held for it. Trying it at every event would cost a search for places each time.
            return False
        labels = self._cache.specs.namespaces.get(workload.key.namespace)
        return matches_selector(self._queue.spec.namespace_selector, labels)

    def _has_room(self, workload: Workload) -> bool:
        """Return whether there may be room elsewhere, so that no eviction is needed for it."""
        pending = self._queue.pending.get(workload.key)
        return pending is not None and may_have_room(self._cache.snapshot(), self._queue, pending)


def _order_of(queue: QueueState) -> object:
    """Return the parts of the policy that decide the order of pending Workloads, as a comparable value."""
    policy = queue.policy
    saved_first = policy.preemption is not None and policy.preemption.saved_first
    return (
        policy.ordering,
        policy.backfill_rules is not None,
        policy.estimates,
        saved_first,
        levels_matter(queue),
    )


def _returns_first(workload: Workload, queue: QueueState) -> bool:
    """Return whether the Workload goes before its equals: it was preempted after it reported checkpoints.

    Not in a queue with backfill: an older Workload that returns takes capacity promised to younger ones. Nor
    where newer work is preempted for older: the older one would stop it as soon as it has started.
    """
    policy = queue.policy
    section = policy.preemption
    if section is None or not section.saved_first or policy.backfill_rules is not None or _is_by_age(queue):
        return False
    return has_given_way(workload, section, with_aliases=policy.aliases is Aliases.ARTICLES)


def levels_matter(queue: QueueState) -> bool:
    """Return whether, of equal requests, one may be admitted by its level where another is not.

    Without preemption by level or age and without promises, levels only decide which Workload is tried
    first, and not what fits.
    """
    is_preempting = least_attained(queue) is not None or _is_by_age(queue)
    return is_preempting or queue.policy.backfill_rules is not None


def _is_by_age(queue: QueueState) -> bool:
    """Return whether newer Workloads of this ClusterQueue are preempted for older ones of equal priority."""
    by_age = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
    return queue.spec.preemption.within_cluster_queue is by_age


def _has_head(tree: QueueTree) -> bool:
    return any(not queue.inactive and queue.pending.has_head() for queue in tree.queues)


def _by_root(tree: QueueTree) -> tuple[bool, str]:
    return tree.root.is_queue, tree.root.name
