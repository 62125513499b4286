"""Decisions and other changes of a Workload as writes, with the Events that report them once they succeeded.

The shell makes the log lines and metrics of a decision from the decision. The messages of
its Events are here.
Source: Kueue's Events of a Workload.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from admission.decisions.api_writes import (
    Event,
    Purpose,
    Verb,
    Write,
    delete_options,
    guarded_patch,
    workload_ref,
)
from admission.decisions.decision import Admit, Decision, Evict, Plan, Reassign, Unreplaced, Wait
from admission.reconcile import status_bodies
from api import keys
from api.eviction import EvictionRequest, render_request
from api.object_events import EventType, ObjectRef
from api.reasons import ConditionType
from api.status_bodies import StatusEdit
from api.workload import Workload, WorkloadKey, to_rfc3339, to_seconds
from queues.profile.planned_start import PlannedStart


def write_of(
    decision: Decision | Reassign, raw: bytes, *, now: float, awaits_pods: bool = False
) -> Write | None:
    """Return the write of a decision, or None for a Plan, and for a Wait that the object already shows.

    `raw` is the Workload as the decision saw it. `awaits_pods`: waitForPodsReady is on.
    """
    match decision:
        case Admit():
            body = status_bodies.admit(raw, decision, now=now, awaits_pods=awaits_pods)
            return status_write(decision, body, Purpose.ADMIT, *admit_events(decision))
        case Evict() if decision.save_by is not None:
            return request_write(decision, raw, decision.save_by, now=now)
        case Evict():
            body = status_bodies.evict(raw, decision, now=now)
            return status_write(decision, body, Purpose.EVICT, *evict_events(decision))
        case Reassign():
            body = status_bodies.reassign(raw, decision.assignments, now=now)
            return status_write(decision, body, Purpose.REASSIGN, *reassign_events(decision))
        case Wait():
            waiting = status_bodies.wait(raw, decision, now=now)
            if waiting is None:
                return None
            return status_write(decision, waiting, Purpose.WAIT, wait_event(decision))
        case Plan():
            # The reconciler keeps the annotations up to date, because it compares them with the object.
            return None
        case _:
            assert_never(decision)


def status_write(decision: Decision | Reassign, body: bytes, purpose: Purpose, *events: Event) -> Write:
    """Return the PUT .../status for a body made from the version that the decision saw."""
    seen = (decision.uid, decision.resource_version)
    return _workload_write(decision.key, seen, Verb.REPLACE, body, purpose, events)


def request_write(decision: Evict, raw: bytes, save_by: float, *, now: float) -> Write:
    """Return the patch that requests an eviction, which waits for a checkpoint until `save_by`.

    The request is dated when it is written: a checkpoint that was complete before is no answer to it.
    """
    reserved = StatusEdit(raw, now=now).condition(ConditionType.QUOTA_RESERVED) or {}
    # Whole seconds, as in the annotation, and never after the deadline, which the decision took from a clock
    # that may be ahead.
    requested_at = min(float(int(now)), save_by)
    request = EvictionRequest(
        reason=decision.reason,
        requested_at=requested_at,
        deadline=save_by,
        ask_at=requested_at if decision.ask_at is None else float(int(decision.ask_at)),
        # Which reservation is meant: for a later reservation of the Workload the
        # request is void (`standing_request`).
        reserved_at=to_seconds(reserved.get("lastTransitionTime")),
        message=decision.message,
        preemption_reason=decision.preemption_reason,
        preemptor=decision.preemptor,
        preemptor_uid=decision.preemptor_uid,
        preempting_cluster_queue=decision.preempting_cluster_queue,
    )
    patch = {"metadata": {"annotations": {keys.EVICTION: render_request(request)}}}
    seen = (decision.uid, decision.resource_version)
    body = guarded_patch(patch, uid=decision.uid, resource_version=decision.resource_version)
    event = _event(decision, EventType.NORMAL, "EvictionRequested", request_text(request))
    return _workload_write(decision.key, seen, Verb.MERGE_PATCH, body, Purpose.REQUEST_EVICTION, (event,))


def request_text(request: EvictionRequest) -> str:
    """Return the sentence for a victim that is to save first: until when, for which Workload, and why."""
    for_preemptor = f" for {request.preemptor}" if request.preemptor is not None else ""
    return (
        f"To be evicted{for_preemptor} once it has saved a checkpoint, at {to_rfc3339(request.deadline)} at "
        f"the latest: {request.message}"
    )


def stop_text(grace_seconds: float) -> str:
    """Return the sentence for a victim that saves at SIGTERM."""
    return f"Saves a checkpoint at SIGTERM, within the {grace_seconds:.0f} s that its pods have to end"


def workload_status(workload: Workload, body: bytes, purpose: Purpose, *events: Event) -> Write:
    """Return the PUT .../status for a body made from this Workload's bytes."""
    return _workload_write(workload.key, _seen(workload), Verb.REPLACE, body, purpose, events)


def workload_patch(workload: Workload, patch: dict[str, Any], purpose: Purpose, *events: Event) -> Write:
    """Return a merge patch of the Workload, which the server refuses on any other version."""
    body = guarded_patch(patch, uid=workload.uid, resource_version=workload.resource_version)
    return _workload_write(workload.key, _seen(workload), Verb.MERGE_PATCH, body, purpose, events)


def workload_deletion(workload: Workload, *events: Event) -> Write:
    """Return the deletion of the Workload, which the server refuses on any other version."""
    body = delete_options(uid=workload.uid, resource_version=workload.resource_version)
    return _workload_write(workload.key, _seen(workload), Verb.DELETE, body, Purpose.DELETE_WORKLOAD, events)


