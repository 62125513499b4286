"""Nodes fail under running gangs on a real control plane: two spines of eight leaves of four nodes of 8 GPUs.

A node that fails says so of itself; the real node controller taints it and deletes its pods, the real Job
controller makes new ones, the real scheduler binds them where Berth sends them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pytest

from tests.integration.manifests import (
    KUEUE,
    LONG,
    POOL,
    RUNTIME,
    Object,
    condition,
    is_true,
    kueue_object,
    make_job,
    quota,
)
from tests.integration.nodes import GPUS_A_NODE, LEAF, NODES_A_LEAF, SPINE
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
HOST = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
RECOVERED = "topology_scheduler_recovery_duration_seconds_count"
RECOVERY_SECONDS = 60.0
# How long the Job controller waits before it replaces a failed pod, and Berth for a heartbeat.
JOB_BACKOFF_SECONDS, HEARTBEAT_SECONDS = 10.0, 20.0
# What the API server adds to every pod, unless it is told otherwise.
STOCK_TOLERATIONS = [
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for key in ("not-ready", "unreachable")
]


@pytest.fixture
def scene(fabric: Replica, real_scene: Scene) -> Iterator[Scene]:
    """Give a namespace with a queue on the fabric's nodes; nodes that failed are back when it ends."""
    assert fabric.child.is_running()
    rest, name = real_scene.rest, real_scene.scoped("fabric")
    levels = [{"nodeLabel": label} for label in (SPINE, LEAF, HOST)]
    rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, {"levels": levels}))
    flavor = kueue_object(
        "ResourceFlavor", {"name": name}, {"nodeLabels": {POOL: "fabric"}, "topologyName": name}
    )
    rest.create(f"/apis/{KUEUE}/resourceflavors", flavor)
    yield real_scene
    for node in rest.get("/api/v1/nodes")["items"]:
        if not is_true(node, "Ready"):
            set_ready(real_scene, node["metadata"]["name"], ready=True)


def set_ready(scene: Scene, node: str, *, ready: bool) -> None:
    """Let a node vanish, or come back."""
    value = None if ready else "false"
    body = {"metadata": {"annotations": {"berth.dev/simulated-ready": value}}}
    path = f"/api/v1/nodes/{node}"
    scene.rest.patch(path, body)
    scene.rest.wait(path, lambda found: is_true(found, "Ready") == ready)


def silence(scene: Scene, node: str) -> None:
    """Cut a node off right after its kubelet was heard; it is stopped like a machine without power."""
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    renewed = scene.rest.get(lease)["spec"]["renewTime"]
    scene.rest.wait(lease, lambda found: found["spec"]["renewTime"] != renewed)
    body = {"metadata": {"annotations": {"berth.dev/simulated-ready": "silent"}}}
    scene.rest.patch(f"/api/v1/nodes/{node}", body)


def create_queues(scene: Scene, *names: str, nodes: int) -> None:
    """Create LocalQueues of one ClusterQueue that has the GPUs of `nodes` nodes."""
    flavor = scene.scoped("fabric")
    queue = scene.create_cluster_queue("gangs", quota(flavor, GPU, nodes * GPUS_A_NODE))
    for name in names:
        scene.create_local_queue(name, queue)


def create_policy(scene: Scene, spec: Object) -> None:
    """Create an AdmissionPolicy for the scene's ClusterQueue; it goes with the module's other objects."""
    body = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": scene.scoped("policy")},
        "spec": {"clusterQueues": {"names": [scene.scoped("gangs")]}, **spec},
    }
    scene.rest.create("/apis/berth.dev/v1alpha1/admissionpolicies", body)


def create_port_holder(scene: Scene, name: str, *, node: str, port: Object) -> None:
    """Create a pod without a queue that takes a port of a node, and wait until it is there."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {RUNTIME: f"{LONG:g}"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none", "ports": [port]}]},
    }
    scene.rest.create(scene.pods, pod)
    scene.rest.wait(f"{scene.pods}/{name}", lambda found: found["status"]["phase"] == "Running")


def create_gang(
    scene: Scene, name: str, *, nodes: int, queue: str = "main", ports: Sequence[Object] = (), **pod_spec: Any
) -> None:
    """Create a Job of one pod a node which needs one leaf."""
    job = make_job(name, pods=nodes, queue=queue, **pod_spec)
    template = job["spec"]["template"]
    template["metadata"]["annotations"][REQUIRED] = LEAF
    gpus = {GPU: GPUS_A_NODE}
    (container,) = template["spec"]["containers"]
    container["resources"], container["ports"] = {"requests": gpus, "limits": gpus}, [*ports]
    job["spec"]["backoffLimit"] = 20
    scene.rest.create(scene.jobs, job)


def assigned(workload: Object | None) -> list[str]:
    """Return the nodes of a Workload's one pod set, [] where it has none."""
    admission = (workload or {}).get("status", {}).get("admission")
    if not admission:
        return []
    (assignment,) = admission["podSetAssignments"]
    names: list[str] = []
    for part in assignment["topologyAssignment"]["slices"]:
        (values,) = part["valuesPerLevel"]
        if "universal" in values:
            names.append(values["universal"])
            continue
        one = values["individual"]
        names += [f"{one.get('prefix', '')}{root}{one.get('suffix', '')}" for root in one["roots"]]
    return names


