"""Restoring the plan: takes in the promises, leases and history that another leader has stored.

A new leader continues with the promises of its predecessor, so that none moves because the leader
has changed. A follower shows the leader's plan. An entry is taken in only if it still applies to
what the cluster shows:

    promise    its Workload, of the same uid, is pending in the same ClusterQueue, which has backfill
    lease      its Workload, of the same uid, holds quota there
    outrun     its Workload, of the same uid, exists
    expected   its Workload is pending
    hold       its Workload, of the same uid, is pending in that ClusterQueue, under a policy that holds room
    history    always, and moves for an hour, since both describe the past

The quota and places that a promise or hold claims are computed again from its admission, by the
flavors and nodes as they are now. Whether a promise still holds is checked in the next cycle, like
that of any other promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from admission.backfill.planned_starts import Promise
from admission.cache.cache import Cache
from admission.cache.workload_record import WorkloadRecord
from admission.cache.workload_store import WorkloadStore
from admission.engine.under_way import UnderWay
from admission.flavors.topology_assigner import places_of
from admission.snapshot.capacity_holds import holds_room
from admission.snapshot.hold_totals import HeldRoom
from admission.snapshot.queue_state import QueueState
from queues.profile.holds import Hold
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.quota.resources import to_quantities
from queues.reservations.plan import PlanTable, PlanValues
from queues.tracked import Tracked


def tables(cache: Cache) -> Mapping[PlanTable, Tracked[Any, Any]]:
    """Return the tables of the plan, by their name in the store.

    Each is the live object and records what changes in it, so a writer takes only the changed rows.
    """
    schedule_plan = cache.schedule_plan
    return {
        PlanTable.PROMISES: schedule_plan.promises,
        PlanTable.LEASES: schedule_plan.leases,
        PlanTable.OUTRUN: schedule_plan.run_estimates.stopped_after,
        PlanTable.EXPECTED: schedule_plan.expected,
        PlanTable.HOLDS: cache.holds.kept,
        PlanTable.MOVES: cache.moves.of,
        PlanTable.RUNS: cache.estimator.learned.runs,
        PlanTable.NODES: cache.topology_cache.performance.outcomes,
        PlanTable.USAGE: cache.deleted_usage.rows,
    }


def adopt_history(cache: Cache, plan: PlanValues, *, is_whole: bool) -> None:
    """Take in what was learned from earlier runs, and what deleted Workloads used.

    Run times by kind of Job, and how runs on each host ended, are added to what is known here. Sums of usage
    replace those that are known here if `is_whole`.
    """
    for key, runs in plan.runs.items():
        cache.estimator.learned.observe(key, *runs)
    for host, outcomes in plan.nodes.items():
        cache.topology_cache.performance.remember(host, outcomes)
    cache.deleted_usage.adopt(plan.usage, is_whole=is_whole)


class StoredPlan:
    """The plan that outlives this process: what the store keeps of it, and what is taken in from there."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore, under_way: UnderWay) -> None:
        self._cache = cache
        self._workload_store = workload_store
        self._under_way = under_way

    def tables(self) -> Mapping[PlanTable, Tracked[Any, Any]]:
        """Return the tables that the store keeps for the next leader; each tracks its changes."""
        return tables(self._cache)

    def adopt(self, plan: PlanValues, *, now: float, is_whole: bool) -> int:
        """Take in what another leader has promised and learned; `is_whole`: it replaces what is known here.

        Return how many promises, leases and holds no longer applied.

        `now` is in Unix seconds. A promise no longer applies if its Workload is not pending with the same uid
        in the same queue, and a lease if its Workload does not hold quota there. To be called after the
        objects of the cluster were put in.
        """
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        # History comes first, since the claims of promises depend on learned run times.
        adopt_history(self._cache, plan, is_whole=is_whole)
        self._cache.moves.adopt(plan.moves, now=now, is_whole=is_whole)
        outdated = self._adopt_holds(plan.holds.values(), now=now, is_whole=is_whole)
        return outdated + self._adopt_promises(plan, is_whole=is_whole)

    def _adopt_holds(self, holds: Iterable[Hold], *, now: float, is_whole: bool) -> int:
        """Hold capacity for preemptors, and let them come first. Return how many holds no longer applied."""
        if is_whole:
            for key, room in self._cache.holds.kept.items():
                former = self._cache.queues.get(room.hold.cluster_queue)
                if former is not None:
                    former.pending.precedence.end_hold(key)
            self._cache.holds.kept.clear()
        records, outdated = self._workload_store.index.records, 0
        for hold in holds:
            record, queue = records.get(hold.key), self._cache.queues.get(hold.cluster_queue)
            # It does not fit the cluster as it is now. The count lets the log say how much of
            # a plan was outdated.
            if record is None or queue is None or not _still_applies(hold, record, queue, now=now):
                outdated += 1
                continue
            places = places_of(hold.admission, record.requests)
            room = HeldRoom(hold=hold, usage=to_quantities(hold.admission.pod_sets), places=places)
            if self._cache.holds.put(room):
                queue.pending.precedence.prefer_holder(record.workload)
            # The preemptor comes first again, or a Workload evicted for it would come before it.
            queue.pending.precedence.prefer_preemptor(record.workload)
        return outdated

    def _adopt_promises(self, plan: PlanValues, *, is_whole: bool) -> int:
        """Take in promises, leases and expected starts; none while no policy asks for backfill.

        Return how many leases and promises no longer applied.
        """
        schedule_plan = self._cache.schedule_plan
        if not schedule_plan.is_on:
            return 0
        if is_whole:
            # A follower shows only what the leader keeps.
            schedule_plan.forget_plan()
        records, outdated = self._workload_store.index.records, 0
        for lease in plan.leases.values():
            if not self._is_running(lease):
                outdated += 1
            # What this engine knows itself is newer than what was stored.
            elif lease.key not in schedule_plan.leases:
                schedule_plan.leases.put(lease)
        for (key, uid), seconds in plan.outrun.items():
            record = records.get(key)
            if record is not None and record.workload.uid == uid:
                schedule_plan.run_estimates.stopped_after[key, uid] = seconds
        # The claims of running work depend on its leases.
        schedule_plan.rebuild(self._cache.held.values())
        for planned in plan.promises.values():
            if not self._is_waiting(planned):
                outdated += 1
                continue
            # By the flavors and nodes as they are now: stored places could be on nodes that no longer exist.
            places = places_of(planned.admission, records[planned.key].requests)
            usage = to_quantities(planned.admission.pod_sets)
            schedule_plan.promises.adopt(planned, usage, self._cache.topology_cache.usage.spots(places))
        for key, expected in plan.expected.items():
            record = records.get(key)
            is_waiting = record is not None and record.queued_in is not None
            # A promise says more than an expected start, so both are not kept.
            if is_waiting and key not in schedule_plan.promises:
                schedule_plan.expected.adopt(key, expected)
        schedule_plan.note_adopted()
        return outdated

    def _is_running(self, lease: BackfillLease) -> bool:
        """Return whether the holder of the lease still runs in the same ClusterQueue."""
        held = self._cache.held.get(lease.key)
        return (
            held is not None
            and held.workload.uid == lease.uid
            and held.admission.cluster_queue == lease.cluster_queue
            and lease.cluster_queue in self._cache.queues
        )

    def _is_waiting(self, planned: PlannedStart) -> bool:
        """Return whether the promised Workload still waits in the same ClusterQueue."""
        record = self._workload_store.index.records.get(planned.key)
        queue = self._cache.queues.get(planned.cluster_queue)
        if record is None or queue is None or queue.inactive or queue.policy.backfill_rules is None:
            return False
        return record.workload.uid == planned.uid and record.queued_in == planned.cluster_queue


def stored_value(value: object) -> object:
    """Return what is stored of an entry. Claims of promises and holds are not, since they can be computed."""
    match value:
        case Promise():
            return value.planned
        case HeldRoom():
            return value.hold
    return value


def _still_applies(hold: Hold, record: WorkloadRecord, queue: QueueState, *, now: float) -> bool:
    """Return whether the hold still applies to its Workload."""
    return (
        hold.until > now
        and holds_room(queue.policy)
        and record.workload.uid == hold.uid
        and record.queued_in == hold.cluster_queue
    )
