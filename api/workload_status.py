"""A Workload's status: what each step of its life changes in it.

The conditions and their messages are Kueue's. How a status becomes the body of a PUT is in
`api.status_edit`. Source: Kueue, pkg/workload (admission patch, eviction, release) and the API reference
of its conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from api.parsing.quantities import to_text
from api.parsing.times import to_rfc3339, to_seconds
from api.quota_check import REASON, QuotaCheck
from api.reason_words import OLDER
from api.reasons import (
    INADMISSIBLE,
    ConditionType,
    EvictionReason,
    FinishedReason,
    PendingReason,
    PreemptionReason,
    RequeueReason,
)
from api.status_edit import StatusEdit, shortened
from api.topology_encoding import topology_body
from api.workload import DELAYED_READY, Admission, PodSetAssignment, TopologyAssignment

# The limit of the CRD. Beyond it, the API server rejects the whole status, and with it the eviction.
_MAX_EVICTION_COUNTERS = 256

# Appended to the message of QuotaReserved=True: nothing else on the object says that it runs on a lease.
LEASE_WORDS = ", on a backfill lease"
NOT_READY_MESSAGE = "Not all pods are ready or succeeded"
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
        EvictionReason.PODS_UNSCHEDULABLE.value,
        EvictionReason.FLAVOR_PROMOTION.value,
    }
)

_RESET_BY_ADMISSION = (
    ConditionType.EVICTED,
    ConditionType.PREEMPTED,
    ConditionType.BLOCKED_ON_PREEMPTION_GATES,
)


class WorkloadStatusEdit(StatusEdit):
    """A change of a Workload's status, named by the steps of its life.

    A step only changes the edit; the caller sends it if `is_changed`.
    """

    __slots__ = ()

    def reserve_quota(self, admission: Admission, *, checks: Iterable[str], on_lease: bool = False) -> None:
        """Give the Workload its quota. It now has exactly these admission `checks`, new ones Pending."""
        self.put("admission", admission_body(admission))
        self._forget_refusal()
        # The admission now has the resource requests. If they were kept here too, the two would contradict
        # each other after a partial admission.
        self.put("resourceRequests", None)
        self.sync_checks(checks)
        # Kueue's sentence, followed by what Kueue has no word for.
        words = LEASE_WORDS if on_lease else ""
        message = f"Quota reserved in ClusterQueue {admission.cluster_queue}{words}"
        self.set_condition(ConditionType.QUOTA_RESERVED, True, reason="QuotaReserved", message=message)
        for type_ in _RESET_BY_ADMISSION:
            self.reset_condition(type_, reason="QuotaReserved")

    def await_admission(self, *, awaits_place: bool) -> None:
        """Report what a Workload that holds quota waits for: its checks, or a place for its pods."""
        if awaits_place:
            reason = "PendingDelayedTopologyRequests"
            message = "There are pending delayed topology requests"
        else:
            reason, message = "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"
        self.set_condition(ConditionType.ADMITTED, False, reason=reason, message=message)

    def record_quota_check(self, check: QuotaCheck) -> None:
        """Record which check gave the Workload its quota. Call it with `reserve_quota`."""
        # Removed first, so that it always has the time of this reservation.
        self.remove_condition(ConditionType.QUOTA_CHECKED)
        self.set_condition(ConditionType.QUOTA_CHECKED, True, reason=REASON, message=check.message)

    def admit(self, *, awaits_pods: bool) -> None:
        """Admit a Workload that holds quota and has passed its checks.

        With `awaits_pods` (waitForPodsReady is on) PodsReady=False is written too if a Job reports on the
        Workload.
        """
        self.set_condition(
            ConditionType.ADMITTED, True, reason="Admitted", message="The workload is admitted"
        )
        if awaits_pods and self._is_owned:
            self.await_start()

    def wait(
        self,
        reason: str,
        message: str,
        requests: Mapping[str, Mapping[str, int]] | None = None,
        *,
        awaits_pods: bool = False,
    ) -> None:
        """Report why the Workload waits, and its computed `requests` by pod set if there are any.

        `reason` is a word of `api.reason_words`; `awaits_pods` as in `admit`.
        """
        found = self.condition(ConditionType.QUOTA_RESERVED)
        if (
            found is not None
            and found.get("status") == "False"
            and (found.get("reason"), found.get("message")) == (str(reason), message)
        ):
            # A change of only the requests or the generation is not worth a write.
            return
        if requests:
            self.put("resourceRequests", requests_body(requests))
        self._set_unreserved(reason, message)
        self._forget_refusal()
        if awaits_pods and self._is_owned:
            self.await_start()

    def refuse_requests(self, message: str) -> None:
        """Report, after `wait`, that the Workload is in no queue while its requests cannot be counted."""
        self.set_condition(ConditionType.REQUEUED, False, reason=INADMISSIBLE, message=message)

    def block_on_gates(self, message: str) -> None:
        """Report that preemption gates hold back the evictions that the Workload needs."""
        type_ = ConditionType.BLOCKED_ON_PREEMPTION_GATES
        self.set_condition(type_, True, reason="PreemptionGated", message=message)

    def evict(
        self,
        reason: EvictionReason,
        message: str,
        *,
        cause: str = "",
        preemption_reason: PreemptionReason | None = None,
    ) -> None:
        """Evict the Workload. The quota is kept until the Job has stopped (see `release`).

        Checks are reset, assignments by other controllers are cleared, and the eviction is counted.
        """
        self.set_condition(ConditionType.EVICTED, True, reason=_evicted_word(reason, cause), message=message)
        if preemption_reason is not None:
            self.set_condition(ConditionType.PREEMPTED, True, reason=preemption_reason.value, message=message)
        is_late = reason is EvictionReason.PODS_READY_TIMEOUT
        if is_late and self._is_owned and self.condition(ConditionType.PODS_READY) is None:
            # Another program that admits may leave it out, but Kueue's Jobs have it from their creation on.
            self.await_start()
        # A check that is Ready was about the quota that the Workload loses. After the next admission it has
        # to be evaluated again.
        self._reset_checks()
        if self.is_true(ConditionType.BLOCKED_ON_PREEMPTION_GATES):
            word = _evicted_word(reason, cause)
            self.set_condition(ConditionType.BLOCKED_ON_PREEMPTION_GATES, False, reason=word, message=message)
        for field in ("clusterName", "nominatedClusterNames", "unhealthyNodes"):
            self.put(field, None)
        self._close_gates()
        self._count_eviction(reason.value, cause)

    def release(
        self,
        reason: str = PendingReason.PENDING_EVALUATION,
        message: str | None = None,
        *,
        requeues: bool = True,
    ) -> None:
        """Release the reservation: once an evicted Job has stopped, or before admission.

        After an eviction, Requeued says whether the Workload queues again at once, which it never does with
        `requeues` False. `message` defaults to the eviction's message.
        """
        evicted = self.condition(ConditionType.EVICTED)
        if evicted is not None and evicted.get("status") == "True":
            why, text = str(evicted.get("reason", "")), str(evicted.get("message", ""))
            is_queued = requeues and why in _REQUEUED_AT_ONCE
            self.set_condition(ConditionType.REQUEUED, is_queued, reason=why, message=text)
            # Kueue repeats the eviction's message as the reason for waiting, until the next cycle finds
            # another.
            message = text if message is None else message
        # First, because it reads since when Admitted has been True, which the lines below overwrite.
        self._accumulate_execution()
        self.put("admission", None)
        # This condition was about this eviction only.
        self.remove_condition(ConditionType.DISRUPTION_ALLOWED)
        self._set_unreserved(reason, message or "The quota reservation was released")
        if self.condition(ConditionType.PODS_READY) is not None:
            self.await_start()

    def finish(self, reason: FinishedReason, message: str) -> None:
        """Finish a Workload whose work has ended, successfully or not. Its quota is free then."""
        self.set_condition(ConditionType.FINISHED, True, reason=reason.value, message=message)

    def requeue(self, reason: RequeueReason, message: str) -> None:
        """Let an evicted Workload queue again."""
        self.set_condition(ConditionType.REQUEUED, True, reason=reason.value, message=message)
        self.put_requeue_at(None)
        if reason is RequeueReason.REACTIVATED:
            self.put("accumulatedPastExecutionTimeSeconds", None)

    def put_requeue_at(self, at: float | None, *, count: int | None = None) -> None:
        """Set or clear the earliest time of the next requeue. `count` sets the number of requeues so far.

        A later time that is set already stays: time-outs and admission checks share the field.
        """
        state = dict(self.status.get("requeueState") or {})
        present = state.pop("requeueAt", None)
        if at is not None:
            state["requeueAt"] = to_rfc3339(max(at, to_seconds(present)))
        if count is not None:
            state["count"] = count
        self.put("requeueState", state or None)

    def target_deactivation(self, cause: str, message: str) -> None:
        """Mark the Workload for deactivation. spec.active follows in a separate write."""
        self.set_condition(ConditionType.DEACTIVATION_TARGET, True, reason=cause, message=message)

    def sync_checks(self, required: Iterable[str]) -> None:
        """Have exactly the required admission checks, new ones Pending."""
        present = {entry.get("name"): entry for entry in self.status.get("admissionChecks") or ()}
        # The entry of a check that is still required is kept: its state belongs to the check's controller,
        # and a Ready that was reset would delay a Workload that is about to start.
        wanted = [present.get(name) or self._pending_check(name) for name in required]
        self.put("admissionChecks", wanted or None)

    def put_check(self, name: str, state: str, message: str, **fields: object) -> None:
        """Write the state of a check that is listed, and other fields of its entry; None removes one."""
        entries = []
        for entry in self.status.get("admissionChecks") or ():
            if entry.get("name") == name:
                moved = {} if entry.get("state") == state else {"lastTransitionTime": to_rfc3339(self._now)}
                entry = {**entry, "state": state, "message": shortened(message), **moved, **fields}
                entry = {key: value for key, value in entry.items() if value is not None}
            entries.append(entry)
        self.put("admissionChecks", entries or None)

    def put_unhealthy(self, nodes: Iterable[str]) -> None:
        """List the failed nodes under the Workload's pods; without any the list goes."""
        self.put("unhealthyNodes", [{"name": name} for name in nodes] or None)

    def reassign(self, assignments: Mapping[str, TopologyAssignment]) -> None:
        """Give pod sets other nodes, or their first ones.

        The list of unhealthy nodes is cleared, because the pods no longer use any.
        """
        admission = dict(self.status.get("admission") or {})
        admission["podSetAssignments"] = [
            _placed(one, assignments[one["name"]]) if one.get("name") in assignments else one
            for one in admission.get("podSetAssignments") or ()
        ]
        self.put("admission", admission)
        self.put("unhealthyNodes", None)

    def queue_again(self, reason: str) -> None:
        """Write that a Workload is no longer on hold."""
        self._set_unreserved(reason, "The workload is no longer on hold")

    def report_pods(self, *, is_ready: bool) -> None:
        """Write PodsReady as the Job shows it. The reason tells a first start from a recovery."""
        found = self.condition(ConditionType.PODS_READY)
        reason = "" if found is None else found.get("reason")
        if is_ready:
            if not self.is_true(ConditionType.PODS_READY):
                word = "Recovered" if reason == "WaitForRecovery" else "Started"
                self.set_condition(ConditionType.PODS_READY, True, reason=word, message=READY_MESSAGE)
        elif self.is_true(ConditionType.PODS_READY):
            message = "At least one pod has failed, waiting for recovery"
            self.set_condition(ConditionType.PODS_READY, False, reason="WaitForRecovery", message=message)
        elif found is None:
            self.await_start()

    def await_start(self) -> None:
        """Write PodsReady=False for pods that have yet to start."""
        self.set_condition(ConditionType.PODS_READY, False, reason="WaitForStart", message=NOT_READY_MESSAGE)

    def await_replacements(self, reason: str, message: str) -> None:
        """Write that a group waits for replacements of its pods: until then it is in no queue."""
        self.set_condition(ConditionType.WAITING_FOR_REPLACEMENT_PODS, True, reason=reason, message=message)

    @property
    def _is_owned(self) -> bool:
        """Whether pods are reported on it: a controller owns it (a Job, say), or the pods of a group do."""
        references = self.metadata.get("ownerReferences") or ()
        return any(one.get("controller") or one.get("kind") == "Pod" for one in references)

    def _forget_refusal(self) -> None:
        """Remove what `refuse_requests` wrote, now that the requests are known."""
        found = self.condition(ConditionType.REQUEUED)
        if found is not None and (found.get("status"), found.get("reason")) == ("False", INADMISSIBLE):
            self.remove_condition(ConditionType.REQUEUED)

    def _set_unreserved(self, reason: str, message: str) -> None:
        self.set_condition(ConditionType.QUOTA_RESERVED, False, reason=str(reason), message=message)
        if str(reason) in OLDER and self.condition(ConditionType.ADMITTED) is None:
            return
        message = "The workload has no reservation"
        self.set_condition(ConditionType.ADMITTED, False, reason="NoReservation", message=message)

    def _reset_checks(self) -> None:
        checks = self.status.get("admissionChecks")
        if checks:
            self.put("admissionChecks", [self._reset_check(entry) for entry in checks])

    def _reset_check(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        state = entry.get("state")
        if state == "Pending":
            return dict(entry)
        reset = self._pending_check(str(entry.get("name", "")))
        reset["message"] = f"Reset to Pending after eviction. Previously: {state}"
        # Only a check that asked for a retry is counted, not one that was reset along with it.
        retries = int(entry.get("retryCount") or 0) + (state == "Retry")
        delay = entry.get("requeueAfterSeconds")
        kept = {} if delay is None else {"requeueAfterSeconds": delay}
        return {**reset, **kept, **({"retryCount": retries} if retries else {})}

    def _pending_check(self, name: str) -> dict[str, Any]:
        return {"name": name, "state": "Pending", "message": "", "lastTransitionTime": to_rfc3339(self._now)}

    def _close_gates(self) -> None:
        gates = self.status.get("preemptionGates")
        if gates:
            closed = {"position": "Closed", "lastTransitionTime": to_rfc3339(self._now)}
            self.put(
                "preemptionGates",
                [gate if gate.get("position") == "Closed" else {**gate, **closed} for gate in gates],
            )

    def _count_eviction(self, reason: str, underlying_cause: str) -> None:
        """Increment the eviction counter for this reason and cause."""
        # Works on copies, because `put` compares with the present value, and an edit in
        # place would look unchanged.
        stats = dict(self.status.get("schedulingStats") or {})
        counters = [dict(entry) for entry in stats.get("evictions") or ()]
        for entry in counters:
            if entry.get("reason") == reason and entry.get("underlyingCause", "") == underlying_cause:
                entry["count"] = int(entry.get("count") or 0) + 1
                break
        else:
            counters.append({"reason": reason, "underlyingCause": underlying_cause, "count": 1})
        # The oldest counter is dropped: with one too many, the API server would reject the eviction itself.
        stats["evictions"] = counters[-_MAX_EVICTION_COUNTERS:]
        self.put("schedulingStats", stats)

    def _accumulate_execution(self) -> None:
        """Add the time since admission to the accumulated execution time of earlier runs."""
        admitted = self.condition(ConditionType.ADMITTED)
        if admitted is None or admitted.get("status") != "True":
            return
        # Whole seconds, as in Kubernetes. The clocks of two leaders may differ, so a time in the future
        # counts as zero and not as negative.
        elapsed = max(0, int(self._now - to_seconds(admitted.get("lastTransitionTime"))))
        past = int(self.status.get("accumulatedPastExecutionTimeSeconds") or 0)
        self.put("accumulatedPastExecutionTimeSeconds", past + elapsed)


def admission_body(admission: Admission) -> dict[str, Any]:
    """Return status.admission for an Admission, with quantities in the canonical form of the API server."""
    return {
        "clusterQueue": admission.cluster_queue,
        "podSetAssignments": [_assignment_body(assignment) for assignment in admission.pod_sets],
    }


def requests_body(requests: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    """Return status.resourceRequests: the requests of each pod set, as they are counted."""
    return [{"name": name, "resources": _amounts(amounts)} for name, amounts in requests.items()]


def _assignment_body(assignment: PodSetAssignment) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": assignment.name,
        "flavors": dict(assignment.flavors),
        "resourceUsage": _amounts(assignment.usage),
        "count": assignment.count,
    }
    if assignment.topology is not None:
        body["topologyAssignment"] = topology_body(assignment.topology)
    if assignment.delayed_topology_request is not None:
        body["delayedTopologyRequest"] = assignment.delayed_topology_request
    return body


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    # Sorted by resource, so that equal admissions have equal bytes, and a replayed one can be compared.
    return {resource: to_text(resource, amount) for resource, amount in sorted(amounts.items())}


def _placed(body: Mapping[str, Any], assignment: TopologyAssignment) -> dict[str, Any]:
    placed = {**body, "topologyAssignment": topology_body(assignment)}
    if "delayedTopologyRequest" in body:
        placed["delayedTopologyRequest"] = DELAYED_READY
    return placed


def _evicted_word(reason: EvictionReason, cause: str) -> str:
    """Return the reason of Evicted=True. A deactivation that Berth caused includes the cause."""
    if reason is EvictionReason.DEACTIVATED and cause:
        return f"{reason.value}DueTo{cause}"
    return reason.value
