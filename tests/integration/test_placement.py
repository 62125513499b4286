"""Gangs under a policy's domain rules on a real control plane: two spines of eight leaves of four nodes.

The real scheduler binds the pods where Berth sends them; the nodes are simulated.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Cluster
from tests.integration.manifests import KUEUE, POOL, Object, kueue_object, make_job, quota
from tests.integration.nodes import GPUS_A_NODE, LEAF, LEAVES, NODES_A_LEAF, SPINE
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

HOST = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
BANDWIDTH = "berth.dev/network-bandwidth"
SIZES = (1, 2, 3, 4, 8, 16)
# The real scheduler and Job controller share two cores with all the rest.
BINDING_SECONDS = 60.0


@pytest.fixture
def scene(fabric: Replica, real_scene: Scene) -> Iterator[Scene]:
    """Give a namespace with a queue on all of the fabric, under a policy with domain rules."""
    assert fabric.child.is_running()
    create_queue(real_scene)
    yield real_scene
    real_scene.rest.delete(f"{POLICIES}/{real_scene.scoped('rules')}")


@pytest.fixture(scope="module")
def crowd(fabric: Replica, real_cluster: Cluster) -> Iterator[Scene]:
    """Give such a namespace with gangs of all sizes at once, which end with the module."""
    assert fabric.child.is_running()
    scene = real_cluster.new_scene()
    create_queue(scene)
    for nodes in SIZES:
        create_gang(scene, f"gang-{nodes}", pods=nodes)
    yield scene
    scene.rest.delete(f"{POLICIES}/{scene.scoped('rules')}")
    scene.rest.delete(scene.jobs, {"propagationPolicy": "Background"})


def create_queue(scene: Scene) -> None:
    """Create a queue on all of the fabric, under a policy with domain rules."""
    rest, name = scene.rest, scene.scoped("fabric")
    levels = [{"nodeLabel": label} for label in (SPINE, LEAF, HOST)]
    rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, {"levels": levels}))
    flavor = {"nodeLabels": {POOL: "fabric"}, "topologyName": name}
    rest.create(f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": name}, flavor))
    gpus = LEAVES * NODES_A_LEAF * GPUS_A_NODE
    queue = scene.create_cluster_queue("gangs", quota(name, GPU, gpus))
    create_policy(scene, queue, aliases="Articles", placement={"domainRules": {}})
    scene.create_local_queue("main", queue)


def create_policy(scene: Scene, queue: str, **spec: Any) -> None:
    """Create the policy of a ClusterQueue and wait until it is in force."""
    name = scene.scoped("rules")
    body = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": name}}
    scene.rest.create(POLICIES, {**body, "spec": {"clusterQueues": {"names": [queue]}, **spec}})
    scene.rest.wait(
        f"{POLICIES}/{name}", lambda found: found.get("status", {}).get("clusterQueues") == [queue]
    )


def create_gang(scene: Scene, name: str, *, pods: int, gpus: int = GPUS_A_NODE, **annotations: str) -> None:
    """Create a Job; `annotations` are of the articles, with _ for -."""
    job = make_job(name, pods=pods)
    resources = {"requests": {GPU: gpus}, "limits": {GPU: gpus}}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    job["metadata"]["annotations"] = {
        f"topology.scheduler/{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    scene.rest.create(scene.jobs, job)


def leaves_of(scene: Scene, job: str) -> dict[int, int]:
    """Return how many nodes of each leaf the Job's pods are bound to, once all are."""

    def bound() -> list[Object] | None:
        pods = scene.pods_of(job)
        is_complete = len(pods) == scene.job(job)["spec"]["parallelism"]
        return pods if is_complete and all(pod["spec"].get("nodeName") for pod in pods) else None

    pods = wait_for(scene.patiently(bound), f"pods of {job} bound", timeout_seconds=BINDING_SECONDS)
    nodes = {pod["spec"]["nodeName"] for pod in pods}
    return dict(sorted(Counter(int(node.split("-")[1]) for node in nodes).items()))


