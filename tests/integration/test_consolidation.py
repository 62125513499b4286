"""A policy's consolidation, end to end: a running Job is moved, and both it and the gang run in the end.

Two racks of two nodes, each with one node taken; the gang needs a rack.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.integration.manifests import KUEUE, POOL, Object, kueue_object, make_job, quota
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("consolidation")

HOST = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
RACK = "test.berth.dev/rack"
PRICE = "node-cost-per-hour"
POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"


@pytest.fixture
def scene(embedded_controller: Replica, embedded_scene: Scene) -> Iterator[Scene]:
    """Give a queue on two racks of two nodes of 8 GPUs, that never preempts, under a policy that moves."""
    assert embedded_controller.child.is_running()
    rest, name = embedded_scene.rest, embedded_scene.scoped("racks")
    for number, node in enumerate(
        sorted(one["metadata"]["name"] for one in rest.get("/api/v1/nodes")["items"])
    ):
        rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {RACK: f"r{number // 2}", PRICE: "80"}}})
    levels = [{"nodeLabel": label} for label in (RACK, HOST)]
    rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, {"levels": levels}))
    flavor = {"nodeLabels": {POOL: embedded_scene.pool}, "topologyName": name}
    rest.create(f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": name}, flavor))
    queue = embedded_scene.create_cluster_queue("gpus", quota(name, GPU, 32))
    policy = {"clusterQueues": {"names": [queue]}, "placement": {"consolidation": {"minWaitingSeconds": 0}}}
    body = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": name}}
    rest.create(POLICIES, {**body, "spec": policy})
    rest.wait(f"{POLICIES}/{name}", lambda found: found.get("status", {}).get("clusterQueues") == [queue])
    embedded_scene.create_local_queue("main", queue)
    yield embedded_scene
    rest.delete(f"{POLICIES}/{name}")


def create_job(scene: Scene, name: str, *, pods: int = 1, rack: bool = False, **labels: str) -> None:
    """Create a Job whose pods take a whole node each."""
    job = make_job(name, pods=pods, labels=labels)
    resources = {"requests": {GPU: 8}, "limits": {GPU: 8}}
    template = job["spec"]["template"]
    template["spec"]["containers"][0]["resources"] = resources
    if rack:
        template["metadata"]["annotations"][REQUIRED] = RACK
    scene.rest.create(scene.jobs, job)


def nodes_of(scene: Scene, job: str) -> set[str]:
    """Return the nodes of the Job's pods, once all of them are on some."""

    def bound() -> set[str] | None:
        pods: list[Object] = [
            pod for pod in scene.pods_of(job) if not pod["metadata"].get("deletionTimestamp")
        ]
        names = {pod["spec"].get("nodeName") for pod in pods}
        return names if len(pods) == scene.job(job)["spec"]["parallelism"] and all(names) else None

    return wait_for(scene.patiently(bound), f"pods of {job} bound")


def _is_gone(scene: Scene, job: str) -> bool:
    return not scene.workloads_of(job)


def test_a_running_job_is_moved_for_a_gang_and_both_run(scene: Scene, embedded_controller: Replica) -> None:
    racks: dict[str, list[str]] = {}
    before = {}
    for name in ("a", "b", "c", "d"):
        create_job(scene, name)
        scene.wait_admitted(name)
        (node,) = before[name] = nodes_of(scene, name)
        labels = scene.rest.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]
        racks.setdefault(labels[RACK], []).append(name)
    # All four nodes are taken; one in each rack comes free.
    for name in (of_rack[0] for of_rack in racks.values()):
        scene.delete_job(name)
        wait_for(scene.patiently(partial(_is_gone, scene, name)), f"{name} gone")
        del before[name]

    label = {"kueue.x-k8s.io/priority-class": scene.create_priority("high", 5)}
    create_job(scene, "gang", pods=2, rack=True, **label)
    scene.wait_admitted("gang", *before)

    after = {name: nodes_of(scene, name) for name in before}
    gang = nodes_of(scene, "gang")
    assert len(gang) == 2
    assert not gang & set().union(*after.values())
    (moved,) = [name for name in before if before[name] != after[name]]
    name = scene.wait_workload(moved)["metadata"]["name"]
    wait_for(
        lambda: any("there is another place for this workload" in note for note in scene.notes_about(name)),
        f"an Event that {moved} was moved",
    )
    queue = scene.scoped("gpus")
    wait_for(
        lambda: (
            embedded_controller.metric(
                "kueue_preempted_workloads_total", preempting_cluster_queue=queue, reason="Consolidation"
            )
            == 1
        ),
        "the move is counted",
    )
    # Its node costs 80 an hour and has eight devices.
    labels = {"cluster_queue": queue, "reason": "Preempted"}
    seconds = embedded_controller.metric("berth_evicted_device_seconds_lost_total", **labels)
    cost = embedded_controller.metric("berth_evicted_cost_lost_total", **labels)
    assert seconds > 0
    assert cost == pytest.approx(seconds * 10 / 3600)
