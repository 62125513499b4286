"""Decisions and steps of a Workload's life as status bodies.

Each function takes the object's bytes as last seen and returns the whole body for PUT .../status. None means
that nothing would change, so no write is needed. The conditions and their messages are Kueue's;
`api.status_bodies` explains how a body is built. Source: Kueue, pkg/workload (admission patch, eviction,
release) and the API reference of its conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from admission.decisions.decision import Admit, Evict, Wait
from api.reasons import ConditionType, EvictionReason, FinishedReason, PendingReason, RequeueReason
from api.status_bodies import StatusEdit, admission_body, requests_body, topology_body
from api.workload import DELAYED_READY, TopologyAssignment, to_rfc3339

NOT_READY_MESSAGE = "Not all pods are ready or succeeded"
# Appended to the message of QuotaReserved=True: nothing else on the object says that it runs on a lease.
LEASE_WORDS = ", on a backfill lease"
READY_MESSAGE = "All pods reached readiness and the workload is running"

# After these evictions the Workload queues again at once. After all others something must happen first (a
# back-off ends, a user reactivates the Workload, a queue is restarted).
_REQUEUED_AT_ONCE = frozenset(
    {
        EvictionReason.PREEMPTED.value,
        EvictionReason.NODE_FAILURES.value,
        EvictionReason.OVER_ADMITTED.value,
        EvictionReason.BACKFILL_LEASE_EXPIRED.value,
        EvictionReason.RESERVATION_DUE.value,
    }
)

_RESET_BY_ADMISSION = (
    ConditionType.EVICTED,
    ConditionType.PREEMPTED,
    ConditionType.BLOCKED_ON_PREEMPTION_GATES,
)


def admit(raw: bytes, decision: Admit, *, now: float, awaits_pods: bool = False) -> bytes:
    """Return the status with the Workload's quota, and admitted if no admission check is pending.

    With `awaits_pods` (waitForPodsReady is on) PodsReady=False is written too if a Job reports on the
    Workload. Checks that the flavors require are added as Pending, others are removed.
    """
    edit = StatusEdit(raw, now=now)
    edit.put("admission", admission_body(decision.admission))
    # The admission now has the resource requests. If they were kept here too, the two would contradict each
    # other after a partial admission.
    edit.put("resourceRequests", None)
    _sync_checks(edit, decision.checks, now)
    cluster_queue = decision.admission.cluster_queue
    edit.set_condition(
        ConditionType.QUOTA_RESERVED,
        True,
        reason="QuotaReserved",
        # Kueue's sentence, followed by what Kueue has no word for.
        message=f"Quota reserved in ClusterQueue {cluster_queue}{LEASE_WORDS if decision.on_lease else ''}",
    )
    for type_ in _RESET_BY_ADMISSION:
        edit.reset_condition(type_, reason="QuotaReserved")
    if decision.is_admitted:
        _set_admitted(edit)
    if awaits_pods and decision.is_admitted and edit.is_owned:
        _await_pods(edit)
    return edit.to_bytes()


def wait(raw: bytes, decision: Wait, *, now: float) -> bytes | None:
    """Return the status that reports why the Workload waits; None if it reports the same already."""
    edit = StatusEdit(raw, now=now)
    found = edit.condition(ConditionType.QUOTA_RESERVED)
    if (
        found is not None
        and found.get("status") == "False"
        and (found.get("reason"), found.get("message")) == (decision.reason.value, decision.message)
    ):
        # A change of only the requests or the generation is not worth a write.
        return None
    if decision.requests:
        edit.put("resourceRequests", requests_body(decision.requests))
    _set_unreserved(edit, decision.reason.value, decision.message)
    return edit.to_bytes() if edit.is_changed else None


def evict(raw: bytes, decision: Evict, *, now: float) -> bytes:
    """Return the status of an eviction. The quota is kept until the Job has stopped (see `release`).

    Checks are reset, assignments by other controllers are cleared, and the eviction is counted.
    """
    edit = StatusEdit(raw, now=now)
    begin_eviction(edit, decision, now=now)
    return edit.to_bytes()


def begin_eviction(edit: StatusEdit, decision: Evict, *, now: float) -> None:
    """Write an eviction into an edit that may contain other changes."""
    edit.set_condition(ConditionType.EVICTED, True, reason=eviction_word(decision), message=decision.message)
    if decision.preemption_reason is not None:
        edit.set_condition(
            ConditionType.PREEMPTED,
            True,
            reason=decision.preemption_reason.value,
            message=decision.message,
        )
    # A check that is Ready was about the quota that the Workload loses. After the next admission it has
    # to be evaluated again.
    _reset_checks(edit, now)
    for field in ("clusterName", "nominatedClusterNames", "unhealthyNodes"):
        edit.put(field, None)
    _close_gates(edit, now)
    edit.count_eviction(decision.reason.value, decision.underlying_cause)


def eviction_word(decision: Evict) -> str:
    """Return the reason of Evicted=True. A deactivation that Berth caused includes the cause."""
    if decision.reason is EvictionReason.DEACTIVATED and decision.underlying_cause:
        return f"{decision.reason.value}DueTo{decision.underlying_cause}"
    return decision.reason.value


def release(
    raw: bytes,
    *,
    now: float,
    reason: PendingReason = PendingReason.PENDING_EVALUATION,
    message: str | None = None,
) -> bytes:
    """Return the status without the reservation: once an evicted Job has stopped, or before admission.

    After an eviction, Requeued says whether the Workload queues again at once. `message` defaults
    to the eviction's message.
    """
    edit = StatusEdit(raw, now=now)
    evicted = edit.condition(ConditionType.EVICTED)
    if evicted is not None and evicted.get("status") == "True":
        why, text = str(evicted.get("reason", "")), str(evicted.get("message", ""))
        edit.set_condition(ConditionType.REQUEUED, why in _REQUEUED_AT_ONCE, reason=why, message=text)
        # Kueue repeats the eviction's message as the reason for waiting, until the next cycle finds another.
        message = text if message is None else message
    # First, because it reads since when Admitted has been True, which the lines below overwrite.
    edit.accumulate_execution()
    edit.put("admission", None)
    # This condition was about this eviction only.
    edit.remove_condition(ConditionType.DISRUPTION_ALLOWED)
    _set_unreserved(edit, reason.value, message or "The quota reservation was released")
    if edit.condition(ConditionType.PODS_READY) is not None:
        _await_pods(edit)
    return edit.to_bytes()


def finish(raw: bytes, reason: FinishedReason, message: str, *, now: float) -> bytes:
    """Return the status of a Workload whose work has ended, successfully or not. Its quota is free then."""
    edit = StatusEdit(raw, now=now)
    edit.set_condition(ConditionType.FINISHED, True, reason=reason.value, message=message)
    return edit.to_bytes()


def complete_admission(raw: bytes, *, now: float, awaits_pods: bool = False) -> bytes:
    """Return the status that admits a Workload which held quota while its admission checks ran."""
    edit = StatusEdit(raw, now=now)
    _set_admitted(edit)
    if awaits_pods and edit.is_owned:
        _await_pods(edit)
    return edit.to_bytes()


def sync_checks(raw: bytes, required: Iterable[str], *, now: float) -> bytes | None:
    """Return the status with exactly the required admission checks, new ones Pending; None if it has them."""
    edit = StatusEdit(raw, now=now)
    _sync_checks(edit, required, now)
    return edit.to_bytes() if edit.is_changed else None


def put_unhealthy(raw: bytes, nodes: Iterable[str], *, now: float) -> bytes:
    """Return the status that lists the failed nodes under the Workload's pods; without any the list goes."""
    edit = StatusEdit(raw, now=now)
    edit.put("unhealthyNodes", [{"name": name} for name in nodes] or None)
    return edit.to_bytes()


