"""The row of TrainJob: the JobSet that its runtime, its trainer and its patches make."""

from __future__ import annotations

import copy
from math import inf
from typing import Any

import msgspec
import pytest

from api.jobs.job import ComposeError
from api.jobs.owners.owner import counts, to_owner
from api.jobs.owners.row import Child
from api.jobs.owners.trainjob import TRAIN_JOB, expanded
from api.keys import EXPECTED_COMPLETION_TIME
from api.objects.cluster import OwnerObject
from tests.owners import SAMPLES

Object = dict[str, Any]
(SAMPLE,) = (one for one in SAMPLES if one.row is TRAIN_JOB)


def runtime(policy: Object | None, *names: str, step: str = "trainer") -> Object:
    """Return a runtime of these replicated Jobs, of which the last is the step."""
    jobs = []
    for name in names:
        container = {"name": "node", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if name == names[-1] else {}
        spec = {"parallelism": 5, "template": {"spec": {"containers": [container]}}}
        jobs.append({"name": name, "replicas": 4, "template": {"metadata": {"labels": labels}, "spec": spec}})
    body: Object = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"kind": "TrainingRuntime", "spec": {**body, **({"mlPolicy": policy} if policy else {})}}


def train_job(patches: list[Object] | None = None, **trainer: Any) -> Object:
    """Return a TrainJob with this trainer."""
    return {
        "metadata": {"name": "j", "namespace": "team"},
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": "r"},
            "trainer": trainer,
            "runtimePatches": patches or [],
        },
    }


def pods(body: Object, of: Object) -> dict[str, int]:
    """Return the numbers of pods by pod set."""
    return {one.name: one.count for one in TRAIN_JOB.pod_sets(expanded(body, lambda *_: of))}


@pytest.mark.parametrize(
    ("policy", "trainer", "want"),
    [
        pytest.param({"numNodes": 2, "torch": {}}, {}, 2, id="the nodes of its policy"),
        pytest.param({"numNodes": 2, "torch": {}}, {"numNodes": 3}, 3, id="its own nodes"),
        pytest.param({"torch": {}}, {}, 1, id="a policy without a number"),
        pytest.param(None, {}, 5, id="no policy: as the runtime has it"),
        pytest.param(None, {"numNodes": 3}, 3, id="its own nodes without a policy"),
    ],
)
def test_the_number_of_its_pods(policy: Object | None, trainer: Object, want: int) -> None:
    assert pods(train_job(**trainer), runtime(policy, "node")) == {"node": want}


@pytest.mark.parametrize(
    ("as_node", "want"),
    [
        pytest.param(True, {"node": 2, "launcher": 1}, id="the launcher is one of the nodes"),
        pytest.param(False, {"node": 3, "launcher": 1}, id="the launcher comes on top"),
    ],
)
def test_the_nodes_of_an_mpi_runtime(as_node: bool, want: dict[str, int]) -> None:
    policy = {"numNodes": 1, "mpi": {"runLauncherAsNode": as_node}}
    found = runtime(policy, "node", "launcher")
    found["spec"]["template"]["spec"]["replicatedJobs"][0]["replicas"] = 1

    assert pods(train_job(numNodes=3), found) == want


