"""The rule for a Workload whose eviction waits for a checkpoint: it is asked, then evicted or let be.

Which stage it is in follows from the request on the Workload and from what is true of the cluster
(`admission.preemption.checkpoint_before_eviction`); here stands what each stage wants written.
Level-triggered as all rules are: a pod that lacks the request gets it, whenever it was made, and a request
that is taken back leaves the pods first and the Workload last, so that a crash between the two leaves no pod
with a request that nobody knows.

The request stays on the Workload after the eviction, until the preemptor has its quota or the hold for it is
over: by it a new leader knows for whom the quota came free. One that cannot be read asks nothing of anybody:
it is taken off and named, and whoever needs the room asks anew.

Others may come to need the same quota meanwhile. They join the wait: the victim is asked once and leaves
once, by its first deadline. Where the one it was asked for goes away, the request passes on to one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from admission.decisions.api_writes import Event, EventType, ObjectRef, Purpose, Verb, Write, merge_patch
from admission.decisions.decision import Evict
from admission.preemption.checkpoint_before_eviction import SaveStage, next_stage_at, stage_of
from admission.reconcile import status_bodies
from admission.reconcile.workload.context import AskedPod, SavingContext
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import evict_events, request_text, status_write, workload_patch
from api import keys
from api.eviction import (
    EvictionRequest,
    has_request,
    read_request,
    render_request,
    reserved_at_of,
    standing_request,
)
from api.queueing import StopPolicy
from api.reasons import EvictionReason
from api.workload import Workload, to_rfc3339


def answer_eviction_request(look: Look) -> Answer:
    """A Workload that is asked to leave is waited for, evicted, or let be."""
    workload, saving = look.workload, look.context.saving
    if not has_request(workload) or saving is None:
        return None
    try:
        request = read_request(workload.annotations[keys.EVICTION])
    except ValueError as error:
        # Taken off at once: left alone it would stay for ever, and block whoever reads it as a request.
        return _unreadable(look, saving, str(error))
    if standing_request(workload) is None:
        # Carried out, or of an earlier reservation.
        return None if _is_kept(look, request, saving) else (_cleared(look),)
    is_wanted = _is_wanted(look, request, saving)
    if not is_wanted and saving.heir is not None:
        return (_passed_on(look, request, saving.heir),)
    # Until its deadline and no longer: in a tree that never comes to rest it would be left asked for ever.
    if not is_wanted and saving.is_undecided and look.now < request.deadline:
        return ()
    stage = stage_of(request, saved_at=saving.saved_at, is_wanted=is_wanted, now=look.now)
    match stage:
        case SaveStage.DEFERRED:
            # None and not (): until its own next checkpoint it lives like any other.
            return None
        case SaveStage.REQUESTED:
            # Where every pod has been asked there is nothing to write, and later steps may go on.
            return _asked(saving, request) or None
        case SaveStage.CANCELLED:
            return _cancelled(look, saving, request)
    return (_eviction(look, request, stage),)


def next_stage_look(look: Look) -> float | None:
    """Return when time alone changes what is to be done about a request; None where it does not."""
    saving, request = look.context.saving, standing_request(look.workload)
    if saving is None:
        return None
    if request is not None:
        return next_stage_at(request, now=look.now)
    ends_at = _hold_ends_at(look.workload, saving)
    return ends_at if ends_at > look.now else None


def decision_of(workload: Workload, request: EvictionRequest) -> Evict:
    """Return the eviction that the request was made for, without any more waiting."""
    return Evict(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        reason=request.reason,
        message=request.message,
        preemption_reason=request.preemption_reason,
        preemptor=request.preemptor,
        preemptor_uid=request.preemptor_uid,
        preempting_cluster_queue=request.preempting_cluster_queue,
        cluster_queue=workload.admission.cluster_queue if workload.admission is not None else "",
    )


def _is_wanted(look: Look, request: EvictionRequest, saving: SavingContext) -> bool:
    """Return whether the reason stands: who is to have the quota waits, the queue is stopped."""
    context = look.context
    match request.reason:
        case EvictionReason.LOCAL_QUEUE_STOPPED:
            return context.local_queue_stop is StopPolicy.HOLD_AND_DRAIN
        case EvictionReason.CLUSTER_QUEUE_STOPPED:
            return context.cluster_queue_stop is StopPolicy.HOLD_AND_DRAIN
    # A drain has no preemptor and is wanted until its queue runs again.
    return request.preemptor is None or saving.is_wanted


def _eviction(look: Look, request: EvictionRequest, stage: SaveStage) -> Write:
    decision = decision_of(look.workload, request)
    edit = look.edit
    status_bodies.begin_eviction(edit, decision, now=look.now)
    told = (
        look.event(EventType.NORMAL, "CheckpointSaved", "Saved a checkpoint and gives way now")
        if stage is SaveStage.SAVED
        else look.event(
            EventType.WARNING,
            "CheckpointMissed",
            f"No checkpoint came between {to_rfc3339(request.requested_at)} and "
            f"{to_rfc3339(request.deadline)}; it is stopped all the same. Pods hear of a request "
            "by a downward-API file of their annotations, and answer it by a report",
        )
    )
    return status_write(decision, edit.to_bytes(), Purpose.EVICT, told, *evict_events(decision))


def _asked(saving: SavingContext, request: EvictionRequest) -> tuple[Write, ...]:
    wanted = {
        # Never before the request itself, as a pod tells a checkpoint that is newer than what it was asked.
        keys.CHECKPOINT_REQUESTED_AT: to_rfc3339(max(request.requested_at, request.ask_at)),
        keys.CHECKPOINT_DEADLINE: to_rfc3339(request.deadline),
    }
    note = f"A checkpoint is asked for, until {to_rfc3339(request.deadline)}"
    # Compared with what the pod carries: a pod that was made meanwhile is asked too.
    return tuple(_pod_write(pod, wanted, note) for pod in saving.pods if pod.asked != wanted)


def _unasked(saving: SavingContext) -> tuple[Write, ...]:
    taken_off = {keys.CHECKPOINT_REQUESTED_AT: None, keys.CHECKPOINT_DEADLINE: None}
    note = "The checkpoint is not asked for any more"
    return tuple(_pod_write(pod, taken_off, note) for pod in saving.pods if pod.asked)


def _pod_write(pod: AskedPod, annotations: Mapping[str, str | None], note: str) -> Write:
    ref = ObjectRef(kind="Pod", api_version="v1", namespace=pod.namespace, name=pod.name, uid=pod.uid)
    return Write(
        verb=Verb.MERGE_PATCH,
        kind="Pod",
        namespace=pod.namespace,
        name=pod.name,
        # Any version of this very pod will do: the kubelet changes its status all the time.
        body=merge_patch({"metadata": {"annotations": dict(annotations)}}, uid=pod.uid),
        uid=pod.uid,
        purpose=Purpose.ASK_POD,
        events=(
            Event(
                regarding=ref,
                type=EventType.NORMAL,
                reason="CheckpointRequested",
                note=note,
                action="Evict",
            ),
        )
        # To take a request back is told on the Workload, once, and not on every pod.
        if any(annotations.values())
        else (),
    )


def _passed_on(look: Look, request: EvictionRequest, heir: Evict) -> Write:
    """Return the patch that has the Workload leave for somebody else who has joined the wait."""
    # Its instants stay: the time to save runs from when its pods were asked, and a checkpoint that
    # has come since counts.
    renamed = replace(
        request,
        reason=heir.reason,
        message=heir.message,
        preemption_reason=heir.preemption_reason,
        preemptor=heir.preemptor,
        preemptor_uid=heir.preemptor_uid,
        preempting_cluster_queue=heir.preempting_cluster_queue,
    )
    patch = {"metadata": {"annotations": {keys.EVICTION: render_request(renamed)}}}
    event = look.event(EventType.NORMAL, "EvictionPassedOn", request_text(renamed))
    return workload_patch(look.workload, patch, Purpose.PASS_ON_EVICTION, event)


def _cancelled(look: Look, saving: SavingContext, request: EvictionRequest) -> tuple[Write, ...]:
    whom = f"{request.preemptor} needs the room no more" if request.preemptor else "the reason is gone"
    event = look.event(EventType.NORMAL, "EvictionCancelled", f"Runs on: {whom}")
    # `or`: the pods first. Only when none carries it any more is the Workload's own taken off.
    return _unasked(saving) or (_without_request(look, Purpose.CANCEL_EVICTION, event),)


def _unreadable(look: Look, saving: SavingContext, error: str) -> tuple[Write, ...]:
    value = look.workload.annotations[keys.EVICTION]
    note = (
        f"Workload {look.workload.key}: {keys.EVICTION} is {value[:200]!r}: {error}. It is taken off, the "
        "Workload runs on, and whoever needs its quota asks anew"
    )
    event = look.event(EventType.WARNING, "EvictionUnreadable", note)
    return _unasked(saving) or (_without_request(look, Purpose.CANCEL_EVICTION, event),)


def _is_kept(look: Look, request: EvictionRequest, saving: SavingContext) -> bool:
    """Return whether a request that was carried out still tells for whom the quota came free."""
    workload = look.workload
    if workload.is_evicted and workload.admission is not None:
        # On its way out: quota is still to come free for the preemptor.
        return True
    if workload.has_quota_reservation or request.preemptor is None or not saving.is_wanted:
        return False
    return look.now < _hold_ends_at(workload, saving)


def _hold_ends_at(workload: Workload, saving: SavingContext) -> float:
    # `reserved_at_of` has become the instant of the release: QuotaReserved turned False then.
    return reserved_at_of(workload) + saving.hold_seconds


def _cleared(look: Look) -> Write:
    return _without_request(look, Purpose.CLEAR_EVICTION)


def _without_request(look: Look, purpose: Purpose, *events: Event) -> Write:
    patch = {"metadata": {"annotations": {keys.EVICTION: None}}}
    return workload_patch(look.workload, patch, purpose, *events)
