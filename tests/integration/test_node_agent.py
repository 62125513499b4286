"""`berth node-agent` as a process, with a machine with GPUs, a kubelet and an API server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.admission.node_agent.machine import Machine
from tests.children import Child
from tests.controlplane import Rest
from tests.forks import ForkedChild
from tests.integration.conftest import Cluster
from tests.integration.replica import BERTH
from tests.integration.waiting import wait_for
from tests.kubelet import GPU, KubeletStandin, KubeletThread, pod_resources

pytestmark = pytest.mark.xdist_group("node-agent")

MODEL, NUMA = "nvidia.com/gpu.product", "nvidia.com/gpu.numa"
ISLAND, TOPOLOGY = "berth.dev/nvlink-island.", "nvidia.com/gpu-topology"
IDS = "berth.dev/gpu-ids"
SWITCHED = {
    MODEL: "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.family": "hopper",
    TOPOLOGY: "nvswitch",
    "gpu-interconnect": "nvlink",
    f"{ISLAND}0": "0-7",
    NUMA: "0",
}
SOCKET = "kubelet.sock"
TWO_SOCKETS = {gpu: gpu // 4 for gpu in range(8)}


class Agent:
    """A `berth node-agent` of one node, with its machine and kubelet."""

    def __init__(self, kubeconfig: str, node: str, folder: Path, kubelet: KubeletStandin) -> None:
        self.machine = Machine(folder / "machine")
        self.kubelet = kubelet
        flags = {
            "--kubeconfig": kubeconfig,
            "--node": node,
            "--nvidia-smi": self.machine.nvidia_smi,
            "--sys": str(self.machine.sys_root),
            "--kubelet-socket": str(folder / SOCKET),
            "--devices-seconds": "0.5",
            "--pods-seconds": "0.5",
            "--port": "0",
        }
        arguments = [BERTH, "node-agent", *(word for pair in flags.items() for word in pair)]
        self.child = ForkedChild(name="node-agent", arguments=arguments, log=folder / "agent.log")

    @property
    def children(self) -> tuple[Child, ...]:
        """The process, whose log is shown with a failure."""
        return (self.child,)

    def log(self) -> str:
        """Return what it has printed."""
        return self.child.log.read_text() if self.child.log.exists() else ""

    def ready(self) -> tuple[int, dict[str, Any]]:
        """Return the status and body of /readyz."""
        (line,) = (line for line in self.log().splitlines() if line.startswith("{"))
        try:
            with urllib.request.urlopen(f"{json.loads(line)['health']}/readyz", timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A node with an agent that is to be started, and pods on it."""

    rest: Rest
    node: str
    namespace: str
    agent: Agent

    def labels(self) -> dict[str, str]:
        """Return the labels of the node about GPUs."""
        found = self.rest.get(f"/api/v1/nodes/{self.node}")["metadata"].get("labels", {})
        return {key: value for key, value in found.items() if key != "kubernetes.io/hostname"}

    def create_pod(self, name: str, **annotations: str) -> None:
        """Create a pod that is bound to the node."""
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": self.node, "containers": [{"name": "c", "image": "none"}]},
        }
        self.rest.create(f"/api/v1/namespaces/{self.namespace}/pods", body)

    def ids(self, name: str) -> str | None:
        """Return the GPU ids in the annotation of a pod."""
        pod = self.rest.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        return (pod["metadata"].get("annotations") or {}).get(IDS)

    def assign(self, **devices: list[str]) -> None:
        """Have the kubelet give devices to pods."""
        entries = (pod_resources(self.namespace, name, [{GPU: ids}]) for name, ids in devices.items())
        self.agent.kubelet.assign(*entries)


@pytest.fixture
def world(cluster: Cluster, tmp_path: Path) -> Iterator[World]:
    """Give a node of its own with 8 GPUs behind a switch, whose agent has not started yet."""
    namespace = cluster.new_scene().namespace
    node = f"gpu-{namespace}"
    cluster.rest.create("/api/v1/nodes", {"metadata": {"name": node}})
    with KubeletThread(str(tmp_path / SOCKET)) as kubelet:
        agent = Agent(cluster.kubeconfig, node, tmp_path, kubelet)
        agent.machine.become("nvswitch", TWO_SOCKETS)
        yield World(rest=cluster.rest, node=node, namespace=namespace, agent=agent)
        agent.child.kill()
    cluster.rest.delete(f"/api/v1/nodes/{node}")


def start(world: World) -> None:
    """Start the agent; return when the node has the labels of its machine."""
    world.agent.child.start()
    world.agent.child.wait_ready(lambda: MODEL in world.labels(), timeout_seconds=90.0)


@pytest.mark.covers("001_03", "000_26")
def test_a_node_is_labelled_by_its_gpus_and_the_labels_follow_them(world: World) -> None:
    start(world)
    assert world.labels() == SWITCHED

    gpus = world.agent.machine.become("pcie", {0: 1, 1: 1, 2: 1, 3: 1})

    want = {
        MODEL: "Tesla-T4",
        "nvidia.com/gpu.memory": "15109",
        TOPOLOGY: "pcie",
        "gpu-interconnect": "pcie",
        NUMA: "1",
    }
    wait_for(lambda: world.labels() == want, "the labels of another machine")
    assert len(gpus) == 4