def test_requests_of_its_nodes_are_merged_into_those_of_the_runtime() -> None:
    own = {"requests": {"cpu": "4", "nvidia.com/gpu": "8"}}
    body = train_job(image="mine", resourcesPerNode=own)

    (one,) = TRAIN_JOB.pod_sets(expanded(body, lambda *_: runtime({"torch": {}}, "node")))

    (container,) = one.template["spec"]["containers"]
    assert container["image"] == "mine"
    assert container["resources"] == {"requests": {"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "8"}}


def test_a_patch_is_merged_by_name_and_its_own_is_left_out() -> None:
    def patch(manager: str, image: str) -> Object:
        pod = {"spec": {"containers": [{"name": "node", "image": image}, {"name": manager, "image": "x"}]}}
        jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
        return {
            "manager": manager,
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
        }

    body = train_job([patch("theirs", "patched"), patch("kueue.x-k8s.io/manager", "never")])
    found = runtime({"torch": {}}, "node")
    before = copy.deepcopy(found)

    (one,) = TRAIN_JOB.pod_sets(expanded(body, lambda *_: found))

    names = {container["name"]: container["image"] for container in one.template["spec"]["containers"]}
    assert names == {"node": "patched", "theirs": "x"}
    assert one.template["spec"]["containers"][0]["resources"]["requests"]["memory"] == "1Gi"
    assert found == before


def test_a_runtime_that_does_not_exist_is_named() -> None:
    with pytest.raises(ComposeError, match="names TrainingRuntime 'r', which does not exist; create it"):
        expanded(train_job(), lambda *_: None)


def test_a_runtime_of_the_namespace_and_one_of_the_cluster_are_asked_for() -> None:
    asked: list[tuple[str, str, str]] = []

    def read(*key: str) -> Object:
        asked.append((key[0], key[1], key[2]))
        return runtime({"torch": {}}, "node")

    expanded(train_job(), read)
    expanded({**SAMPLE.object()}, read)

    assert asked == [("TrainingRuntime", "team", "r"), ("ClusterTrainingRuntime", "", "torch")]


def child(name: str, pods: int, cpu: str = "1") -> Child:
    """Return a JobSet with so many nodes."""
    container = {"name": "node", "resources": {"requests": {"cpu": cpu}}}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": {"containers": [container]}}}
    jobs = [{"name": "node", "replicas": 1, "template": {"spec": spec}}]
    return Child(kind="JobSet", name=name, body={"spec": {"replicatedJobs": jobs}})


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(child("j", 3), True, id="the JobSet of its name"),
        pytest.param(child("k", 3), False, id="one of another name"),
        pytest.param(child("j", 4), False, id="one of more pods"),
        pytest.param(child("j", 3, "2"), False, id="one that requests more"),
        pytest.param(Child(kind="Job", name="j", body={}), False, id="a Job"),
    ],
)
def test_the_jobset_of_its_name_is_counted(one: Child, want: bool) -> None:
    assert counts(TRAIN_JOB, expanded(SAMPLE.object(), SAMPLE.read), one) is want


AT = "2026-01-31T12:00:10Z"


@pytest.mark.parametrize(
    ("status", "annotations", "want"),
    [
        pytest.param(
            {"estimatedRemainingSeconds": 3600, "lastUpdatedTime": AT},
            {},
            "2026-01-31T13:01:00Z",
            id="what remained at its last update, in whole minutes that it does not outrun",
        ),
        pytest.param(
            {"estimatedRemainingSeconds": 50, "lastUpdatedTime": AT},
            {},
            "2026-01-31T12:01:00Z",
            id="not later where that is a whole minute",
        ),
        pytest.param(
            {"estimatedRemainingSeconds": 3600, "lastUpdatedTime": AT},
            {EXPECTED_COMPLETION_TIME: "2026-01-31T15:00:00Z"},
            "2026-01-31T15:00:00Z",
            id="not if its author says another",
        ),
        pytest.param({"progressPercentage": 50, "lastUpdatedTime": AT}, {}, None, id="nothing remained"),
        pytest.param({"estimatedRemainingSeconds": 3600}, {}, None, id="no time of an update"),
        pytest.param({"estimatedRemainingSeconds": "1h", "lastUpdatedTime": AT}, {}, None, id="no number"),
        pytest.param({"estimatedRemainingSeconds": 9, "lastUpdatedTime": "noon"}, {}, None, id="no time"),
        pytest.param(
            {"estimatedRemainingSeconds": 9, "lastUpdatedTime": "0001-01-01T00:00:00Z"},
            {},
            None,
            id="a time never set",
        ),
        pytest.param({"estimatedRemainingSeconds": inf, "lastUpdatedTime": AT}, {}, None, id="no end"),
        pytest.param({"estimatedRemainingSeconds": 9, "lastUpdatedTime": 9}, {}, None, id="a number as time"),
        pytest.param([3600], {}, None, id="no object"),
    ],
)
def test_the_trainer_says_when_a_train_job_ends(
    status: object, annotations: dict[str, str], want: str | None
) -> None:
    body = {**SAMPLE.object(annotations=annotations), "status": {"trainerStatus": status}}

    job = to_owner(TRAIN_JOB, msgspec.convert(body, OwnerObject))

    assert job.annotations.get(EXPECTED_COMPLETION_TIME) == want