def reassign(raw: bytes, assignments: Mapping[str, TopologyAssignment], *, now: float) -> bytes:
    """Return the status that gives pod sets other nodes, or their first ones. Nothing else is changed.

    The list of unhealthy nodes is cleared, because the pods no longer use any.
    """
    edit = StatusEdit(raw, now=now)
    admission = dict(edit.status.get("admission") or {})
    admission["podSetAssignments"] = [
        _placed(one, assignments[one["name"]]) if one.get("name") in assignments else one
        for one in admission.get("podSetAssignments") or ()
    ]
    edit.put("admission", admission)
    edit.put("unhealthyNodes", None)
    return edit.to_bytes()


def _placed(body: Mapping[str, Any], assignment: TopologyAssignment) -> dict[str, Any]:
    placed = {**body, "topologyAssignment": topology_body(assignment)}
    if "delayedTopologyRequest" in body:
        placed["delayedTopologyRequest"] = DELAYED_READY
    return placed


def requeue(raw: bytes, reason: RequeueReason, message: str, *, now: float) -> bytes:
    """Return the status that lets an evicted Workload queue again."""
    edit = StatusEdit(raw, now=now)
    edit.set_condition(ConditionType.REQUEUED, True, reason=reason.value, message=message)
    put_requeue_at(edit, None)
    if reason is RequeueReason.REACTIVATED:
        edit.put("accumulatedPastExecutionTimeSeconds", None)
    return edit.to_bytes()


