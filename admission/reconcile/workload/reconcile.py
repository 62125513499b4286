"""What a Workload needs next, apart from scheduling decisions, as one pure function.

Theory of operation. As with Jobs (`admission.reconcile.job`), each look is level-triggered and ends at
the first step with an answer. The steps are ordered from those that end a Workload to those that only
report why it waits:

    going     deleted, finished, its owner gone, replaced by another slice
    leaving   deactivated; waiting for a checkpoint or for disruption budgets; evicted with nothing to stop;
              released by another program
    returning back-off over, activated again, its queue running again
    admitted  checks, stopped queues, unready pods, execution time, failed nodes, unbound and gated pods
    waiting   problems with its queue

No step requires an owner: a Workload created by another program has the same life. Jobs are stopped and
started by `admission.reconcile.job`. An evicted Workload keeps its quota until its owner has stopped, or
until the program that created it releases the quota.
Source: Kueue, pkg/controller/core/workload_controller.go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from admission.decisions.api_writes import Action, Event, ObjectVersion, Purpose, Write
from admission.decisions.decision import Evict, Wait
from admission.reconcile.deadlines import next_deadline, retention_deadline
from admission.reconcile.decision_writes import evict, wait_write
from admission.reconcile.workload import admitted
from admission.reconcile.workload.addressed import answer_addresses
from admission.reconcile.workload.context import LifecycleContext, LifecycleResult, Owner
from admission.reconcile.workload.held_back import (
    answer_held_back,
    answer_refusal_over,
    spared_until,
    taken_back_at,
)
from admission.reconcile.workload.look import Answer, Look, eviction
from admission.reconcile.workload.misplaced import answer_misplaced_pods
from admission.reconcile.workload.node_checks import answer_requests
from admission.reconcile.workload.node_requests import request_writes
from admission.reconcile.workload.nodes import answer_lost_nodes, next_look_at
from admission.reconcile.workload.promised import answer_promise
from admission.reconcile.workload.saving import answer_eviction_request, next_stage_look
from admission.reconcile.workload.unbound import answer_excluded_nodes, answer_unbound_pods, next_unbound_look
from admission.reconcile.workload.ungate import answer_elastic_pods, answer_gated_pods
from admission.reconcile.workload.unstarted import answer_unstarted, unstarted_at
from admission.reconcile.workload_writes import (
    OWNER_GONE,
    finalizer_off,
    replaced_write,
    workload_deletion,
    workload_patch,
    workload_status,
)
from api import keys
from api.object_events import EventType
from api.queueing import StopPolicy
from api.reasons import (
    PREEMPTION_GATED,
    ConditionType,
    EvictionReason,
    FinishedReason,
    PendingReason,
    RequeueReason,
)
from api.workload import Workload
from queues.estimates.estimator import length_problems


def reconcile_workload(
    workload: Workload, raw: bytes, context: LifecycleContext, *, now: float
) -> LifecycleResult:
    """Return what this Workload needs next. Idempotent: once the writes are seen, no more are returned.

    `raw` is the object as last seen. Raises msgspec.DecodeError if it is not a JSON object.
    """
    look = Look(workload=workload, raw=raw, context=context, now=now)
    settings = context.settings
    # All instants at which the passing of time alone changes an answer, whichever step answers now.
    wake_at = next_deadline(workload, pods_ready=settings.pods_ready, retention=settings.retention, now=now)
    wake_at = _earlier(_earlier(wake_at, next_look_at(look)), next_stage_look(look))
    wake_at = _earlier(_earlier(wake_at, context.turns_at), taken_back_at(workload))
    wake_at = _earlier(_earlier(wake_at, spared_until(workload)), next_unbound_look(look))
    wake_at = _earlier(wake_at, unstarted_at(look))
    for step in _STEPS:
        answer = step(look)
        if answer is not None:
            return LifecycleResult(actions=(*answer, *_asides(look)), wake_at=wake_at)
    return LifecycleResult(actions=_asides(look), wake_at=wake_at)


def _asides(look: Look) -> tuple[Action, ...]:
    """Return what is done beside any step: Events, and writes on other objects that delay none of its own."""
    return (*request_writes(look), *_notices(look))


def _notices(look: Look) -> tuple[Event, ...]:
    """Return the faults of a Workload that stop nothing; those of a Job or pod are reported there."""
    if look.workload.owner_kind is not None or look.workload.is_finished:
        return ()
    said = length_problems((look.workload.annotations,), now=look.now)
    return (look.event(EventType.WARNING, "InvalidExpectedRuntime", "; ".join(said)),) if said else ()


# --- going ---------------------------------------------------------------------------------------


def _answer_deletion(look: Look) -> Answer:
    """Remove the finalizer of a deleted Workload. With a Job, the Job's reconciler does that."""
    if look.workload.deleted_at is None:
        return None
    if look.workload.has_finalizer and look.owner is not Owner.JOB:
        return (finalizer_off(look.workload, look.raw),)
    return ()


