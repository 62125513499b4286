"""Pending Workloads: which ClusterQueue each waits in, at which level, and which reason is reported for it.

The Workloads that hold quota are kept by `admission.cache.admitted_workloads`. Which events make inadmissible
Workloads active again is decided by `admission.cache.trees_to_try`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from admission.cache.cache import Cache
from admission.cache.touched_statuses import TouchedStatuses
from admission.cache.trees_to_try import TreesToTry
from admission.cache.workload_changed import WorkloadChanged
from admission.cache.workload_index import WorkloadIndex
from admission.cache.workload_record import WorkloadRecord, reservation_problem
from admission.decisions.decision import Evict
from admission.preemption.checkpoint_before_eviction import awaits_resume
from admission.preemption.least_attained import (
    LeastAttained,
    expected_end_level,
    least_attained,
    pending_level,
    predicted_level,
)
from admission.snapshot.attained_service import AttainedService
from admission.snapshot.queue_state import QueueState
from api.eviction import eviction_request
from api.policy import Aliases, Ordering, OrderingMode
from api.queueing import LocalQueue, PreemptionPolicy
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import kind_of
from queues.pending.least_attained import RETURNING
from queues.pending.ordering import RequeuingTimestamp, comes_first, queued_at


class PendingWorkloads:
    """The Workloads that wait for quota, each in its queue."""

    def __init__(
        self,
        cache: Cache,
        index: WorkloadIndex,
        trees: TreesToTry,
        touched: TouchedStatuses,
        *,
        requeuing_timestamp: RequeuingTimestamp,
    ) -> None:
        # Pending Workloads without a reported reason why they wait.
        self.unreported: OrderedDict[WorkloadKey, None] = OrderedDict()
        # Those of a ClusterQueue for which no reason was known when one was to be reported.
        self.unexplained: dict[str, dict[WorkloadKey, None]] = {}
        # By pending Workload: the evictions it joined, of Workloads that save a checkpoint for another one.
        self.joined: dict[WorkloadKey, tuple[Evict, ...]] = {}
        self.turns = LeastAttained()
        # By the uid of a preemptor the Workloads that were evicted for it, as recorded in these objects.
        self._owed: dict[str, set[WorkloadKey]] = {}
        # Pending Workloads whose run time is predicted from runs of their kind, by that kind.
        self._alike: dict[tuple[str, str], dict[WorkloadKey, WorkloadRecord]] = {}
        # The orderings that places in the queues were computed by. A change means to compute them again.
        self._orderings: dict[str, object] = {}
        self._cache = cache
        self._index = index
        self._trees = trees
        self._touched = touched
        self._timestamp = requeuing_timestamp

    # --- into a queue and out of it ----------------------------------------------------------------------

    def route(self, record: WorkloadRecord) -> None:
        """Put a Workload without quota into the queue it belongs to, or into none.

        Into none where its LocalQueue or ClusterQueue does not exist, or where the object itself does not
        allow it. Wakes the tree only if what would be tried has changed.
        """
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
            self.unreported[record.workload.key] = None
        pending = record.to_pending(
            self._timestamp, level=self._level_of(record, queue), is_apart=levels_matter(queue)
        )
        schedule_plan = self._cache.schedule_plan
        if schedule_plan.is_on:
            # Its run time decides whether it may start before a promise; only backfill needs it.
            pending.seconds = schedule_plan.run_estimates.span(record.workload, queue.name)
        # Only if what is tried has changed: a status write of a parked Workload must not wake a tree.
        if queue.pending.push_or_update(pending, now=self._cache.now):
            self._trees.settle_again(queue.tree)
        self._touched.cluster_queues.add(queue.name)
        self._put_first(record)

    def note_preemptor(self, change: WorkloadChanged) -> None:
        """Record which preemptor a Workload is evicted for, or was until its quota came free.

        The leader that decided the eviction knows it already. A later leader learns it here, and lets that
        preemptor come first as its predecessor did.
        """
        before, after = change.before, change.after
        former = eviction_request(before) if before is not None else None
        request = eviction_request(after) if not after.is_finished else None
        # Removed first, even to be added again: it may name another one now.
        if former is not None:
            self._forget_victim(former.preemptor_uid, after.key)
        if request is not None and request.preemptor_uid:
            self._owed.setdefault(request.preemptor_uid, set()).add(after.key)
            # If the preemptor is not known yet, it is put first when it comes in.
            record = self._index.by_uid.get(request.preemptor_uid)
            if record is not None:
                self._put_first(record)

    def note_gone(self, workload: Workload) -> None:
        """Forget what a Workload whose object no longer exists was evicted for, and was owed."""
        self._owed.pop(workload.uid, None)
        if (request := eviction_request(workload)) is not None:
            self._forget_victim(request.preemptor_uid, workload.key)

    def _forget_victim(self, preemptor_uid: str, victim: WorkloadKey) -> None:
        """Forget one victim. A preemptor is owed its place for as long as another victim names it."""
        victims = self._owed.get(preemptor_uid, set())
        victims.discard(victim)
        if not victims:
            self._owed.pop(preemptor_uid, None)

    def _put_first(self, record: WorkloadRecord) -> None:
        """Let a preemptor that other Workloads were evicted for come first in its queue."""
        # The uid is compared too, since a new object of the same name has no such claim.
        if record.workload.uid not in self._owed or record.queued_in is None:
            return
        queue = self._cache.queues.get(record.queued_in)
        # Without preemption rules in a policy the queue keeps Kueue's order, which knows no such claim.
        if queue is not None and queue.policy.preemption is not None:
            queue.pending.precedence.prefer_preemptor(record.workload)

    def _level_of(self, record: WorkloadRecord, queue: QueueState) -> int:
        """Return the level at which a Workload waits in the queue."""
        ordering = queue.policy.ordering
        if ordering is None or _is_by_priority(ordering, queue):
            return RETURNING if _returns_first(record.workload, queue) else 0
        if ordering.mode is not OrderingMode.EARLIEST_EXPECTED_END:
            # It also moves up by waiting alone, which no event reports.
            self.turns.watch_waiting(record.workload, ordering, now=self._cache.now)
        if ordering.mode is OrderingMode.LEAST_ATTAINED:
            return pending_level(record.workload, record.requests, ordering, now=self._cache.now)
        # However long it runs: under every order it goes before the others of its priority.
        if comes_first(record.workload):
            return RETURNING
        estimate = self._cache.estimator.estimate(record.workload, queue.policy)
        if ordering.mode is OrderingMode.SHORTEST_PREDICTED:
            return predicted_level(record.workload, estimate, ordering, now=self._cache.now)
        return expected_end_level(queued_at(record.workload, self._timestamp), estimate, ordering)

    def leave(self, record: WorkloadRecord) -> None:
        """Record that the Workload is in no queue any more.

        The caller has taken it out of the queue itself.
        """
        record.queued_in = None
        self._cache.holds.note_left(record.workload.key)
        if self._alike:
            kind = kind_of(record.workload)
            alike = self._alike.get(kind, {})
            alike.pop(record.workload.key, None)
            if not alike:
                self._alike.pop(kind, None)

    def alike(self, ended: Workload) -> Mapping[WorkloadKey, WorkloadRecord]:
        """Return the pending Workloads whose expected run time follows from runs like this one."""
        # The kind is read only where there are any, because that takes a regular expression.
        return self._alike.get(kind_of(ended), {}) if self._alike else {}

    def unqueue(self, record: WorkloadRecord) -> None:
        """Take a Workload out of the queue where it waits, if any.

        Its promise is withdrawn, and its hold is dropped before the next cycle unless it waits again by then.
        """
        if record.queued_in is None:
            return
        queue = self._cache.queues.get(record.queued_in)
        # Marked as left first, so that everything below finds it outside the queue.
        self.leave(record)
        self.unreported.pop(record.workload.key, None)
        self._cache.schedule_plan.promises.withdraw(record.workload.key)
        if queue is not None and queue.pending.discard(record.workload.key):
            # Another Workload may be the head now.
            self._trees.settle_again(queue.tree)
            self._touched.cluster_queues.add(queue.name)
            # Parked Workloads may use what was held for it, and what its targets will leave.
            if record.workload.key in self._cache.holds.kept:
                self._trees.wake(queue.name)

    def join(self, key: WorkloadKey, evictions: tuple[Evict, ...]) -> None:
        """Record the evictions that the last cycle let this Workload join; an empty tuple for none.

        It need not ask for these evictions itself: it waits for what they free.
        """
        if evictions:
            self.joined[key] = evictions
        else:
            self.joined.pop(key, None)

    def explain_again(self, cluster_queue: str) -> None:
        """Report reasons again for those Workloads of the queue for which none was known before."""
        for key in self.unexplained.pop(cluster_queue, ()):
            record = self._index.records.get(key)
            # It may have left the queue, or been given a reason in the meantime.
            if record is not None and record.queued_in == cluster_queue and record.last_wait is None:
                self.unreported[key] = None

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
        joins = record.workload.key in self._index.joining
        if joins and reservation_problem(self._cache, record.workload) is not None:
            return None
        return self._cache.queues.get(local_queue.cluster_queue)

    # --- levels that change with time or policy ----------------------------------------------------------

    def next_turn_at(self) -> float | None:
        """Return when time alone may change whose turn it is (Unix seconds), None for never."""
        queues = self._cache.queues
        # Turns matter only in queues in which Workloads wait.
        return self.turns.next_at(name for name in self.turns.books if len(queues[name].pending))

    def pass_turns(self) -> None:
        """Move Workloads that have waited long enough to their new level, and wake queues for preemption.

        A queue is woken where running work has attained so much service that it may be preempted now.
        """
        # Routed again, since the level is part of the place in the queue.
        for key in self.turns.aged(now=self._cache.now):
            record = self._index.records.get(key)
            if record is not None and record.queued_in is not None:
                self.route(record)
        for name in self.turns.books:
            queue = self._cache.queues[name]
            if self.turns.look(queue, now=self._cache.now):
                self._trees.wake(name)

    def update_orderings(self) -> dict[WorkloadKey, WorkloadRecord]:
        """Let policies that may have changed order the queues. Return the Workloads to be routed again.

        Called after policies or ClusterQueues have changed. O(held Workloads of the changed queues).
        """
        queues = self._cache.queues
        orderings = {name: _order_of(queue) for name, queue in queues.items()}
        changed = {name for name in queues if orderings.get(name) != self._orderings.get(name)}
        self._orderings = orderings
        # A ClusterQueue that no longer exists has no turns either.
        kept = queues.keys() - changed
        self.turns.books = {name: book for name, book in self.turns.books.items() if name in kept}
        # Running work attains service by the new ordering from here on.
        for name in changed:
            for held in queues[name].held.values():
                self.turns.watch_running(held, queues[name], now=self._cache.now)
        for name, queue in queues.items():
            takes_turns = least_attained(queue) is not None
            queue.turns = self.turns.books.setdefault(name, AttainedService()) if takes_turns else None
        # Routed only later: the books of their queues are made above.
        records = self._index.records if changed else {}
        return {key: record for key, record in records.items() if record.queued_in in changed}


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


def _is_by_priority(ordering: Ordering, queue: QueueState) -> bool:
    """Return whether equals are ordered by age alone.

    So they are where newer Workloads are preempted for older ones: one that passes an older Workload because
    its end is expected earlier would be stopped by that one as soon as it has started.
    """
    is_by_end = ordering.mode is OrderingMode.EARLIEST_EXPECTED_END
    return ordering.mode is OrderingMode.PRIORITY or (is_by_end and _is_by_age(queue))


def _returns_first(workload: Workload, queue: QueueState) -> bool:
    """Return whether the Workload goes before its equals: it was preempted after it reported checkpoints.

    Not in a queue with backfill: an older Workload that returns takes capacity promised to younger ones. Nor
    where newer work is preempted for older: the older one would stop it as soon as it has started.
    """
    policy = queue.policy
    section = policy.preemption
    if section is None or not section.saved_first or policy.backfill_rules is not None or _is_by_age(queue):
        return False
    return awaits_resume(workload, section, with_aliases=policy.aliases is Aliases.ARTICLES)


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