def put_requeue_at(edit: StatusEdit, at: float | None, *, count: int | None = None) -> None:
    """Set or clear the earliest time of the next requeue. `count` sets the number of requeues so far."""
    state = dict(edit.status.get("requeueState") or {})
    state.pop("requeueAt", None)
    if at is not None:
        state["requeueAt"] = to_rfc3339(at)
    if count is not None:
        state["count"] = count
    edit.put("requeueState", state or None)


def target_deactivation(raw: bytes, cause: str, message: str, *, now: float) -> bytes:
    """Return the status that marks the Workload for deactivation. spec.active follows in a separate write."""
    edit = StatusEdit(raw, now=now)
    edit.set_condition(ConditionType.DEACTIVATION_TARGET, True, reason=cause, message=message)
    return edit.to_bytes()


def report_pods(edit: StatusEdit, *, is_ready: bool) -> None:
    """Write PodsReady as the Job shows it. The reason tells a first start from a recovery."""
    found = edit.condition(ConditionType.PODS_READY)
    reason = "" if found is None else found.get("reason")
    if is_ready:
        if not edit.is_true(ConditionType.PODS_READY):
            word = "Recovered" if reason == "WaitForRecovery" else "Started"
            edit.set_condition(ConditionType.PODS_READY, True, reason=word, message=READY_MESSAGE)
    elif edit.is_true(ConditionType.PODS_READY):
        message = "At least one pod has failed, waiting for recovery"
        edit.set_condition(ConditionType.PODS_READY, False, reason="WaitForRecovery", message=message)
    elif found is None:
        _await_pods(edit)


def await_replacements(edit: StatusEdit, reason: str) -> None:
    """Write that a group waits for replacements of its pods: until then it is in no queue."""
    message = "Some Failed pods need replacement"
    edit.set_condition(ConditionType.WAITING_FOR_REPLACEMENT_PODS, True, reason=reason, message=message)


def _await_pods(edit: StatusEdit) -> None:
    edit.set_condition(ConditionType.PODS_READY, False, reason="WaitForStart", message=NOT_READY_MESSAGE)


def _set_admitted(edit: StatusEdit) -> None:
    edit.set_condition(ConditionType.ADMITTED, True, reason="Admitted", message="The workload is admitted")


def _set_unreserved(edit: StatusEdit, reason: str, message: str) -> None:
    edit.set_condition(ConditionType.QUOTA_RESERVED, False, reason=reason, message=message)
    # A Workload that was never admitted has no Admitted condition, which saves writes for those that wait.
    if edit.condition(ConditionType.ADMITTED) is not None:
        edit.set_condition(
            ConditionType.ADMITTED, False, reason="NoReservation", message="The workload has no reservation"
        )


def _sync_checks(edit: StatusEdit, required: Iterable[str], now: float) -> None:
    standing = {entry.get("name"): entry for entry in edit.status.get("admissionChecks") or ()}
    # The entry of a check that is still required is kept: its state belongs to the check's controller, and a
    # Ready that was reset would delay a Workload that is about to start.
    wanted = [standing.get(name) or _pending_check(name, now) for name in required]
    edit.put("admissionChecks", wanted or None)


def _pending_check(name: str, now: float) -> dict[str, Any]:
    return {"name": name, "state": "Pending", "message": "", "lastTransitionTime": to_rfc3339(now)}


def _reset_checks(edit: StatusEdit, now: float) -> None:
    checks = edit.status.get("admissionChecks")
    if checks:
        edit.put("admissionChecks", [_reset_check(entry, now) for entry in checks])


def _reset_check(entry: Mapping[str, Any], now: float) -> dict[str, Any]:
    state = entry.get("state")
    if state == "Pending":
        return dict(entry)
    reset = _pending_check(str(entry.get("name", "")), now)
    reset["message"] = f"Reset to Pending after eviction. Previously: {state}"
    # Only a check that asked for a retry is counted, not one that was reset along with it.
    retries = int(entry.get("retryCount") or 0) + (state == "Retry")
    return {**reset, **({"retryCount": retries} if retries else {})}


def _close_gates(edit: StatusEdit, now: float) -> None:
    gates = edit.status.get("preemptionGates")
    if gates:
        closed = {"position": "Closed", "lastTransitionTime": to_rfc3339(now)}
        edit.put(
            "preemptionGates",
            [gate if gate.get("position") == "Closed" else {**gate, **closed} for gate in gates],
        )
