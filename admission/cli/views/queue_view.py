"""Rows of `berth get queues`, computed from the API objects only.

They have what Kueue's own list command shows, and also how much of each quota is used and borrowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from admission.cli.views.policy_view import WireQuotaInForce, decoded
from api.objects.common import Wire, WireCondition
from api.objects.queues import ClusterQueueObject, LocalQueueObject, WireResourceGroup
from api.parsing.quantities import QuantityError, amount


class _ResourceUsage(Wire, frozen=True):
    name: str
    total: str | int | float = 0
    borrowed: str | int | float = 0


class _FlavorUsage(Wire, frozen=True):
    name: str
    resources: tuple[_ResourceUsage, ...] = ()


class QueueStatusView(Wire, frozen=True):
    """The fields of a ClusterQueue's status that are shown."""

    conditions: tuple[WireCondition, ...] | None = None
    flavors_reservation: tuple[_FlavorUsage, ...] | None = None
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """Quota and usage of one flavor-resource of a ClusterQueue, in canonical units. `used` means reserved.

    `in_force` is the quota of the open window `window`, which closes at `until`; None: `nominal` applies.
    `over` is the usage beyond all that the queue may have, as after a cut of its quota; nothing is stopped
    for it.
    """

    flavor: str
    resource: str
    used: int
    nominal: int
    borrowing_limit: int | None
    in_force: int | None = None
    window: str | None = None
    until: str | None = None
    over: int = 0

    @property
    def quota(self) -> int:
        """Return the quota that applies now."""
        return self.nominal if self.in_force is None else self.in_force

    @property
    def borrowed(self) -> int:
        """Return the usage above the quota that applies, as far as the queue may borrow it.

        A negative quota, which is invalid, counts as 0.
        """
        return max(0, self.used - max(0, self.quota) - self.over)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One ClusterQueue. `active` is None if no controller has written the condition yet.

    With a `namespace` it is a LocalQueue that leads to `cluster_queue`, and its quotas show its usage alone.
    """

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
    namespace: str = ""
    cluster_queue: str = ""


def queue_rows(
    queues: Iterable[ClusterQueueObject], in_force: Iterable[WireQuotaInForce] = ()
) -> tuple[QueueRow, ...]:
    """Return a row for each ClusterQueue, by cohort and name. `in_force` has the quotas of open windows."""
    known = {(one.cluster_queue, one.flavor, one.resource): one for one in in_force}
    rows = [_queue_row(queue, known) for queue in queues]
    # Group queues by cohort, with those without a cohort last.
    return tuple(sorted(rows, key=lambda row: (row.cohort == "", row.cohort, row.name)))


def _queue_row(
    queue: ClusterQueueObject, in_force: Mapping[tuple[str, str, str], WireQuotaInForce]
) -> QueueRow:
    status = decoded(queue.status, QueueStatusView)
    active = next((c for c in status.conditions or () if c.type == "Active"), None)
    return QueueRow(
        name=queue.metadata.name,
        cohort=queue.spec.cohort_name or "",
        strategy=queue.spec.queueing_strategy or "BestEffortFIFO",
        active=None if active is None else active.status == "True",
        reason=active.reason if active else "",
        message=active.message if active else "no controller has processed it yet",
        pending=status.pending_workloads,
        reserving=status.reserving_workloads,
        admitted=status.admitted_workloads,
        quotas=tuple(
            _with_excess(
                _with_window(row, in_force.get((queue.metadata.name, row.flavor, row.resource))),
                may_borrow=bool(queue.spec.cohort_name),
            )
            for row in _quota_rows(queue.spec.resource_groups or (), _used(status))
        ),
    )


def _used(status: QueueStatusView) -> dict[tuple[str, str], int]:
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


def _with_window(row: QuotaRow, present: WireQuotaInForce | None) -> QuotaRow:
    if present is None:
        return row
    amount = _amount(row.resource, present.nominal_quota)
    return replace(row, in_force=amount, window=present.window, until=present.until)


def _with_excess(row: QuotaRow, *, may_borrow: bool) -> QuotaRow:
    if may_borrow and row.borrowing_limit is None:
        return row
    return replace(row, over=max(0, row.used - max(0, row.quota) - (row.borrowing_limit or 0) * may_borrow))


def local_queue_rows(queues: Iterable[LocalQueueObject]) -> tuple[QueueRow, ...]:
    """Return a row for each LocalQueue, by namespace and name."""
    in_order = sorted(queues, key=lambda queue: (queue.metadata.namespace, queue.metadata.name))
    return tuple(_local_queue_row(queue) for queue in in_order)


def _local_queue_row(queue: LocalQueueObject) -> QueueRow:
    status = decoded(queue.status, QueueStatusView)
    active = next((c for c in status.conditions or () if c.type == "Active"), None)
    return QueueRow(
        name=queue.metadata.name,
        namespace=queue.metadata.namespace,
        cluster_queue=queue.spec.cluster_queue,
        cohort="",
        strategy="",
        active=None if active is None else active.status == "True",
        reason=active.reason if active else "",
        message=active.message if active else "no controller has processed it yet",
        pending=status.pending_workloads,
        reserving=status.reserving_workloads,
        admitted=status.admitted_workloads,
        quotas=tuple(
            QuotaRow(flavor=flavor, resource=resource, used=used, nominal=0, borrowing_limit=None)
            for (flavor, resource), used in sorted(_used(status).items())
        ),
    )


def _amount(resource: str, quantity: str | int | float) -> int:
    """Return the amount, or 0 for an invalid quantity, so that the rest of the table is shown."""
    try:
        return amount(resource, quantity)
    except QuantityError:
        return 0
