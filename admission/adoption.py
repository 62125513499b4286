"""Taking in the plan of another: what the store keeps becomes this engine's promises, leases and history.

A new leader goes on with what its predecessor has promised, so that no promise moves because the leader has
changed; a follower shows the leader's plan. What is taken in must still be true of what the cluster shows:

    promise    its Workload, of the same uid, waits in the ClusterQueue that it was made in, under backfill
    lease      its Workload, of the same uid, holds quota there
    outrun     its Workload, of the same uid, is there
    expected   its Workload waits
    history    always: it speaks of what has been

The quota and the places that a promise claims are worked out anew from its admission, by the flavors and
nodes as they are now. Whether it still stands is then judged like that of any promise, in the next cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admission.cache import Cache
from admission.roster import Roster
from admission.timekeeper import Promise
from admission.topology import places_of
from queues.plan import PlanTable, PlanValues
from queues.promises import BackfillLease, PlannedStart
from queues.resources import to_quantities
from queues.tracked import Tracked


def tables(cache: Cache) -> Mapping[PlanTable, Tracked[Any, Any]]:
    """Return the tables of the plan as this engine keeps them."""
    keeper = cache.timekeeper
    return {
        PlanTable.PROMISES: keeper.promises,
        PlanTable.LEASES: keeper.leases,
        PlanTable.OUTRUN: keeper.stopped_after,
        PlanTable.EXPECTED: keeper.expected,
        PlanTable.RUNS: keeper.estimator.learned.runs,
        PlanTable.NODES: cache.fleet.performance.outcomes,
    }


def stored_value(value: object) -> object:
    """Return what is stored of an entry: of a promise not its claim, which follows from it."""
    return value.planned if isinstance(value, Promise) else value


def adopt_history(cache: Cache, plan: PlanValues) -> None:
    """Take in what earlier runs have taught."""
    for key, runs in plan.runs.items():
        cache.timekeeper.estimator.learned.observe(key, *runs)
    for host, outcomes in plan.nodes.items():
        cache.fleet.performance.remember(host, outcomes)


def adopt_plan(cache: Cache, roster: Roster, plan: PlanValues, *, is_whole: bool) -> int:
    """Take in promises and leases; `is_whole`: and forget those known so far. Returns how many were not true.

    Nothing is taken in while no policy asks for backfill.
    """
    keeper = cache.timekeeper
    if not keeper.is_on:
        return 0
    if is_whole:
        keeper.forget_plan()
    untrue = 0
    for lease in plan.leases.values():
        if not _is_running(cache, lease):
            untrue += 1
        elif lease.key not in keeper.leases:
            keeper.leases[lease.key] = lease
    for (key, uid), seconds in plan.outrun.items():
        record = roster.records.get(key)
        if record is not None and record.workload.uid == uid:
            keeper.stopped_after[key, uid] = seconds
    # Leases say how much longer those who run are believed to.
    keeper.rebuild(cache.held.values())
    for planned in plan.promises.values():
        if not _is_waiting(cache, roster, planned):
            untrue += 1
            continue
        places = places_of(planned.admission, roster.records[planned.key].requests)
        usage = to_quantities(planned.admission.pod_sets)
        keeper.adopt(planned, usage, cache.fleet.spots(places))
    for key, expected in plan.expected.items():
        record = roster.records.get(key)
        is_waiting = record is not None and record.queued_in is not None and key not in keeper.promises
        if is_waiting and key not in keeper.expected:
            keeper.expected[key] = expected
    keeper.note_adopted()
    return untrue


def _is_running(cache: Cache, lease: BackfillLease) -> bool:
    held = cache.held.get(lease.key)
    return (
        held is not None
        and held.workload.uid == lease.uid
        and held.admission.cluster_queue == lease.cluster_queue
        and lease.cluster_queue in cache.queues
    )


def _is_waiting(cache: Cache, roster: Roster, planned: PlannedStart) -> bool:
    record, queue = roster.records.get(planned.key), cache.queues.get(planned.cluster_queue)
    if record is None or queue is None or queue.inactive or queue.policy.backfill_rules is None:
        return False
    return record.workload.uid == planned.uid and record.queued_in == planned.cluster_queue
