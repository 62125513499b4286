"""Leases: a promise is near, so whoever overtook it and is in its way gives way now."""

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
    """Return whose time has come to give way, and to which promise; each once."""
    found: dict[WorkloadKey, tuple[BackfillLease, PlannedStart]] = {}
    # The slowest to leave says how early anybody has to be looked at; promises further off need no search.
    longest = visible.schedule_plan.longest_eviction()
    if longest is None:
        return ()
    for promise in visible.schedule_plan.promises.in_order():
        planned = promise.planned
        if planned.start_at - longest > visible.now:
            continue
        for lease in _in_the_way(visible, promise, frozenset(found)):
            # Noted before its time has come, so that an observer sees to whom it will give way.
            visible.schedule_plan.lend(replace(lease, promised=planned.key))
            if planned.start_at - lease.eviction_seconds <= visible.now:
                found[lease.key] = (lease, planned)
    return tuple(found.values())


def _in_the_way(
    visible: VisiblePromises, promise: Promise, leaving: frozenset[WorkloadKey]
) -> Sequence[BackfillLease]:
    """Return a smallest set of leases without which the promise stands, () where it does or none helps.

    Who started last has the least to lose and goes first; in the end those come back who need not go.
    """
    planned = promise.planned
    queue = visible.snapshot.queues[planned.cluster_queue]
    pending = queue.pending.get(planned.key)
    leases = _lower_leases(visible, planned.rank, leaving)
    if pending is None or not leases:
        return ()
    trial = visible.trial(queue, pending)
    footing = StartClaim(usage=promise.claim.usage, spots=promise.claim.spots)
    above = visible.above(planned.rank, planned.key)
    at = max(planned.start_at, visible.now)

    def is_enough(going: Iterable[WorkloadKey]) -> bool:
        ending = frozenset(going)
        staying = frozenset(lease.key for lease in leases) - ending
        horizon = visible.horizon(
            queue, planned.rank, above, leaving=staying, going=ending, of=pending.workload
        )
        # At its start alone: what comes after that is for the promises that begin then.
        return holds_at(horizon, visible.stage, trial, footing, at=at, seconds=0.0)

    going: list[BackfillLease] = []
    # First without anybody: the promise may stand as it is.
    for lease in (None, *leases):
        if lease is not None:
            going.append(lease)
        if is_enough(one.key for one in going):
            break
    else:
        return ()
    # The last is needed, or the loop had ended before it; of the others some may have been sent in vain.
    for lease in going[:-1]:
        if is_enough(one.key for one in going if one is not lease):
            going.remove(lease)
    return going


def _lower_leases(
    visible: VisiblePromises, rank: Rank, leaving: frozenset[WorkloadKey]
) -> list[BackfillLease]:
    """Return the leases that give way to a promise of that rank, the last started first."""
    lower = [
        lease
        for lease in visible.schedule_plan.leases.values()
        if lease.rank > rank and lease.key not in leaving and visible.schedule_plan.can_leave(lease)
    ]
    # The key breaks ties, so that two replicas choose the same.
    return sorted(lower, key=lambda lease: (-lease.started_at, lease.key))
