"""A cluster taken over from Kueue in the middle of its work: each row is a state that Kueue leaves behind.

Berth goes on from it. It begins no eviction, and what Kueue has begun is ended and not counted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api.parsing.times import to_rfc3339
from tests.admission.controller.cluster import Object
from tests.admission.controller.stage import Stage, key_of
from tests.admission.controller.tenancy import make_object, make_workload
from tests.admission.controller.virtualtime import end

HOST = "kubernetes.io/hostname"
Build = Callable[[Stage], None]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Give a cluster of two tenants, and a queue whose flavor places pods on the nodes n1 and n2."""
    made = Stage()
    made.cluster.laws.clear()
    _make_places(made)
    yield made
    end(made.loop)


def _make_places(stage: Stage) -> None:
    stage.cluster.create(make_object("Topology", "hosts", {"levels": [{"nodeLabel": HOST}]}))
    stage.cluster.create(
        make_object("ResourceFlavor", "placed", {"topologyName": "hosts", "nodeLabels": {"p": "y"}})
    )
    quota = {"name": "cpu", "nominalQuota": "8"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "placed", "resources": [quota]}]}
    checks = {"admissionChecks": [{"name": "check"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    for name, more in (("p", {}), ("checked", {"admissionChecksStrategy": checks})):
        stage.cluster.create(make_object("ClusterQueue", name, {**spec, **more}))
        stage.cluster.create(make_object("LocalQueue", name, {"clusterQueue": name}, namespace="team"))
    check = make_object("AdmissionCheck", "check", {"controllerName": "example.com/check"})
    active = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "",
        "lastTransitionTime": _AT,
    }
    stage.cluster.create({**check, "status": {"conditions": [active]}})
    for name in ("n1", "n2"):
        node = {**make_object("Node", name, {}, labels={HOST: name, "p": "y"}), "apiVersion": "v1"}
        ready = {"type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": _AT}
        status = {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": [ready]}
        stage.cluster.create({**node, "status": status})


# --- what Kueue writes ---------------------------------------------------------------------------

_AT = "2026-01-01T00:00:00Z"


def said(type_: str, reason: str, message: str = "", status: str = "True") -> Object:
    """Return a condition."""
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": _AT}


def reserved(queue: str, cpus: int, *, host: str = "", **assignment: Any) -> Object:
    """Return the fields of a status that holds quota, on a node where one is named."""
    placed: Object = {"name": "main", "count": 1, "resourceUsage": {"cpu": str(cpus)}, **assignment}
    placed["flavors"] = {"cpu": "placed" if queue in ("p", "checked") else "default"}
    if host:
        values = [{"universal": host}]
        slices = [{"domainCount": 1, "valuesPerLevel": values, "podCounts": {"universal": 1}}]
        placed["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    message = f"Quota reserved in ClusterQueue {queue}"
    return {
        "admission": {"clusterQueue": queue, "podSetAssignments": [placed]},
        "conditions": [said("QuotaReserved", "QuotaReserved", message)],
    }


ADMITTED = said("Admitted", "Admitted", "The workload is admitted")
PREEMPTED = (
    "Preempted to accommodate a workload (UID: x, JobUID: y) due to prioritization in the ClusterQueue"
)
EVICTED = (said("Evicted", "Preempted", PREEMPTED), said("Preempted", "InClusterQueue", PREEMPTED))
COUNTED = {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]}


def leave(name: str, queue: str, cpus: int, status: Object, *conditions: Object, **spec: Any) -> Build:
    """Return what creates a Workload with this status."""

    def build(stage: Stage) -> None:
        workload = make_workload(name, queue, cpus, 0)
        workload["spec"].update(spec)
        full = {**status, "conditions": [*status.get("conditions", ()), *conditions]}
        stage.cluster.create({**workload, "status": full})

    return build


def with_job(name: str, status: Object, *conditions: Object, job: Object, queue: str = "a") -> Build:
    """Return what creates a Job with its Workload; `job` has its spec and status."""

    def build(stage: Stage) -> None:
        workload = make_workload(name, queue, 4, 0)
        template = workload["spec"]["podSets"][0]["template"]
        labels = {"kueue.x-k8s.io/queue-name": queue}
        made = make_object("Job", name, {"parallelism": 1, **job["spec"]}, namespace="team", labels=labels)
        spec = {**made["spec"], "template": {"spec": {"restartPolicy": "Never", **template["spec"]}}}
        stage.cluster.create({**made, "apiVersion": "batch/v1", "spec": spec, "status": job["status"]})
        uid = stage.cluster.objects["Job", "team", name]["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        workload["metadata"].update(
            ownerReferences=[owner],
            labels={"kueue.x-k8s.io/job-uid": uid},
            finalizers=["kueue.x-k8s.io/resource-in-use"],
        )
        full = {**status, "conditions": [*status.get("conditions", ()), *conditions]}
        stage.cluster.create({**workload, "status": full})

    return build


RUNS = {"spec": {"suspend": False}, "status": {"active": 1, "startTime": _AT}}
STOPPED = {"spec": {"suspend": True}, "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}
CHECK = {"name": "check", "state": "Pending", "message": "", "lastTransitionTime": _AT}
READY = {**CHECK, "state": "Ready"}
DELAYED = {"delayedTopologyRequest": "Pending"}


def waits(reason: str, message: str) -> Object:
    """Return the fields of a status of a Workload that waits, in Kueue's words by default."""
    return {"conditions": [said("QuotaReserved", reason, message, "False")]}


def state(stage: Stage, name: str) -> dict[str, str]:
    """Return status and reason of each condition that says what became of the Workload."""
    found = stage.workload(name)["status"]["conditions"]
    types = ("QuotaReserved", "Admitted", "Evicted", "Requeued", "BlockedOnPreemptionGates")
    return {one["type"]: f"{one['status']}/{one['reason']}" for one in found if one["type"] in types}


RUNNING = {"QuotaReserved": "True/QuotaReserved", "Admitted": "True/Admitted"}
READMITTED = {**RUNNING, "Evicted": "False/QuotaReserved", "Requeued": "True/Preempted"}


@pytest.mark.parametrize(
    ("build", "want"),
    [
        pytest.param(leave("w", "a", 4, reserved("a", 4), ADMITTED), RUNNING, id="admitted"),
        pytest.param(
            with_job("w", reserved("a", 4), ADMITTED, job=RUNS), RUNNING, id="admitted, its Job runs"
        ),
        pytest.param(
            with_job("w", reserved("a", 4), ADMITTED, job=STOPPED),
            RUNNING,
            id="admitted, its Job is not started yet",
        ),
        pytest.param(
            leave("w", "a", 4, waits("Pending", "couldn't assign flavors")),
            RUNNING,
            id="waiting for quota, in the words of the default gates",
        ),
        pytest.param(
            leave("w", "a", 4, waits("Inadmissible", "LocalQueue a doesn't exist")),
            RUNNING,
            id="inadmissible for what is mended by now",
        ),
        pytest.param(
            leave(
                "w",
                "a",
                4,
                waits("Inadmissible", "DeviceClass gpu is not mapped"),
                said("Requeued", "Inadmissible", "DeviceClass gpu is not mapped", "False"),
            ),
            RUNNING,
            id="in no queue while its devices could not be counted",
        ),
        pytest.param(
            leave("w", "a", 4, {**reserved("a", 4), "schedulingStats": COUNTED}, ADMITTED, *EVICTED),
            READMITTED,
            id="evicted, without a Job, quota not given back yet",
        ),
        pytest.param(
            with_job("w", {**reserved("a", 4), "schedulingStats": COUNTED}, ADMITTED, *EVICTED, job=STOPPED),
            READMITTED,
            id="evicted, its Job has stopped, quota not given back yet",
        ),
        pytest.param(
            with_job("w", {**reserved("a", 4), "schedulingStats": COUNTED}, ADMITTED, *EVICTED, job=RUNS),
            {"QuotaReserved": "True/QuotaReserved", "Admitted": "True/Admitted", "Evicted": "True/Preempted"},
            id="evicted, its Job is being stopped: quota waits for its pods",
        ),
        pytest.param(
            leave(
                "w",
                "a",
                4,
                {**waits("Pending", PREEMPTED), "schedulingStats": COUNTED},
                *EVICTED,
                said("Requeued", "Preempted", PREEMPTED),
                said("Admitted", "NoReservation", "", "False"),
            ),
            READMITTED,
            id="evicted and queued again",
        ),
        pytest.param(
            leave(
                "w",
                "a",
                4,
                waits("WaitingForPreemptedWorkloads", "Preempting"),
                said("BlockedOnPreemptionGates", "PreemptionGated", "closed"),
                preemptionGates=[{"name": "example.com/gate"}],
            ),
            {**RUNNING, "BlockedOnPreemptionGates": "False/QuotaReserved"},
            id="held back by a gate of preemption, where there is room by now",
        ),
        pytest.param(
            leave("w", "checked", 2, {**reserved("checked", 2, **DELAYED), "admissionChecks": [CHECK]}),
            {"QuotaReserved": "True/QuotaReserved"},
            id="reserved, its check and its second pass are due",
        ),
        pytest.param(
            leave("w", "checked", 2, {**reserved("checked", 2, **DELAYED), "admissionChecks": [READY]}),
            RUNNING,
            id="its check is ready, its second pass is due",
        ),
        pytest.param(
            leave("w", "p", 2, {**reserved("p", 2, host="n1"), "unhealthyNodes": [{"name": "n1"}]}, ADMITTED),
            RUNNING,
            id="a node listed as unhealthy that is well again",
        ),
        pytest.param(
            leave("w", "p", 2, reserved("p", 2, host="n2"), ADMITTED),
            RUNNING,
            id="placed, on a node that is well",
        ),
        pytest.param(
            leave(
                "w",
                "a",
                4,
                waits("Pending", "The workload is deactivated"),
                said("Evicted", "Deactivated", "The workload is deactivated"),
                active=False,
            ),
            {
                "QuotaReserved": "False/Deactivated",
                "Evicted": "True/Deactivated",
                "Admitted": "False/NoReservation",
            },
            id="deactivated",
        ),
    ],
)
def test_a_state_that_kueue_left_is_taken_over_without_an_eviction(
    stage: Stage, build: Build, want: dict[str, str]
) -> None:
    build(stage)
    before = stage.workload("w")["status"].get("schedulingStats")

    stage.lead()
    stage.wait(60)

    assert state(stage, "w") == want
    assert stage.workload("w")["status"].get("schedulingStats") == before


@pytest.mark.parametrize(
    "left",
    [
        pytest.param({}, id="after its quota was given back"),
        pytest.param(reserved("a", 4), id="with an admission left behind, which its condition has ended"),
    ],
)
def test_a_back_off_that_kueue_began_is_waited_for(stage: Stage, left: Object) -> None:
    until = to_rfc3339(stage.loop.now() + 90)
    status = {
        **left,
        **waits("Pending", "Exceeded the PodsReady timeout team/w"),
        "requeueState": {"count": 2, "requeueAt": until},
    }
    kept = said("Requeued", "PodsReadyTimeout", "Exceeded the PodsReady timeout team/w", "False")
    leave("w", "a", 4, status, said("Evicted", "PodsReadyTimeout", "slow"), kept)(stage)

    stage.lead()
    stage.wait(60)
    assert stage.admitted() == []
    stage.wait(60)

    assert stage.admitted() == ["w"]
    assert stage.workload("w")["status"]["requeueState"] == {"count": 2}


def test_the_stop_that_kueue_began_is_ended_and_the_job_starts_again(stage: Stage) -> None:
    status = {**reserved("a", 4), "schedulingStats": COUNTED}
    with_job("w", status, ADMITTED, *EVICTED, job=RUNS)(stage)
    stage.lead()
    stage.wait(5)
    key = ("Job", "team", "w")
    assert stage.cluster.objects[key]["spec"]["suspend"] is True

    stage.cluster.edit(key, lambda job: job.update(status=STOPPED["status"]))
    stage.wait(60)

    assert state(stage, "w") == READMITTED
    assert stage.cluster.objects[key]["spec"]["suspend"] is False


def test_quota_that_kueue_gave_beyond_what_is_there_now_evicts_no_workload(stage: Stage) -> None:
    for name in ("first", "second"):
        leave(name, "a", 4, reserved("a", 4), ADMITTED)(stage)

    stage.lead()
    stage.wait(60)

    assert [state(stage, name) for name in ("first", "second")] == [RUNNING, RUNNING]
    # Found again at the names under which the stage keeps them.
    assert stage.admitted() == [key_of(name)[2] for name in ("first", "second")]
