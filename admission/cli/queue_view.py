"""ClusterQueues as people want to see them: rows, worked out from the API objects alone.

What Kueue's own list command shows, and what it leaves out: how much of which quota is used and borrowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from api.objects import ClusterQueueObject, Wire, WireCondition, WireResourceGroup
from api.quantities import QuantityError, amount


class _ResourceUsage(Wire, frozen=True):
    name: str
    total: str | int | float = 0
    borrowed: str | int | float = 0


class _FlavorUsage(Wire, frozen=True):
    name: str
    resources: tuple[_ResourceUsage, ...] = ()


class ClusterQueueStatus(Wire, frozen=True):
    """status of a ClusterQueue, as far as it is shown."""

    conditions: tuple[WireCondition, ...] | None = None
    flavors_reservation: tuple[_FlavorUsage, ...] | None = None
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """How one flavor-resource of a ClusterQueue stands, in canonical units. `used` is what is reserved."""

    flavor: str
    resource: str
    used: int
    nominal: int
    borrowing_limit: int | None

    @property
    def borrowed(self) -> int:
        """What lies above the nominal quota."""
        return max(0, self.used - self.nominal)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One ClusterQueue. `active` None: no controller has said yet."""

    name: str
    cohort: str
    strategy: str
    active: bool | None
    reason: str
    message: str
    pending: int
    reserving: int
    admitted: int
    quotas: tuple[QuotaRow, ...]


def queue_rows(queues: Iterable[ClusterQueueObject]) -> tuple[QueueRow, ...]:
    """Return a row for each ClusterQueue, sorted by cohort and name."""
    rows = [_queue_row(queue) for queue in queues]
    # Those of one cohort stand together; those of none come last.
    return tuple(sorted(rows, key=lambda row: (row.cohort == "", row.cohort, row.name)))


def status_of(queue: ClusterQueueObject) -> ClusterQueueStatus:
    """Return the status of a ClusterQueue, an empty one where it cannot be read."""
    try:
        return msgspec.json.decode(queue.status, type=ClusterQueueStatus)
    except msgspec.DecodeError:
        return ClusterQueueStatus()


def _queue_row(queue: ClusterQueueObject) -> QueueRow:
    status = status_of(queue)
    active = next((c for c in status.conditions or () if c.type == "Active"), None)
    return QueueRow(
        name=queue.metadata.name,
        cohort=queue.spec.cohort_name or "",
        strategy=queue.spec.queueing_strategy or "BestEffortFIFO",
        active=None if active is None else active.status == "True",
        reason=active.reason if active else "",
        message=active.message if active else "no controller has looked at it yet",
        pending=status.pending_workloads,
        reserving=status.reserving_workloads,
        admitted=status.admitted_workloads,
        quotas=_quota_rows(queue.spec.resource_groups or (), _used(status)),
    )


def _used(status: ClusterQueueStatus) -> dict[tuple[str, str], int]:
    return {
        (flavor.name, resource.name): _amount(resource.name, resource.total)
        for flavor in status.flavors_reservation or ()
        for resource in flavor.resources
    }


def _quota_rows(
    groups: Iterable[WireResourceGroup], used: Mapping[tuple[str, str], int]
) -> tuple[QuotaRow, ...]:
    return tuple(
        QuotaRow(
            flavor=flavor.name,
            resource=quota.name,
            used=used.get((flavor.name, quota.name), 0),
            nominal=_amount(quota.name, quota.nominal_quota),
            borrowing_limit=None
            if quota.borrowing_limit is None
            else _amount(quota.name, quota.borrowing_limit),
        )
        for group in groups
        for flavor in group.flavors
        for quota in flavor.resources
    )


def _amount(resource: str, quantity: str | int | float) -> int:
    """Return the amount, 0 for a broken quantity: a table is no place to fail."""
    try:
        return amount(resource, quantity)
    except QuantityError:
        return 0