def running_on(scene: Scene, job: str) -> set[str]:
    """Return where those pods of the Job run that are not being deleted."""
    return {
        pod["spec"]["nodeName"]
        for pod in scene.pods_of(job)
        if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
    }


def wait_running(scene: Scene, job: str) -> list[str]:
    """Return the nodes of the Job's Workload once a pod runs on each of them and nowhere else."""

    def complete() -> list[str] | None:
        nodes = assigned(scene.workload_of(job))
        is_complete = bool(nodes) and sorted(running_on(scene, job)) == sorted(nodes)
        return nodes if is_complete else None

    return wait_for(scene.patiently(complete), f"{job} runs", timeout_seconds=RECOVERY_SECONDS)


def changed_at(obj: Object, type_: str) -> float:
    """Return when a condition last changed (Unix seconds)."""
    return datetime.fromisoformat(condition(obj, type_)["lastTransitionTime"]).timestamp()


def leaf_of(node: str) -> str:
    """Return the leaf that a node's name holds."""
    return node.rpartition("-")[0]


@pytest.mark.covers("002_17", "002_24")
def test_a_node_under_a_gang_of_three_is_replaced_in_its_leaf(scene: Scene, fabric: Replica) -> None:
    create_queues(scene, "main", nodes=3)
    create_gang(scene, "gang", nodes=3)
    before = wait_running(scene, "gang")
    lost, counted = before[1], fabric.metric(RECOVERED, result="replaced")

    set_ready(scene, lost, ready=False)

    scene.wait_workload("gang", lambda found: lost not in assigned(found), f"another node than {lost}")
    after = wait_running(scene, "gang")
    assert {leaf_of(node) for node in after} == {leaf_of(node) for node in before}
    assert set(before) - {lost} < set(after)
    workload = scene.wait_workload("gang", lambda found: "unhealthyNodes" not in found["status"])
    assert condition(workload, "Evicted") == {}
    scene.wait_events(workload["metadata"]["name"], "UnhealthyNodes", "NodesReplaced")
    assert fabric.metric(RECOVERED, result="replaced") == counted + 1


def test_without_room_in_its_leaf_a_gang_moves_to_another_before_an_older_equal(scene: Scene) -> None:
    create_queues(scene, "main", "later", nodes=NODES_A_LEAF)
    later = f"{scene.local_queues}/later"
    scene.rest.patch(later, {"spec": {"stopPolicy": "Hold"}})
    create_gang(scene, "older", nodes=NODES_A_LEAF, queue="later")
    scene.wait_workload("older")
    create_gang(scene, "gang", nodes=NODES_A_LEAF)
    before = wait_running(scene, "gang")
    scene.rest.patch(later, {"spec": {"stopPolicy": "None"}})
    scene.wait_pending("older")

    set_ready(scene, before[0], ready=False)

    workload = scene.wait_workload(
        "gang", lambda found: bool(found["status"].get("schedulingStats")), "evicted"
    )
    assert workload["status"]["schedulingStats"]["evictions"] == [
        {"reason": "NodeFailures", "underlyingCause": "", "count": 1}
    ]
    after = wait_running(scene, "gang")
    assert len({leaf_of(node) for node in after}) == 1
    assert leaf_of(after[0]) != leaf_of(before[0])
    assert condition(scene.workload_of("older"), "QuotaReserved")["status"] == "False"
    scene.wait_events(workload["metadata"]["name"], "EvictedDueToNodeFailures")


def test_a_gang_that_loses_two_nodes_is_placed_again_as_a_whole(scene: Scene) -> None:
    create_queues(scene, "main", nodes=2)
    create_gang(scene, "gang", nodes=2)
    before = wait_running(scene, "gang")
    paths = [f"/api/v1/nodes/{node}" for node in before]

    try:
        for path in paths:
            scene.rest.patch(path, {"spec": {"unschedulable": True}})
        for pod in scene.pods_of("gang"):
            scene.rest.delete(f"{scene.pods}/{pod['metadata']['name']}")

        workload = scene.wait_workload(
            "gang", lambda found: bool(found["status"].get("schedulingStats")), "evicted"
        )
        assert set(before).isdisjoint(wait_running(scene, "gang"))
    finally:
        for path in paths:
            scene.rest.patch(path, {"spec": {"unschedulable": None}})
    assert workload["status"]["schedulingStats"]["evictions"] == [
        {"reason": "NodeFailures", "underlyingCause": "", "count": 1}
    ]
    multiple = "Workload eviction triggered due to multiple TAS assigned node failures, including: "
    assert any(note.startswith(multiple) for note in scene.notes_about(workload["metadata"]["name"]))