def _answer_end(look: Look) -> Answer:
    """Remove the finalizer of a finished Workload, and delete it when its retention time is over."""
    if not look.workload.is_finished:
        return None
    if look.workload.has_finalizer and look.owner is not Owner.JOB:
        return (finalizer_off(look.workload, look.raw),)
    # Kept for users to read. () ends the look: a finished Workload needs nothing else.
    if not look.is_due(retention_deadline(look.workload, look.context.settings.retention)):
        return ()
    event = look.event(EventType.NORMAL, "Deleted", "Deleted finished workload due to elapsed retention")
    return (workload_deletion(look.workload, event),)


def _answer_orphan(look: Look) -> Answer:
    """Finish a Workload whose owner is gone, which leaves nothing to run."""
    if look.owner is not Owner.MISSING:
        return None
    edit = look.edit
    edit.finish(FinishedReason.OWNER_NOT_FOUND, OWNER_GONE)
    return (workload_status(edit, Purpose.FINISH),)


def _answer_replaced(look: Look) -> Answer:
    """Finish a slice once another one holds its quota: its pods go on in that one."""
    successor = look.context.successor
    if successor is None:
        return None
    return (replaced_write(look.workload, look.raw, successor, now=look.now),)


def _answer_priority(look: Look) -> Answer:
    """Give the Workload the value of its WorkloadPriorityClass; that of a Job or pod follows its owner."""
    value = look.context.class_value
    if value is None or value == look.workload.priority or look.owner is Owner.JOB:
        return None
    return (workload_patch(look.workload, {"spec": {"priority": value}}, Purpose.UPDATE_WORKLOAD),)


# --- leaving -------------------------------------------------------------------------------------


def _answer_deactivation_target(look: Look) -> Answer:
    """Deactivate a Workload that is marked for deactivation."""
    if not look.workload.active or not look.workload.is_true(ConditionType.DEACTIVATION_TARGET):
        return None
    # spec and status need two writes. This one is second, so that the status gives the reason first.
    return (workload_patch(look.workload, {"spec": {"active": False}}, Purpose.DEACTIVATE),)


def _answer_inactive(look: Look) -> Answer:
    """Evict an inactive Workload, whether it runs or waits, and drop its back-off."""
    workload = look.workload
    if workload.active:
        return None
    edit, decision = look.edit, _deactivation(workload)
    events: tuple[Event, ...] = ()
    # A waiting one as well: Evicted tells the Job's reconciler that it is not going to be admitted.
    if not workload.is_evicted:
        events = evict(edit, decision)
    edit.remove_condition(ConditionType.DEACTIVATION_TARGET)
    edit.put("requeueState", None)
    # The eviction and the clean-up are one write.
    if edit.is_changed:
        write = workload_status(edit, Purpose.EVICT, *events)
        # Only the loss of quota is an eviction to operators.
        return (replace(write, eviction=decision) if events and workload.admission is not None else write,)
    if look.is_due(retention_deadline(workload, look.context.settings.retention)):
        note = "Deleted job of a workload that was deactivated, due to elapsed retention"
        return (_owner_deletion(look, look.event(EventType.NORMAL, "Deleted", note)),)
    return None


