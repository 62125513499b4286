"""Random clusters and Jobs of all kinds on a real control plane: no pod is refused where it was sent.

CI tries the first 40 clusters; BERTH_EXAMPLES=5 tries 200, in three minutes.

What `tests/laws/test_hardware.py` shows of functions is tried here through kube-scheduler with the extender
configuration that is shipped. A cluster is one to four nodes of random hardware with a queue of its own; ten
are there at a time, and one control plane serves all of them. Nodes are objects without a kubelet: a pod that
has a node was refused by nothing, and needs no more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.children import Child
from tests.controlplane import ControlPlane, Rest
from tests.controlplane.plane import answers
from tests.examples import factor
from tests.integration.conftest import Cluster
from tests.integration.extending import SCHEDULER, kube_scheduler, listening
from tests.integration.manifests import KUEUE, POOL, Object, condition, is_true, kueue_object, make_job
from tests.integration.replica import BERTH, Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.laws.test_hardware import ASKED, HOST, ISLANDS, NODE_LABELS

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("random-hardware")]

GPU = "nvidia.com/gpu"
# What the law tries as a value without meaning is no value of a label.
LABELS = {**NODE_LABELS, "gpu-generation": ("v100", "a100", "odd")}
CLUSTERS, AT_A_TIME, MOST_JOBS = 40 * factor(), 10, 5
# On nodes whose GPUs have 128 or 640 GB together, if it is known.
INFERENCE = tuple(
    {"berth.dev/workload-type": "inference", "berth.dev/gpu-memory-mib": mib} for mib in ("60000", "300000")
)
PROFILES = (SCHEDULER, "gpu-aware-scheduler", "cost-optimized-scheduler", "ai-scheduler")
# Ten clusters at a time begin together, on a machine that may be busy.
PATIENCE_SECONDS = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """One cluster: its namespace and the names of its nodes."""

    scene: Scene
    nodes: tuple[str, ...]


@pytest.fixture(scope="module")
def judged(
    control_plane: ControlPlane, real_controller: Replica, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    """Give the controller of a cluster whose kube-scheduler asks the extender."""
    folder = tmp_path_factory.mktemp("extender")
    arguments = [BERTH, "extender", "--kubeconfig", control_plane.kubeconfig, "--port", "0"]
    with Child(name="extender", arguments=arguments, log=folder / "extender.log") as extender:
        extender.wait_ready(lambda: bool(listening(extender)), timeout_seconds=90.0)
        extender.wait_ready(lambda: answers(Rest(listening(extender)), "/readyz"), timeout_seconds=90.0)
        with kube_scheduler(control_plane, folder, listening(extender)):
            yield real_controller


# Half a minute for ten clusters on two free cores; many times as long where others use them.
@pytest.mark.timeout(3600)
def test_no_pod_of_random_jobs_is_refused_on_the_node_that_it_was_sent_to(
    judged: Replica, real_cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    assert judged.child.is_running()
    chance, counts = random.Random(20), Counter[str]()
    for first in range(0, CLUSTERS, AT_A_TIME):
        fleets = [
            make_fleet(real_cluster, chance, number)
            for number in range(first, min(first + AT_A_TIME, CLUSTERS))
        ]
        for fleet in fleets:
            create_jobs(fleet, chance)
        for fleet in fleets:
            counts += outcome(fleet)
        for fleet in fleets:
            remove(real_cluster, fleet)

    record_property("outcomes", dict(counts))
    print(dict(counts))
    assert counts["pods"] > CLUSTERS, "some of the Jobs ran"
    assert counts["Jobs that wait"] > 0, "some of them could not"


def make_fleet(cluster: Cluster, chance: random.Random, number: int) -> Fleet:
    """Create nodes of random hardware and a queue for them."""
    scene, rest = cluster.new_scene(), cluster.rest
    pool = scene.namespace
    names = tuple(f"random-{number}-{index}" for index in range(chance.randint(1, 4)))
    for name in names:
        labels = {HOST: name, POOL: pool, **some(chance, LABELS, least=3), **chance.choice(ISLANDS)}
        create_node(rest, name, labels, cpus=chance.choice(["1", "64"]))
    flavor = scene.scoped("flavor")
    levels = [{"nodeLabel": HOST}]
    rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": flavor}, {"levels": levels}))
    spec = {"nodeLabels": {POOL: pool}, "topologyName": flavor}
    rest.create(f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": flavor}, spec))
    resources = [{"name": name, "nominalQuota": 1000} for name in ("cpu", GPU)]
    group = {"coveredResources": ["cpu", GPU], "flavors": [{"name": flavor, "resources": resources}]}
    scene.create_local_queue("main", scene.create_cluster_queue("main", group))
    return Fleet(scene=scene, nodes=names)


def create_node(rest: Rest, name: str, labels: Mapping[str, str], *, cpus: str) -> None:
    """Create a Node of eight GPUs, ready as its kubelet would report it."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    rest.create("/api/v1/nodes", node)
    room = {GPU: "8", "cpu": cpus, "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"status": {"allocatable": room, "capacity": room, "conditions": [ready]}}
    rest.patch(f"/api/v1/nodes/{name}/status", status)
    # The node controller takes its taint off, as it does for every node that has become ready.
    rest.wait(f"/api/v1/nodes/{name}", lambda found: not found["spec"].get("taints"))


def create_jobs(fleet: Fleet, chance: random.Random) -> None:
    """Create Jobs that ask for GPUs, and for random hardware on the Job, its template, or both.

    One of six is inference that uses GPU memory and requests no GPU.
    """
    for index in range(chance.randint(1, MOST_JOBS)):
        gpus = chance.choice([0, 1, 2, 3, 4, 8])
        asked: Object = {"limits": {GPU: gpus}} if gpus else {"requests": {"cpu": "100m"}}
        container = {"name": "main", "image": "none", "resources": asked}
        body = make_job(
            f"job-{index}",
            pods=chance.randint(1, 4),
            annotations=some(chance, ASKED) if chance.random() < 0.5 else {},
            schedulerName=chance.choice(PROFILES),
            containers=[container],
        )
        metadata = body["spec"]["template"]["metadata"]
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            **some(chance, ASKED),
            **({} if gpus else chance.choice(INFERENCE)),
        }
        metadata["labels"] = some(chance, ASKED)
        fleet.scene.rest.create(fleet.scene.jobs, body)