def spines(leaves: dict[int, int]) -> set[int]:
    """Return the spines of these leaves."""
    return {leaf // 8 for leaf in leaves}


@pytest.mark.covers("002_03", "002_30")
def test_a_job_lands_on_the_leaf_that_it_prefers(scene: Scene) -> None:
    create_gang(scene, "gpu-training", pods=1, gpu_count="8", preferred_domain="leaf-11")

    assert leaves_of(scene, "gpu-training") == {11: 1}


@pytest.mark.covers("002_29")
def test_the_smallest_job_lands_on_one_node_and_nothing_is_reported(scene: Scene) -> None:
    create_gang(scene, "single", pods=1, gpus=1, gpu_count="1")

    assert sum(leaves_of(scene, "single").values()) == 1
    assert "InvalidAnnotation" not in scene.reasons_about("single")


@pytest.mark.covers("002_19")
def test_a_job_that_waits_for_nodes_lands_as_soon_as_there_are_such(scene: Scene) -> None:
    create_gang(scene, "fast", pods=2, network_bandwidth="800Gb")
    scene.wait_pending("fast", "TopologyPlacementFailed", says="networkBandwidth")

    fast = [f"/api/v1/nodes/leaf-14-{number}" for number in range(NODES_A_LEAF)]
    for node in fast:
        scene.rest.patch(node, {"metadata": {"labels": {BANDWIDTH: "800Gb"}}})

    assert leaves_of(scene, "fast") == {14: 2}
    for node in fast:
        scene.rest.patch(node, {"metadata": {"labels": {BANDWIDTH: None}}})


@pytest.mark.covers("002_32", "002_04")
def test_a_large_job_lands_on_its_spine_on_nodes_with_its_bandwidth(scene: Scene) -> None:
    """Only the last leaf of the second spine has the bandwidth."""
    fast = [f"/api/v1/nodes/leaf-15-{number}" for number in range(NODES_A_LEAF)]
    for node in fast:
        scene.rest.patch(node, {"metadata": {"labels": {BANDWIDTH: "400Gb"}}})

    create_gang(
        scene,
        "large-training",
        pods=4,
        gpus=4,
        gpu_count="16",
        preferred_domain="spine-1",
        network_bandwidth="200Gb",
        placement_strategy="consolidated",
    )

    assert leaves_of(scene, "large-training") == {15: 2}
    for node in fast:
        scene.rest.patch(node, {"metadata": {"labels": {BANDWIDTH: None}}})


@pytest.mark.covers("002_06", "002_08")
def test_distributed_work_lands_on_as_many_leaves_as_it_has_pods(scene: Scene) -> None:
    create_gang(scene, "serving", pods=4, gpus=1, placement_strategy="distributed")

    assert list(leaves_of(scene, "serving").values()) == [1] * 4


@pytest.mark.covers("002_05")
def test_distributed_work_that_is_sensitive_to_latency_stays_on_one_leaf(scene: Scene) -> None:
    create_gang(scene, "serving", pods=4, gpus=1, placement_strategy="distributed", latency_sensitive="true")

    assert list(leaves_of(scene, "serving").values()) == [4]


@pytest.mark.covers("002_02", "002_36")
def test_a_gpu_count_that_does_not_match_the_pods_is_reported(scene: Scene) -> None:
    create_gang(scene, "gang", pods=2, gpu_count="8")

    scene.wait_events("gang", "InvalidAnnotation")
    (note,) = [note for note in scene.notes_about("gang") if "gpu-count" in note]
    assert note.startswith("topology.scheduler/gpu-count is 8, but its pods ask for 16 GPUs in all")


@pytest.mark.covers("002_03")
def test_a_preferred_domain_that_does_not_exist_is_reported_and_ignored(scene: Scene) -> None:
    create_gang(scene, "lost", pods=1, preferred_domain="leaf-99")

    scene.wait_events("lost", "InvalidAnnotation")
    (note,) = [note for note in scene.notes_about("lost") if "preferred-domain" in note]
    assert "'leaf-99', which is no domain of any Topology" in note
    assert sum(leaves_of(scene, "lost").values()) == 1


# Last, so that nothing blocks those above.
@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param(1, [1], id="1 node"),
        pytest.param(2, [2], marks=pytest.mark.covers("002_10"), id="2 nodes on the same leaf"),
        pytest.param(3, [3], id="3 nodes on the same leaf"),
        pytest.param(4, [4], marks=pytest.mark.covers("002_11"), id="4 nodes on a complete leaf"),
        pytest.param(8, [4, 4], marks=pytest.mark.covers("002_12", "002_14"), id="8 nodes on two adjacent"),
        pytest.param(16, [4] * 4, marks=pytest.mark.covers("002_13"), id="16 nodes on four adjacent"),
    ],
)
def test_a_gang_lands_by_its_size(crowd: Scene, nodes: int, want: list[int]) -> None:
    """All of them at once: 34 of the 64 nodes."""
    leaves = leaves_of(crowd, f"gang-{nodes}")

    assert sorted(leaves.values(), reverse=True) == want
    assert len(spines(leaves)) == 1


