"""What each decision writes into a Workload's status, and the Events that report it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Purpose, Verb, Write
from admission.decisions.decision import Admit, Evict, Wait
from admission.reconcile.decision_writes import admit_write, evict_write, wait_write
from api.keys import EVICTION
from api.reasons import EvictionReason, PendingReason, PreemptionReason
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
    """Return a condition that has held for an hour."""
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": EARLIER_TEXT,
        "observedGeneration": 2,
    }


def status_of(write: Write | None) -> dict[str, Any]:
    """Return the status in a write that must be there."""
    assert write is not None
    status: dict[str, Any] = msgspec.json.decode(write.body)["status"]
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
    present = {
        "conditions": [
            condition("QuotaReserved", "False", "WaitingForQuota"),
            condition("Evicted", "True", "Preempted", "for another"),
            condition("Preempted", "True", "InClusterQueue", "for another"),
        ],
        "resourceRequests": [{"name": "main"}],
    }

    status = status_of(admit_write(make_admit(), raw_of(present), now=NOW))

    assert said(status) == {
        "QuotaReserved": ("True", "QuotaReserved"),
        "Evicted": ("False", "QuotaReserved"),
        "Preempted": ("False", "QuotaReserved"),
        "Admitted": ("True", "Admitted"),
    }
    assert status["conditions"][1]["message"] == "Previously: for another"
    assert status["admission"]["clusterQueue"] == "cq"
    assert "resourceRequests" not in status


def test_each_admission_records_the_quota_that_it_was_checked_against() -> None:
    stale = condition("berth.dev/QuotaChecked", "True", "FitsQuota", "of an earlier admission")
    decision = make_admit(quota="0123456789abcdef")

    status = status_of(admit_write(decision, raw_of({"conditions": [stale]}), now=NOW, fence=7))

    (record,) = (one for one in status["conditions"] if one["type"] == "berth.dev/QuotaChecked")
    assert record["message"] == "Checked against quota 0123456789abcdef of its cohort under fence 7"
    assert record["lastTransitionTime"] == NOW_TEXT


def test_a_reservation_with_outstanding_checks_is_not_yet_an_admission() -> None:
    ready = {"name": "b", "state": "Ready", "message": "", "lastTransitionTime": EARLIER_TEXT}
    present = {"admissionChecks": [ready, {**ready, "name": "gone"}]}
    decision = make_admit(is_admitted=False, checks=("a", "b"))

    status = status_of(admit_write(decision, raw_of(present), now=NOW))

    assert said(status)["Admitted"] == ("False", "UnsatisfiedAdmissionChecks")
    assert status["admissionChecks"] == [
        {"name": "a", "state": "Pending", "message": "", "lastTransitionTime": NOW_TEXT},
        ready,
    ]


@pytest.mark.parametrize(
    ("owners", "want"),
    [
        pytest.param([{"kind": "Job", "controller": True}], True, id="a Job's Workload awaits its pods"),
        pytest.param([{"kind": "Pod"}, {"kind": "Pod"}], True, id="so does that of a group of pods"),
        pytest.param([], False, id="a Workload of another program is not asked for pods"),
    ],
)
def test_pods_are_awaited_in_the_same_write(owners: list[dict[str, Any]], want: bool) -> None:
    raw = raw_of(ownerReferences=owners)

    wait = Wait(key=KEY, uid="u", reason=PendingReason.WAITING_FOR_QUOTA, message="1 more GPU needed")

    admitted = status_of(admit_write(make_admit(), raw, now=NOW, awaits_pods=True))
    waiting = status_of(wait_write(wait, raw, now=NOW, awaits_pods=True))

    for status in (admitted, waiting):
        assert (said(status).get("PodsReady") == ("False", "WaitForStart")) is want


def test_a_wait_is_written_once() -> None:
    decision = Wait(
        key=KEY,
        uid="u",
        reason=PendingReason.WAITING_FOR_QUOTA,
        message="1 more GPU needed",
        requests={"main": {"cpu": 1000}},
    )

    first = wait_write(decision, raw_of(), now=NOW)

    status = status_of(first)
    assert said(status) == {
        "QuotaReserved": ("False", "WaitingForQuota"),
        "Admitted": ("False", "NoReservation"),
    }
    assert status["resourceRequests"] == [{"name": "main", "resources": {"cpu": "1"}}]
    assert first is not None
    assert wait_write(decision, first.body, now=NOW + 60) is None


def test_a_wait_for_a_gate_of_preemption_has_its_own_condition() -> None:
    reason = PendingReason.ADMISSION_GATED
    decision = Wait(key=KEY, uid="u", reason=reason, message="gated", is_preemption_gated=True)

    write = wait_write(decision, raw_of(), now=NOW)

    assert said(status_of(write))["BlockedOnPreemptionGates"] == ("True", "PreemptionGated")
    assert write is not None
    assert wait_write(decision, write.body, now=NOW + 60) is None


def test_an_eviction_keeps_the_quota_until_the_job_has_stopped() -> None:
    present = {
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

    status = status_of(evict_write(make_evict(), raw_of(present), now=NOW))

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
    status = status_of(evict_write(make_evict(**fields), raw_of(), now=NOW))

    assert said(status)["Evicted"] == ("True", want_evicted)
    assert said(status).get("Preempted", (None, None))[1] == want_preempted


def test_an_eviction_ends_the_wait_for_preemption_gates() -> None:
    """Kueue, pkg/workload/evict: unsetBlockedOnPreemptionGatesCondition."""
    raw = raw_of({"conditions": [condition("BlockedOnPreemptionGates", reason="PreemptionGated")]})

    status = status_of(evict_write(make_evict(reason=EvictionReason.DEACTIVATED), raw, now=NOW))

    assert said(status)["BlockedOnPreemptionGates"] == ("False", "Deactivated")


def test_a_decision_travels_as_one_guarded_write_with_its_events() -> None:
    decision = make_evict(
        reason=EvictionReason.PREEMPTED,
        preemption_reason=PreemptionReason.IN_CLUSTER_QUEUE,
        preemptor=WorkloadKey("team", "big"),
        preemptor_uid="b",
    )

    write = evict_write(decision, raw_of(), now=NOW)

    assert (write.verb, write.subresource, write.purpose) == (Verb.REPLACE, "status", Purpose.EVICT)
    assert msgspec.json.decode(write.body)["metadata"]["resourceVersion"] == "7"
    assert [(event.regarding.name, event.reason) for event in write.events] == [
        ("w", "EvictedDueToPreempted"),
        ("w", "Preempted"),
        ("big", "PreemptedWorkload"),
    ]


@pytest.mark.parametrize(
    ("namespace", "want"),
    [
        pytest.param("team", "Preempted workload team/w (UID: u) in ClusterQueue cq", id="its own"),
        pytest.param(
            "other",
            "Preempted a Workload of another namespace (UID: u) in ClusterQueue cq",
            id="another",
        ),
    ],
)
def test_events_and_requests_name_workloads_of_the_namespace_where_they_are_read(
    namespace: str, want: str
) -> None:
    preemptor = WorkloadKey(namespace, "big")
    decision = Evict(
        key=WorkloadKey("team", "w"),
        uid="u",
        resource_version="7",
        reason=EvictionReason.PREEMPTED,
        message="m",
        preemptor=preemptor,
        cluster_queue="cq",
    )

    told = evict_write(decision, raw_of(), now=NOW).events[-1]
    asked = evict_write(replace(decision, save_by=NOW + 60), raw_of(), now=NOW).events[-1]

    assert (told.regarding.namespace, told.note) == (namespace, want)
    named = "team/big" if namespace == "team" else "a Workload of another namespace"
    assert asked.note.startswith(f"To be evicted for {named} once it has saved")


@pytest.mark.parametrize(
    ("namespace", "want"),
    [
        pytest.param("team", {"preemptor": "team/big", "preemptorUid": "b"}, id="its own, by name and uid"),
        pytest.param("other", {"preemptorUid": "b"}, id="another, by uid alone"),
    ],
)
def test_the_request_on_the_victim_names_no_workload_of_another_namespace(
    namespace: str, want: dict[str, str]
) -> None:
    decision = make_evict(
        reason=EvictionReason.PREEMPTED,
        preemptor=WorkloadKey(namespace, "big"),
        preemptor_uid="b",
        save_by=NOW + 60,
    )

    write = evict_write(decision, raw_of(), now=NOW)

    written = msgspec.json.decode(msgspec.json.decode(write.body)["metadata"]["annotations"][EVICTION])
    assert {name: written[name] for name in written if name.startswith("preemptor")} == want


def test_an_admission_shows_how_long_it_waited() -> None:
    write = admit_write(make_admit(waited_seconds=61.7), raw_of(), now=NOW)

    assert [event.note for event in write.events] == [
        "Quota reserved in ClusterQueue cq, wait time since queued was 62s",
        "Admitted by ClusterQueue cq, wait time since reservation was 0s",
    ]
