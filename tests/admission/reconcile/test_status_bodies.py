"""What each decision and each step of a Workload's life writes into its status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Purpose, Verb
from admission.decisions.decision import Admit, Evict, Wait
from admission.reconcile import status_bodies
from admission.reconcile.workload_writes import write_of
from api.reasons import EvictionReason, FinishedReason, PendingReason, PreemptionReason, RequeueReason
from api.workload import Admission, PodSetAssignment, WorkloadKey

NOW = 1_800_000_000.0
NOW_TEXT = "2027-01-15T08:00:00Z"
EARLIER_TEXT = "2027-01-15T07:00:00Z"
KEY = WorkloadKey("team", "w")
ADMISSION = Admission(
    cluster_queue="cq",
    pod_sets=(PodSetAssignment(name="main", count=1, flavors={"cpu": "f"}, usage={"cpu": 1000}),),
)


def raw_of(status: dict[str, Any] | None = None, **metadata: object) -> bytes:
    """Return a Workload's bytes."""
    base = {"name": "w", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 2}
    return msgspec.json.encode({"metadata": {**base, **metadata}, "status": status or {}})


def condition(type_: str, status: str = "True", reason: str = "r", message: str = "m") -> dict[str, Any]:
    """Return a condition that stands since an hour."""
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": EARLIER_TEXT,
        "observedGeneration": 2,
    }


def status_of(body: bytes | None) -> dict[str, Any]:
    """Return the status of a body that must be there."""
    assert body is not None
    status: dict[str, Any] = msgspec.json.decode(body)["status"]
    return status


