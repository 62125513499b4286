"""Workloads as items of a list, and the words for their status."""

from __future__ import annotations

from functools import cache

from admission.answers.items import WorkloadItem, instant
from admission.engine.engine import Engine
from api.parsing.quantities import add_amounts, to_text
from api.parsing.times import to_rfc3339
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey

_FINISHED, _QUOTA_RESERVED = ConditionType.FINISHED, ConditionType.QUOTA_RESERVED


def status_of(workload: Workload) -> str:
    """Return finished, admitted, quotaReserved, pending or deactivated, as the object says."""
    # Asked of every Workload for most lists, so without calls.
    conditions = workload.conditions
    finished, reserved = conditions.get(_FINISHED), conditions.get(_QUOTA_RESERVED)
    if finished is not None and finished.status:
        return "finished"
    if reserved is None or not reserved.status:
        return "pending" if workload.active else "deactivated"
    return "admitted" if workload.is_true(ConditionType.ADMITTED) else "quotaReserved"


class WorkloadItems:
    """Makes items from Workloads of one engine, which does not change meanwhile.

    Positions of a queue are computed once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._positions = cache(self._positions_of)

    def cluster_queue(self, workload: Workload) -> str:
        """Return the ClusterQueue that the Workload uses, or waits for; "" if there is none."""
        if workload.admission is not None:
            return workload.admission.cluster_queue
        return self._engine.queues.cluster_queue_of(workload)

    def position(self, workload: Workload) -> int | None:
        """Return its position among the pending Workloads of its ClusterQueue, from 1; None without one."""
        return self._positions(self._engine.queues.cluster_queue_of(workload)).get(workload.key)

    def item(self, workload: Workload) -> WorkloadItem:
        """Return the Workload's item."""
        status = status_of(workload)
        is_waiting = status == "pending"
        reason, message = self._why(workload, is_waiting=is_waiting)
        queues, promises = self._engine.queues, self._engine.promises
        interval = promises.start_interval(workload.key) if is_waiting else None
        return WorkloadItem(
            namespace=workload.key.namespace,
            name=workload.key.name,
            owner_kind=workload.owner_kind,
            owner_name=workload.owner_name,
            local_queue_name=workload.queue_name,
            cluster_queue=self.cluster_queue(workload),
            status=status,
            priority=workload.priority,
            pods=sum(one.count for one in workload.pod_sets),
            requests=self._requests(workload),
            flavors=_flavors(workload),
            created_at=to_rfc3339(workload.created_at),
            position=self.position(workload) if is_waiting else None,
            can_start=queues.can_start(workload.key),
            expected_start=instant(promises.expected_start(workload.key)) if is_waiting else None,
            earliest_start=instant(interval.earliest_at) if interval is not None else None,
            latest_start=instant(interval.latest_at) if interval is not None else None,
            expected_after=instant(promises.expected_after(workload.key)) if is_waiting else None,
            is_promised=is_waiting and promises.planned(workload.key) is not None,
            started_at=instant(_at(workload, ConditionType.ADMITTED)),
            expected_end=instant(self._ends_at(workload)),
            finished_at=instant(_at(workload, ConditionType.FINISHED)),
            evictions=sum(workload.evictions.values()),
            reason=reason,
            message=message,
        )

    def _positions_of(self, cluster_queue: str) -> dict[WorkloadKey, int]:
        return self._engine.queues.all_positions(cluster_queue)

    def _why(self, workload: Workload, *, is_waiting: bool) -> tuple[str, str]:
        """Return why it waits, as known now, or else what its conditions say of its end or its wait."""
        known = self._engine.workloads.why_waiting(workload) if is_waiting else None
        if known is not None:
            return known
        for type_ in (ConditionType.FINISHED, ConditionType.EVICTED, ConditionType.QUOTA_RESERVED):
            condition = workload.conditions.get(type_)
            if condition is not None and condition.status == (type_ != ConditionType.QUOTA_RESERVED):
                return condition.reason, condition.message
        return "", ""

    def _requests(self, workload: Workload) -> dict[str, str]:
        total: dict[str, int] = {}
        for one in self._engine.workloads.requests(workload.key):
            add_amounts(total, one.total())
        return {resource: to_text(resource, amount) for resource, amount in sorted(total.items())}

    def _ends_at(self, workload: Workload) -> float | None:
        admitted = _at(workload, ConditionType.ADMITTED)
        if admitted is None or workload.is_finished:
            return None
        estimate = self._engine.workloads.estimate(workload)
        return None if estimate is None else admitted + estimate.seconds


def _at(workload: Workload, type_: ConditionType) -> float | None:
    condition = workload.conditions.get(type_)
    return condition.at if condition is not None and condition.status else None


def _flavors(workload: Workload) -> tuple[str, ...]:
    pod_sets = workload.admission.pod_sets if workload.admission is not None else ()
    return tuple(sorted({flavor for one in pod_sets for flavor in one.flavors.values()}))