def some(chance: random.Random, values: Mapping[str, tuple[str, ...]], *, least: int = 0) -> dict[str, str]:
    """Return some of the keys, each with one of its values."""
    chosen = chance.sample(sorted(values), chance.randint(least, len(values) if least else 3))
    return {key: chance.choice(values[key]) for key in chosen}


def outcome(fleet: Fleet) -> Counter[str]:
    """Return what became of the Jobs once each waits or has all of its pods on nodes.

    Raises AssertionError for a pod that kube-scheduler or the extender has refused.
    """
    scene = fleet.scene
    jobs = scene.rest.get(scene.jobs)["items"]

    def settled() -> list[Object]:
        found = [scene.workload_of(job["metadata"]["name"]) for job in jobs]
        return [one for one in found if one is not None and is_decided(scene, one)]

    try:
        wait_for(lambda: len(settled()) == len(jobs), "decisions", timeout_seconds=PATIENCE_SECONDS)
    finally:
        assert refusals(scene) == []
    pods = scene.rest.get(scene.pods)["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} <= {*fleet.nodes}
    admitted = sum(is_true(one, "Admitted") for one in settled())
    return Counter({"Jobs": len(jobs), "Jobs that wait": len(jobs) - admitted, "pods": len(pods)})


def is_decided(scene: Scene, workload: Object) -> bool:
    """Return whether the Workload waits for something, or runs with all of its pods on nodes."""
    if not is_true(workload, "Admitted"):
        return condition(workload, "QuotaReserved").get("status") == "False"
    (assignment,) = workload["status"]["admission"]["podSetAssignments"]
    job = workload["metadata"]["ownerReferences"][0]["name"]
    bound = [pod for pod in scene.pods_of(job) if pod["spec"].get("nodeName")]
    return len(bound) == int(assignment["count"])


def refusals(scene: Scene) -> list[str]:
    """Return what kube-scheduler says of pods that it could not place."""
    events = scene.rest.get(scene.events)["items"]
    return [
        f"{one['regarding']['name']}: {one['note']}" for one in events if one["reason"] == "FailedScheduling"
    ]


def remove(cluster: Cluster, fleet: Fleet) -> None:
    """Remove the Jobs and the nodes, which the next clusters have others of."""
    fleet.scene.rest.delete(fleet.scene.jobs, {"propagationPolicy": "Background"})
    for name in fleet.nodes:
        cluster.rest.delete(f"/api/v1/nodes/{name}")