def said(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition by type."""
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def make_admit(**fields: Any) -> Admit:
    """Return an Admit without outstanding checks."""
    fixed = {"key": KEY, "uid": "u", "resource_version": "7", "admission": ADMISSION, "is_admitted": True}
    return Admit(**{**fixed, **fields})


def make_evict(**fields: Any) -> Evict:
    """Return an Evict for node failures."""
    fixed = {
        "key": KEY,
        "uid": "u",
        "resource_version": "7",
        "reason": EvictionReason.NODE_FAILURES,
        "message": "node n1 is gone",
    }
    return Evict(**{**fixed, **fields})


def test_an_admission_reserves_admits_and_forgets_why_it_waited() -> None:
    standing = {
        "conditions": [
            condition("QuotaReserved", "False", "WaitingForQuota"),
            condition("Evicted", "True", "Preempted", "for another"),
            condition("Preempted", "True", "InClusterQueue", "for another"),
        ],
        "resourceRequests": [{"name": "main"}],
    }

    status = status_of(status_bodies.admit(raw_of(standing), make_admit(), now=NOW))

    assert said(status) == {
        "QuotaReserved": ("True", "QuotaReserved"),
        "Evicted": ("False", "QuotaReserved"),
        "Preempted": ("False", "QuotaReserved"),
        "Admitted": ("True", "Admitted"),
    }
    assert status["conditions"][1]["message"] == "Previously: for another"
    assert status["admission"]["clusterQueue"] == "cq"
    assert "resourceRequests" not in status


def test_a_reservation_with_outstanding_checks_is_not_yet_an_admission() -> None:
    ready = {"name": "b", "state": "Ready", "message": "", "lastTransitionTime": EARLIER_TEXT}
    standing = {"admissionChecks": [ready, {**ready, "name": "gone"}]}
    decision = make_admit(is_admitted=False, checks=("a", "b"))

    status = status_of(status_bodies.admit(raw_of(standing), decision, now=NOW))

    assert "Admitted" not in said(status)
    assert status["admissionChecks"] == [
        {"name": "a", "state": "Pending", "message": "", "lastTransitionTime": NOW_TEXT},
        ready,
    ]


@pytest.mark.parametrize(
    ("owners", "want"),
    [
        pytest.param([{"kind": "Job", "controller": True}], True, id="a Job's Workload awaits its pods"),
        pytest.param([], False, id="a Workload of another program is not asked for pods"),
    ],
)
def test_pods_are_awaited_in_the_same_write(owners: list[dict[str, Any]], want: bool) -> None:
    raw = raw_of(ownerReferences=owners)

    status = status_of(status_bodies.admit(raw, make_admit(), now=NOW, awaits_pods=True))

    assert (said(status).get("PodsReady") == ("False", "WaitForStart")) is want


def test_a_wait_is_written_once() -> None:
    decision = Wait(
        key=KEY,
        uid="u",
        resource_version="7",
        reason=PendingReason.WAITING_FOR_QUOTA,
        message="1 more GPU needed",
        requests={"main": {"cpu": 1000}},
    )

    first = status_bodies.wait(raw_of(), decision, now=NOW)

    status = status_of(first)
    assert said(status) == {"QuotaReserved": ("False", "WaitingForQuota")}
    assert status["resourceRequests"] == [{"name": "main", "resources": {"cpu": "1"}}]
    assert first is not None
    assert status_bodies.wait(first, decision, now=NOW + 60) is None


def test_an_eviction_keeps_the_quota_until_the_job_has_stopped() -> None:
    standing = {
        "admission": {"clusterQueue": "cq"},
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        "admissionChecks": [
            {"name": "a", "state": "Ready", "message": "ok", "podSetUpdates": [{}]},
            {"name": "b", "state": "Retry", "message": "again", "retryCount": 1},
            {"name": "c", "state": "Pending", "message": "as it was"},
        ],
        "unhealthyNodes": [{"name": "n1"}],
        "clusterName": "worker",
        "preemptionGates": [{"name": "g", "position": "Open", "lastTransitionTime": EARLIER_TEXT}],
    }

    status = status_of(status_bodies.evict(raw_of(standing), make_evict(), now=NOW))

    assert status["admission"] == {"clusterQueue": "cq"}
    assert said(status)["Evicted"] == ("True", "NodeFailures")
    assert said(status)["Admitted"] == ("True", "r")
    assert [(c["state"], c["message"], c.get("retryCount")) for c in status["admissionChecks"]] == [
        ("Pending", "Reset to Pending after eviction. Previously: Ready", None),
        ("Pending", "Reset to Pending after eviction. Previously: Retry", 2),
        ("Pending", "as it was", None),
    ]
    assert "unhealthyNodes" not in status
    assert "clusterName" not in status
    assert status["preemptionGates"] == [{"name": "g", "position": "Closed", "lastTransitionTime": NOW_TEXT}]
    assert status["schedulingStats"]["evictions"] == [
        {"reason": "NodeFailures", "underlyingCause": "", "count": 1}
    ]


@pytest.mark.parametrize(
    ("fields", "want_evicted", "want_preempted"),
    [
        pytest.param(
            {"reason": EvictionReason.PREEMPTED, "preemption_reason": PreemptionReason.IN_COHORT_RECLAMATION},
            "Preempted",
            "InCohortReclamation",
            id="a preemption says by which right",
        ),
        pytest.param(
            {"reason": EvictionReason.DEACTIVATED, "underlying_cause": "MaximumExecutionTimeExceeded"},
            "DeactivatedDueToMaximumExecutionTimeExceeded",
            None,
            id="a deactivation says its cause",
        ),
        pytest.param(
            {"reason": EvictionReason.PODS_READY_TIMEOUT, "underlying_cause": "WaitForStart"},
            "PodsReadyTimeout",
            None,
            id="of a timeout only the counter says the cause",
        ),
    ],
)
def test_the_words_of_an_eviction(
    fields: dict[str, Any], want_evicted: str, want_preempted: str | None
) -> None:
    status = status_of(status_bodies.evict(raw_of(), make_evict(**fields), now=NOW))

    assert said(status)["Evicted"] == ("True", want_evicted)
    assert said(status).get("Preempted", (None, None))[1] == want_preempted


@pytest.mark.parametrize(
    ("evicted", "want_requeued"),
    [
        pytest.param("Preempted", "True", id="who was preempted queues again at once"),
        pytest.param("NodeFailures", "True", id="who lost a node queues again at once"),
        pytest.param("PodsReadyTimeout", "False", id="who did not start waits for its back-off"),
        pytest.param("Deactivated", "False", id="who was deactivated waits to be activated"),
        pytest.param("ClusterQueueStopped", "False", id="who was drained waits for the queue"),
    ],
)
def test_a_release_frees_the_quota_and_says_whether_it_queues_again(evicted: str, want_requeued: str) -> None:
    standing = {
        "admission": {"clusterQueue": "cq"},
        "conditions": [
            condition("QuotaReserved"),
            condition("Admitted"),
            condition("Evicted", "True", evicted, "why"),
            condition("PodsReady", "True", "Started"),
        ],
    }

    status = status_of(status_bodies.release(raw_of(standing), now=NOW))

    assert "admission" not in status
    assert said(status) == {
        "QuotaReserved": ("False", "PendingEvaluation"),
        "Admitted": ("False", "NoReservation"),
        "Evicted": ("True", evicted),
        "Requeued": (want_requeued, evicted),
        "PodsReady": ("False", "WaitForStart"),
    }
    assert status["conditions"][0]["message"] == "why"
    assert status["accumulatedPastExecutionTimeSeconds"] == 3600


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(
            lambda raw: status_bodies.finish(raw, FinishedReason.FAILED, "deadline", now=NOW),
            ("Finished", "True", "Failed", "deadline"),
            id="an end",
        ),
        pytest.param(
            lambda raw: status_bodies.complete_admission(raw, now=NOW),
            ("Admitted", "True", "Admitted", "The workload is admitted"),
            id="an admission after its checks",
        ),
        pytest.param(
            lambda raw: status_bodies.requeue(raw, RequeueReason.REACTIVATED, "again", now=NOW),
            ("Requeued", "True", "Reactivated", "again"),
            id="a return to the queue",
        ),
        pytest.param(
            lambda raw: status_bodies.target_deactivation(raw, "AdmissionCheck", "rejected", now=NOW),
            ("DeactivationTarget", "True", "AdmissionCheck", "rejected"),
            id="a deactivation to come",
        ),
    ],
)
def test_a_step_writes_one_condition(
    change: Callable[[bytes], bytes], want: tuple[str, str, str, str]
) -> None:
    status = status_of(change(raw_of()))

    (only,) = status["conditions"]
    assert (only["type"], only["status"], only["reason"], only["message"]) == want


def test_a_reactivated_workload_begins_its_execution_time_anew() -> None:
    standing = {
        "accumulatedPastExecutionTimeSeconds": 9,
        "requeueState": {"count": 2, "requeueAt": EARLIER_TEXT},
    }

    status = status_of(status_bodies.requeue(raw_of(standing), RequeueReason.REACTIVATED, "again", now=NOW))

    assert "accumulatedPastExecutionTimeSeconds" not in status
    assert status["requeueState"] == {"count": 2}


def test_checks_are_written_only_where_they_differ() -> None:
    first = status_bodies.sync_checks(raw_of(), ("a",), now=NOW)

    assert status_of(first)["admissionChecks"][0]["state"] == "Pending"
    assert first is not None
    assert status_bodies.sync_checks(first, ("a",), now=NOW + 60) is None
    assert "admissionChecks" not in status_of(status_bodies.sync_checks(first, (), now=NOW + 60))


def test_a_decision_travels_as_one_guarded_write_with_its_events() -> None:
    decision = make_evict(
        reason=EvictionReason.PREEMPTED,
        preemption_reason=PreemptionReason.IN_CLUSTER_QUEUE,
        preemptor=WorkloadKey("team", "big"),
        preemptor_uid="b",
    )

    write = write_of(decision, raw_of(), now=NOW)

    assert write is not None
    assert (write.verb, write.subresource, write.purpose) == (Verb.REPLACE, "status", Purpose.EVICT)
    assert msgspec.json.decode(write.body)["metadata"]["resourceVersion"] == "7"
    assert [(event.regarding.name, event.reason) for event in write.events] == [
        ("w", "EvictedDueToPreempted"),
        ("w", "Preempted"),
        ("big", "PreemptedWorkload"),
    ]


def test_an_admission_tells_how_long_it_waited() -> None:
    write = write_of(make_admit(waited_seconds=61.7), raw_of(), now=NOW)

    assert write is not None
    assert [event.note for event in write.events] == [
        "Quota reserved in ClusterQueue cq, wait time since queued was 62s",
        "Admitted by ClusterQueue cq, wait time since reservation was 0s",
    ]
