"""Admitted Workloads: which hold quota, assumed or confirmed by their object.

A decision is *assumed* until the object shows it. Events may be older than our own writes, so an object
without quota does not end an assumption (`keeps_assumption`). An object that shows the decision confirms it
(`_confirm`), no matter which process wrote it.

A slice of an elastic Job that replaces another holds quota for both: the pods of the former go on in it. The
former holds only what its successor does not, until it has finished, and holds all of its quota again if its
successor holds none after all (`_hold`, `release`). So each pod is counted once while it runs,
whichever object is seen first (`admission.cache.slice_succession`).

What comes free is only marked here; `admission.cache.trees_to_try` then wakes the Workloads that may fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import structs

from admission.cache.adopted_admission import charged_by_spec, is_complete
from admission.cache.cache import Cache
from admission.cache.pending_workloads import PendingWorkloads
from admission.cache.second_pass_queue import REPLACEMENT_SECONDS, SecondPassQueue
from admission.cache.slice_succession import left_by, takes_over
from admission.cache.touched_statuses import TouchedStatuses
from admission.cache.trees_to_try import TreesToTry
from admission.cache.workload_index import WorkloadIndex
from admission.cache.workload_record import WorkloadRecord
from admission.flavors.topology_assigner import places_of
from admission.placement.topology.place import Place
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from api.eviction import current_request, reserved_at_of
from api.jobs.checkpoint_annotations import CHECKPOINT_KEYS
from api.policy import VictimRules
from api.workload import Admission, Workload, WorkloadKey
from queues.estimates.estimator import completion_at
from queues.pending.ordering import RequeuingTimestamp, queued_at
from queues.pending.pending_queue import Pending
from queues.quota.resources import Quantities, by_resource, is_equal, pairs_of, to_quantities

_NO_RULES = VictimRules()


class AdmittedWorkloads:
    """The Workloads that hold quota."""

    def __init__(
        self,
        cache: Cache,
        index: WorkloadIndex,
        pending: PendingWorkloads,
        trees: TreesToTry,
        touched: TouchedStatuses,
        *,
        requeuing_timestamp: RequeuingTimestamp,
    ) -> None:
        self.second_pass = SecondPassQueue()
        # Admissions that no decision of this leader made, and when they were seen
        # (Unix seconds); see `admission.cache.overadmission`.
        self.unweighed: dict[WorkloadKey, float] = {}
        # The Workload that holds what a slice held, by the slice that it replaces.
        self.successors: dict[WorkloadKey, WorkloadKey] = {}
        self._cache = cache
        self._index = index
        self._pending = pending
        self._trees = trees
        self._touched = touched
        self._timestamp = requeuing_timestamp

    # --- decisions ---------------------------------------------------------------------------------------

    def assume(self, pending: Pending, admission: Admission, usage: Quantities) -> None:
        """Let a popped Workload hold what it was admitted with, before its object shows it.

        `usage` is what the admission charges, pairs of zero amount included.

        From the return on the usage counts in every cycle. `Engine.forget` takes it back, and an event of the
        object confirms it or differs from it, in which case the object counts.
        """
        record = self._index.records[pending.key]
        self._pending.leave(record)
        record.last_wait = None
        self._pending.unreported.pop(pending.key, None)
        self._hold(
            HeldWorkload(
                workload=pending.workload,
                admission=admission,
                usage=usage,
                pairs=frozenset(usage),
                places=places_of(admission, pending.requests)
                if self._cache.topology_cache.has_flavors
                else (),
                is_assumed=True,
                reserved_at=self._cache.now,
                queued_at=pending.queued_at,
            )
        )

    def adopt(self, workload: Workload, *, always: bool) -> HeldWorkload | None:
        """Assume another leader's admission; return what it holds now, None if refused.

        See `Engine.adopt`.
        """
        record, admission = self._index.records.get(workload.key), workload.admission
        if record is None or admission is None or record.workload.uid != workload.uid:
            return None
        present = record.workload
        # If it holds quota already, assumed or confirmed, its object will show what the other leader decided.
        if present.is_finished or workload.key in self._cache.held:
            return None
        queue = self._cache.queues.get(admission.cluster_queue)
        admission = charged_by_spec(admission, record, queue)
        # An answer in the log counts even without room, or two leaders would decide differently.
        if not (always or self._may_adopt(admission, record, queue)):
            return None
        self._pending.unqueue(record)
        held = HeldWorkload(
            workload=present,
            admission=admission,
            usage=to_quantities(admission.pod_sets),
            pairs=pairs_of(admission),
            places=places_of(admission, record.requests),
            is_assumed=True,
            reserved_at=self._cache.now,
            queued_at=queued_at(present, self._timestamp),
        )
        self._hold(held)
        return held

    def _may_adopt(self, admission: Admission, record: WorkloadRecord, queue: QueueState | None) -> bool:
        """Return whether a cycle could decide this admission now."""
        local_queue = self._cache.specs.local_queues.get(record.local_queue)
        return (
            queue is not None
            and local_queue is not None
            and local_queue.cluster_queue == queue.name
            and is_complete(admission, record, queue)
            and queue.node.fits(self._beyond_replaced(record.workload, admission))
        )

    def _beyond_replaced(self, workload: Workload, admission: Admission) -> Quantities:
        """Return what the admission charges beyond the slice that it replaces."""
        usage = to_quantities(admission.pod_sets)
        replaced = self._cache.held.get(workload.replaces) if workload.replaces is not None else None
        if replaced is None or not takes_over(workload, admission, replaced.workload, replaced.admission):
            return usage
        return {pair: max(0, amount - replaced.usage.get(pair, 0)) for pair, amount in usage.items()}

    def forget(self, key: WorkloadKey, uid: str, decided_on: str | None = None) -> None:
        """Take back a decision that could not be written: an assumed admission, and what was decided on it.

        No effect for an unknown Workload, another uid, or a decision that was made on another version than
        `decided_on`.
        """
        self.withdraw(key, uid)
        record, held = self._index.records.get(key), self._cache.held.get(key)
        if record is None or held is None or held.workload.uid != uid:
            return
        # A decision made on an older version than the present one is not the one that failed.
        if held.is_assumed and decided_on in (None, held.workload.resource_version):
            self.release(key)
            self._pending.route(record)

    def withdraw(self, key: WorkloadKey, uid: str) -> None:
        """Take back an eviction or a move that could not be written; an assumed admission stays.

        No effect for an unknown Workload, or another uid.
        """
        held = self._cache.held.get(key)
        # The decision does not concern a newer object of the same name.
        if key not in self._index.records or held is None or held.workload.uid != uid:
            return
        if held.is_evicting:
            # The Workloads that wait for this eviction have to ask for it again.
            held.is_evicting = False
            held.leaves_by = None
            self._cache.schedule_plan.hold(held)
            self._trees.wake(held.admission.cluster_queue)
        # It goes back to the places it still runs on, and needs others again.
        if held.former is not None:
            former, held.former = held.former, None
            self._move(held, former)
            self.second_pass.add(key, at=self._cache.now)

    def reassign(self, held: HeldWorkload, admission: Admission) -> None:
        """Let a Workload hold the places of another assignment, before its object shows it.

        Both the new and the former places are known until the object shows one of them.
        """
        held.former = held.admission
        self._move(held, admission)

    def _move(self, held: HeldWorkload, admission: Admission) -> None:
        """Change admission and places, and have Workloads tried that may use what comes free."""
        held.admission, left = admission, held.places
        self._cache.move(held, places_of(admission, self._index.records[held.key].requests))
        self.note_left(left)

    def forget_all(self) -> None:
        """Take back every unconfirmed decision, and have all reasons for waiting reported again."""
        # A list, since `forget` releases entries on the way.
        for held in list(self._cache.held.values()):
            if held.is_assumed or held.is_evicting or held.former is not None:
                self.forget(held.key, held.workload.uid)
        # The next leader may find room for Workloads that had none.
        self.second_pass.retry()
        for record in self._index.records.values():
            # The next leader has reported no reasons, so none may count as reported.
            record.last_wait = None
            if record.queued_in is not None:
                self._pending.unreported[record.workload.key] = None
        self._trees.wake_all()

    def release(self, key: WorkloadKey) -> None:
        """Free what the Workload holds, and let others be tried for it.

        Raises KeyError where it holds nothing. Also ends its second pass and its charge to the LocalQueue.
        """
        held = self._cache.held[key]
        self.unweighed.pop(key, None)
        # The quota goes first, so that everything below sees the tree without it.
        queue = self._cache.release(key)
        self._pending.turns.release(held)
        if self._cache.ledger is not None:
            self._cache.ledger.release(key)
        self.second_pass.drop(key)
        # Its LocalQueue's status counts reservations, whatever became of the ClusterQueue.
        self._touched.local_queues.add((key.namespace, held.workload.queue_name))
        if queue is not None:
            self._touched.cluster_queues.add(queue.name)
            self._trees.wake(queue.name, is_freed=True)
        if held.places:
            self.note_left(held.places)
        self._give_back(held)

    def _give_back(self, held: HeldWorkload) -> None:
        """Let the slice that a Workload has replaced hold its quota again, if its object still shows it."""
        replaced = held.workload.replaces
        if replaced is None or self.successors.get(replaced) != held.key:
            return
        del self.successors[replaced]
        record = self._index.records.get(replaced)
        if record is not None and not record.workload.is_finished and record.workload.has_quota_reservation:
            self.note_fact(record)

    def note_left(self, places: Iterable[Place]) -> None:
        """Have Workloads tried again that wait for places on the nodes of these places, which are free now.

        They may wait for them through another flavor, if it has the same nodes.
        """
        self.note_freed(self._cache.topology_cache.usage.flavors_at(places))

    def note_freed(self, flavors: Collection[str]) -> None:
        """Have Workloads tried again that wait for places on nodes of these flavors, where some are free.

        Flavors of different trees may share nodes, so Workloads of any tree may fit now.
        """
        if flavors:
            self._trees.wake_flavors(flavors)
            self.second_pass.retry()

    # --- what objects say --------------------------------------------------------------------------------

    def note_fact(self, record: WorkloadRecord) -> None:
        """Take in an object that shows that the Workload holds quota.

        An object that differs from what was assumed takes precedence. What another writer admitted is noted
        in `unweighed`, to be checked against the quota.
        """
        workload = record.workload
        assert workload.admission is not None
        self._pending.unqueue(record)
        usage: Quantities = to_quantities(record.charged)
        held = self._cache.held.get(workload.key)
        successor = self._successor_of(workload)
        if successor is not None:
            usage = left_by(successor.usage, usage)
            if not usage:
                # It may have been decided after its successor was.
                if held is not None:
                    self.release(workload.key)
                return
        if held is not None:
            # Also as it was before a move: the object may be older than our write of the new places.
            if is_equal(held.usage, usage) and workload.admission in (held.admission, held.former):
                self._confirm(held, workload)
                return
            # It differs from what was assumed, and the object counts.
            self.release(workload.key)
        if workload.unhealthy_nodes or workload.awaits_place:
            self._queue_again(workload)
        # Another writer admitted it, with more than was counted before: it has to be checked against quota.
        if successor is None and (held is None or _takes_more(held, workload.admission, usage)):
            self.unweighed[workload.key] = self._cache.now
        fresh = HeldWorkload(
            workload=workload,
            admission=workload.admission,
            usage=usage,
            pairs=pairs_of(workload.admission),
            # Its pods keep their places in its successor.
            places=places_of(workload.admission, record.requests) if successor is None else (),
            is_assumed=False,
            reserved_at=reserved_at_of(workload),
            queued_at=queued_at(workload, self._timestamp),
        )
        # Before it is held, since an eviction decides when its quota is expected back.
        self._note_request(fresh)
        if successor is None:
            self._hold(fresh)
        else:
            self._charge(fresh)

    def _confirm(self, held: HeldWorkload, workload: Workload) -> None:
        """Take in an object that shows what is held already, with whatever else has changed in it."""
        if workload.priority != held.workload.priority or self._affects_eviction(held, workload):
            # It may be a preemption candidate now that it was not before.
            self._trees.wake(held.admission.cluster_queue)
        if workload.unhealthy_nodes != held.workload.unhealthy_nodes:
            # Another failed node makes it worth another try, even if there was no room at the last.
            self.second_pass.unpark(workload.key)
            if workload.unhealthy_nodes:
                self._queue_again(workload)
        if workload.awaits_place and not held.workload.awaits_place:
            self._queue_again(workload)
        before, stated_end = (held.is_evicted, held.leaves_by), _stated_end(held.workload)
        # A Workload that is admitted again was not leaving, though its object still showed the last eviction.
        was_evicted = held.workload.is_evicted and not held.is_assumed
        has_new_priority = workload.priority != held.workload.priority
        held.workload = workload
        if has_new_priority:
            self._rank(held)
        held.is_assumed = False
        if workload.admission == held.admission:
            # The decided move is confirmed; an older version of the object still shows the former nodes.
            held.former = None
        self._note_request(held, was_evicted=was_evicted)
        self._date(held, reserved_at_of(workload))
        held.queued_at = queued_at(workload, self._timestamp)
        if stated_end != _stated_end(workload):
            self._cache.schedule_plan.hold_again(held)
        elif before != (held.is_evicted, held.leaves_by):
            self._cache.schedule_plan.hold(held)
        self._touched.cluster_queues.add(held.admission.cluster_queue)
        self._weigh(held)

    def _note_request(self, held: HeldWorkload, *, was_evicted: bool = False) -> None:
        """Take in what the object says of an eviction: evicted, asked to save a checkpoint first, or neither.

        `was_evicted`: an earlier version of the object was evicted. A decided eviction that the object does
        not show yet stays in force: the object may be older than our write.
        """
        request, was_leaving = current_request(held.workload), held.is_saving or was_evicted
        held.is_saving = request is not None
        if request is not None or held.workload.is_evicted:
            held.is_evicting = False
        if not held.is_evicting:
            held.leaves_by = request.deadline if request is not None else None
        if was_leaving and not held.is_evicted:
            # It stays after all. Another Workload may have to be evicted instead, and a node that failed
            # under it meanwhile has to be replaced.
            self._trees.wake(held.admission.cluster_queue)
            if held.workload.unhealthy_nodes:
                self._queue_again(held.workload)

    def _queue_again(self, workload: Workload) -> None:
        """Have the Workload placed in a second pass: at once, or once its failed nodes have been listed.

        A policy with `recovery` replaces failed nodes at once. Without it several that fail together are
        noticed, as in Kueue.
        """
        queue = self._cache.queues.get(workload.admission.cluster_queue) if workload.admission else None
        placement = queue.policy.placement if queue is not None else None
        recovers = placement is not None and placement.recovery is not None
        delay = 0.0 if workload.awaits_place or recovers else REPLACEMENT_SECONDS
        self.second_pass.add(workload.key, at=self._cache.now + delay)

    def _affects_eviction(self, held: HeldWorkload, workload: Workload) -> bool:
        """Return whether its annotations changed in a way that may decide whether it is evicted or moved."""
        queue = self._cache.queues.get(held.admission.cluster_queue)
        section = queue.policy.preemption if queue is not None else None
        before, after = held.workload.annotations, workload.annotations
        if queue is None or section is None or before == after:
            return False
        placement = queue.policy.placement
        if section.rules != _NO_RULES or (placement is not None and placement.consolidation is not None):
            return True
        # Without such rules a checkpoint changes what an eviction would cost, but not whether it is
        # allowed. All running work reports checkpoints again and again, and each time parked Workloads
        # would be tried for nothing.
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        return not changed <= CHECKPOINT_KEYS

    def note_shown(self, workload: Workload) -> None:
        """Record that an object shows its admission, although the Workload is placed only later.

        If it were released before it is placed, the assumption would wait for ever for an event
        that has already come.
        """
        held = self._cache.held.get(workload.key)
        if held is not None and held.is_assumed and workload.has_quota_reservation:
            held.is_assumed = False
            held.workload = workload

    def _date(self, held: HeldWorkload, reserved_at: float) -> None:
        """Record since when it holds quota, as its object says now."""
        # Compared, since every event of the object repeats the same instant.
        if held.reserved_at != reserved_at:
            held.reserved_at = reserved_at
            self._rank(held)
            self._watch(held)

    def _rank(self, held: HeldWorkload) -> None:
        """Update the place of a Workload in its ClusterQueue's order of preemption candidates."""
        queue = self._cache.queues.get(held.admission.cluster_queue)
        if queue is not None:
            queue.rank(held)

    def keeps_assumption(self, workload: Workload) -> bool:
        """Return whether an event without admission leaves an assumed Workload assumed.

        As a rule such an event is older than our write. It ends the assumption only if it says something new:
        that the Workload is being deleted, or has been evicted since.
        """
        held = self._cache.held.get(workload.key)
        # No admission of a deleted Workload will be carried out.
        if held is None or not held.is_assumed or workload.deleted_at is not None:
            return False
        # An eviction that was known when it was assumed came before this admission and says nothing new.
        return workload.eviction is None or workload.eviction == held.workload.eviction

    # --- within ------------------------------------------------------------------------------------------

    def _hold(self, held: HeldWorkload) -> None:
        """Let a Workload hold quota, and touch the statuses that show it."""
        self._take_over(held)
        self._charge(held)

    def _charge(self, held: HeldWorkload) -> None:
        queue = self._cache.hold(held)
        self._watch(held)
        if queue is not None:
            self._touched.cluster_queues.add(queue.name)
        # By the LocalQueue it was charged to: its object may name another one by now.
        self._touched.local_queues.add(held.local_queue)
        self._weigh(held)

    def _take_over(self, held: HeldWorkload) -> None:
        """Take away what the slice holds that this one replaces, as far as it is part of what this one holds.

        Not from a slice of another ClusterQueue, whose quota is another.
        """
        replaced = held.workload.replaces
        if replaced is None:
            return
        former = self._cache.held.get(replaced)
        if former is None:
            # Its object may be seen later.
            self.successors[replaced] = held.key
        elif takes_over(held.workload, held.admission, former.workload, former.admission):
            self.successors[replaced] = held.key
            # What that one has taken over itself is part of it.
            first = former.workload.replaces
            if first is not None and self.successors.get(first) == replaced:
                self.successors[first] = held.key
            rest = left_by(held.usage, former.usage)
            self.release(replaced)
            if rest:
                self._charge(structs.replace(former, usage=rest, places=()))

    def _successor_of(self, workload: Workload) -> HeldWorkload | None:
        """Return the slice that holds what the object of this one shows; None if there is none."""
        found = self._cache.held.get(self.successors.get(workload.key, workload.key))
        if found is None or workload.admission is None:
            return None
        return found if takes_over(found.workload, found.admission, workload, workload.admission) else None

    def successor(self, key: WorkloadKey) -> Workload | None:
        """Return the slice that has taken over from this Workload, by its object; None if there is none."""
        record = self._index.records.get(key)
        held = self._successor_of(record.workload) if record is not None else None
        return None if held is None or held.is_assumed else held.workload

    def _watch(self, held: HeldWorkload) -> None:
        """Record from when it may be preempted, where Workloads of its ClusterQueue take turns."""
        queue = self._cache.queues.get(held.admission.cluster_queue)
        if queue is not None:
            self._pending.turns.watch_running(held, queue, now=self._cache.now)

    def weigh_all(self) -> None:
        """Charge all usage to LocalQueues again, since another ordering may govern their ClusterQueues."""
        for held in self._cache.held.values():
            self._weigh(held)

    def _weigh(self, held: HeldWorkload) -> None:
        """Charge what a Workload holds to its LocalQueue, with admission fair sharing."""
        ledger, queue = self._cache.ledger, self._cache.queues.get(held.admission.cluster_queue)
        if ledger is None:
            return
        # The ClusterQueue is gone, and the usage with it.
        if queue is None:
            ledger.release(held.key)
            return
        # By resource only: past usage does not distinguish flavors.
        amounts = by_resource(held.usage)
        ledger.hold(held.key, held.local_queue, amounts, is_admitted=held.is_admitted, now=self._cache.now)


def _takes_more(held: HeldWorkload, admission: Admission, usage: Quantities) -> bool:
    """Return whether an admission takes quota that the one before it, which was counted, did not take."""
    if held.admission.cluster_queue != admission.cluster_queue:
        return True
    return any(amount > held.usage.get(pair, 0) for pair, amount in usage.items())


def _stated_end(workload: Workload) -> object:
    """Return what the object says about its end, as a comparable value."""
    return workload.maximum_execution_time_seconds, completion_at(workload)
