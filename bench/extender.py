"""Latency of the scheduler extender: `python -m bench.extender [--nodes 5000]`.

`berth extender` runs in a process of its own against the embedded API server. This process acts as
kube-scheduler and sends one request after another, as kube-scheduler does for one pod after another. A
request holds either node names (nodeCacheCapable) or whole nodes of about 4 KiB, as a kubelet with GPU labels
reports them. The output is p50 and p99, time on the wire included, and the extender's CPU time per request,
which a busy machine affects less. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.embedded.server import EmbeddedServer
from bench.processes import cost_of

BERTH = str(Path(sys.executable).with_name("berth"))
_MODELS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3")
# The p99 in milliseconds that the design requires.
_TARGETS = {"names": 5.0, "nodes": 40.0}
_WARM_UP = 5
_START_SECONDS = 60.0


def node_object(number: int) -> dict[str, Any]:
    """Return a node as large as real ones: most of it images and labels that the extender does not read."""
    labels = {f"feature.node.kubernetes.io/cpu-flag.{n}": "true" for n in range(30)}
    labels["nvidia.com/gpu.product"] = _MODELS[number % 2]
    labels["nvidia.com/gpu.numa"] = str(number // 2 % 2)
    images = [
        {"names": [f"registry.example.com/team/image-{n}:{'0' * 40}"], "sizeBytes": n} for n in range(15)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number:05}", "labels": labels},
        "spec": {"providerID": f"example:///{number}"},
        "status": {"allocatable": {"cpu": "96", "nvidia.com/gpu": "8"}, "images": images},
    }


async def create_nodes(kubeconfig: str, nodes: list[dict[str, Any]]) -> None:
    """Create the nodes, several at a time."""
    bodies = iter([json.dumps(node).encode() for node in nodes])

    async def work(client: KubeClient) -> None:
        for body in bodies:
            await client.create(resources.NODES, body)

    async with await KubeClient.connect(kubeconfig) as client, asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(work(client))


@contextmanager
def extender(kubeconfig: str) -> Iterator[tuple[str, int]]:
    """Run `berth extender`; yield its URL and its process id."""
    command = [BERTH, "extender", "--kubeconfig", kubeconfig, "--port", "0", "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["extender"], process.pid
        finally:
            process.terminate()


def wait_ready(url: str) -> None:
    """Return when the extender has read all nodes. Raises TimeoutError after `_START_SECONDS`."""
    deadline = time.monotonic() + _START_SECONDS
    while ask(url, "GET", "/readyz", b"")[0] != 200:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{url} is not ready")
        time.sleep(0.1)


def ask(url: str, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """Send one request on a connection of its own. Return the status and the body."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_START_SECONDS)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def measure(url: str, path: str, body: bytes, count: int) -> list[float]:
    """Return the times of `count` requests on one connection, in milliseconds, sorted."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_START_SECONDS)
    taken = []
    for _ in range(count + _WARM_UP):
        began = time.perf_counter()
        connection.request("POST", path, body)
        answer = connection.getresponse()
        answer.read()
        taken.append((time.perf_counter() - began) * 1000)
        assert answer.status == 200
    connection.close()
    return sorted(taken[_WARM_UP:])


def report(url: str, pid: int, nodes: list[dict[str, Any]]) -> None:
    """Measure both verbs with names and with whole nodes, and print a line for each."""
    metadata = {
        "name": "p",
        "namespace": "team",
        "labels": {"accelerator.sched.io/gpu-model": _MODELS[0]},
    }
    containers = [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    pod = {"metadata": metadata, "spec": {"containers": containers}}
    names = [node["metadata"]["name"] for node in nodes]
    # kube-scheduler sends nodes without apiVersion and kind.
    whole = [{part: node[part] for part in ("metadata", "spec", "status")} for node in nodes]
    bodies = {
        "names": _as_go({"Pod": pod, "Nodes": None, "NodeNames": names}),
        "nodes": _as_go({"Pod": pod, "Nodes": {"metadata": {}, "items": whole}, "NodeNames": None}),
    }
    for sent, count in (("names", 400), ("nodes", 100)):
        for path in ("/filter", "/prioritize"):
            spent = cost_of(pid).cpu_seconds
            taken = measure(url, path, bodies[sent], count)
            cpu = (cost_of(pid).cpu_seconds - spent) * 1000 / (count + _WARM_UP)
            p50, p99 = statistics.median(taken), taken[int(len(taken) * 0.99) - 1]
            print(
                f"{path:12} {len(nodes):6} {sent}  {len(bodies[sent]) / 1024:9,.0f} KiB  CPU {cpu:5.1f} ms"
                f"  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  (wanted: at most {_TARGETS[sent]:.0f} ms)",
                flush=True,
            )


def _as_go(value: object) -> bytes:
    """Return the value as JSON without spaces, as Go writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def ask_extender(kubeconfig: str, nodes: list[dict[str, Any]]) -> None:
    """Start the extender and print its figures."""
    with extender(kubeconfig) as (url, pid):
        wait_ready(url)
        report(url, pid, nodes)


async def main(count: int) -> None:
    """Create the cluster and measure."""
    nodes = [node_object(number) for number in range(count)]
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        kubeconfig = str(Path(folder, "kubeconfig"))
        async with EmbeddedServer() as server:
            server.write_kubeconfig(kubeconfig)
            await create_nodes(kubeconfig, nodes)
            # In a thread, because this thread serves the API server.
            await asyncio.to_thread(ask_extender, kubeconfig, nodes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    asyncio.run(main(parser.parse_args().nodes))