def _answer_ended_reservation(look: Look) -> Answer:
    """Clear the admission of a Workload whose reservation another program has ended.

    A server-side apply as Kueue's removes only fields that its manager alone has written. It sets the
    condition and leaves the admission, which other steps would wait for.
    """
    workload = look.workload
    reserved = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    if workload.admission is None or reserved is None or reserved.status:
        return None
    if workload.is_evicted and look.owner is Owner.JOB:
        # The Job's reconciler releases the quota once the Job has stopped.
        return None
    edit = look.edit
    edit.put("admission", None)
    return (workload_status(edit, Purpose.RELEASE),)


def _answer_release(look: Look) -> Answer:
    """Release the quota of an evicted pod group without pods: nothing else reports that it has stopped."""
    workload = look.workload
    if not workload.is_evicted or workload.admission is None:
        return None
    if look.owner is not Owner.NONE or keys.IS_GROUP_WORKLOAD not in workload.annotations:
        # Its owner, or the program that created it, releases the quota once its work has stopped. As in
        # Kueue, nothing else can know when that is.
        return ()
    edit = look.edit
    edit.release(look.context.settings.words.released)
    # All of its pods are gone. Until they are replaced it must not be admitted again.
    evicted = workload.conditions[ConditionType.EVICTED]
    edit.await_replacements(evicted.reason, evicted.message)
    return (workload_status(edit, Purpose.RELEASE),)


# --- returning -----------------------------------------------------------------------------------


def _answer_return(look: Look) -> Answer:
    """Requeue an evicted Workload once the event that it waits for has happened."""
    requeued = look.workload.conditions.get(ConditionType.REQUEUED)
    if not look.workload.active:
        return None
    waits = requeued is not None and not requeued.status
    found = _return_reason(look, requeued.reason) if waits and requeued is not None else None
    if found is None:
        return _answer_backoff_over(look)
    reason, message = found
    edit = look.edit
    edit.requeue(reason, message)
    return (workload_status(edit, Purpose.REQUEUE),)


def _answer_backoff_over(look: Look) -> Answer:
    """Clear the end of a back-off that is over, also where another writer ended the eviction."""
    workload = look.workload
    if workload.has_quota_reservation or not look.is_due(workload.requeue_at):
        return None
    edit = look.edit
    edit.put_requeue_at(None)
    return (workload_status(edit, Purpose.REQUEUE),)


def _return_reason(look: Look, evicted_for: str) -> tuple[RequeueReason, str] | None:
    context = look.context
    match evicted_for:
        case EvictionReason.PODS_READY_TIMEOUT | EvictionReason.ADMISSION_CHECK:
            # No instant: the retry was requested without a delay, so the Workload returns at once.
            if look.workload.requeue_at is None or look.is_due(look.workload.requeue_at):
                return RequeueReason.BACKOFF_FINISHED, "The workload backoff was finished"
        case EvictionReason.LOCAL_QUEUE_STOPPED:
            if context.local_queue_stop is StopPolicy.NONE:
                message = "The LocalQueue was restarted after being stopped"
                return RequeueReason.LOCAL_QUEUE_RESTARTED, message
        case EvictionReason.CLUSTER_QUEUE_STOPPED:
            if context.cluster_queue_stop is StopPolicy.NONE:
                message = "The ClusterQueue was restarted after being stopped"
                return RequeueReason.CLUSTER_QUEUE_RESTARTED, message
        # `startswith`, because the reason of a deactivation includes its cause: DeactivatedDueTo...
        case _ if evicted_for.startswith(EvictionReason.DEACTIVATED):
            return RequeueReason.REACTIVATED, "The workload was reactivated"
    return None


# --- waiting -------------------------------------------------------------------------------------


