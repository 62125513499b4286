"""Simulated nodes of a real cluster: Berth's kubelet stand-in in a process of its own.

`python -m tests.integration.nodes KUBECONFIG POOL:COUNT:CPUS ...` serves the nodes until it is ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from api.kube.client import KubeClient
from api.kube.embedded.standins import NodeSpec, StandIns
from tests.children import Child
from tests.integration.manifests import POOL


@contextmanager
def simulated_nodes(kubeconfig: str, folder: Path, *pools: str) -> Iterator[Child]:
    """Serve pools of nodes, each given as POOL:COUNT:CPUS, while the block runs."""
    arguments = [sys.executable, "-m", __name__, kubeconfig, *pools]
    with Child(name="simulated-nodes", arguments=arguments, log=folder / "nodes.log") as child:
        child.wait_ready(lambda: "ready" in child.log.read_text(), timeout_seconds=30.0)
        yield child
        child.stop()


def pool_nodes(text: str) -> Iterator[NodeSpec]:
    """Yield the nodes `<pool>-0` … of one POOL:COUNT:CPUS."""
    pool, count, cpus = text.split(":")
    allocatable = {"cpu": cpus, "memory": "64Gi"}
    for number in range(int(count)):
        yield NodeSpec(name=f"{pool}-{number}", allocatable=allocatable, labels={POOL: pool})


async def serve(kubeconfig: str, nodes: Sequence[NodeSpec]) -> None:
    """Serve the nodes until cancelled; prints `ready` when all are registered."""
    async with await KubeClient.connect(kubeconfig) as client, asyncio.TaskGroup() as group:
        stand_ins = StandIns(client, nodes=nodes, job_controller=False, scheduler=False)
        group.create_task(stand_ins.run(), name="stand-ins")
        await stand_ins.wait_ready()
        print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], [node for text in sys.argv[2:] for node in pool_nodes(text)]))
