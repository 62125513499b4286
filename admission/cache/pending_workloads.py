"""Who waits, and in which queue: the waiting side of the roster.

`admission.cache.admitted_workloads` says who holds quota and `admission.cache.workload_store` moves
Workloads as their objects change; here stands what happens to those without quota: which ClusterQueue a
Workload belongs into, at what level it waits there, whose turn it is, and what wakes those that have
been tried in vain.

Nothing is tried here. A queue that changes is only noted, its tree as `unsettled` (its heads are to be tried)
or as `woken` (who gave up in it may enter again), and both are worked off before the next cycle: a burst of
events costs one look at each tree, not one an event.
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
    """The Workloads that wait, each in its queue."""

    def __init__(self, cache: Cache, *, requeuing_timestamp: RequeuingTimestamp) -> None:
        self.records: dict[WorkloadKey, WorkloadRecord] = {}
        # Those that have not finished, by the LocalQueue that they name.
        self.by_local_queue: dict[LocalQueueKey, dict[WorkloadKey, WorkloadRecord]] = {}
        # Trees where something may fit that did not, to be woken before the next cycle.
        self.woken: set[QueueTree] = set()
        # Trees that were built anew: whoever is parked there is told by what it fails now.
        self.renewed: set[QueueTree] = set()
        # Trees whose heads have not been tried since something changed, the longest waiting first.
        self.unsettled: dict[QueueTree, None] = {}
        # Trees where a head was refused for what those of others kept in passing. Each is woken alone once
        # nobody else is to be tried: two of them at once could be in each other's way for ever.
        self.displaced: dict[QueueTree, None] = {}
        self.touched_queues: set[str] = set()
        self.touched_local_queues: set[LocalQueueKey] = set()
        # Workloads to be placed once changed specs have taken effect.
        self._unplaced: dict[WorkloadKey, WorkloadRecord] = {}
        # Those that name a reservation, which come and go with it.
        self.joining: dict[WorkloadKey, WorkloadRecord] = {}
        # Workloads in a queue that nobody has told why they wait.
        self.untold: dict[WorkloadKey, None] = {}
        # Those of a ClusterQueue for whom there was no word when they were to be told.
        self.unexplained: dict[str, dict[WorkloadKey, None]] = {}
        # When somebody whom a policy spares for now may be evicted, by the ClusterQueue that waits for it.
        self.wakes: dict[str, float] = {}
        # For whom others were evicted, and its uid, as the evicted ones' objects tell.
        self.owed: dict[WorkloadKey, str] = {}
        # Those that wait where runs of their kind are learned from, by that kind.
        self._alike: dict[tuple[str, str], dict[WorkloadKey, WorkloadRecord]] = {}
        self.turns = LeastAttained()
        # The orderings that the places in the queues were worked out by; others mean to work them out anew.
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
        """Put a Workload without quota where it belongs: into its queue, or nowhere."""
        queue = self._queue_for(record)
        # Before it is put into the other: a Workload waits in one queue at most.
        if record.queued_in is not None and (queue is None or queue.name != record.queued_in):
            self.unqueue(record)
        if queue is None:
            return
        record.queued_in = queue.name
        if queue.policy.estimates is not None:
            self._alike.setdefault(kind_of(record.workload), {})[record.workload.key] = record
        # It has not been told anything here; if it is not tried itself, it gets its class's word.
        if record.last_wait is None:
            self.untold[record.workload.key] = None
        pending = record.to_pending(
            self._timestamp, level=self._level_of(record, queue), is_apart=levels_matter(queue)
        )
        schedule_plan = self._cache.schedule_plan
        if schedule_plan.is_on:
            # How long it would be in the way decides who may pass a promise; only backfill asks.
            pending.seconds = schedule_plan.lengths.span(record.workload, queue.name)
        # Only where what is tried has changed: a status write of a parked one must not wake a tree.
        if queue.pending.offer(pending, now=self.now):
            self.unsettled[queue.tree] = None
        self.touched_queues.add(queue.name)
        self._pay(record)

    def _pay(self, record: WorkloadRecord) -> None:
        """Let a Workload come first that others were evicted for, where it waits."""
        # The uid, since a debt is not inherited by a new object of the name.
        if self.owed.get(record.workload.key) != record.workload.uid or record.queued_in is None:
            return
        queue = self._cache.queues.get(record.queued_in)
        # Without such rules the queue's order is Kueue's own, where nobody is owed anything by others.
        if queue is not None and queue.policy.preemption is not None:
            queue.pending.owe(record.workload)

    def _level_of(self, record: WorkloadRecord, queue: QueueState) -> int:
        """Return the level of a Workload that is to wait in the queue."""
        ordering = queue.policy.ordering
        if ordering is None or ordering.mode is OrderingMode.PRIORITY:
            return RETURNING if _returns_first(record.workload, queue) else 0
        # It moves up by waiting alone, which no event tells of.
        self.turns.watch_waiting(record.workload, ordering, now=self.now)
        if ordering.mode is OrderingMode.SHORTEST_PREDICTED:
            estimate = self._cache.schedule_plan.lengths.estimator.estimate(record.workload, queue.policy)
            return predicted_level(record.workload, estimate, ordering, now=self.now)
        return pending_level(record.workload, record.requests, ordering, now=self.now)

    def leave(self, record: WorkloadRecord) -> None:
        """Note that the Workload is in no queue any more."""
        record.queued_in = None
        self._cache.holds.note_left(record.workload.key)
        if self._alike:
            kind = kind_of(record.workload)
            alike = self._alike.get(kind, {})
            alike.pop(record.workload.key, None)
            if not alike:
                self._alike.pop(kind, None)

    def note_run(self, ended: Workload) -> None:
        """Place those anew that are expected to run as long as others of their kind: one has just ended.

        By its length one goes before or behind a promise, and by its prediction before or behind others. Who
        kept its old one would wait on for capacity, though it has become short enough to start.
        """
        self._unplaced.update(self._alike.get(kind_of(ended), {}))

    def unqueue(self, record: WorkloadRecord) -> None:
        """Take a Workload out of the queue where it waits, if it does."""
        if record.queued_in is None:
            return
        queue = self._cache.queues.get(record.queued_in)
        # Left first, so that whatever follows finds it outside.
        self.leave(record)
        self.untold.pop(record.workload.key, None)
        self._cache.schedule_plan.withdraw(record.workload.key)
        if queue is not None and queue.pending.discard(record.workload.key):
            # Another may be the head now.
            self.unsettled[queue.tree] = None
            self.touched_queues.add(queue.name)
            # What is held for it, and whoever still leaves for it, those may have who gave up because of it.
            if record.workload.key in self._cache.holds.kept:
                self.woken.add(queue.tree)

    def explain_again(self, cluster_queue: str) -> None:
        """There may be a word now for those of the queue for whom there was none."""
        for key in self.unexplained.pop(cluster_queue, ()):
            record = self.records.get(key)
            # It may have left, or been told something in the meantime.
            if record is not None and record.queued_in == cluster_queue and record.last_wait is None:
                self.untold[key] = None

    def _index(self, record: WorkloadRecord) -> None:
        """Keep the list of the LocalQueue's Workloads; it may have changed its queue."""
        key, present = record.workload.key, (record.workload.key.namespace, record.workload.queue_name)
        # Its user has moved it to another queue.
        if record.local_queue != present:
            self.by_local_queue.get(record.local_queue, {}).pop(key, None)
            self.touched_local_queues.add(record.local_queue)
            record.local_queue = present
        self.by_local_queue.setdefault(present, {})[key] = record
        # Kept apart so that the start of a reservation concerns those few, not all that wait.
        if reservation_of(record.workload) is not None:
            self.joining[key] = record
        else:
            self.joining.pop(key, None)
        self.touched_local_queues.add(present)

    def _queue_for(self, record: WorkloadRecord) -> QueueState | None:
        if not record.may_queue:
            return None
        local_queue = self._cache.local_queues.get(record.local_queue)
        if local_queue is None or local_queue.is_stopped:
            return None
        unreadable = self._cache.unreadable
        if unreadable and (
            (Workload, record.workload.key) in unreadable or (LocalQueue, record.local_queue) in unreadable
        ):
            return None
        joins = record.workload.key in self.joining
        if joins and reservation_problem(self._cache, record.workload) is not None:
            return None
        return self._cache.queues.get(local_queue.cluster_queue)

    # --- who is tried again ------------------------------------------------------------------------------

    def wake_at(self, cluster_queue: str, at: float) -> None:
        """Try the ClusterQueue's tree again at `at`, if it is not sooner anyway."""
        # The earliest of those asked for: at that one all are looked at anew.
        self.wakes[cluster_queue] = min(at, self.wakes.get(cluster_queue, at))

    def _rouse(self) -> None:
        """Wake what may fit now, and those whose back-off has ended. Changed specs have taken effect."""
        if self.displaced and not self.woken and not any(map(_has_head, self.unsettled)):
            first = next(iter(self.displaced))
            del self.displaced[first]
            self.woken.add(first)
        # Before the woken are: a turn that has come wakes its tree.
        self._pass_turns()
        # A list, as the table changes on the way.
        for name in [name for name, at in self.wakes.items() if at <= self.now]:
            del self.wakes[name]
            if name in self._cache.queues:
                self.woken.add(self._cache.queues[name].tree)
        # A set's order is not the same in every run, the order in which trees are tried has to be.
        for tree in sorted(self.woken, key=_by_root):
            self.unsettled[tree] = None
            for queue in tree.queues:
                # In a tree built anew everybody is tried: what they failed at may not exist any more.
                is_hopeless = None if tree in self.renewed else self._hopeless_in(queue)
                if queue.pending.wake(now=self.now, may_enter=self._matcher(queue), is_hopeless=is_hopeless):
                    self.touched_queues.add(queue.name)
        self.woken.clear()
        self.renewed.clear()
        # Not only in trees that were woken: a back-off ends by the clock alone.
        for queue in self._cache.queues.values():
            if queue.pending.has_retries and queue.pending.release_due(now=self.now):
                self.unsettled[queue.tree] = None
                self.touched_queues.add(queue.name)

    def _wake_queue_of(self, key: LocalQueueKey) -> None:
        local_queue = self._cache.local_queues.get(key)
        queue = self._cache.queues.get(local_queue.cluster_queue) if local_queue is not None else None
        if queue is not None:
            self.woken.add(queue.tree)

    def _matcher(self, queue: QueueState) -> _Entrance:
        return _Entrance(self._cache, queue)

    def _hopeless_in(self, queue: QueueState) -> Callable[[Pending], bool] | None:
        """Return whom it is no use to try, as a cheap question; None where that cannot be told.

        What has no room may be given some by evictions, and may be promised some later. Where quota is all
        that there is, the search costs no more than the question (`admission.flavors.assignment_cache`).
        """
        # Cheap only where the answer hangs on nodes; see above.
        if not never_preempts(queue) or not self._cache.topology_cache.has_flavors:
            return None
        snapshot, schedule_plan = self._cache.snapshot(), self._cache.schedule_plan
        # For whom others may be moved, full nodes are no reason to wait.
        may_start = may_have_quota if moves_others(queue) else may_have_room

        def is_hopeless(pending: Pending) -> bool:
            return not schedule_plan.may_be_promised(pending, queue) and not may_start(
                snapshot, queue, pending
            )

        return is_hopeless

    # --- taking turns ------------------------------------------------------------------------------------

    def next_turn_at(self) -> float | None:
        """Return when time alone may change whose turn it is, None for never."""
        queues = self._cache.queues
        # Where nobody waits, whose turn it is interests nobody.
        return self.turns.next_at(name for name in self.turns.books if len(queues[name].pending))

    def _watch(self, held: HeldWorkload, queue: QueueState | None) -> None:
        if queue is not None:
            self.turns.watch_running(held, queue, now=self.now)

    def _pass_turns(self) -> None:
        """Move those who have waited too long to the front, and wake queues where somebody may give way."""
        # Routed anew, as its level is part of its place in the queue.
        for key in self.turns.aged(now=self.now):
            record = self.records.get(key)
            if record is not None and record.queued_in is not None:
                self._route(record)
        for name in self.turns.books:
            queue = self._cache.queues[name]
            if self.turns.look(queue, now=self.now):
                self.woken.add(queue.tree)

    def _take_turns_anew(self) -> None:
        """Put everybody where the policies, which may have changed, say."""
        queues = self._cache.queues
        orderings = {name: _order_of(queue) for name, queue in queues.items()}
        changed = {name for name in queues if orderings.get(name) != self._orderings.get(name)}
        self._orderings = orderings
        # A queue that is gone has no turns to take either.
        kept = queues.keys() - changed
        self.turns.books = {name: book for name, book in self.turns.books.items() if name in kept}
        for record in self.records.values() if changed else ():
            if record.queued_in in changed:
                # Not at once: the queues' turn books are made below, and `refresh` places them after that.
                self._unplaced[record.workload.key] = record
        # Who runs attains service from here on by the new ordering.
        for name in changed:
            for held in queues[name].held.values():
                self._watch(held, queues[name])
        for name, queue in queues.items():
            takes_turns = least_attained(queue) is not None
            queue.turns = self.turns.books.setdefault(name, AttainedService()) if takes_turns else None


