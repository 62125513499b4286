"""The rules for Workloads that hold quota: checks, stopped queues, unready pods, execution time."""

from __future__ import annotations

from admission.decisions.api_writes import Event, Purpose, Write
from admission.preemption.checkpoint_before_eviction import asked_first
from admission.reconcile.deadlines import execution_deadline, readiness_deadline
from admission.reconcile.decision_writes import evict_write
from admission.reconcile.workload.look import Answer, Look, eviction
from admission.reconcile.workload_writes import admitted_event, workload_status
from api.eviction import current_request
from api.object_events import EventType
from api.queueing import StopPolicy
from api.reasons import ConditionType, EvictionReason, PendingReason
from api.workload import CheckState


def answer_check_list(look: Look) -> Answer:
    """Update the list of checks to the queue's. An admitted Workload keeps its list."""
    workload, required = look.workload, look.context.required_checks
    # An admitted Workload has passed its checks; one that is added later applies only to later admissions.
    if workload.is_admitted or not workload.active or {c.name for c in workload.checks} == set(required):
        return None
    edit = look.edit
    edit.sync_checks(required)
    return (workload_status(edit, Purpose.SYNC_CHECKS),) if edit.is_changed else None


def answer_check_failures(look: Look) -> Answer:
    """Deactivate a Workload after a rejected check. Evict it after a check that asks for a retry."""
    workload = look.workload
    rejected = [check for check in workload.checks if check.state == "Rejected"]
    # Deactivation is a separate write and comes first. The next look finds the Workload inactive.
    if rejected and workload.active:
        return (_rejection(look, rejected),)
    retries = [check for check in workload.checks if check.state == "Retry"]
    if not retries or workload.is_evicted or not workload.has_quota_reservation:
        return None
    decision = eviction(workload, EvictionReason.ADMISSION_CHECK, "At least one admission check is false")
    # The latest of all: the Workload waits for every check that asked for a delay.
    delays = [c.at + c.requeue_after_seconds for c in retries if c.requeue_after_seconds is not None]
    requeue_at = max(delays, default=None)
    return (evict_write(decision, look.raw, now=look.now, requeue_at=requeue_at),)


def answer_checks_ready(look: Look) -> Answer:
    """Admit a Workload that holds quota once all its checks are ready."""
    workload = look.workload
    if not workload.has_quota_reservation or workload.is_admitted or workload.is_evicted:
        return None
    admission = workload.admission
    states = {check.name: check.state for check in workload.checks}
    # By the required names and not by the list: a check that is no longer required delays nothing.
    is_ready = all(states.get(name) == "Ready" for name in look.context.required_checks)
    # Quota without a topology assignment is no admission yet: the pods could go anywhere.
    if admission is None or not is_ready or admission.is_delayed:
        return None
    awaits_pods = look.context.settings.pods_ready is not None
    edit = look.edit
    edit.admit(awaits_pods=awaits_pods)
    waited = look.now - workload.conditions[ConditionType.QUOTA_RESERVED].at
    event = admitted_event(look.ref, admission.cluster_queue, waited)
    return (workload_status(edit, Purpose.ADMIT, event),)


def answer_stopped_queue(look: Look) -> Answer:
    """Evict running Workloads on HoldAndDrain. On any stop, release the quota of those not yet admitted."""
    workload, context = look.workload, look.context
    if not workload.has_quota_reservation or workload.is_evicted:
        return None
    if current_request(workload) is not None:
        # Its eviction has been requested already.
        return None
    # The LocalQueue comes first: it is more specific, so its message is more useful.
    for policy, kind, reason in (
        (context.local_queue_stop, "LocalQueue", EvictionReason.LOCAL_QUEUE_STOPPED),
        (context.cluster_queue_stop, "ClusterQueue", EvictionReason.CLUSTER_QUEUE_STOPPED),
    ):
        message = f"The {kind} is stopped"
        # Only an admitted Workload has to be evicted. Others give back their quota without a stop.
        if policy is StopPolicy.HOLD_AND_DRAIN and workload.is_admitted:
            decision = eviction(workload, reason, message)
            decision = asked_first(decision, workload, context.policy, now=look.now)
            return (evict_write(decision, look.raw, now=look.now),)
        if policy in (StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN) and not workload.is_admitted:
            edit = look.edit
            edit.release(PendingReason.ON_HOLD, message)
            return (workload_status(edit, Purpose.RELEASE),)
    return None


def answer_readiness(look: Look) -> Answer:
    """Evict a Workload whose pods are not ready in time, with a longer back-off each time."""
    workload, settings = look.workload, look.context.settings.pods_ready
    deadline = readiness_deadline(workload, settings)
    # Without the setting there is no deadline at all.
    if settings is None or deadline is None or not look.is_due(deadline.at):
        return None
    count = workload.requeue_count + 1
    # This was the last retry. The Workload stays inactive until a user activates it.
    if settings.backoff_limit is not None and count > settings.backoff_limit:
        message = "exceeding the maximum number of re-queuing retries"
        return (_deactivation(look, "RequeuingLimitExceeded", message),)
    message = f"Exceeded the PodsReady timeout {workload.key}"
    decision = eviction(workload, EvictionReason.PODS_READY_TIMEOUT, message, cause=deadline.cause)
    # From now on, not from the deadline, because the write may come late.
    requeue_at = look.now + settings.backoff_seconds(count)
    return (evict_write(decision, look.raw, now=look.now, requeue_at=requeue_at, requeue_count=count),)


def answer_execution_time(look: Look) -> Answer:
    """Deactivate a Workload that has reached its maximum execution time."""
    if not look.is_due(execution_deadline(look.workload)):
        return None
    limit = look.workload.maximum_execution_time_seconds
    message = "exceeding the maximum execution time"
    cause = "MaximumExecutionTimeExceeded"
    note = f"The maximum execution time ({limit}s) exceeded"
    return (_deactivation(look, cause, message, look.event(EventType.WARNING, cause, note)),)


def _rejection(look: Look, rejected: list[CheckState]) -> Write:
    names = ", ".join(check.name for check in rejected)
    message = f"Admission check(s): {names}, were rejected"
    said = "; ".join(check.message for check in rejected)
    note = f"Deactivating workload because AdmissionCheck for {names} was Rejected: {said}"
    event = look.event(EventType.WARNING, "AdmissionCheckRejected", note)
    return _deactivation(look, EvictionReason.ADMISSION_CHECK.value, message, event)


def _deactivation(look: Look, cause: str, message: str, *events: Event) -> Write:
    edit = look.edit
    edit.target_deactivation(cause, message)
    return workload_status(edit, Purpose.DEACTIVATE, *events)
