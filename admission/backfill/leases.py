"""Leases: which Workloads that overtook a promise must be evicted now, because it is due?

A promise is looked at once it is no further off than the longest eviction on a lease. It holds at its start
either as it is, or without the fewest leases of lower rank that conflict with it. The search for them is the
one Kueue uses for preemption: add leases until the promise fits, then take back each that is not needed.

Cost. Nothing while no lease exists. Otherwise one test of fit for each promise that is near, and for a
promise that no longer fits one test for each lease of lower rank, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from admission.backfill.planned_starts import Promise
from admission.backfill.profile_trial import StartClaim
from admission.backfill.visible_promises import VisiblePromises
from api.workload import WorkloadKey
from queues.profile.planned_start import BackfillLease, PlannedStart, Rank
from queues.profile.profile_walk import holds_at


def expired(visible: VisiblePromises) -> tuple[tuple[BackfillLease, PlannedStart], ...]:
    """Return the leases to end now, each once, with the promise that each is ended for.

    Records at each lease found in the way which promise it will be evicted for, also where its time has not
    come yet. A lease is in the result once `start_at - eviction_seconds` has passed, so that the capacity is
    free at the promised start.
    """
    found: dict[WorkloadKey, tuple[BackfillLease, PlannedStart]] = {}
    # Promises further off than the longest eviction time need no search yet.
    longest = visible.schedule_plan.leases.longest_eviction()
    if longest is None:
        return ()
    for promise in visible.schedule_plan.promises.in_order():
        planned = promise.planned
        if planned.start_at - longest > visible.now:
            continue
        for lease in _in_the_way(visible, promise, frozenset(found)):
            # Recorded before its time has come, so that users see which promise it will be evicted for.
            visible.schedule_plan.leases.put(replace(lease, promised=planned.key))
            if planned.start_at - lease.eviction_seconds <= visible.now:
                found[lease.key] = (lease, planned)
    return tuple(found.values())


def _in_the_way(
    visible: VisiblePromises, promise: Promise, leaving: frozenset[WorkloadKey]
) -> Sequence[BackfillLease]:
    """Return a minimal set of leases to end so that the promise holds at its start.

    Empty where it already holds or where ending leases does not help. The Workload that started last loses
    the least work and is chosen first; afterwards those that turned out to be unnecessary are taken back.
    """
    planned = promise.planned
    queue = visible.snapshot.queues[planned.cluster_queue]
    pending = queue.pending.members.get(planned.key)
    leases = _lower_leases(visible, planned.rank, leaving)
    if pending is None or not leases:
        return ()
    trial = visible.trial(queue, pending)
    start_claim = StartClaim(usage=promise.claim.usage, spots=promise.claim.spots)
    above = visible.above(planned.rank, planned.key)
    at = max(planned.start_at, visible.now)

    def is_enough(going: Iterable[WorkloadKey]) -> bool:
        ending = frozenset(going)
        staying = frozenset(lease.key for lease in leases) - ending
        horizon = visible.horizon(
            queue, planned.rank, above, leaving=staying, going=ending, of=pending.workload
        )
        # Checked at its start only: what follows concerns the promises that begin then.
        return holds_at(horizon, visible.stage, trial, start_claim, at=at, seconds=0.0)

    going: list[BackfillLease] = []
    # The first round ends no lease: the promise may hold as it is.
    for lease in (None, *leases):
        if lease is not None:
            going.append(lease)
        if is_enough(one.key for one in going):
            break
    else:
        return ()
    # The last lease is needed, since the loop stopped there. An earlier one may have become unnecessary.
    for lease in going[:-1]:
        if is_enough(one.key for one in going if one is not lease):
            going.remove(lease)
    return going


def _lower_leases(
    visible: VisiblePromises, rank: Rank, leaving: frozenset[WorkloadKey]
) -> list[BackfillLease]:
    """Return the leases that a promise of that rank may end, the last started first."""
    lower = [
        lease
        for lease in visible.schedule_plan.leases.values()
        if lease.rank > rank and lease.key not in leaving and visible.schedule_plan.ends.can_leave(lease)
    ]
    # The key breaks ties, so that every replica chooses the same leases.
    return sorted(lower, key=lambda lease: (-lease.started_at, lease.key))
