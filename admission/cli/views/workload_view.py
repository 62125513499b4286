"""Rows of `berth get workloads`, computed from the API objects only.

They have what Kueue's own list command shows, and also the message that says why a Workload waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from admission.answers.starts import start_bounds, start_of
from admission.reconcile.decision_texts import request_text
from admission.status.turns import positions
from api.eviction import EvictionRequest, read_request
from api.keys import EVICTION, PLANNED_START
from api.objects.common import WireCondition
from api.objects.queues import LocalQueueObject
from api.objects.workloads import WirePodSetAssignment, WorkloadObject
from api.parsing.times import to_seconds
from api.reasons import CANNOT_START, ConditionType, EvictionReason
from api.workload import WorkloadKey

# A Workload that was evicted for one of these reasons is queued by the time of its eviction. For any other
# reason it keeps its place. Source: Kueue, pkg/workload/workload.go, GetQueueOrderTimestamp.
_LOSES_ITS_PLACE = frozenset({EvictionReason.PODS_READY_TIMEOUT, EvictionReason.ADMISSION_CHECK})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRow:
    """One Workload.

    `position` counts from 1 among the pending Workloads of its ClusterQueue that can start, in the order of
    their expected starts where these are known, and is None for others. `status` is finished, admitted,
    quotaReserved, pending or deactivated. `reason` and `message` come from the most relevant condition: why
    it waits, how it ended, or why it was evicted. `can_start` False: not as it is, whatever ends.
    `expected_start` is when a pending Workload is expected to start (RFC 3339, "" if unknown), `is_promised`
    whether that is a promise. For a Workload behind all those with a known start, `expected_after` is the
    latest of these starts, a lower bound by the order of the queue. Four of five starts lie between
    `earliest_start` and `latest_start`, which a controller alone knows ("" without).
    """

    namespace: str
    name: str
    job: str
    queue: str
    cluster_queue: str
    status: str
    position: int | None
    priority: int
    reason: str
    message: str
    age_seconds: float
    expected_start: str = ""
    expected_after: str = ""
    is_promised: bool = False
    can_start: bool = True
    earliest_start: str = ""
    latest_start: str = ""


def workload_rows(
    workloads: Iterable[WorkloadObject],
    local_queues: Iterable[LocalQueueObject],
    *,
    now: float,
    places: Mapping[WorkloadKey, int] | None = None,
) -> tuple[WorkloadRow, ...]:
    """Return a row for each Workload: pending ones first and in queue order, finished ones last.

    `places` are the places in the queues, from 1; None: compute them only by priority and age. `now` is in
    Unix seconds.
    """
    cluster_queue_of = {
        (queue.metadata.namespace, queue.metadata.name): queue.spec.cluster_queue for queue in local_queues
    }
    workloads = tuple(workloads)
    places = queue_positions(workloads, cluster_queue_of) if places is None else places
    rows = [_workload_row(workload, cluster_queue_of, places, now) for workload in workloads]
    return in_row_order(_with_bounds(rows))


def in_row_order(rows: Iterable[WorkloadRow]) -> tuple[WorkloadRow, ...]:
    """Return the rows: pending ones first and in queue order, finished ones last."""
    return tuple(sorted(rows, key=_row_order))


def _with_bounds(rows: Iterable[WorkloadRow]) -> Iterator[WorkloadRow]:
    """Yield the rows with their final positions.

    Those behind all rows with a known start get the latest of these as lower bound.
    """
    by_queue: dict[str, list[WorkloadRow]] = {}
    for row in rows:
        if row.position is None or not row.can_start:
            yield replace(row, position=None)
        else:
            by_queue.setdefault(row.cluster_queue, []).append(row)
    for own in by_queue.values():
        in_order = sorted(own, key=lambda row: row.position or 0)
        bounds = start_bounds([row.expected_start for row in in_order])
        turns = positions(((row.name, row.namespace), row.expected_start or None) for row in in_order)
        for row, bound in zip(in_order, bounds, strict=True):
            yield replace(row, position=turns[row.name, row.namespace], expected_after=bound)


def queue_positions(
    workloads: Iterable[WorkloadObject], cluster_queue_of: Mapping[tuple[str, str], str]
) -> dict[WorkloadKey, int]:
    """Return the position of each pending Workload in its ClusterQueue, from 1.

    The order is priority, then queue timestamp, then uid. Workloads whose queue does not exist have no
    position. Other criteria of the controller (a policy's `ordering`, past usage) are not applied here.
    """
    queued: dict[str, list[tuple[int, float, str, WorkloadKey]]] = {}
    for workload in workloads:
        queue = (workload.metadata.namespace, workload.spec.queue_name or "")
        if phase(workload) == "pending" and queue in cluster_queue_of:
            rank = -priority(workload), _queued_at(workload), workload.metadata.uid, key_of(workload)
            queued.setdefault(cluster_queue_of[queue], []).append(rank)
    return {rank[3]: place for ranks in queued.values() for place, rank in enumerate(sorted(ranks), start=1)}


def key_of(workload: WorkloadObject) -> WorkloadKey:
    """Return namespace and name."""
    return WorkloadKey(workload.metadata.namespace, workload.metadata.name)


def phase(workload: WorkloadObject) -> str:
    """Return finished, admitted, quotaReserved or pending, in Kueue's words, or deactivated."""
    conditions = _true_conditions(workload)
    if ConditionType.FINISHED in conditions:
        return "finished"
    if ConditionType.QUOTA_RESERVED not in conditions:
        return "deactivated" if workload.spec.active is False else "pending"
    return "admitted" if ConditionType.ADMITTED in conditions else "quotaReserved"


def priority(workload: WorkloadObject) -> int:
    """Return the priority by which the Workload is ordered, which no annotation changes."""
    return workload.spec.priority or 0


def job_of(workload: WorkloadObject) -> str:
    """Return the name of the Job (or other object) that owns the Workload, or ""."""
    owner = workload.metadata.controller
    return owner.name if owner is not None else ""


def _workload_row(
    workload: WorkloadObject,
    cluster_queue_of: Mapping[tuple[str, str], str],
    places: Mapping[WorkloadKey, int],
    now: float,
) -> WorkloadRow:
    reason, message = _why(workload)
    queue = workload.spec.queue_name or ""
    admission, annotations = workload.status.admission, workload.metadata.annotations or {}
    is_promised = phase(workload) == "pending" and PLANNED_START in annotations
    # A quota window may give it what it lacks at present.
    can_start = is_promised or reason not in CANNOT_START
    return WorkloadRow(
        namespace=workload.metadata.namespace,
        name=workload.metadata.name,
        job=job_of(workload),
        queue=queue,
        cluster_queue=admission.cluster_queue
        if admission
        else cluster_queue_of.get((workload.metadata.namespace, queue), ""),
        status=phase(workload),
        position=places.get(key_of(workload)),
        priority=priority(workload),
        reason=reason,
        message=message,
        age_seconds=round(max(0.0, now - _created_at(workload)), 1),
        expected_start=start_of(annotations) if phase(workload) == "pending" and can_start else "",
        is_promised=is_promised,
        can_start=can_start,
    )


def _why(workload: WorkloadObject) -> tuple[str, str]:
    conditions = {condition.type: condition for condition in workload.status.conditions or ()}
    if finished := _if_true(conditions, ConditionType.FINISHED):
        return finished.reason, finished.message
    reserved = conditions.get(ConditionType.QUOTA_RESERVED)
    evicted = _if_true(conditions, ConditionType.EVICTED)
    # Once it queues again, the reason of its eviction is the past; that of its waiting is the present.
    if evicted is not None and not _queues_again(conditions, reserved):
        allowed = conditions.get(ConditionType.DISRUPTION_ALLOWED)
        # It is to be evicted, but a PodDisruptionBudget or the API server holds the eviction back.
        kept = f"{allowed.message}: " if allowed is not None and allowed.status == "False" else ""
        return evicted.reason, f"{kept}{evicted.message}"
    if reserved is None:
        return "", "no controller has written its reason yet; berth explain tells it"
    if reserved.status != "True":
        return reserved.reason, reserved.message
    if request := _request(workload):
        sees = workload.metadata.namespace.__eq__
        return request.reason.value, request_text(request, sees=sees)
    if ConditionType.ADMITTED not in _true_conditions(workload):
        waiting = conditions.get(ConditionType.ADMITTED)
        return (waiting.reason, waiting.message) if waiting else ("", "waits for its admission checks")
    return "", _flavors(workload)


def _queues_again(conditions: Mapping[str, WireCondition], reserved: WireCondition | None) -> bool:
    is_released = reserved is not None and reserved.status != "True"
    return is_released and _if_true(conditions, ConditionType.REQUEUED) is not None


def _request(workload: WorkloadObject) -> EvictionRequest | None:
    """Return the eviction that waits for the Workload's checkpoint, or None."""
    text = (workload.metadata.annotations or {}).get(EVICTION)
    try:
        return read_request(text) if text is not None else None
    except ValueError:
        return None


def _flavors(workload: WorkloadObject) -> str:
    assignments: tuple[WirePodSetAssignment, ...] = ()
    if workload.status.admission is not None:
        assignments = workload.status.admission.pod_set_assignments or ()
    names = sorted({flavor for assignment in assignments for flavor in (assignment.flavors or {}).values()})
    return f"runs on {', '.join(names)}" if names else "runs"


def _if_true(conditions: Mapping[str, WireCondition], type_: str) -> WireCondition | None:
    condition = conditions.get(type_)
    return condition if condition is not None and condition.status == "True" else None


def _true_conditions(workload: WorkloadObject) -> set[str]:
    return {c.type for c in workload.status.conditions or () if c.status == "True"}


def _queued_at(workload: WorkloadObject) -> float:
    for condition in workload.status.conditions or ():
        is_eviction = condition.type == ConditionType.EVICTED and condition.status == "True"
        if is_eviction and condition.reason in _LOSES_ITS_PLACE:
            return _seconds(condition.last_transition_time)
    return _created_at(workload)


def _created_at(workload: WorkloadObject) -> float:
    return _seconds(workload.metadata.creation_timestamp)


def _seconds(text: str | None) -> float:
    try:
        return to_seconds(text)
    except ValueError:
        return 0.0


STATUSES = ("pending", "deactivated", "quotaReserved", "admitted", "finished")


def _row_order(row: WorkloadRow) -> tuple[int, str, int, str, str]:
    return (
        STATUSES.index(row.status),
        row.cluster_queue,
        row.position or 0,
        row.namespace,
        row.name,
    )
