"""The rules for Workloads that hold quota: checks, stopped queues, unready pods, execution time."""

from __future__ import annotations

from admission.decisions.api_writes import Event, Purpose, Write
from admission.preemption.checkpoint_before_eviction import asked_first
from admission.reconcile.deadlines import execution_deadline, readiness_deadline
from admission.reconcile.decision_writes import evict_by_rule
from admission.reconcile.workload.look import Answer, Look, eviction
from admission.reconcile.workload_writes import admitted_event, workload_status
from api.eviction import current_request
from api.object_events import EventType
from api.queueing import StopPolicy
from api.reasons import ConditionType, EvictionReason, PendingReason
from api.workload import CheckState


def answer_check_list(look: Look) -> Answer:
    """Update the list of checks to the queue's. An admitted Workload keeps its list, and one without a queue.

    Which checks it needs is not known while its queue does not exist.
    """
    workload, required = look.workload, look.context.required_checks
    if look.context.local_queue_stop is None or look.context.cluster_queue_stop is None:
        return None
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
    is_judged = workload.has_quota_reservation and not workload.is_evicted
    # Deactivation is a separate write and comes first. The next look finds the Workload inactive.
    if rejected and workload.active and is_judged:
        return (_rejection(look, rejected),)
    retries = [check for check in workload.checks if check.state == "Retry"]
    # The latest of all: the Workload waits for every check that asked for a delay.
    delays = [c.at + c.requeue_after_seconds for c in retries if c.requeue_after_seconds is not None]
    # A delay that is over already delays nothing.
    requeue_at = max((at for at in delays if at > look.now), default=None)
    if not retries or not is_judged:
        return _delay(look, requeue_at)
    decision = eviction(workload, EvictionReason.ADMISSION_CHECK, f"Evicted due to {_checks_text(retries)}")
    return (evict_by_rule(decision, look.raw, now=look.now, requeue_at=requeue_at),)


def _delay(look: Look, requeue_at: float | None) -> Answer:
    """Keep a Workload without quota out of its queue until then, as its checks ask."""
    edit = look.edit
    if requeue_at is not None:
        edit.put_requeue_at(requeue_at)
    return (workload_status(edit, Purpose.SYNC_CHECKS),) if edit.is_changed else None


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
    """Evict running Workloads on HoldAndDrain. Release the quota of those not yet admitted.

    The latter on any stop, and where a queue does not exist any more.
    """
    workload, context = look.workload, look.context
    if not workload.has_quota_reservation or workload.is_evicted:
        return None
    if current_request(workload) is not None:
        # Its eviction has been requested already.
        return None
    cluster_queue = workload.admission.cluster_queue if workload.admission is not None else ""
    # The LocalQueue comes first: it is more specific, so its message is more useful.
    for policy, kind, name, reason in (
        (context.local_queue_stop, "LocalQueue", workload.queue_name, EvictionReason.LOCAL_QUEUE_STOPPED),
        (context.cluster_queue_stop, "ClusterQueue", cluster_queue, EvictionReason.CLUSTER_QUEUE_STOPPED),
    ):
        # Only an admitted Workload has to be evicted. Others give back their quota without a stop.
        if policy is StopPolicy.HOLD_AND_DRAIN and workload.is_admitted:
            decision = eviction(workload, reason, f"The {kind} is stopped")
            decision = asked_first(decision, workload, context.policy, now=look.now)
            return (evict_by_rule(decision, look.raw, now=look.now),)
        if policy is StopPolicy.NONE or workload.is_admitted:
            continue
        edit, words = look.edit, context.settings.words
        if policy is None:
            word = words.of_queue(PendingReason.MISCONFIGURED)
            edit.release(word, f"{kind} {name} is terminating or missing")
        else:
            edit.release(words.of_queue(PendingReason.SUSPENDED), f"{kind} {name} is stopped")
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
    return (evict_by_rule(decision, look.raw, now=look.now, requeue_at=requeue_at, requeue_count=count),)


def answer_execution_time(look: Look) -> Answer:
    """Deactivate a Workload that has reached its maximum execution time."""
    if not look.is_due(execution_deadline(look.workload)):
        return None
    limit = look.workload.maximum_execution_time_seconds
    message = "exceeding the maximum execution time"
    cause = "MaximumExecutionTimeExceeded"
    note = f"The maximum execution time ({limit}s) exceeded"
    event = look.event(EventType.WARNING, cause, note)
    return (_deactivation(look, cause, message, event, forgets_runs=True),)


def _rejection(look: Look, rejected: list[CheckState]) -> Write:
    message = _checks_text(rejected)
    event = look.event(EventType.WARNING, "AdmissionCheckRejected", f"Deactivated due to {message}")
    return _deactivation(look, EvictionReason.ADMISSION_CHECK.value, message, event)


def _checks_text(checks: list[CheckState]) -> str:
    """Return Kueue's words for checks of one state: `AdmissionCheck in Retry state: "a" (why)`."""
    said = [
        f'"{check.name}" ({check.message})' if check.message else f'"{check.name}"'
        for check in sorted(checks, key=lambda check: check.name)
    ]
    noun = "AdmissionCheck" if len(checks) == 1 else "AdmissionChecks"
    return f"{noun} in {checks[0].state} state: {'; '.join(said)}"


def _deactivation(look: Look, cause: str, message: str, *events: Event, forgets_runs: bool = False) -> Write:
    """Return the write that marks the Workload. `forgets_runs`: it gets its whole time if it is activated."""
    edit = look.edit
    edit.target_deactivation(cause, message)
    if forgets_runs:
        edit.put("accumulatedPastExecutionTimeSeconds", None)
    return workload_status(edit, Purpose.DEACTIVATE, *events)