def test_a_cordoned_node_keeps_its_gang_and_is_left_when_its_pod_is_deleted(scene: Scene) -> None:
    create_queues(scene, "main", nodes=3)
    create_gang(scene, "gang", nodes=3)
    before = wait_running(scene, "gang")
    path = f"/api/v1/nodes/{before[0]}"

    try:
        scene.rest.patch(path, {"spec": {"unschedulable": True}})
        (pod,) = (one for one in scene.pods_of("gang") if one["spec"]["nodeName"] == before[0])
        assert set(running_on(scene, "gang")) == set(before)
        scene.rest.delete(f"{scene.pods}/{pod['metadata']['name']}")

        scene.wait_workload("gang", lambda found: before[0] not in assigned(found), "another node")
        assert before[0] not in wait_running(scene, "gang")
    finally:
        scene.rest.patch(path, {"spec": {"unschedulable": None}})


def test_a_policy_has_pods_leave_a_node_on_which_kubernetes_would_leave_them(scene: Scene) -> None:
    create_queues(scene, "main", nodes=2)
    create_policy(scene, {"placement": {"recovery": {}}})
    patient = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
        for key in ("not-ready", "unreachable")
    ]
    create_gang(scene, "gang", nodes=2, tolerations=patient)
    before = wait_running(scene, "gang")

    set_ready(scene, before[0], ready=False)

    scene.wait_workload("gang", lambda found: before[0] not in assigned(found), f"left {before[0]}")
    after = wait_running(scene, "gang")
    assert before[1] in after
    assert {leaf_of(node) for node in after} == {leaf_of(before[0])}


def test_a_gang_whose_pod_kube_scheduler_refuses_moves_to_another_node(scene: Scene) -> None:
    create_queues(scene, "main", nodes=1)
    create_policy(scene, {"placement": {"recovery": {"unschedulableSeconds": 2}}})
    port = {"containerPort": 80, "hostPort": 18080}
    # Equal gangs get equal nodes: the first shows which one the second will be sent to.
    create_gang(scene, "first", nodes=1)
    (taken,) = wait_running(scene, "first")
    create_port_holder(scene, "holder", node=taken, port=port)
    scene.delete_job("first")

    create_gang(scene, "gang", nodes=1, ports=[port])

    workload = scene.wait_workload("gang", lambda found: assigned(found) not in ([], [taken]), "another node")
    assert wait_running(scene, "gang") != [taken]
    assert taken in workload["metadata"]["annotations"]["berth.dev/excluded-nodes"]
    assert workload["status"]["schedulingStats"]["evictions"] == [
        {"reason": "PodsUnschedulable", "underlyingCause": "", "count": 1}
    ]
    for name in (workload["metadata"]["name"], "gang"):
        scene.wait_events(name, "PodsUnschedulable")
        (note,) = {note for note in scene.notes_about(name) if note.startswith("Pod gang-")}
        assert f"could not be bound to node {taken} within 2 s: " in note
        assert "free ports" in note


@pytest.mark.covers("002_17", "002_24")
def test_a_gang_leaves_a_node_that_falls_silent_without_another_wait_on_stock_tolerations(
    scene: Scene,
) -> None:
    """`bench.node_kills` measures that it runs elsewhere within 30 s; no wait is added to the first 20 s."""
    create_queues(scene, "main", nodes=3)
    create_policy(scene, {"placement": {"recovery": {}}})
    create_gang(scene, "gang", nodes=3, tolerations=STOCK_TOLERATIONS)
    before = wait_running(scene, "gang")

    silence(scene, before[0])

    scene.wait_workload("gang", lambda found: before[0] not in assigned(found), f"left {before[0]}")
    after = wait_running(scene, "gang")
    assert {leaf_of(node) for node in after} == {leaf_of(node) for node in before}
    (lost,) = (pod for pod in scene.pods_of("gang") if pod["spec"]["nodeName"] == before[0])
    given_up_at = changed_at(lost, "DisruptionTarget")
    # The Job controller's back-off counts from when the pod was ready last, and so has passed already.
    assert given_up_at - changed_at(lost, "Ready") >= HEARTBEAT_SECONDS > JOB_BACKOFF_SECONDS
    assert is_true(scene.rest.get(f"/api/v1/nodes/{before[0]}"), "Ready"), "Kubernetes has not noticed yet"
    heard_again = {"metadata": {"annotations": {"berth.dev/simulated-ready": None}}}
    scene.rest.patch(f"/api/v1/nodes/{before[0]}", heard_again)
