"""The rows of KubeRay's kinds: what their pods request, what is theirs, and what cannot be queued."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from api.jobs.job import ComposeError
from api.jobs.owners.composing import check_owner, pod_sets_body
from api.jobs.owners.owner import counts
from api.jobs.owners.ray import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from api.jobs.owners.row import Child, OwnerKind
from api.jobs.owners.rules import validate_owner
from tests.owners import SAMPLES

Object = dict[str, Any]

OF_CLUSTER: dict[str, tuple[str, ...]] = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
}
each_kind = pytest.mark.parametrize("row", [RAY_CLUSTER, RAY_JOB, RAY_SERVICE], ids=str)


def made(row: OwnerKind, **status: Any) -> Object:
    """Return the sample of a kind, with this status."""
    (found,) = (one for one in SAMPLES if one.row is row)
    return {**found.object(), "status": status}


def cluster_of(body: Object) -> Object:
    """Return the specification of the RayCluster within an object, which a test may change."""
    found = body
    for step in OF_CLUSTER[body["kind"]]:
        found = found[step]
    return found


def requests(row: OwnerKind, body: Object, pod_set: str) -> dict[str, Object]:
    """Return what the containers of a pod set request in the Workload, by name."""
    (found,) = (one for one in pod_sets_body(row, body) if one["name"] == pod_set)
    containers = found["template"]["spec"]["containers"]
    return {one["name"]: one.get("resources", {}).get("requests", {}) for one in containers}


# --- pod sets -------------------------------------------------------------------------------------


def test_workers_are_replicas_times_hosts_and_replicas_are_one_where_absent() -> None:
    body = made(RAY_CLUSTER)
    del cluster_of(body)["workerGroupSpecs"][1]["replicas"]
    del cluster_of(body)["workerGroupSpecs"][0]["numOfHosts"]

    assert [(one.name, one.count) for one in RAY_CLUSTER.pod_sets(body)] == [
        ("head", 1),
        ("small", 2),
        ("wide", 3),
    ]


def test_a_submitter_without_a_template_has_kuberays() -> None:
    body = made(RAY_JOB)
    del body["spec"]["submitterPodTemplate"]

    assert requests(RAY_JOB, body, "submitter") == {"ray-job-submitter": {"cpu": "500m", "memory": "200Mi"}}
    assert RAY_JOB.pod_sets(body)[-1].template["spec"]["containers"][0]["image"] == "i"


def test_a_submitter_in_the_heads_pod_is_part_of_the_head() -> None:
    body = made(RAY_JOB)
    body["spec"]["submissionMode"] = "SidecarMode"

    assert [one.name for one in RAY_JOB.pod_sets(body)] == ["head", "small", "wide"]
    sidecar = {"ray-job-submitter": {"cpu": "500m", "memory": "200Mi"}}
    assert requests(RAY_JOB, body, "head") == {"head": {"cpu": "1"}, **sidecar}


@pytest.mark.parametrize("mode", ["HTTPMode", "InteractiveMode"])
def test_other_ways_to_submit_take_no_pod(mode: str) -> None:
    body = made(RAY_JOB)
    body["spec"]["submissionMode"] = mode

    assert [one.name for one in RAY_JOB.pod_sets(body)] == ["head", "small", "wide"]


@each_kind
def test_the_head_of_a_fault_tolerant_cluster_has_room_for_the_job_that_clears_redis(row: OwnerKind) -> None:
    body = made(row)
    cluster_of(body)["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}

    assert requests(row, body, "head")["head"] == {"cpu": "1", "memory": "256Mi"}


def test_fault_tolerance_may_be_asked_for_by_an_annotation() -> None:
    body = made(RAY_CLUSTER)
    body["metadata"]["annotations"] = {"ray.io/ft-enabled": "True"}

    assert requests(RAY_CLUSTER, body, "head")["head"]["memory"] == "256Mi"


@pytest.mark.parametrize(
    ("options", "want"),
    [
        pytest.param(None, {"cpu": "500m", "memory": "512Mi"}, id="KubeRay's requests"),
        pytest.param({"resources": {"requests": {"cpu": "2"}}}, {"cpu": "2"}, id="requests of its author"),
    ],
)
def test_the_autoscaler_is_part_of_the_head(options: Object | None, want: Object) -> None:
    body = made(RAY_CLUSTER)

    cluster_of(body).update(enableInTreeAutoscaling=True, autoscalerOptions=options)
    head = RAY_CLUSTER.pod_sets(body)[0]

    containers = head.queued["spec"]["containers"]
    assert [(one["name"], one["resources"]["requests"]) for one in containers] == [
        ("head", {"cpu": "1"}),
        ("autoscaler", want),
    ]
    assert len(head.template["spec"]["containers"]) == 1, "what a start writes"


# --- what belongs to it ---------------------------------------------------------------------------


def pod(name: str, cpu: str = "1", kind: str = "Pod", **labels: str) -> Child:
    """Return a pod of RayCluster j, with these labels `ray.io/...` beside that of the cluster."""
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    named = {f"ray.io/{key.replace('_', '-')}": value for key, value in {"cluster": "j", **labels}.items()}
    return Child(kind=kind, name=name, body={"metadata": {"labels": named}, "spec": spec})


WORKER = {"node_type": "worker", "group": "small"}


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(pod("j-head"), True, id="the head"),
        pytest.param(pod("j-head", "2"), False, id="a head that requests more"),
        pytest.param(pod("j-head-2"), False, id="a second head"),
        pytest.param(pod("j-small-worker-x7k2p", **WORKER), True, id="a worker"),
        pytest.param(pod("w", "2", **WORKER), False, id="a worker that requests more"),
        pytest.param(pod("w", **{**WORKER, "group": "other"}), False, id="a worker of no group"),
        pytest.param(pod("w", group="small"), False, id="one that KubeRay does not count"),
        pytest.param(pod("w", cluster="k", **WORKER), False, id="a worker of another cluster"),
        pytest.param(pod("w", kind="RayJob", **WORKER), False, id="what is no pod"),
        pytest.param(Child(kind="Pod", name="j-head", body={}), False, id="what cannot be read"),
    ],
)
def test_a_pod_is_counted_if_kuberay_may_have_created_it(one: Child, want: bool) -> None:
    assert counts(RAY_CLUSTER, made(RAY_CLUSTER), one) is want


def job(name: str, cpu: str = "1", **spec: Any) -> Child:
    """Return a Job of a single pod."""
    return Child(kind="Job", name=name, body={"spec": {"template": pod("p", cpu).body, **spec}})


def cluster(name: str = "j-x7k2p", **changes: Any) -> Child:
    """Return a RayCluster as KubeRay creates it for a RayJob or a RayService, with changes."""
    body = made(RAY_CLUSTER)
    body["spec"].update(changes)
    return Child(kind="RayCluster", name=name, body=body)


def groups(replicas: int, *others: str) -> list[Object]:
    """Return the groups of workers, of which the first has so many replicas; and others like it."""
    found: list[Object] = copy.deepcopy(cluster_of(made(RAY_CLUSTER))["workerGroupSpecs"])
    found[0]["replicas"] = replicas
    return [*found, *({**found[0], "groupName": name} for name in others)]


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(cluster(), True, id="its cluster"),
        pytest.param(cluster("j-other"), False, id="a cluster that is not the one in its status"),
        pytest.param(cluster(workerGroupSpecs=groups(3)), False, id="a cluster with more workers"),
        pytest.param(cluster(workerGroupSpecs=groups(1)), True, id="a cluster with fewer workers"),
        pytest.param(cluster(workerGroupSpecs=[]), True, id="a cluster without workers"),
        pytest.param(cluster(workerGroupSpecs=groups(1, "other")), False, id="a cluster with another group"),
        pytest.param(cluster(workerGroupSpecs=groups(1, "head")), False, id="a group that is called head"),
        pytest.param(cluster(workerGroupSpecs=groups(1, "submitter")), False, id="a group called submitter"),
        pytest.param(
            cluster(workerGroupSpecs=groups(2, "SMALL")), False, id="two groups that differ in capitals"
        ),
        pytest.param(cluster(headGroupSpec={"template": pod("h", "9").body}), False, id="a larger head"),
        pytest.param(job("j"), True, id="its submitter"),
        pytest.param(job("j", "2"), False, id="a submitter that requests more"),
        pytest.param(job("j", parallelism=2), False, id="a submitter of two pods"),
        pytest.param(job("k"), False, id="a Job of another name"),
    ],
)
def test_a_cluster_or_job_is_counted_if_kuberay_has_created_it_for_the_rayjob(one: Child, want: bool) -> None:
    assert counts(RAY_JOB, made(RAY_JOB, rayClusterName="j-x7k2p"), one) is want


def test_the_head_of_a_counted_cluster_may_have_what_kuberay_adds() -> None:
    body = made(RAY_JOB, rayClusterName="j-x7k2p")
    cluster_of(body)["gcsFaultToleranceOptions"] = {}

    assert counts(RAY_JOB, body, cluster(gcsFaultToleranceOptions={}))


def test_a_rayjob_on_anothers_cluster_counts_nothing() -> None:
    body = made(RAY_JOB, rayClusterName="j-x7k2p")
    del body["spec"]["rayClusterSpec"]
    body["spec"]["clusterSelector"] = {"ray.io/cluster": "shared"}

    assert not counts(RAY_JOB, body, cluster())


@pytest.mark.parametrize("field", ["activeServiceStatus", "pendingServiceStatus"])
def test_a_rayservice_counts_the_clusters_of_its_status(field: str) -> None:
    body = made(RAY_SERVICE, **{field: {"rayClusterName": "j-x7k2p"}})

    assert counts(RAY_SERVICE, body, cluster())
    assert not counts(RAY_SERVICE, body, cluster("j-other"))


def test_the_job_that_clears_redis_is_counted() -> None:
    body = made(RAY_CLUSTER)

    assert counts(RAY_CLUSTER, body, job("j-redis-cleanup"))
    assert not counts(RAY_CLUSTER, body, job("j-redis-cleanup", "2"))


# --- what may be queued ---------------------------------------------------------------------------


def refused(row: OwnerKind, **changes: Any) -> str:
    """Return why an object with a changed spec is refused in a queue."""
    body = made(row)
    body["spec"] = {key: value for key, value in {**body["spec"], **changes}.items() if value is not None}
    with pytest.raises(ComposeError) as caught:
        check_owner(row, body)
    faults = "; ".join(map(str, validate_owner(row, body)))
    assert faults == str(caught.value), "the webhook says the same"
    del body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    assert not validate_owner(row, body), "it is free to do so outside of queues"
    return faults


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"shutdownAfterJobFinishes": None}, "spec.shutdownAfterJobFinishes", id="it stays"),
        pytest.param({"clusterSelector": {"a": "b"}}, "spec.clusterSelector", id="two clusters"),
        pytest.param({"rayClusterSpec": None}, "spec.rayClusterSpec is not set", id="no cluster"),
    ],
)
def test_a_rayjob_is_refused_that_cannot_be_queued(changes: Object, want: str) -> None:
    assert refused(RAY_JOB, **changes).startswith(want)


@each_kind
def test_an_autoscaled_cluster_is_refused(row: OwnerKind) -> None:
    changed = {**cluster_of(made(row)), "enableInTreeAutoscaling": True}
    path = OF_CLUSTER[row.kind]
    said = refused(row, **(changed if path == ("spec",) else {path[1]: changed}))

    assert said.startswith(f"{'.'.join(path)}.enableInTreeAutoscaling is true: ")


def test_a_group_that_is_called_head_is_refused() -> None:
    workers = groups(1)
    workers[1]["groupName"] = "head"

    assert refused(RAY_CLUSTER, workerGroupSpecs=workers).startswith("spec.workerGroupSpecs[1].groupName")


def test_more_groups_than_a_workload_has_pod_sets_are_refused() -> None:
    workers = [{**groups(1)[0], "groupName": f"g{index}"} for index in range(18)]

    assert refused(RAY_CLUSTER, workerGroupSpecs=workers).startswith("spec.workerGroupSpecs is 18: ")
    del workers[0]
    check_owner(
        RAY_CLUSTER, {**made(RAY_CLUSTER), "spec": {**made(RAY_CLUSTER)["spec"], "workerGroupSpecs": workers}}
    )


@pytest.mark.parametrize(
    ("row", "metadata", "changes", "want"),
    [
        pytest.param(RAY_JOB, {}, {}, False, id="a RayJob with its own cluster"),
        pytest.param(
            RAY_JOB,
            {},
            {"rayClusterSpec": None, "clusterSelector": {"a": "b"}},
            True,
            id="a RayJob on a cluster that is there",
        ),
        pytest.param(RAY_JOB, {}, {"clusterSelector": {"a": "b"}}, True, id="a RayJob that names two"),
        pytest.param(RAY_SERVICE, {"deletionTimestamp": "now"}, {}, False, id="a deleted RayService"),
        pytest.param(
            RAY_SERVICE,
            {"deletionTimestamp": "now", "annotations": {"ray.io/ft-enabled": "true"}},
            {},
            True,
            id="a deleted RayService that waits for Redis to be cleared",
        ),
    ],
)
def test_which_objects_are_left_alone(row: OwnerKind, metadata: Object, changes: Object, want: bool) -> None:
    body = made(row)
    body["metadata"].update(metadata)
    body["spec"].update(changes)

    assert row.is_left_alone(body) is want