@pytest.mark.covers("001_11", "001_13")
def test_pods_say_which_gpus_they_have_and_the_numa_label_follows(world: World) -> None:
    gpus = world.agent.machine.become("nvswitch", TWO_SOCKETS)
    world.create_pod("early")
    world.assign(early=[gpus[2].uuid, gpus[0].uuid])
    start(world)
    wait_for(lambda: world.ids("early") == "0,2", "ids of a pod that ran before the agent")
    wait_for(lambda: world.labels().get(NUMA) == "1", "the NUMA node with more free GPUs")

    world.create_pod("late")
    world.create_pod("forged", **{IDS: "7"})
    world.assign(early=[gpus[2].uuid, gpus[0].uuid], late=[gpus[5].uuid], forged=[])

    wait_for(lambda: world.ids("late") == "5", "ids of a pod that came later")
    wait_for(lambda: world.ids("forged") is None, "no ids on a pod without GPUs")
    assert world.ids("early") == "0,2"


def test_nothing_is_written_while_nothing_changes(world: World) -> None:
    start(world)
    path = f"/api/v1/nodes/{world.node}"
    version = world.rest.get(path)["metadata"]["resourceVersion"]
    calls, asked = world.agent.machine.calls(), world.agent.kubelet.asked

    wait_for(lambda: world.agent.machine.calls() >= calls + 6, "three more readings of the GPUs")
    wait_for(lambda: world.agent.kubelet.asked >= asked + 3, "three more questions to the kubelet")

    assert world.rest.get(path)["metadata"]["resourceVersion"] == version


def test_a_driver_that_breaks_is_named_once_and_takes_the_labels_away(world: World) -> None:
    start(world)
    world.agent.machine.fail("mismatch", 18)

    wait_for(lambda: MODEL not in world.labels(), "no label of GPUs that do not answer")
    assert world.labels() == {}
    status, body = world.agent.ready()
    assert status == 503
    (fault,) = body["faults"]
    assert fault.startswith("nvidia-smi -q -x failed with exit code 18: Failed to initialize NVML")
    wait_for(lambda: fault in notes(world), "an Event about the node")
    calls = world.agent.machine.calls()
    wait_for(lambda: world.agent.machine.calls() >= calls + 3, "three more readings that fail")
    assert world.agent.log().count("Driver/library version mismatch") == 1

    world.agent.machine.become("nvswitch", TWO_SOCKETS)

    wait_for(lambda: world.labels() == SWITCHED, "the labels after the driver was repaired")
    wait_for(lambda: world.agent.ready()[0] == 200, "an agent that is ready again")
    assert "fault_ended subject=driver" in world.agent.log()


def test_a_lost_gpu_leaves_the_labels_of_the_others(world: World) -> None:
    world.agent.machine.become("lost", TWO_SOCKETS)
    start(world)

    assert world.labels() == {
        MODEL: "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.memory": "40960",
        "nvidia.com/gpu.family": "ampere",
        NUMA: "0",
    }
    wait_for(lambda: "GPU 2 at 0000:47:00.0 does not answer: GPU is lost" in notes(world), "an Event")


def test_a_label_of_an_administrator_stays_and_is_named_once(world: World) -> None:
    path = f"/api/v1/nodes/{world.node}"
    world.rest.patch(path, {"metadata": {"labels": {TOPOLOGY: "nvlink"}}})
    start(world)

    assert world.labels() == SWITCHED | {TOPOLOGY: "nvlink"}
    calls = world.agent.machine.calls()
    wait_for(lambda: world.agent.machine.calls() >= calls + 6, "three more readings")
    assert world.agent.log().count("by another writer") == 1


def test_without_a_kubelet_the_labels_are_written_and_the_fault_is_named(world: World) -> None:
    arguments = [*world.agent.child.arguments, "--kubelet-socket", "/nowhere/kubelet.sock"]
    world.agent.child.arguments = arguments
    start(world)

    assert world.labels() == SWITCHED
    wait_for(lambda: any("/nowhere/kubelet.sock" in note for note in notes(world)), "an Event")


def test_it_ends_cleanly_and_the_labels_stay(world: World) -> None:
    start(world)

    world.agent.child.stop()

    assert world.agent.child.wait(10) == 0
    assert world.labels() == SWITCHED


def test_a_node_that_the_cluster_does_not_have_ends_it_with_one_line(world: World) -> None:
    arguments = [word if word != world.node else "absent" for word in world.agent.child.arguments]
    world.agent.child.arguments = arguments
    world.agent.child.start()

    assert world.agent.child.wait(60) == 3
    assert 'nodes "absent" not found' in world.agent.log()


def notes(world: World) -> list[str]:
    """Return the notes of all Events about the node."""
    events = world.rest.get("/apis/events.k8s.io/v1/events")["items"]
    return [one["note"] for one in events if one.get("regarding", {}).get("name") == world.node]
