"""Gangs that ask for a rack, on a real control plane: they land in one, and the next one in another.

Its nodes are of the pool `blue`; each test labels them as racks of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.manifests import KUEUE, POOL, Object, condition, kueue_object, make_job, quota
from tests.integration.provisioning import answer, create_check, requests_of
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
HOST = "kubernetes.io/hostname"
# The pool `blue` has two nodes of 64 CPUs: two racks of one node each.
NODES = ("blue-0", "blue-1")


@pytest.fixture
def scene(real_controller: Replica, real_scene: Scene) -> Iterator[Scene]:
    """Give a namespace with a queue whose flavor has racks."""
    assert real_controller.child.is_running()
    rack = rack_label(real_scene)
    for number, node in enumerate(NODES):
        real_scene.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {rack: f"r{number}"}}})
    create_racks(real_scene)
    yield real_scene
    for node in NODES:
        real_scene.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {rack: None}}})


def rack_label(scene: Scene) -> str:
    """Return the label of this scene's racks."""
    return f"test.berth.dev/{scene.namespace}"


def create_racks(scene: Scene, name: str = "racks", queue: str = "main", *, with_hosts: bool = True) -> None:
    """Create a Topology, a flavor that follows it, and a queue of more CPUs than the nodes have."""
    rest, name = scene.rest, scene.scoped(name)
    levels = [{"nodeLabel": rack_label(scene)}, *([{"nodeLabel": HOST}] if with_hosts else [])]
    rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, {"levels": levels}))
    flavor = kueue_object(
        "ResourceFlavor", {"name": name}, {"nodeLabels": {POOL: scene.pool}, "topologyName": name}
    )
    rest.create(f"/apis/{KUEUE}/resourceflavors", flavor)
    scene.create_local_queue(queue, scene.create_cluster_queue(queue, quota(name, nominal=1000)))


def create_gang(
    scene: Scene, name: str, *, pods: int, cpus: int, annotation: str = REQUIRED, **fields: Any
) -> None:
    """Create a Job that needs one rack, or with PREFERRED would like one."""
    job = make_job(name, pods=pods, cpus=cpus, **fields)
    job["spec"]["template"]["metadata"]["annotations"][annotation] = rack_label(scene)
    scene.rest.create(scene.jobs, job)


def nodes_of(scene: Scene, job: str) -> set[str]:
    """Return the nodes that all pods of the Job are bound to, once they are."""

    def bound() -> list[Object] | None:
        pods = scene.pods_of(job)
        is_complete = len(pods) == scene.job(job)["spec"]["parallelism"]
        return pods if is_complete and all(pod["spec"].get("nodeName") for pod in pods) else None

    return {pod["spec"]["nodeName"] for pod in wait_for(bound, f"pods of {job} bound")}


def test_gangs_land_in_one_rack_each_and_the_third_waits(scene: Scene) -> None:
    for name in ("a", "b"):
        create_gang(scene, name, pods=4, cpus=12)
        scene.wait_admitted(name)

    assert len(nodes_of(scene, "a")) == 1
    assert len(nodes_of(scene, "b")) == 1
    assert nodes_of(scene, "a") != nodes_of(scene, "b")
    create_gang(scene, "c", pods=4, cpus=12)
    waiting = scene.wait_pending("c")
    assert "allows to fit only 1 out of 4 pod(s)" in waiting["message"]

    scene.delete_job("a")

    scene.wait_admitted("c")
    assert len(nodes_of(scene, "c")) == 1


def test_a_gang_larger_than_every_rack_gets_a_reason(scene: Scene) -> None:
    create_gang(scene, "huge", pods=2, cpus=40)

    says = "allows to fit only 1 out of 2 pod(s). Total nodes: 2"
    scene.wait_pending("huge", "TopologyPlacementFailed", says)


def test_the_chosen_racks_are_recorded_on_the_job(scene: Scene) -> None:
    create_racks(scene, "no-hosts", "racks", with_hosts=False)
    create_gang(scene, "one", pods=2, cpus=12, queue="racks")
    create_gang(scene, "two", pods=4, cpus=20, annotation=PREFERRED, queue="racks")

    scene.wait_admitted("one", "two")

    one, two = (scene.job(name)["spec"]["template"]["spec"] for name in ("one", "two"))
    assert one["nodeSelector"][rack_label(scene)] in ("r0", "r1")
    required = two["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    allowed = {"key": rack_label(scene), "operator": "In", "values": ["r0", "r1"]}
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [allowed]}]}
    assert len(nodes_of(scene, "one")) == 1
    assert nodes_of(scene, "two") == set(NODES)
    scene.set_active("two", active=False)
    scene.wait_workload("two", lambda found: "admission" not in found["status"], "stopped")
    wait_for(lambda: not scene.job("two")["spec"]["template"]["spec"].get("affinity"), "as it was written")


def test_a_pod_that_runs_elsewhere_is_reported(scene: Scene, real_controller: Replica) -> None:
    create_gang(scene, "gang", pods=2, cpus=12)
    scene.wait_admitted("gang")
    (node,) = nodes_of(scene, "gang")
    (other,) = set(NODES) - {node}
    counted = real_controller.metric("berth_misplaced_pods_total")
    (pod, _) = scene.pods_of("gang")
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    container = {"name": "main", "image": "none"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "name": "astray"},
        "spec": {"containers": [container], "nodeName": other, "restartPolicy": "Never"},
    }

    scene.rest.create(scene.pods, body)

    workload = scene.wait_true("gang", "berth.dev/Misplaced")
    assert f"pod astray runs on node {other}" in condition(workload, "berth.dev/Misplaced")["message"]
    scene.wait_events(workload["metadata"]["name"], "PodMisplaced")
    assert real_controller.metric("berth_misplaced_pods_total") == counted + 1


