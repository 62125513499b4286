"""An extender on a small cluster, and the requests that kube-scheduler sends to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from admission.controller.cluster_state.node_pod_watch import NodePodWatch
from admission.controller.http.extender import Extender, render_error
from api.http.server import HttpServer
from api.kube import resources
from api.kube.client import KubeClient
from tests.admission.controller.fakes import FakeClock

Object = dict[str, Any]

A100, V100 = "NVIDIA-A100-SXM4-80GB", "Tesla-V100-PCIE-16GB"
MODEL, NUMA, FABRIC, JOB = (
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.numa",
    "nvlink-fabric-id",
    "training-job-id",
)
PATIENCE_SECONDS = 30.0


def node_object(name: str, **labels: str) -> Object:
    """Return a node; `model`, `numa` and `fabric` become its labels."""
    words = {"model": MODEL, "numa": NUMA, "fabric": FABRIC}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {words[key]: value for key, value in labels.items()}},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "8"}},
    }


# The cluster of the article's acceptance test.
THREE_NODES = (
    node_object("node-a", model=A100, numa="0"),
    node_object("node-b", model=A100, numa="1"),
    node_object("node-c", model=V100, numa="0"),
)


def pod_object(name: str = "p", **given: Any) -> Object:
    """Return a pod. `model`, `numa`, `job` and `gpus` are what it asks for, `node` is where it is bound."""
    labels = {key: given[word] for word, key in (("model", WANTED), ("job", JOB)) if word in given}
    annotations = {"berth.dev/numa-node": given["numa"]} if "numa" in given else {}
    limits = {"nvidia.com/gpu": given["gpus"]} if "gpus" in given else {}
    spec: Object = {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}
    if "node" in given:
        spec["nodeName"] = given["node"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": given.get("namespace", "default"),
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }


WANTED = "accelerator.sched.io/gpu-model"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    content_type: str
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode().strip()

    @property
    def json(self) -> Any:
        """The body decoded."""
        return json.loads(self.body)


class Served:
    """An extender that listens, and the cluster it watches."""

    def __init__(self, extender: Extender, server: HttpServer, client: KubeClient) -> None:
        self.extender = extender
        self.url = server.url
        self.port = server.port
        self._client = client

    async def post(self, path: str, body: object) -> Answer:
        """Send `body`: bytes as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with aiohttp.ClientSession() as session, session.post(self.url + path, data=data) as answer:
            return Answer(answer.status, answer.headers["Content-Type"], await answer.read())

    async def get(self, path: str) -> Answer:
        """Ask for a page."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return Answer(answer.status, answer.headers["Content-Type"], await answer.read())

    async def filter(self, pod: Object, nodes: Iterable[Object]) -> Any:
        """Filter whole nodes as kube-scheduler does; return the answer."""
        answer = await self.post("/filter", whole(pod, nodes))
        assert answer.status == 200, answer.text
        return answer.json

    async def scores(self, pod: Object, *names: str) -> Mapping[str, int]:
        """Prioritize nodes by name; return the scores, having seen that there is one for each in order."""
        answer = await self.post("/prioritize", {"Pod": pod, "Nodes": None, "NodeNames": names})
        assert answer.status == 200, answer.text
        assert [one["host"] for one in answer.json] == list(names)
        return {one["host"]: one["score"] for one in answer.json}

    async def bind(self, pod: Object) -> None:
        """Put a pod on its node, and wait until the extender knows."""
        namespace, job = pod["metadata"]["namespace"], pod["metadata"]["labels"][JOB]
        await self._client.create(resources.PODS, msgspec.json.encode(pod), namespace)
        node = pod["spec"]["nodeName"]
        await self.until(lambda jobs: node in jobs.get((namespace, job), ()))

    async def end(self, pod: Object) -> None:
        """Delete a pod, and wait until the extender knows."""
        metadata = pod["metadata"]
        await self._client.delete(
            resources.PODS, metadata["name"], metadata["namespace"], grace_period_seconds=0
        )
        key = (metadata["namespace"], metadata["labels"][JOB])
        await self.until(lambda jobs: pod["spec"]["nodeName"] not in jobs.get(key, ()))

    async def training_jobs(self) -> dict[tuple[str, str], dict[str, int]]:
        """Return where training jobs are, as the extender shows it."""
        items = (await self.get("/v1/trainingjobs")).json["items"]
        return {(item["namespace"], item["id"]): item["nodes"] for item in items}

    async def until(self, is_reached: Callable[[dict[tuple[str, str], dict[str, int]]], bool]) -> None:
        """Wait until the extender's training jobs are as wanted."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_reached(await self.training_jobs()):
                await asyncio.sleep(0.01)


def whole(pod: Object, nodes: Iterable[Object]) -> Object:
    """Return the arguments that carry whole nodes."""
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


@asynccontextmanager
async def serving(kubeconfig: str, nodes: Iterable[Object] = (), **given: Any) -> AsyncIterator[Served]:
    """Create the nodes and run an extender beside them until it has synced; `given` goes to its making."""
    async with await KubeClient.connect(kubeconfig) as client:
        for node in nodes:
            await client.create(resources.NODES, msgspec.json.encode(node))
        watch = NodePodWatch(client, given.pop("on_error", raise_error))
        extender = Extender(watch, FakeClock(), **given)
        routes = [*extender.routes(), *extender.state_routes()]
        async with HttpServer(routes, render_error=render_error) as server:
            task = asyncio.create_task(watch.run())
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await watch.nodes.synced.wait()
                    await watch.pods.synced.wait()
                yield Served(extender, server, client)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def raise_error(resource: object, error: Exception) -> None:
    """Fail the test: no watch of it may fail."""
    raise AssertionError(f"{resource}: {error}")
