"""What each step of a Workload's life changes in its status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from api.reasons import EvictionReason, FinishedReason, RequeueReason
from api.workload import Admission, PodSetAssignment
from api.workload_status import WorkloadStatusEdit, admission_body, requests_body

NOW = 1_800_000_000.0
EARLIER_TEXT = "2027-01-15T07:00:00Z"


def edit_of(status: dict[str, Any] | None = None, *, now: float = NOW) -> WorkloadStatusEdit:
    """Return an edit of a Workload with this status."""
    metadata = {"name": "w", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 2}
    raw = msgspec.json.encode({"metadata": metadata, "status": status or {}})
    return WorkloadStatusEdit(raw, now=now)


def condition(type_: str, status: str = "True", reason: str = "r", message: str = "m") -> dict[str, Any]:
    """Return a condition that holds since an hour."""
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": EARLIER_TEXT,
        "observedGeneration": 2,
    }


def result(edit: WorkloadStatusEdit) -> dict[str, Any]:
    """Return the status that would be sent."""
    status: dict[str, Any] = msgspec.json.decode(edit.to_bytes())["status"]
    return status


def said(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition by type."""
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_evictions_are_counted_by_reason_and_cause() -> None:
    edit = edit_of({})

    edit.evict(EvictionReason.PREEMPTED, "m")
    edit.evict(EvictionReason.DEACTIVATED, "m", cause="AdmissionCheck")
    edit.evict(EvictionReason.PREEMPTED, "m")

    assert result(edit)["schedulingStats"]["evictions"] == [
        {"reason": "Preempted", "underlyingCause": "", "count": 2},
        {"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1},
    ]


@pytest.mark.parametrize(
    ("reason", "owned", "found", "want"),
    [
        pytest.param(
            "PodsReadyTimeout", True, [], ("False", "WaitForStart"), id="of a Job, without the condition"
        ),
        pytest.param(
            "PodsReadyTimeout",
            True,
            [condition("PodsReady", "False", "WaitForRecovery")],
            ("False", "WaitForRecovery"),
            id="of a Job that has lost pods",
        ),
        pytest.param("PodsReadyTimeout", False, [], None, id="without an owner"),
        pytest.param("Preempted", True, [], None, id="for another reason"),
    ],
)
def test_an_eviction_for_late_pods_says_that_they_are_not_ready(
    reason: str, owned: bool, found: list[dict[str, Any]], want: tuple[str, str] | None
) -> None:
    metadata = {"ownerReferences": [{"controller": True}]} if owned else {}
    raw = msgspec.json.encode({"metadata": metadata, "status": {"conditions": found}})
    edit = WorkloadStatusEdit(raw, now=NOW)

    edit.evict(EvictionReason(reason), "m")

    assert said(result(edit)).get("PodsReady") == want


def test_execution_time_of_earlier_runs_adds_up() -> None:
    admitted = condition("Admitted")
    edit = edit_of({"conditions": [admitted], "accumulatedPastExecutionTimeSeconds": 40})

    edit.release()

    assert result(edit)["accumulatedPastExecutionTimeSeconds"] == 3640


@pytest.mark.parametrize(
    ("evicted", "want_requeued"),
    [
        pytest.param("Preempted", "True", id="a preempted Workload queues again at once"),
        pytest.param("NodeFailures", "True", id="a Workload that lost a node queues again at once"),
        pytest.param("PodsReadyTimeout", "False", id="a Workload that did not start waits for its back-off"),
        pytest.param("Deactivated", "False", id="a deactivated Workload waits to be activated"),
        pytest.param("ClusterQueueStopped", "False", id="a drained Workload waits for the queue"),
    ],
)
def test_a_release_frees_the_quota_and_says_whether_it_queues_again(evicted: str, want_requeued: str) -> None:
    present = {
        "admission": {"clusterQueue": "cq"},
        "conditions": [
            condition("QuotaReserved"),
            condition("Admitted"),
            condition("Evicted", "True", evicted, "why"),
            condition("PodsReady", "True", "Started"),
        ],
    }

    edit = edit_of(present)
    edit.release()
    status = result(edit)

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
    ("reason", "present", "want"),
    [
        pytest.param("WaitingForQuota", [], {"QuotaReserved", "Admitted"}, id="the finer words: both"),
        pytest.param("Inadmissible", [], {"QuotaReserved"}, id="the older ones: that of quota alone"),
        pytest.param(
            "Pending",
            [condition("Admitted")],
            {"QuotaReserved", "Admitted"},
            id="the older ones after an admission: both",
        ),
    ],
)
def test_a_workload_that_waits_has_conditions_by(reason: str, present: list[Any], want: set[str]) -> None:
    edit = edit_of({"conditions": present})

    edit.wait(reason, "why")

    assert set(said(result(edit))) == want


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(
            lambda edit: edit.finish(FinishedReason.FAILED, "deadline"),
            ("Finished", "True", "Failed", "deadline"),
            id="an end",
        ),
        pytest.param(
            lambda edit: edit.admit(awaits_pods=False),
            ("Admitted", "True", "Admitted", "The workload is admitted"),
            id="an admission after its checks",
        ),
        pytest.param(
            lambda edit: edit.requeue(RequeueReason.REACTIVATED, "again"),
            ("Requeued", "True", "Reactivated", "again"),
            id="a return to the queue",
        ),
        pytest.param(
            lambda edit: edit.target_deactivation("AdmissionCheck", "rejected"),
            ("DeactivationTarget", "True", "AdmissionCheck", "rejected"),
            id="a deactivation to come",
        ),
    ],
)
def test_a_step_writes_one_condition(
    change: Callable[[WorkloadStatusEdit], None], want: tuple[str, str, str, str]
) -> None:
    edit = edit_of()

    change(edit)

    (only,) = result(edit)["conditions"]
    assert (only["type"], only["status"], only["reason"], only["message"]) == want


def test_a_reactivated_workload_begins_its_execution_time_again() -> None:
    present = {
        "accumulatedPastExecutionTimeSeconds": 9,
        "requeueState": {"count": 2, "requeueAt": EARLIER_TEXT},
    }

    edit = edit_of(present)
    edit.requeue(RequeueReason.REACTIVATED, "again")
    status = result(edit)

    assert "accumulatedPastExecutionTimeSeconds" not in status
    assert status["requeueState"] == {"count": 2}


def test_checks_are_written_only_where_they_differ() -> None:
    first = edit_of()
    first.sync_checks(("a",))
    assert result(first)["admissionChecks"][0]["state"] == "Pending"

    again = edit_of(result(first), now=NOW + 60)
    again.sync_checks(("a",))
    assert not again.is_changed

    again.sync_checks(())
    assert "admissionChecks" not in result(again)


def test_an_admission_is_written_in_canonical_quantities() -> None:
    assignment = PodSetAssignment(
        name="main",
        count=2,
        flavors={"cpu": "default", "memory": "default", "nvidia.com/gpu": "h100"},
        usage={"cpu": 1500, "memory": 4 << 30, "nvidia.com/gpu": 16},
    )

    assert admission_body(Admission(cluster_queue="cq", pod_sets=(assignment,))) == {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {
                "name": "main",
                "flavors": {"cpu": "default", "memory": "default", "nvidia.com/gpu": "h100"},
                "resourceUsage": {"cpu": "1500m", "memory": "4Gi", "nvidia.com/gpu": "16"},
                "count": 2,
            }
        ],
    }


def test_requests_are_written_by_pod_set() -> None:
    assert requests_body({"main": {"cpu": 2000}}) == [{"name": "main", "resources": {"cpu": "2"}}]
