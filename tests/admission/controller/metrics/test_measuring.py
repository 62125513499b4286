"""What the metrics show once objects have changed: whether each is connected with what it measures."""

from __future__ import annotations

import copy

import msgspec
import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from api import keys
from tests.admission.controller.known import Known, Object, made, workload_object

CREATED = "1970-01-01T00:16:30Z"  # ten seconds before the time of the clock
JOB = made("Job", "j", "team", version="batch/v1", created=CREATED, spec={"template": {"spec": {}}})


def workload(**status: object) -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    made_for = workload_object("w", "team", "main", owners=[owner], created=CREATED)
    return {**made_for, "status": status}


def true(condition: str, reason: str = "") -> Object:
    return {
        "type": condition,
        "status": "True",
        "reason": reason,
        "lastTransitionTime": CREATED,
        "message": "",
    }


ADMISSION = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]}
ADMITTED = workload(admission=ADMISSION, conditions=[true("QuotaReserved"), true("Admitted")])
EVICTED = workload(
    admission=ADMISSION, conditions=[true("QuotaReserved"), true("Evicted", "InactiveWorkload")]
)


def has(known: Known, name: str) -> bool:
    """Return whether the process serves a sample of the metric."""
    return f"\n{name}{{" in known.metrics.render().decode()


@pytest.mark.parametrize(
    ("objects", "name"),
    [
        pytest.param([JOB, workload()], "kueue_workload_creation_latency_seconds_sum", id="created"),
        pytest.param([workload(), ADMITTED], "kueue_admitted_workloads_total", id="admitted"),
        pytest.param([ADMITTED, EVICTED], "berth_evicted_device_seconds_lost_total", id="evicted"),
    ],
)
def test_a_change_of_a_workload_is_measured_by_the_leader_alone(objects: list[Object], name: str) -> None:
    leader, follower = Known(), Known()
    leader.metrics.role = "leader"

    for obj in objects:
        leader.tell(obj)
        follower.tell(obj)

    assert (has(leader, name), has(follower, name)) == (True, False)


def test_an_object_that_cannot_be_read_is_counted_by_each_replica() -> None:
    follower = Known()

    follower.tell({**workload(), "spec": {"podSets": []}})

    assert has(follower, "berth_unreadable_objects_total")


@pytest.mark.parametrize(("role", "want"), [("leader", True), ("follower", False)])
def test_a_pod_that_loses_its_gate_is_measured_by_the_leader_alone(role: str, want: bool) -> None:
    known = Known(ADMITTED)
    known.metrics.role = role
    annotations = {keys.WORKLOAD: "w", "kueue.x-k8s.io/podset-unconstrained-topology": "true"}

    for version, gates in enumerate(([{"name": keys.TOPOLOGY_GATE}], [])):
        pod = made("Pod", "p", "team", version="v1", annotations=annotations, spec={"schedulingGates": gates})
        pod["metadata"] |= {"uid": "p", "resourceVersion": str(version)}
        assert known.cluster_state.see_raw("Pod", msgspec.json.encode(pod))

    assert has(known, "kueue_pod_scheduling_gate_removal_seconds_sum") is want


@pytest.mark.parametrize("group", ["", "w"], ids=["by itself", "in a group"])
def test_a_pod_that_is_queued_is_measured_when_it_loses_the_gate_of_admission(group: str) -> None:
    obj = copy.deepcopy(ADMITTED)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": not group}
    obj["metadata"]["ownerReferences"] = [owner]
    if group:
        obj["metadata"]["annotations"] = {keys.IS_GROUP_WORKLOAD: "true"}
    known = Known(obj, settings=ClusterStateSettings(with_pods=True))
    known.metrics.role = "leader"
    labels = {keys.MANAGED: "true", keys.QUEUE_NAME: "lq", **({keys.POD_GROUP_NAME: group} if group else {})}

    for version, gates in enumerate(([{"name": keys.ADMISSION_GATE}], [])):
        pod = made("Pod", "p", "team", version="v1", labels=labels, spec={"schedulingGates": gates})
        pod["metadata"] |= {
            "uid": "p",
            "resourceVersion": str(version + 1),
            "finalizers": [keys.POD_FINALIZER],
        }
        assert known.cluster_state.see_raw("Pod", msgspec.json.encode(pod))

    (count,) = (
        line
        for line in known.metrics.render().decode().splitlines()
        if line.startswith("kueue_pod_scheduling_gate_removal_seconds_count")
    )
    assert f'name="{keys.ADMISSION_GATE}"' in count
    assert f'is_group="{str(bool(group)).lower()}"' in count