# --- static addresses ---------------------------------------------------------------------------------------


ADDRESSES, ADDRESS = "berth.dev/addresses", "berth.dev/address"
POOLS = {NODES[0]: "10.9.0.1-10.9.0.2", NODES[1]: "10.9.1.1-10.9.1.3"}


@pytest.fixture
def pools() -> Iterator[Callable[[Scene], None]]:
    """Give what lets each node offer a pool of addresses, until the test ends."""
    served: list[Scene] = []

    def offer(scene: Scene) -> None:
        served.append(scene)
        for node, pool in POOLS.items():
            scene.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {ADDRESSES: pool}}})

    yield offer
    for scene in served:
        for node in NODES:
            scene.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {ADDRESSES: None}}})


def addresses_of(scene: Scene, job: str, *, but: str = "") -> dict[str, tuple[str, str, str]]:
    """Return address, node and name of the pod of each index, once both run; `but` is one that is leaving."""

    def found() -> dict[str, tuple[str, str, str]] | None:
        pods = [pod for pod in scene.pods_of(job) if pod["metadata"]["uid"] != but]
        seen = {
            pod["metadata"]["annotations"][INDEX]: (
                pod["metadata"]["annotations"].get(ADDRESS, ""),
                pod["spec"].get("nodeName", ""),
                pod["metadata"]["uid"],
            )
            for pod in pods
        }
        return seen if len(seen) == 2 and all(node for _, node, _ in seen.values()) else None

    return wait_for(scene.patiently(found), f"pods of {job} bound")


INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.mark.covers("004_09")
def test_a_pod_that_is_created_again_has_its_address_again(
    scene: Scene, pools: Callable[[Scene], None]
) -> None:
    """Of the pool of two addresses that is taken first, and of no other node."""
    pools(scene)
    job = make_job("db", pods=2, cpus=4)
    job["metadata"]["annotations"]["berth.dev/static-address"] = "calico"
    job["spec"] |= {"completionMode": "Indexed", "backoffLimit": 6}
    job["spec"]["template"]["metadata"]["annotations"][REQUIRED] = rack_label(scene)
    scene.rest.create(scene.jobs, job)
    before = addresses_of(scene, "db")
    (node,) = {host for _, host, _ in before.values()}
    pool = node.replace("blue-", "10.9.")
    assert [before[index][0] for index in "01"] == [f"{pool}.1", f"{pool}.2"]
    (pod,) = [one for one in scene.pods_of("db") if one["metadata"]["uid"] == before["1"][2]]
    assert pod["metadata"]["annotations"]["cni.projectcalico.org/ipAddrs"] == f'["{pool}.2"]'

    scene.rest.delete(f"{scene.pods}/{pod['metadata']['name']}")

    after = addresses_of(scene, "db", but=before["1"][2])
    assert {index: after[index][:2] for index in "01"} == {index: before[index][:2] for index in "01"}
    workload = scene.workload_of("db")
    assert workload is not None
    reserved = json.loads(workload["metadata"]["annotations"][ADDRESSES])
    assert reserved == {"main": [f"{pool}.1", f"{pool}.2"]}


# --- nodes that are provisioned ----------------------------------------------------------------------------


def create_provisioned_queue(scene: Scene) -> None:
    """Create a queue whose nodes a ProvisioningRequest is to bring."""
    strategy = {"admissionChecks": [{"name": create_check(scene)}]}
    groups = quota(scene.scoped("racks"), nominal=100)
    cluster_queue = scene.create_cluster_queue("later", groups, admissionChecksStrategy=strategy)
    scene.create_local_queue("later", cluster_queue)


def label_racks(scene: Scene, *, is_there: bool) -> None:
    """Let the nodes be part of the topology, or not."""
    for number, node in enumerate(NODES):
        labels = {rack_label(scene): f"r{number}" if is_there else None}
        scene.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})


def provision(scene: Scene) -> None:
    """Say that the nodes are there, as the autoscaler does."""
    (request,) = wait_for(lambda: requests_of(scene), "a request for nodes")
    answer(scene, request["metadata"]["name"], "Provisioned")


def assigned(workload: Object) -> Object:
    """Return what the only pod set has been given."""
    (found,) = workload["status"]["admission"]["podSetAssignments"]
    return dict(found)


def test_pods_get_their_places_once_their_nodes_are_provisioned(scene: Scene) -> None:
    label_racks(scene, is_there=False)
    create_provisioned_queue(scene)

    create_gang(scene, "gang", pods=4, cpus=12, queue="later")
    workload = scene.wait_true("gang", "QuotaReserved")
    assert assigned(workload)["delayedTopologyRequest"] == "Pending"
    assert "topologyAssignment" not in assigned(workload)

    provision(scene)
    scene.wait_events(workload["metadata"]["name"], "SecondPassFailed")
    label_racks(scene, is_there=True)

    scene.wait_admitted("gang")
    assert len(nodes_of(scene, "gang")) == 1
    assert assigned(scene.wait_true("gang", "Admitted"))["delayedTopologyRequest"] == "Ready"
