"""AdmissionPolicy status and its Event: whether it is in force, for which queues, and what has no effect."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec

from admission.calendar.quota_windows import QuotaInForce
from admission.decisions.api_writes import Event
from admission.status.calendar_view import ReservationEntry, WindowEntry
from admission.status.views import PolicyView
from api.object_events import EventType, ObjectRef
from api.objects.common import WireCondition
from api.parsing.quantities import to_text
from api.parsing.times import to_rfc3339
from api.status_edit import StatusEdit
from queues.quota.resources import FlavorResource

ACCEPTED = "Accepted"
# The lists in the status are limited by its schema; the counts cover all.
_MOST_NAMES = 256
_MOST_QUOTAS = 64
_MOST_USERS = 16
_MOST_MESSAGE = 1024
_SHOWN_NAMES = 10
# Each problem is a sentence, and an Event's note is limited to 1,024 characters.
_SHOWN_PROBLEMS = 4


class _Status(msgspec.Struct):
    conditions: tuple[WireCondition, ...] | None = None


class _Object(msgspec.Struct):
    status: _Status | None = None


def policy_status(raw: bytes, view: PolicyView, *, now: float) -> bytes | None:
    """Return the policy with its status brought up to date, None if nothing would change."""
    edit = StatusEdit(raw, now=now)
    reason, message = _said(view)
    edit.set_condition(ACCEPTED, view.problem is None, reason=reason, message=message)
    edit.put("clusterQueueCount", len(view.cluster_queues))
    edit.put("clusterQueues", list(view.cluster_queues[:_MOST_NAMES]) or None)
    edit.put("quotasInForce", [_quota(*one) for one in view.quotas_in_force[:_MOST_QUOTAS]] or None)
    edit.put("quotaWindows", [_window(one) for one in view.windows] or None)
    edit.put("reservations", [_reservation(one) for one in view.reservations] or None)
    return edit.to_bytes() if edit.is_changed else None


def _window(entry: WindowEntry) -> dict[str, str]:
    window = entry.window
    return {
        "name": window.name,
        "state": entry.state.value,
        "clusterQueue": window.cluster_queue,
        "flavor": window.flavor,
        "resource": window.resource,
        "nominalQuota": to_text(window.resource, window.nominal),
        **_instant("opensAt", entry.opens_at),
        **_instant("closesAt", entry.closes_at),
        **_message(entry.message),
    }


def _reservation(entry: ReservationEntry) -> dict[str, Any]:
    one = entry.reservation
    namespace, local_queue = one.local_queue
    keeps = [
        {"flavor": pair.flavor, "resource": pair.resource, "amount": to_text(pair.resource, amount)}
        for pair, amount in entry.keeps[:_MOST_QUOTAS]
    ]
    users = [f"{key.namespace}/{key.name}" for key in entry.users[:_MOST_USERS]]
    return {
        "name": one.name,
        "state": entry.state.value,
        "namespace": namespace,
        "localQueue": local_queue,
        **({"clusterQueue": entry.cluster_queue} if entry.cluster_queue else {}),
        "start": to_rfc3339(one.start_at),
        "end": to_rfc3339(one.end_at),
        **({"resources": keeps} if keeps else {}),
        **({"domain": "/".join(one.domain)} if one.domain else {}),
        **({"nodes": entry.nodes} if entry.nodes is not None else {}),
        "userCount": len(entry.users),
        **({"users": users} if users else {}),
        **_message(entry.message),
    }


def _instant(field: str, at: float | None) -> dict[str, str]:
    # Omitted for never, since a distant instant would look like an appointment.
    return {field: to_rfc3339(at)} if at is not None and at < inf else {}


def _message(text: str) -> dict[str, str]:
    return {"message": text[:_MOST_MESSAGE]} if text else {}


def _quota(cluster_queue: str, pair: FlavorResource, present: QuotaInForce) -> dict[str, str]:
    until = {"until": to_rfc3339(present.closes_at)} if present.closes_at < inf else {}
    return {
        "clusterQueue": cluster_queue,
        "flavor": pair.flavor,
        "resource": pair.resource,
        "window": present.window,
        "nominalQuota": to_text(pair.resource, present.amount),
        **until,
    }


def policy_events(raw: bytes, view: PolicyView, about: ObjectRef) -> tuple[Event, ...]:
    """Return a Warning if the policy, or one of its settings, is not in force, or if it takes others away.

    Empty if its status says so already.
    """
    # The status shows that all is well; Events are for what a person has to act on.
    if view.problem is None and not view.calendar_problems and not view.takes_away:
        return ()
    reason, message = _said(view)
    known = _accepted(raw)
    # Reported before, perhaps by another leader: the status outlives the process that wrote it.
    if known is not None and (known.reason, known.message) == (reason, message):
        return ()
    return (
        Event(
            regarding=about,
            type=EventType.WARNING,
            reason=f"Policy{reason}",
            note=message,
            action="ReadPolicy",
        ),
    )


def _said(view: PolicyView) -> tuple[str, str]:
    """Return reason and message of the Accepted condition."""
    if view.problem is not None:
        return "Invalid", f"The policy is not in force: {view.problem}"
    governs = _governs(view)
    faults = list(view.calendar_problems[:_SHOWN_PROBLEMS])
    more = len(view.calendar_problems) - len(faults)
    faults += [f"and {more} more"] if more else []
    if faults:
        return "PartlyInForce", "; ".join([governs, *faults, *view.takes_away])
    return "InForce", "; ".join([governs, *view.takes_away])


def _governs(view: PolicyView) -> str:
    names = view.cluster_queues
    if not names:
        return "Governs no ClusterQueue: none is selected, or another policy comes before this one"
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    inherits = f"; inherits {', '.join(view.inherits)} from policy {view.base}" if view.inherits else ""
    return f"Governs ClusterQueue {', '.join(names[:_SHOWN_NAMES])}{more}{inherits}"


def _accepted(raw: bytes) -> WireCondition | None:
    """Return the Accepted condition in the object's status, None if there is none or it cannot be read."""
    try:
        status = msgspec.json.decode(raw, type=_Object).status
    except msgspec.DecodeError:
        return None
    conditions = (status.conditions or ()) if status is not None else ()
    return next((one for one in conditions if one.type == ACCEPTED), None)