def _answer_queue_problem(look: Look) -> Answer:
    """Report once why a Workload cannot even be considered for admission."""
    workload, problem = look.workload, look.context.queue_problem
    if workload.admission is not None:
        return None
    # The problem is gone, but the condition may still report a gate.
    if problem is None:
        return _unblocked(look)
    reason, message = problem
    if reason is PendingReason.DEACTIVATED and not look.context.settings.words.is_fine:
        # In the older words no reason says so: what was written at the eviction stays.
        return None
    present = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    word = look.context.settings.words.of_queue(reason)
    if present is not None and (present.status, present.reason, present.message) == (False, word, message):
        return None
    decision = _wait(workload, reason, message)
    awaits_pods = look.context.settings.pods_ready is not None
    write = wait_write(
        decision,
        look.raw,
        now=look.now,
        word=word,
        awaits_pods=awaits_pods,
        refuses_requests=look.context.has_unread_requests,
    )
    if write is not None and reason is PendingReason.ADMISSION_GATED:
        # The gate was asked for, so it is no reason for a warning.
        note = f"Workload admission is gated by: {workload.annotations.get(keys.ADMISSION_GATED_BY, '')}"
        write = replace(write, events=(look.event(EventType.NORMAL, reason.value, note),))
    return None if write is None else (write,)


def _unblocked(look: Look) -> Answer:
    """Report that a gate is gone, or that a new Workload waits for its first evaluation."""
    present = look.workload.conditions.get(ConditionType.QUOTA_RESERVED)
    words = look.context.settings.words
    if present is None and words.is_explicit:
        edit = look.edit
        message = "Workload is pending evaluation in the scheduling queue"
        edit.wait(words.released, message, awaits_pods=look.context.settings.pods_ready is not None)
        return (workload_status(edit, Purpose.WAIT),)
    # Only a gate's message is replaced here. Any other is replaced by the next cycle.
    is_gated = present is not None and present.reason == PendingReason.ADMISSION_GATED
    if present is None or not is_gated or present.message == PREEMPTION_GATED:
        return None
    edit = look.edit
    message = "AdmissionGatedBy cleared, waiting for quota reservation"
    edit.wait(words.released, message)
    note = "Admission gate cleared, workload is now admissible"
    event = look.event(EventType.NORMAL, "AdmissionGateCleared", note)
    return (workload_status(edit, Purpose.WAIT, event),) if edit.is_changed else None


_STEPS: tuple[Callable[[Look], Answer], ...] = (
    # The order matters (see above): a step may rely on the steps before it having had no answer.
    _answer_deletion,
    _answer_end,
    _answer_orphan,
    _answer_replaced,
    _answer_priority,
    _answer_deactivation_target,
    _answer_inactive,
    answer_eviction_request,
    answer_held_back,
    # Before a release: a back-off runs from its beginning, whenever the quota is given back.
    _answer_return,
    _answer_ended_reservation,
    _answer_release,
    admitted.answer_check_list,
    answer_requests,
    admitted.answer_check_failures,
    admitted.answer_checks_ready,
    admitted.answer_stopped_queue,
    admitted.answer_readiness,
    admitted.answer_execution_time,
    answer_lost_nodes,
    answer_unbound_pods,
    answer_misplaced_pods,
    answer_addresses,
    answer_gated_pods,
    answer_elastic_pods,
    answer_refusal_over,
    _answer_queue_problem,
    answer_unstarted,
    answer_excluded_nodes,
    answer_promise,
)


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _deactivation(workload: Workload) -> Evict:
    message = "The workload is deactivated"
    target = workload.conditions.get(ConditionType.DEACTIVATION_TARGET)
    if target is None or not target.status:
        return eviction(workload, EvictionReason.DEACTIVATED, message)
    return eviction(
        workload, EvictionReason.DEACTIVATED, f"{message} due to {target.message}", cause=target.reason
    )


def _wait(workload: Workload, reason: PendingReason, message: str) -> Wait:
    return Wait(
        key=workload.key,
        uid=workload.uid,
        reason=reason,
        message=message,
    )


def _owner_deletion(look: Look, event: Event) -> Write:
    """Return the deletion of the Workload's Job or pod, which includes the Workload, or of the Workload."""
    workload = look.workload
    # The owner is deleted, because a Job that lives on would get a new Workload.
    if look.owner is not Owner.JOB or workload.owner_name is None:
        return workload_deletion(workload, event)
    owner = ObjectVersion(
        kind=workload.owner_kind or "Job",
        namespace=workload.key.namespace,
        name=workload.owner_name,
        uid=workload.owner_uid or "",
    )
    return owner.deletion(Purpose.DELETE_JOB, event)