@pytest.mark.covers("002_21", "002_22")
def test_placements_and_domains_are_measured(crowd: Scene, fabric: Replica) -> None:
    flavor = crowd.scoped("fabric")
    strategy = {"strategy": "balanced"}

    leaves = leaves_of(crowd, "gang-8")
    wait_for(
        lambda: fabric.metric("topology_scheduler_latency_seconds_count", **strategy) >= len(SIZES),
        "the placements measured",
    )

    assert fabric.metric("topology_placement_decisions_total", result="placed", **strategy) >= len(SIZES)
    assert fabric.metric("topology_scheduler_placement_duration_seconds_count", **strategy) >= len(SIZES)
    for leaf in leaves:
        domain = {"flavor": flavor, "domain": f"spine-{leaf // 8}/leaf-{leaf}"}
        assert fabric.metric("topology_domain_utilization_ratio", **domain) == 1.0
        assert fabric.metric("topology_gpu_allocation_ratio", **domain) == 1.0
        assert fabric.metric("topology_scheduler_domain_fragmentation_ratio", **domain) == 0.0


@pytest.mark.covers("002_20")
def test_one_controller_is_scheduler_domain_manager_plugin_and_metrics(
    crowd: Scene, fabric: Replica, real_cluster: Cluster, tmp_path: Path
) -> None:
    """The article's components, as a process of its own beside the cluster's."""
    (leaf,) = leaves_of(crowd, "gang-4")
    domain = {"flavor": crowd.scoped("fabric"), "domain": f"spine-{leaf // 8}/leaf-{leaf}"}
    wait_for(lambda: fabric.metric("topology_domain_utilization_ratio", **domain) == 1.0, "the leaf in use")

    names = [f"leaf-{leaf}-{number}" for number in range(NODES_A_LEAF)]
    # It leads nothing here, since another one does.
    flags = ("--namespace", crowd.namespace, "--observe", "--extender-port", "0")
    plugin = Replica(real_cluster.kubeconfig, tmp_path, *flags, name="plugin")
    with plugin.child:
        plugin.wait_ready()
        # It asks for all GPUs of a node, by a profile that counts those that are free.
        resources = {"requests": {GPU: str(GPUS_A_NODE)}}
        spec = {"schedulerName": "gpu-aware-scheduler", "containers": [{"name": "m", "resources": resources}]}
        body = {"Pod": {"metadata": {"name": "p"}, "spec": spec}, "NodeNames": names}
        request = urllib.request.Request(f"{plugin.urls()['extender']}/filter", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30.0) as response:
            answer = json.load(response)

    # The gang uses them all.
    need = f"insufficient GPU: need {GPUS_A_NODE}, available 0"
    assert answer["failedNodes"] == dict.fromkeys(names, need)
    assert not answer.get("nodeNames")
