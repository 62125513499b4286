"""Simulated nodes of a real cluster: Berth's kubelet stand-in in a process of its own.

`python -m tests.integration.nodes KUBECONFIG POOL:COUNT:CPUS ...` serves the nodes until it is ended; with
`--fabric` in place of a pool, those of `fabric_nodes`, and with `--models` those of `model_nodes`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from api.kube.client import KubeClient
from api.kube.embedded.standins.kubelet import NodeSpec
from api.kube.embedded.standins.standins import StandIns
from tests.children import Child
from tests.forks import ForkedChild
from tests.integration.manifests import POOL

SPINE, LEAF = "test.berth.dev/spine", "test.berth.dev/leaf"
SPINES, LEAVES, NODES_A_LEAF, GPUS_A_NODE = 2, 16, 4, 8
FABRIC, MODELS = "--fabric", "--models"


@contextmanager
def simulated_nodes(kubeconfig: str, folder: Path, *pools: str) -> Iterator[Child]:
    """Serve pools of nodes, each given as POOL:COUNT:CPUS, as FABRIC or as MODELS, while the block runs."""
    arguments = [sys.executable, "-m", __name__, kubeconfig, *pools]
    with ForkedChild(name="simulated-nodes", arguments=arguments, log=folder / "nodes.log") as child:
        child.wait_ready(lambda: "ready" in child.log.read_text(), timeout_seconds=180.0)
        yield child
        child.stop()


def pool_nodes(text: str) -> Iterator[NodeSpec]:
    """Yield the nodes `<pool>-0` … of one POOL:COUNT:CPUS."""
    pool, count, cpus = text.split(":")
    allocatable = {"cpu": cpus, "memory": "64Gi"}
    for number in range(int(count)):
        yield NodeSpec(name=f"{pool}-{number}", allocatable=allocatable, labels={POOL: pool})


def fabric_nodes() -> Iterator[NodeSpec]:
    """Yield the nodes `leaf-3-2` … of two spines of eight leaves of four nodes of eight GPUs."""
    allocatable = {"cpu": "64", "memory": "64Gi", "nvidia.com/gpu": str(GPUS_A_NODE)}
    for leaf in range(LEAVES):
        place = {POOL: "fabric", SPINE: f"spine-{leaf * SPINES // LEAVES}", LEAF: f"leaf-{leaf}"}
        for number in range(NODES_A_LEAF):
            yield NodeSpec(name=f"leaf-{leaf}-{number}", allocatable=allocatable, labels=place)


def model_nodes() -> Iterator[NodeSpec]:
    """Yield two empty nodes of eight GPUs: `v100` and `a100`, in the order of their names' placement."""
    allocatable = {"cpu": "64", "memory": "64Gi", "nvidia.com/gpu": str(GPUS_A_NODE)}
    for name in ("v100", "a100"):
        labels = {POOL: "models", "nvidia.com/gpu.product": name.upper()}
        yield NodeSpec(name=f"gpu-{name}", allocatable=allocatable, labels=labels)


def _nodes(text: str) -> Iterator[NodeSpec]:
    if text == MODELS:
        return model_nodes()
    return fabric_nodes() if text == FABRIC else pool_nodes(text)


async def serve(kubeconfig: str, nodes: Sequence[NodeSpec]) -> None:
    """Serve the nodes until cancelled; prints `ready` when all are registered."""
    async with await KubeClient.connect(kubeconfig) as client, asyncio.TaskGroup() as group:
        stand_ins = StandIns(client, nodes=nodes, job_controller=False, scheduler=False)
        group.create_task(stand_ins.run(), name="stand-ins")
        await stand_ins.wait_ready()
        print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], [node for text in sys.argv[2:] for node in _nodes(text)]))