class _Entrance:
    """Whether a parked Workload may enter its queue: its namespace is selected, its time has come, and
    what it waits for has been left.
    """

    __slots__ = ("_cache", "_queue")

    def __init__(self, cache: Cache, queue: QueueState) -> None:
        self._cache = cache
        self._queue = queue

    def __call__(self, workload: Workload) -> bool:
        # Its promise wakes it when the time comes.
        if self._cache.schedule_plan.waits_for_its_time(workload):
            return False
        if self._cache.holds.is_awaiting(workload.key, self._cache.held) and not self._has_room(workload):
            # Its room is kept. To look for another place at every event would cost a search for each of them.
            return False
        labels = self._cache.namespaces.get(workload.key.namespace)
        return matches_selector(self._queue.spec.namespace_selector, labels)

    def _has_room(self, workload: Workload) -> bool:
        """Return whether there may be room elsewhere, so that nobody need leave for it."""
        pending = self._queue.pending.get(workload.key)
        return pending is not None and may_have_room(self._cache.snapshot(), self._queue, pending)


def _order_of(queue: QueueState) -> object:
    """Return what of the policy decides on the places of those who wait."""
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
    """Return whether the Workload goes before its equals, since it gave way and tells of its checkpoints.

    Not beside promises: an older Workload that comes back takes what was promised to none but the younger.
    Nor where the newer gives way to the older: whoever is older would stop it as soon as it has started.
    """
    policy = queue.policy
    section = policy.preemption
    if section is None or not section.saved_first or policy.backfill_rules is not None or _is_by_age(queue):
        return False
    return has_given_way(workload, section, with_aliases=policy.aliases is Aliases.ARTICLES)


def levels_matter(queue: QueueState) -> bool:
    """Return whether of equal requests one may be served by its level where another is not.

    Where nobody gives way to a level or an age, and nobody is promised a start, levels say who is tried first
    and nothing of what fits.
    """
    gives_way = least_attained(queue) is not None or _is_by_age(queue)
    return gives_way or queue.policy.backfill_rules is not None


def _is_by_age(queue: QueueState) -> bool:
    """Return whether in this ClusterQueue the newer gives way to the older of its priority."""
    by_age = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
    return queue.spec.preemption.within_cluster_queue is by_age


def _has_head(tree: QueueTree) -> bool:
    return any(not queue.inactive and queue.pending.has_head() for queue in tree.queues)


def _by_root(tree: QueueTree) -> tuple[bool, str]:
    return tree.root.is_queue, tree.root.name
