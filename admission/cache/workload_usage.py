"""Usage: the GPU-seconds that one Workload has used, waited for and lost since a time, and their price.

Computed from its object, which has the times of its last attempt, and of the attempts before it only how long
they took together:

    created ── waits ── earlier attempts, in all accumulated seconds ── admitted ── last attempt ── ended
"""

from __future__ import annotations

from math import floor

from admission.cache.cache import Cache
from admission.cache.workload_record import WorkloadRecord
from admission.preemption.device_price import device_money
from api.jobs.checkpoint_annotations import reports_checkpoints
from api.jobs.resource_requests import gpus_of
from api.keys import SUBMITTER
from api.reasons import ConditionType
from api.workload import Workload
from queues.reservations.usage_rows import UsageKey, UsageRow

SECONDS_PER_DAY = 86400.0
# Longer names of users are cut: each is part of a key of the store.
_MOST_SIGNS = 253


def usage_since(record: WorkloadRecord, cache: Cache, *, since: float, now: float) -> UsageRow | None:
    """Return what a Workload has used since then; None if it had ended by then. Times in Unix seconds."""
    workload = record.workload
    ended_at = _ended_at(workload, now)
    if ended_at <= since:
        return None
    gpus, admission = _gpus(record), workload.admission
    last, earlier = _last_attempt(workload, since, ended_at), _earlier_attempts(workload, since, now)
    waited = 0.0
    if not _is_deactivated(workload):
        existed = ended_at - max(workload.created_at, since)
        waited = max(0.0, existed - last - earlier)
    device_seconds = (last + earlier) * gpus
    return UsageRow(
        workloads=1,
        used=device_seconds,
        waited=waited,
        lost=0.0 if reports_checkpoints(workload) else earlier * gpus,
        evictions=sum(workload.evictions.values()),
        # Of earlier attempts no object says where they ran: they have the price of the last one.
        cost=0.0 if admission is None else device_money(admission, device_seconds, cache.device_price),
    )


def daily_usage(record: WorkloadRecord, cache: Cache, *, most_days: int) -> dict[UsageKey, UsageRow]:
    """Return what a Workload has used until now, by day of UTC; of the latest `most_days` alone."""
    workload, now = record.workload, cache.now
    last = day_of(_ended_at(workload, now))
    first = max(day_of(workload.created_at), last - most_days + 1)
    queue, user = cluster_queue_of(workload, cache), workload.annotations.get(SUBMITTER, "")[:_MOST_SIGNS]
    rows: dict[UsageKey, UsageRow] = {}
    later = UsageRow()
    for day in range(last, first - 1, -1):
        whole = usage_since(record, cache, since=day * SECONDS_PER_DAY, now=now) or UsageRow()
        # What was used since the beginning of this day, less what was used since that of the next one.
        used = whole.plus(later, -1.0)._replace(workloads=0, evictions=0)
        if day == last:
            used = whole
        if any(used):
            rows[UsageKey(day, queue, workload.key.namespace, user)] = used
        later = whole
    return rows


def day_of(at: float) -> int:
    """Return the day of UTC that an instant is in, counted from 1970."""
    return floor(at / SECONDS_PER_DAY)


def cluster_queue_of(workload: Workload, cache: Cache) -> str:
    """Return the ClusterQueue that the Workload uses, or waits for; "" if there is none."""
    if workload.admission is not None:
        return workload.admission.cluster_queue
    local_queue = cache.specs.local_queues.get((workload.key.namespace, workload.queue_name))
    return local_queue.cluster_queue if local_queue is not None else ""


def _ended_at(workload: Workload, now: float) -> float:
    return workload.end.at if workload.end is not None else now


def _is_deactivated(workload: Workload) -> bool:
    return not (workload.active or workload.is_finished or workload.has_quota_reservation)


def _last_attempt(workload: Workload, since: float, ended_at: float) -> float:
    """Return how many seconds the last attempt ran since then; 0 if it was evicted, or none has begun."""
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    if admitted is None or not admitted.status:
        return 0.0
    return max(0.0, ended_at - max(admitted.at, since))


def _earlier_attempts(workload: Workload, since: float, now: float) -> float:
    """Return how many seconds the attempts before ran since then, as late as they may have been."""
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    # The condition changes as an attempt begins and as it ends.
    before = admitted.at if admitted is not None else now
    return min(float(workload.accumulated_execution_seconds), max(0.0, before - since))


def _gpus(record: WorkloadRecord) -> int:
    """Return how many GPUs it holds, or else asks for."""
    if record.workload.admission is not None:
        return sum(gpus_of(one.usage) for one in record.workload.admission.pod_sets)
    return sum(gpus_of(one.total()) for one in record.requests)
