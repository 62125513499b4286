"""The time step: what time alone changes between cycles, in estimates, promises, leases and reservations.

It runs before every cycle of an engine with backfill or a calendar, and takes the decisions that belong to no
head: evictions for expired leases and begun reservations.
"""

from __future__ import annotations

from admission.backfill.backfill_cycle import Backfill
from admission.backfill.reservation_preemption import ReservationPreemption
from admission.cache.cache import Cache
from admission.cache.trees_to_try import TreesToTry
from admission.cache.workload_index import WorkloadIndex
from admission.calendar.advance_reservations import ReservedCapacity
from admission.decisions.decision import Evict, Plan
from admission.nomination.nominate import CyclePolicy
from admission.preemption.checkpoint_before_eviction import asked_first
from admission.snapshot.held_workload import HeldWorkload
from api.parsing.times import to_rfc3339
from api.reasons import EvictionReason
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.steps import Steps, finish


def settling(cache: Cache, policy: CyclePolicy, *, now: float) -> Steps[None]:
    """Bring promises up to `now` in steps: each is checked again if something may have moved it.

    One step for each promise that is looked at. Without backfill or calendar it ends at once.
    """
    schedule_plan = cache.schedule_plan
    schedule_plan.now = now
    if not schedule_plan.is_on:
        return
    # First, since work that has outrun its estimate takes longer than the promises below assume.
    schedule_plan.outrun(cache.held)
    if schedule_plan.revision.is_due(now=now):
        yield from Backfill(
            snapshot=cache.snapshot(), schedule_plan=schedule_plan, policy=policy, now=now
        ).settling()


def pass_time(
    cache: Cache, trees: TreesToTry, policy: CyclePolicy, *, now: float, is_settled: bool = False
) -> tuple[Evict, ...]:
    """Bring promises and leases up to `now`, and wake what may start. Return the evictions that are due.

    `is_settled`: the promises have just been checked in steps.

    `now` is in Unix seconds. The evicted Workloads are marked as leaving, so no later search chooses them as
    victims. The reasons are BackfillLeaseExpired and ReservationDue.
    """
    schedule_plan = cache.schedule_plan
    schedule_plan.now = now
    if not schedule_plan.is_on:
        return ()
    # Before leases are checked, since a promise that moves to an earlier start may end one.
    if not is_settled:
        finish(settling(cache, policy, now=now))
    backfill = Backfill(snapshot=cache.snapshot(), schedule_plan=schedule_plan, policy=policy, now=now)
    evictions = tuple(_evict(cache, *one, now=now) for one in backfill.expired())
    for eviction in evictions:
        held = cache.held[eviction.key]
        held.is_evicting, held.leaves_by = True, eviction.save_by
        schedule_plan.note_eviction(held)
    # On a new snapshot, on which the Workloads just evicted are leaving already.
    clearing = ReservationPreemption(snapshot=cache.snapshot(), schedule_plan=schedule_plan, now=now)
    for held, kept in tuple(clearing.leaving()):
        eviction = _clear(cache, held, kept, now=now)
        held.is_evicting, held.leaves_by = True, eviction.save_by
        schedule_plan.note_eviction(held)
        evictions += (eviction,)
    # By name, since trees are built again when specs change.
    for name in schedule_plan.take_queues_to_try():
        trees.wake(name)
    return evictions


def take_plans(cache: Cache, index: WorkloadIndex) -> tuple[Plan, ...]:
    """Return the promises made, moved or withdrawn since the last call, to be reported.

    Also computes when time alone next changes something (`SchedulePlan.wake_at`), because the promises are
    final now.
    """
    schedule_plan = cache.schedule_plan
    schedule_plan.wake_at = schedule_plan.next_at()
    plans = []
    for report in schedule_plan.reports.take():
        record, planned = index.records.get(report.key), report.planned
        # Nothing is reported for an object that no longer exists, nor for a new one of its name.
        if record is not None and (planned is None or planned.uid == record.workload.uid):
            workload = record.workload
            plans.append(
                Plan(
                    key=report.key,
                    uid=workload.uid,
                    planned=planned,
                    former=report.former,
                )
            )
    return tuple(plans)


def _clear(cache: Cache, held: HeldWorkload, kept: ReservedCapacity, *, now: float) -> Evict:
    """Return the eviction of a Workload for a reservation that begins."""
    workload = held.workload
    decision = Evict(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        reason=EvictionReason.RESERVATION_DUE,
        message=(
            f"Evicted because {kept.description}; this workload was expected to have ended by then, or may "
            f"use that capacity only until then"
        ),
        cluster_queue=held.admission.cluster_queue,
    )
    queue = cache.queues[held.admission.cluster_queue]
    return asked_first(decision, workload, queue.policy, now=now)


def _evict(cache: Cache, lease: BackfillLease, planned: PlannedStart, *, now: float) -> Evict:
    """Return the eviction of a Workload whose lease ends for a promise."""
    workload = cache.held[lease.key].workload
    promised = planned.key.as_read_in(lease.key.namespace)
    decision = Evict(
        key=lease.key,
        uid=lease.uid,
        resource_version=workload.resource_version,
        reason=EvictionReason.BACKFILL_LEASE_EXPIRED,
        message=(
            f"Evicted because {promised} is promised to start at {to_rfc3339(planned.start_at)} on quota "
            f"or nodes that this workload uses; this workload started ahead of it, on a backfill lease"
        ),
        preemptor=planned.key,
        preemptor_uid=planned.uid,
        preempting_cluster_queue=planned.cluster_queue,
        cluster_queue=lease.cluster_queue,
    )
    queue = cache.queues.get(lease.cluster_queue)
    return decision if queue is None else asked_first(decision, workload, queue.policy, now=now)
