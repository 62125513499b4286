"""Who holds quota, assumed or for a fact: the holding side of the roster.

A decision is *assumed* until the object shows it. Events may be older than our own writes, so an object
without quota does not end an assumption (`_keeps_assumption`), and one that shows it makes the assumption a
fact (`_confirm`), whoever wrote it.

Whatever comes free wakes those who may fit there: noted here,
worked off by `admission.cache.pending_workloads`.
"""

from __future__ import annotations

from collections.abc import Collection

from admission.cache.cache import Cache
from admission.cache.pending_workloads import PendingWorkloads
from admission.cache.workload_record import WorkloadRecord
from admission.decisions.decision import DecisionId
from admission.flavors.topology_assigner import places_of
from admission.snapshot.snapshot import HeldWorkload
from api.eviction import reserved_at_of, standing_request
from api.jobs.checkpoint_annotations import CHECKPOINT_KEYS
from api.policy import VictimRules
from api.workload import Admission, Workload, WorkloadKey
from queues.estimates.estimator import completion_at
from queues.pending.ordering import RequeuingTimestamp, queued_at
from queues.pending.pending_queue import Pending
from queues.quota.resources import Quantities, by_resource, is_equal, pairs_of, to_quantities

_NO_RULES = VictimRules()


class AdmittedWorkloads(PendingWorkloads):
    """The Workloads that hold quota, beside those that wait."""

    def __init__(self, cache: Cache, *, requeuing_timestamp: RequeuingTimestamp) -> None:
        super().__init__(cache, requeuing_timestamp=requeuing_timestamp)
        # Workloads with failed nodes, or with ready checks and no place yet: for the second pass to look at,
        # and those that it had no room for.
        self.lost: dict[WorkloadKey, None] = {}
        self.unreplaced: dict[WorkloadKey, None] = {}
        # Admissions that no decision of ours has weighed, and when
        # they were seen: `admission.cache.overadmission`.
        self.unweighed: dict[WorkloadKey, float] = {}

    # --- decisions ---------------------------------------------------------------------------------------

    def assume(self, pending: Pending, admission: Admission, usage: Quantities) -> None:
        """Let a popped Workload hold what it was admitted with, before its object says so.

        `usage` is what that charges, pairs of zero amount included.
        """
        record = self.records[pending.key]
        self.leave(record)
        record.last_wait = None
        self.untold.pop(pending.key, None)
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
                reserved_at=self.now,
                queued_at=pending.queued_at,
            )
        )

    def adopt(self, workload: Workload, *, always: bool) -> DecisionId | None:
        """Assume an admission that another leader decided; see `Engine.adopt`."""
        record, admission = self.records.get(workload.key), workload.admission
        if record is None or admission is None or record.workload.uid != workload.uid:
            return None
        present, usage = record.workload, to_quantities(admission.pod_sets)
        # It holds something, assumed or for a fact: what another decided is told by the object then.
        if present.is_finished or workload.key in self._cache.held:
            return None
        queue = self._cache.queues.get(admission.cluster_queue)
        has_room = queue is not None and queue.node.fits(usage)
        # An answer that is in the log stands even without room, or two leaders would decide differently.
        if not (always or has_room):
            return None
        self.unqueue(record)
        self._hold(
            HeldWorkload(
                workload=present,
                admission=admission,
                usage=usage,
                pairs=pairs_of(admission),
                places=places_of(admission, record.requests),
                is_assumed=True,
                reserved_at=self.now,
                queued_at=queued_at(present, self._timestamp),
            )
        )
        return DecisionId(present.key, present.uid, present.resource_version)

    def forget(self, key: WorkloadKey, uid: str, decided_on: str | None = None) -> None:
        """Take back a decision that could not be written: an assumed admission, or an eviction."""
        record, held = self.records.get(key), self._cache.held.get(key)
        # A newer object of the same name is none of the decision's business.
        if record is None or held is None or held.workload.uid != uid:
            return
        if held.is_evicting:
            # Whoever waits for this eviction has to ask for it again.
            held.is_evicting = False
            held.leaves_by = None
            self._cache.schedule_plan.hold(held)
            self._wake_tree_of(held)
        # Back to the places that it runs on still, and on the list of those that need other ones.
        if held.former is not None:
            former, held.former = held.former, None
            self._move(held, former)
            self.lost[key] = None
        # Decided on an older version than the one that counts now: that decision is not the one that failed.
        if held.is_assumed and decided_on in (None, held.workload.resource_version):
            self.release(key)
            self._route(record)

    def reassign(self, held: HeldWorkload, admission: Admission) -> None:
        """Let a Workload hold the places of another assignment, before its object says so."""
        held.former = held.admission
        self._move(held, admission)

    def _move(self, held: HeldWorkload, admission: Admission) -> None:
        held.admission = admission
        self._cache.move(held, places_of(admission, self.records[held.key].requests))
        self.wake_flavors({place.flavor for place in held.places})

    def forget_all(self) -> None:
        """Take back every decision that is not a fact yet, and let everybody be told anew why they wait."""
        # A copy: what is forgotten is released on the way.
        for held in list(self._cache.held.values()):
            if held.is_assumed or held.is_evicting or held.former is not None:
                self.forget(held.key, held.workload.uid)
        # Another decider may find room for whom there was none.
        self.lost.update(self.unreplaced)
        for record in self.records.values():
            # Whoever leads next has told nobody anything, so nobody's message may be taken for told.
            record.last_wait = None
            if record.queued_in is not None:
                self.untold[record.workload.key] = None
        self.woken |= {queue.tree for queue in self._cache.queues.values()}

    def _wake_tree_of(self, held: HeldWorkload) -> None:
        queue = self._cache.queues.get(held.admission.cluster_queue)
        if queue is not None:
            self.woken.add(queue.tree)

    def release(self, key: WorkloadKey) -> None:
        """Free what the Workload holds, and let others try for it."""
        held = self._cache.held[key]
        self.unweighed.pop(key, None)
        # First the quota, so that everything after it sees the tree without it.
        queue = self._cache.release(key)
        self.turns.release(held)
        if self._cache.ledger is not None:
            self._cache.ledger.release(key)
        self.lost.pop(key, None)
        self.unreplaced.pop(key, None)
        # Its status counts who holds quota, wherever the ClusterQueue has gone.
        self.touched_local_queues.add((key.namespace, held.workload.queue_name))
        if queue is not None:
            self.touched_queues.add(queue.name)
            self.woken.add(queue.tree)
        if held.places:
            self.wake_flavors({place.flavor for place in held.places})

    def wake_flavors(self, flavors: Collection[str]) -> None:
        """Wake every tree with a queue of one of the flavors: room has come free on nodes that they share."""
        if not flavors:
            return
        # All queues, as nodes are shared between trees; as a rule only work with places comes here.
        for queue in self._cache.queues.values():
            if any(name in flavors for group in queue.groups.values() for name in group.flavors):
                self.woken.add(queue.tree)
        if self.unreplaced:
            self.lost.update(self.unreplaced)
            self.unreplaced.clear()

    # --- what objects say --------------------------------------------------------------------------------

    def _note_fact(self, record: WorkloadRecord) -> None:
        """The object says that the Workload holds quota."""
        workload = record.workload
        assert workload.admission is not None
        self.unqueue(record)
        usage = to_quantities(record.charged)
        held = self._cache.held.get(workload.key)
        if held is not None:
            # Also as it was before a move: the object may be older than our write of the new places.
            if is_equal(held.usage, usage) and workload.admission in (held.admission, held.former):
                self._confirm(held, workload)
                return
            # It says otherwise than what was assumed, and the object is what counts.
            self.release(workload.key)
        if workload.unhealthy_nodes or workload.awaits_place:
            self.lost[workload.key] = None
        # By another writer, and beyond what was counted before: to be judged against the quota.
        if held is None or _takes_more(held, workload.admission, usage):
            self.unweighed[workload.key] = self.now
        fresh = HeldWorkload(
            workload=workload,
            admission=workload.admission,
            usage=usage,
            pairs=pairs_of(workload.admission),
            places=places_of(workload.admission, record.requests),
            is_assumed=False,
            reserved_at=reserved_at_of(workload),
            queued_at=queued_at(workload, self._timestamp),
        )
        # Before it is held: whether it is being evicted decides when its quota is expected back.
        self._note_request(fresh)
        self._hold(fresh)

    def _confirm(self, held: HeldWorkload, workload: Workload) -> None:
        if workload.priority != held.workload.priority or self._tells_anew(held, workload):
            # It may be a victim now that it was not before.
            self._wake_tree_of(held)
        if workload.unhealthy_nodes != held.workload.unhealthy_nodes:
            # A node that fails later gives it another try, even if there was no room for the last.
            self.unreplaced.pop(workload.key, None)
            if workload.unhealthy_nodes:
                self.lost[workload.key] = None
        if workload.awaits_place and not held.workload.awaits_place:
            self.lost[workload.key] = None
        before, said = (held.is_evicted, held.leaves_by), _said_of_its_end(held.workload)
        was_evicted = held.workload.is_evicted
        is_ranked_anew = workload.priority != held.workload.priority
        held.workload = workload
        if is_ranked_anew:
            self._rank(held)
        held.is_assumed = False
        if workload.admission == held.admission:
            # What was decided has come about; an older version shows the former nodes still.
            held.former = None
        self._note_request(held, was_evicted=was_evicted)
        self._date(held, reserved_at_of(workload))
        held.queued_at = queued_at(workload, self._timestamp)
        if said != _said_of_its_end(workload):
            self._cache.schedule_plan.hold_anew(held)
        elif before != (held.is_evicted, held.leaves_by):
            self._cache.schedule_plan.hold(held)
        self.touched_queues.add(held.admission.cluster_queue)
        self._weigh(held)

    def _note_request(self, held: HeldWorkload, *, was_evicted: bool = False) -> None:
        """Take note of what the object says of an eviction: told to stop, to stop once it has saved, or not.

        `was_evicted`: an earlier version of it was told to stop.
        One that was decided and is not to be seen yet goes on: the object may be older than our write.
        """
        request, was_leaving = standing_request(held.workload), held.is_saving or was_evicted
        held.is_saving = request is not None
        if request is not None or held.workload.is_evicted:
            held.is_evicting = False
        if not held.is_evicting:
            held.leaves_by = request.deadline if request is not None else None
        if was_leaving and not held.is_evicted:
            # It stays after all. Others may have to be asked in its stead, and a node that failed under it
            # meanwhile is to be replaced.
            self._wake_tree_of(held)
            if held.workload.unhealthy_nodes:
                self.lost[held.key] = None

    def _tells_anew(self, held: HeldWorkload, workload: Workload) -> bool:
        """Return whether it says something else that may decide whether it is evicted, or moved."""
        queue = self._cache.queues.get(held.admission.cluster_queue)
        section = queue.policy.preemption if queue is not None else None
        before, after = held.workload.annotations, workload.annotations
        if queue is None or section is None or before == after:
            return False
        placement = queue.policy.placement
        if section.rules != _NO_RULES or (placement is not None and placement.consolidation is not None):
            return True
        # Without those a checkpoint says what its eviction would cost, and nothing of whether it may be
        # evicted. All who run tell of one again and again: each time whoever waits would be tried in vain.
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        return not changed <= CHECKPOINT_KEYS

    def _note_shown(self, workload: Workload) -> None:
        """Note that an object shows its admission, though it is placed later.

        Were it overtaken by a release before that, the assumption would wait for ever for an event that
        has been.
        """
        held = self._cache.held.get(workload.key)
        if held is not None and held.is_assumed and workload.has_quota_reservation:
            held.is_assumed = False
            held.workload = workload

    def _date(self, held: HeldWorkload, reserved_at: float) -> None:
        """Note since when it holds quota, as its object says now."""
        # Compared, since the same instant is told with every event of the object.
        if held.reserved_at != reserved_at:
            held.reserved_at = reserved_at
            self._rank(held)
            self._watch(held, self._cache.queues.get(held.admission.cluster_queue))

    def _rank(self, held: HeldWorkload) -> None:
        """Put who holds quota where it belongs by now in the order of its ClusterQueue."""
        queue = self._cache.queues.get(held.admission.cluster_queue)
        if queue is not None:
            queue.rank(held)

    def _keeps_assumption(self, workload: Workload) -> bool:
        """Return whether an event without admission leaves an assumed Workload assumed.

        Such an event is as a rule older than our write. It counts only where it says something that the
        assumption did not know: deleted, or evicted since.
        """
        held = self._cache.held.get(workload.key)
        # Deleted: nobody will carry an admission out any more.
        if held is None or not held.is_assumed or workload.deleted_at is not None:
            return False
        # The eviction that was known when it was assumed is the one before this admission,
        # and says nothing new.
        return workload.eviction is None or workload.eviction == held.workload.eviction

    # --- within ------------------------------------------------------------------------------------------

    def _hold(self, held: HeldWorkload) -> None:
        queue = self._cache.hold(held)
        self._watch(held, queue)
        if queue is not None:
            self.touched_queues.add(queue.name)
        # By the held one's LocalQueue: its object may name another by now.
        self.touched_local_queues.add(held.local_queue)
        self._weigh(held)

    def _weigh(self, held: HeldWorkload) -> None:
        """Let what a Workload holds weigh on its LocalQueue, where past usage decides who goes first."""
        ledger, queue = self._cache.ledger, self._cache.queues.get(held.admission.cluster_queue)
        if ledger is None:
            return
        # The queue left sharing, or is gone: what it weighed does not count for anybody.
        if queue is None or queue.usage_of is None:
            ledger.release(held.key)
            return
        # By resource, whatever the flavor: past usage knows resources alone.
        amounts = by_resource(held.usage)
        ledger.hold(held.key, held.local_queue, amounts, is_admitted=held.is_admitted, now=self.now)


def _takes_more(held: HeldWorkload, admission: Admission, usage: Quantities) -> bool:
    """Return whether an admission takes what the one before it, which was counted, did not."""
    if held.admission.cluster_queue != admission.cluster_queue:
        return True
    return any(amount > held.usage.get(pair, 0) for pair, amount in usage.items())


def _said_of_its_end(workload: Workload) -> object:
    return workload.maximum_execution_time_seconds, completion_at(workload)
