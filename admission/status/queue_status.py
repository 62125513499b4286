"""Status of ClusterQueues, LocalQueues and Cohorts, as whole objects for PUT .../status.

It is built from the object's last seen bytes, so that unknown fields survive; None if nothing would change.
Source: Kueue, pkg/controller/core/clusterqueue_controller.go, localqueue_controller.go, cohort_controller.go.
"""

from __future__ import annotations

from typing import Any

from admission.decisions.api_writes import Event
from admission.status.views import ClusterQueueView, CohortView, FlavorUsages, LocalQueueView
from api.object_events import EventType, ObjectRef
from api.parsing.quantities import to_text
from api.past_usage import to_fair_sharing_status
from api.status_edit import StatusEdit

# What is written for an infinite share, of a queue with weight 0 that borrows: the largest int64.
MAX_SHARE = 2**63 - 1


def cluster_queue_status(
    raw: bytes, view: ClusterQueueView, *, now: float, with_share: bool = False, fault: str | None = None
) -> bytes | None:
    """Return the ClusterQueue with its status brought up to date, None if nothing would change.

    `with_share`: fair sharing is on. `fault` says which rules its spec breaks, None for none.
    """
    edit = _begun(raw, view, now=now, fault=fault, with_borrowed=True)
    if with_share:
        edit.put("fairSharing", {"weightedShare": min(view.weighted_share, MAX_SHARE)})
    return edit.to_bytes() if edit.is_changed else None


def local_queue_status(
    raw: bytes, view: LocalQueueView, *, now: float, fault: str | None = None
) -> bytes | None:
    """Return the LocalQueue with its status brought up to date. `fault` as for ClusterQueues."""
    edit = _begun(raw, view, now=now, fault=fault, with_borrowed=False)
    if view.past_usage is not None:
        edit.put("fairSharing", to_fair_sharing_status(view.past_usage))
    return edit.to_bytes() if edit.is_changed else None


def _begun(
    raw: bytes, view: ClusterQueueView | LocalQueueView, *, now: float, fault: str | None, with_borrowed: bool
) -> StatusEdit:
    """Return the status edit with the fields that both kinds of queues have."""
    edit = StatusEdit(raw, now=now)
    _put_fault(edit, fault)
    edit.set_condition("Active", view.is_active, reason=str(view.reason or "Ready"), message=view.message)
    edit.put("pendingWorkloads", view.pending)
    edit.put("reservingWorkloads", view.reserving)
    edit.put("admittedWorkloads", view.admitted)
    # Absent where there is no flavor to list: Kueue writes no empty list.
    edit.put("flavorsReservation", _flavors(view.flavors_reservation, with_borrowed=with_borrowed) or None)
    edit.put("flavorsUsage", _flavors(view.flavors_usage, with_borrowed=with_borrowed) or None)
    return edit


def cohort_status(raw: bytes, view: CohortView, *, now: float) -> bytes | None:
    """Return the Cohort with its share brought up to date, None if nothing would change."""
    edit = StatusEdit(raw, now=now)
    edit.put("fairSharing", {"weightedShare": min(view.weighted_share, MAX_SHARE)})
    return edit.to_bytes() if edit.is_changed else None


def _put_fault(edit: StatusEdit, fault: str | None) -> None:
    """Report that the spec breaks a rule. A valid queue has no such condition, as in Kueue."""
    if fault is None:
        edit.remove_condition("Valid")
    else:
        edit.set_condition("Valid", False, reason="InvalidSpec", message=fault)


def _flavors(usages: FlavorUsages, *, with_borrowed: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": flavor,
            "resources": [
                {
                    "name": resource,
                    "total": to_text(resource, usage.total),
                    **({"borrowed": to_text(resource, usage.borrowed)} if with_borrowed else {}),
                }
                for resource, usage in resources.items()
            ],
        }
        for flavor, resources in usages.items()
    ]


def over_quota_event(view: ClusterQueueView, about: ObjectRef) -> Event | None:
    """Return the Warning about usage that the queue's quota does not allow any more, or None."""
    if not view.over_quota:
        return None
    amounts = ", ".join(
        f"{to_text(pair.resource, amount)} {pair.resource} of flavor {pair.flavor}"
        for pair, amount in sorted(view.over_quota.items())
    )
    note = (
        f"ClusterQueue {view.name} uses {amounts} more than its quota allows. Nothing is stopped for that;"
        " nothing more of it is admitted until as much has ended"
    )
    return Event(
        regarding=about, type=EventType.WARNING, reason="OverQuota", note=note, action="UpdateStatus"
    )