def finalizer_off(workload: Workload, raw: bytes) -> Write:
    """Return the patch that removes our finalizer from the Workload. Finalizers of others stay."""
    metadata = msgspec.json.decode(raw).get("metadata", {})
    # A merge patch replaces the whole list, so it is built from the bytes of the version that it names.
    kept = [name for name in metadata.get("finalizers") or () if name != keys.RESOURCE_IN_USE]
    # None removes the field: an empty list would stay behind.
    return workload_patch(workload, {"metadata": {"finalizers": kept or None}}, Purpose.REMOVE_FINALIZER)


def admit_events(decision: Admit) -> tuple[Event, ...]:
    """Return QuotaReserved and, if no admission check is pending, Admitted."""
    cluster_queue = decision.admission.cluster_queue
    waited = f"wait time since queued was {decision.waited_seconds:.0f}s"
    leased = status_bodies.LEASE_WORDS if decision.on_lease else ""
    reserved = _event(
        decision,
        EventType.NORMAL,
        "QuotaReserved",
        f"Quota reserved in ClusterQueue {cluster_queue}, {waited}{leased}",
    )
    # Admitted follows the admission checks.
    if not decision.is_admitted:
        return (reserved,)
    return (reserved, admitted_event(_ref(decision), cluster_queue, 0.0))


def admitted_event(regarding: ObjectRef, cluster_queue: str, waited_seconds: float) -> Event:
    """Return Admitted. `waited_seconds` is counted from the reservation."""
    note = f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {waited_seconds:.0f}s"
    return Event(regarding=regarding, type=EventType.NORMAL, reason="Admitted", note=note, action="Admit")


def evict_events(decision: Evict) -> tuple[Event, ...]:
    """Return EvictedDueTo<reason>[DueTo<cause>]; for a preemption also Preempted and PreemptedWorkload."""
    cause = f"DueTo{decision.underlying_cause}" if decision.underlying_cause else ""
    word = f"EvictedDueTo{decision.reason.value}{cause}"
    events = [_event(decision, EventType.NORMAL, word, decision.message)]
    if decision.grace_seconds is not None:
        note = stop_text(decision.grace_seconds)
        events.append(_event(decision, EventType.NORMAL, "CheckpointExpected", note))
    if decision.preemption_reason is not None:
        events.append(_event(decision, EventType.NORMAL, "Preempted", decision.message))
    if decision.preemptor is not None:
        # The preemptor has an Event too, so that `kubectl describe` of either shows the other.
        preemptor = workload_ref(
            decision.preemptor.namespace, decision.preemptor.name, decision.preemptor_uid
        )
        note = f"Preempted workload {decision.key} to make room"
        events.append(_event(decision, EventType.NORMAL, "PreemptedWorkload", note, preemptor))
    return tuple(events)


def reassign_events(decision: Reassign) -> tuple[Event, ...]:
    """Return NodesReplaced; () for a first placement, which the Event of the admission reports."""
    if not decision.lost:
        return ()
    return (_event(decision, EventType.NORMAL, "NodesReplaced", reassign_text(decision)),)


def reassign_text(decision: Reassign) -> str:
    """Return which nodes were lost and which replace them; for a first placement, where the pods go."""
    found = ", ".join(decision.found) or "nodes that it already has"
    if not decision.lost:
        return f"Placed the pods on {found}"
    return f"Moved the pods of {', '.join(decision.lost)} to {found}"


def unreplaced_event(decision: Unreplaced) -> Event:
    """Return the Warning that there is no room for pods of lost nodes, or for pods without a node yet."""
    return _event(decision, EventType.WARNING, "SecondPassFailed", f"There is {decision.message}")


def plan_text(decision: Plan) -> str:
    """Return the sentence for a promise that was made, moved or withdrawn."""
    if decision.planned is None:
        return "is no longer promised a start"
    return planned_text(decision.planned)


def planned_text(planned: PlannedStart) -> str:
    """Return the sentence for a promise, without its subject."""
    where = f" on {planned.domain}" if planned.domain else ""
    borrowed = ", on quota that its owner may take back" if planned.borrows else ""
    moved = f"; moved because of {planned.cause}" if planned.cause is not None else ""
    return f"is promised to start at {to_rfc3339(planned.start_at)}{where}{borrowed}{moved}"


def wait_event(decision: Wait) -> Event:
    """Return the Warning that reports why the Workload waits."""
    return _event(decision, EventType.WARNING, decision.reason.value, decision.message)


def _ref(decision: Decision | Reassign | Unreplaced) -> ObjectRef:
    return workload_ref(decision.key.namespace, decision.key.name, decision.uid)


def _event(
    decision: Decision | Reassign | Unreplaced,
    type_: EventType,
    reason: str,
    note: str,
    regarding: ObjectRef | None = None,
) -> Event:
    action = type(decision).__name__
    return Event(regarding=regarding or _ref(decision), type=type_, reason=reason, note=note, action=action)


def _seen(workload: Workload) -> tuple[str, str]:
    return workload.uid, workload.resource_version


def _workload_write(
    key: WorkloadKey,
    seen: tuple[str, str],
    verb: Verb,
    body: bytes,
    purpose: Purpose,
    events: tuple[Event, ...],
) -> Write:
    uid, resource_version = seen
    return Write(
        verb=verb,
        kind="Workload",
        namespace=key.namespace,
        name=key.name,
        # Only a PUT goes to the status; patches and deletions concern the object itself.
        subresource="status" if verb is Verb.REPLACE else "",
        body=body,
        uid=uid,
        resource_version=resource_version,
        purpose=purpose,
        events=events,
    )
