"""What a ProvisioningRequest says of its check: waiting, nodes are there, to be tried again, or rejected.

    no request yet, Accepted ──▶ Pending, with the message of the autoscaler
    Provisioned              ──▶ Ready, and the pods get the request's name and node selectors
    Failed, BookingExpired   ──▶ Retry after a back-off, Rejected after the last
    CapacityRevoked          ──▶ Rejected: the nodes of running pods go

Source: Kueue, pkg/controller/admissionchecks/provisioning/controller.go, syncCheckStates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from admission.decisions.api_writes import Event, Purpose
from admission.reconcile.provisioning.context import ProvisioningContext
from admission.reconcile.provisioning.pod_sets import PodGroup
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload.node_requests import checks_of, needed_pods, present_request, template_of
from admission.reconcile.workload_writes import workload_status
from api import keys
from api.jobs.pod_template import StartConflict
from api.object_events import EventType
from api.provisioning import (
    REQUEST_KIND,
    TEMPLATE_KIND,
    Outcome,
    ProvisioningConfig,
    ProvisioningRequest,
    request_name,
    template_name,
)
from api.workload import CheckState

_INACTIVE = "the check is not active"
_NOT_NEEDED = "the provisioning request is not needed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a check is to say. `fields` are other fields of its entry, None for those that go."""

    state: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    has_failed: bool = False


def answer_requests(look: Look) -> Answer:
    """Write what the requests of a Workload that holds quota say of its checks."""
    workload, context = look.workload, look.context.provisioning
    if context is None or not workload.has_quota_reservation or workload.is_evicted:
        return None
    edit, events = look.edit, list[Event]()
    for check in checks_of(look):
        found = _found(look, check, context)
        if found is None or (found.state, found.message) == (check.state, check.message):
            continue
        edit.put_check(check.name, found.state, found.message, **found.fields)
        events += _events(look, check, found)
    return (workload_status(edit, Purpose.SYNC_CHECKS, *events),) if edit.is_changed else None


def _found(look: Look, check: CheckState, context: ProvisioningContext) -> _Found | None:
    """Return what the check is to say, None to leave it as it is."""
    config = context.configs[check.name]
    if config is None:
        return _Found(state="Pending", message=_INACTIVE)
    pods = needed_pods(look, config)
    if not pods:
        return (
            None
            if check.state == "Ready"
            else _Found(state="Ready", message=_NOT_NEEDED, fields={"podSetUpdates": None})
        )
    present = present_request(look.workload, check.name, context)
    if present is None:
        return _refusal(look, check, pods, context)
    attempt, request = present
    return _said(look, check, config, attempt=attempt, request=request, pods=pods)


def _said(
    look: Look,
    check: CheckState,
    config: ProvisioningConfig,
    *,
    attempt: int,
    request: ProvisioningRequest,
    pods: tuple[PodGroup, ...],
) -> _Found | None:
    match request.outcome:
        case Outcome.FAILED:
            return _retry(
                check, config, attempt, "Retrying after failure", request.message_of(Outcome.FAILED)
            )
        case Outcome.CAPACITY_REVOKED:
            message = request.message_of(Outcome.CAPACITY_REVOKED)
            return _Found(state="Rejected", message=message) if look.workload.active else None
        case Outcome.BOOKING_EXPIRED:
            # Pods that run have used the booking.
            if look.workload.is_admitted:
                return None
            message = request.message_of(Outcome.BOOKING_EXPIRED)
            return _retry(check, config, attempt, "Retrying after booking expired", message)
        case Outcome.PROVISIONED:
            if check.state == "Ready":
                return None
            updates = _updates(request, config, pods)
            message = request.message_of(Outcome.PROVISIONED)
            return _Found(state="Ready", message=message, fields={"podSetUpdates": updates})
        case Outcome.ACCEPTED:
            # Provisioned=False may name the time at which the nodes are expected.
            is_estimated = Outcome.PROVISIONED in request.conditions
            message = request.message_of(Outcome.PROVISIONED)
            return _Found(state="Pending", message=message) if is_estimated else None
        case None:
            return _Found(state="Pending", message="")


def _retry(check: CheckState, config: ProvisioningConfig, attempt: int, why: str, message: str) -> _Found:
    """Return that the check asks for another attempt, or for none after the last one."""
    if attempt > config.backoff_limit:
        return _Found(state="Rejected", message=message)
    message = f"{why}: {message}"
    # It was counted in an earlier eviction: the next request follows at once.
    if attempt <= check.retry_count:
        return _Found(state=check.state, message=message)
    delay = config.backoff_seconds(check.retry_count + 1)
    return _Found(state="Retry", message=message, fields={"requeueAfterSeconds": delay})


def _refusal(
    look: Look, check: CheckState, pods: tuple[PodGroup, ...], context: ProvisioningContext
) -> _Found | None:
    """Return why the check's request cannot be created; None if it can, or is ready without one."""
    if check.state == "Ready":
        return None
    name = request_name(look.workload.key.name, check.name, check.retry_count + 1)
    named = [(template_name(name, group.lead.name), group) for group in pods]
    for template, group in named:
        try:
            template_of(group.lead, context)
        except StartConflict as error:
            return _not_created(check, TEMPLATE_KIND, template, str(error))
    objects = [(TEMPLATE_KIND, template) for template, _ in named] + [(REQUEST_KIND, name)]
    for kind, one in objects:
        if (answer := context.refused(kind, one)) is not None:
            return _not_created(check, kind, one, answer)
    return None


def _not_created(check: CheckState, kind: str, name: str, error: str) -> _Found:
    return _Found(state=check.state, message=f'Error creating {kind} "{name}": {error}', has_failed=True)


def _updates(
    request: ProvisioningRequest, config: ProvisioningConfig, pods: tuple[PodGroup, ...]
) -> list[dict[str, Any]]:
    """Return what the pods of a request get: its name and class, and node selectors from its details.

    A detail that the request lacks adds none. Kueue leaves out all but the first of the pod sets that share a
    template. Their pods need the nodes as well.
    """
    annotations = {
        keys.CONSUMED_PROVISIONING_REQUEST: request.name,
        keys.PROVISIONING_CLASS: request.class_name,
    }
    selector = {
        key: request.details[detail]
        for key, detail in config.selector_details.items()
        if detail in request.details
    }
    listed = {one.template for one in request.pods}
    return [
        {"name": pod_set.name, "annotations": annotations, **({"nodeSelector": selector} if selector else {})}
        for group in pods
        if template_name(request.name, group.lead.name) in listed
        for pod_set in group.pod_sets
    ]


def _events(look: Look, check: CheckState, found: _Found) -> list[Event]:
    if found.has_failed:
        return [look.event(EventType.WARNING, "FailedCreate", found.message)]
    if found.state == check.state:
        return []
    note = f"Admission check {check.name} updated state from {check.state} to {found.state}"
    note += f" with message: {found.message}" if found.message else ""
    return [look.event(EventType.NORMAL, "AdmissionCheckUpdated", note)]
