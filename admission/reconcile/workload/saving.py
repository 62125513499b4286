"""The rule for a Workload whose eviction waits for a checkpoint: request one, then evict or cancel.

The stage follows from the request on the Workload and from the state of the cluster
(`admission.preemption.checkpoint_before_eviction`). This module has the writes of each stage. Like all rules
it is level-triggered: a pod that lacks the request gets it, whenever the pod was created. A request that is
cancelled is removed from the pods first and from the Workload last, so a crash in between leaves no pod with
a request that is recorded nowhere else.

The request stays on the Workload after the eviction, until the preemptor has its quota or its hold has ended.
From it a new leader learns for which Workload the quota was freed. A request that cannot be read has no
effect: it is removed and reported, and a Workload that needs the quota requests it again.

Other Workloads may need the same quota meanwhile. They join the wait: the victim is asked once and
evicted once, at the first deadline. If the preemptor it was asked for goes away, the request passes on
to one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from admission.decisions.api_writes import Event, ObjectVersion, Purpose, Write, pod_ref
from admission.decisions.decision import Evict
from admission.preemption.checkpoint_before_eviction import SaveStage, next_stage_at, stage_of
from admission.reconcile.decision_texts import request_text
from admission.reconcile.decision_writes import evict
from admission.reconcile.workload.context import SavingContext, SavingPod
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import workload_patch, workload_status
from api import keys
from api.eviction import (
    EvictionRequest,
    current_request,
    has_request,
    read_request,
    render_request,
    reserved_at_of,
)
from api.object_events import EventType
from api.parsing.times import to_rfc3339
from api.queueing import StopPolicy
from api.reasons import EvictionReason
from api.workload import Workload, WorkloadKey


def answer_eviction_request(look: Look) -> Answer:
    """Wait for a Workload with an eviction request, evict it, or cancel the request."""
    workload, saving = look.workload, look.context.saving
    if not has_request(workload) or saving is None:
        return None
    try:
        request = read_request(workload.annotations[keys.EVICTION])
    except ValueError as error:
        # Removed at once: it would stay forever otherwise, and block every reader that takes
        # it for a request.
        return _unreadable(look, saving, str(error))
    if current_request(workload) is None:
        # The eviction was carried out, or the request belongs to an earlier reservation.
        return None if _is_kept(look, request, saving) else (_without_request(look, Purpose.CLEAR_EVICTION),)
    is_wanted = _is_wanted(look, request, saving)
    if not is_wanted and saving.successor is not None:
        return (_passed_on(look, request, saving.successor),)
    # At most until the deadline: a tree that never settles would leave the request open forever.
    if not is_wanted and saving.is_undecided and look.now < request.deadline:
        return ()
    stage = stage_of(request, saved_at=saving.saved_at, is_wanted=is_wanted, now=look.now)
    match stage:
        case SaveStage.DEFERRED:
            # None and not (): until its own next checkpoint it is treated like any other Workload.
            return None
        case SaveStage.REQUESTED:
            # If every pod has the request there is nothing to write, and later steps may go on.
            return _asked(saving, request) or None
        case SaveStage.CANCELLED:
            return _cancelled(look, saving, request)
    return (_eviction(look, request, saving, stage),)


def next_stage_look(look: Look) -> float | None:
    """Return when the passing of time alone changes the next step for a request; None if it does not."""
    saving, request = look.context.saving, current_request(look.workload)
    if saving is None:
        return None
    if request is not None:
        return next_stage_at(request, now=look.now)
    ends_at = _hold_ends_at(look.workload, saving)
    return ends_at if ends_at > look.now else None


def decision_of(workload: Workload, request: EvictionRequest, preemptor: WorkloadKey | None) -> Evict:
    """Return the eviction that was requested, without a further wait; `preemptor` is None for a drain."""
    return Evict(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        reason=request.reason,
        message=request.message,
        preemption_reason=request.preemption_reason,
        preemptor=preemptor,
        preemptor_uid=request.preemptor_uid,
        preempting_cluster_queue=request.preempting_cluster_queue,
        cluster_queue=workload.admission.cluster_queue if workload.admission is not None else "",
    )


def _is_wanted(look: Look, request: EvictionRequest, saving: SavingContext) -> bool:
    """Return whether the reason persists: the preemptor waits, or the queue is stopped."""
    context = look.context
    match request.reason:
        case EvictionReason.LOCAL_QUEUE_STOPPED:
            return context.local_queue_stop is StopPolicy.HOLD_AND_DRAIN
        case EvictionReason.CLUSTER_QUEUE_STOPPED:
            return context.cluster_queue_stop is StopPolicy.HOLD_AND_DRAIN
    # A drain has no preemptor, and is wanted until its queue runs again.
    return not request.preemptor_uid or saving.is_wanted


def _eviction(look: Look, request: EvictionRequest, saving: SavingContext, stage: SaveStage) -> Write:
    edit, decision = look.edit, decision_of(look.workload, request, saving.preemptor)
    events = evict(edit, decision)
    evicted = (
        look.event(EventType.NORMAL, "CheckpointSaved", "Saved a checkpoint and is evicted now")
        if stage is SaveStage.SAVED
        else look.event(
            EventType.WARNING,
            "CheckpointMissed",
            f"No checkpoint came between {to_rfc3339(request.requested_at)} and "
            f"{to_rfc3339(request.deadline)}; it is evicted all the same. Pods learn of a request from "
            "a downward-API file of their annotations, and answer it with a report",
        )
    )
    return replace(workload_status(edit, Purpose.EVICT, evicted, *events), eviction=decision)


def _asked(saving: SavingContext, request: EvictionRequest) -> tuple[Write, ...]:
    wanted = {
        # Not before the request itself: the pod answers with a checkpoint that is newer than this time.
        keys.CHECKPOINT_REQUESTED_AT: to_rfc3339(max(request.requested_at, request.ask_at)),
        keys.CHECKPOINT_DEADLINE: to_rfc3339(request.deadline),
    }
    note = f"A checkpoint is requested until {to_rfc3339(request.deadline)}"
    # Compared with the pod's annotations: a pod that was created meanwhile is asked too.
    return tuple(_pod_write(pod, wanted, note) for pod in saving.pods if pod.asked != wanted)


def _unasked(saving: SavingContext) -> tuple[Write, ...]:
    taken_off = {keys.CHECKPOINT_REQUESTED_AT: None, keys.CHECKPOINT_DEADLINE: None}
    note = "The checkpoint is no longer requested"
    return tuple(_pod_write(pod, taken_off, note) for pod in saving.pods if pod.asked)


def _pod_write(pod: SavingPod, annotations: Mapping[str, str | None], note: str) -> Write:
    # Guarded by uid only: the kubelet changes the pod's status all the time.
    version = ObjectVersion(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
    patch = {"metadata": {"annotations": dict(annotations)}}
    # A cancellation is reported once, on the Workload, and not on every pod.
    if not any(annotations.values()):
        return version.patch(patch, Purpose.REQUEST_CHECKPOINT)
    event = Event(
        regarding=pod_ref(pod.namespace, pod.name, pod.uid),
        type=EventType.NORMAL,
        reason="CheckpointRequested",
        note=note,
        action="Evict",
    )
    return version.patch(patch, Purpose.REQUEST_CHECKPOINT, event)


def _passed_on(look: Look, request: EvictionRequest, successor: Evict) -> Write:
    """Return the patch that passes the eviction request on to another preemptor that joined the wait."""
    # The times stay: the time to save counts from when the pods were asked, and a checkpoint that has
    # been saved since counts.
    renamed = replace(
        request,
        reason=successor.reason,
        message=successor.message,
        preemption_reason=successor.preemption_reason,
        preemptor=successor.preemptor,
        preemptor_uid=successor.preemptor_uid,
        preempting_cluster_queue=successor.preempting_cluster_queue,
    )
    namespace = look.workload.key.namespace
    patch = {"metadata": {"annotations": {keys.EVICTION: render_request(renamed, namespace=namespace)}}}
    event = look.event(EventType.NORMAL, "EvictionPassedOn", request_text(renamed, sees=namespace.__eq__))
    return workload_patch(look.workload, patch, Purpose.PASS_ON_EVICTION, event)


def _cancelled(look: Look, saving: SavingContext, request: EvictionRequest) -> tuple[Write, ...]:
    named = request.preemptor_as_seen(look.workload.key.namespace.__eq__)
    reason = f"{named} no longer needs the quota" if named else "the reason is gone"
    event = look.event(EventType.NORMAL, "EvictionCancelled", f"Not evicted: {reason}")
    # `or`: first the pods. Only when none carries the request is it removed from the Workload.
    return _unasked(saving) or (_without_request(look, Purpose.CANCEL_EVICTION, event),)


def _unreadable(look: Look, saving: SavingContext, error: str) -> tuple[Write, ...]:
    value = look.workload.annotations[keys.EVICTION]
    note = (
        f"Workload {look.workload.key}: {keys.EVICTION} is {value[:200]!r}: {error}. It is removed, the "
        "Workload runs on, and a Workload that needs its quota requests it again"
    )
    event = look.event(EventType.WARNING, "EvictionUnreadable", note)
    return _unasked(saving) or (_without_request(look, Purpose.CANCEL_EVICTION, event),)


def _is_kept(look: Look, request: EvictionRequest, saving: SavingContext) -> bool:
    """Return whether a request that was carried out still says for which Workload the quota was freed."""
    workload = look.workload
    if workload.is_evicted and workload.admission is not None:
        # The pods are stopping: the quota is yet to be freed for the preemptor.
        return True
    if workload.has_quota_reservation or not request.preemptor_uid or not saving.is_wanted:
        return False
    return look.now < _hold_ends_at(workload, saving)


def _hold_ends_at(workload: Workload, saving: SavingContext) -> float:
    # `reserved_at_of` is the time of the release here, because QuotaReserved turned False then.
    return reserved_at_of(workload) + saving.hold_seconds


def _without_request(look: Look, purpose: Purpose, *events: Event) -> Write:
    patch = {"metadata": {"annotations": {keys.EVICTION: None}}}
    return workload_patch(look.workload, patch, purpose, *events)
