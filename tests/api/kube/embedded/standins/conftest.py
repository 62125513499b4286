"""A small cluster to run Jobs on: the embedded server with all simulated parts, or a real control plane."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.kube.client import KubeClient
from api.kube.embedded.server import EmbeddedServer
from api.kube.embedded.standins.kubelet import NodeSpec
from api.kube.embedded.standins.standins import StandIns
from api.kube.errors import NotFound
from api.kube.resources import JOBS, NODES, PODS, Resource

GPU = "nvidia.com/gpu"
PATIENCE_SECONDS = 60.0
# At this speed a pod of ten seconds runs for half a second, which leaves time to act on it while it runs.
SPEED = 20.0

JsonObject = dict[str, Any]


@dataclass(slots=True)
class Cluster:
    """A cluster of two nodes with four GPUs each, and a namespace."""

    client: KubeClient
    stand_ins: StandIns
    namespace: str
    nodes: tuple[str, str]

    @property
    def selector(self) -> dict[str, str]:
        """Return the node selector that keeps this test's pods on its own nodes."""
        return {"pool": self.namespace}

    def job(
        self, name: str, *, seconds: float = 10.0, exit_code: int = 0, gpus: int = 1, **spec: Any
    ) -> JsonObject:
        """Return the body of a Job whose pods run for the given time and then exit with `exit_code`."""
        annotations = {
            "berth.dev/simulated-runtime-seconds": str(seconds),
            "berth.dev/simulated-exit-code": str(exit_code),
        }
        amounts = {"cpu": "1", GPU: str(gpus)}
        container = {
            "name": "c",
            "image": "none",
            "resources": {"requests": amounts, "limits": {GPU: str(gpus)}},
        }
        template = {
            "metadata": {"annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": self.selector,
                "terminationGracePeriodSeconds": 5,
                "containers": [container],
            },
        }
        return {"metadata": {"name": name}, "spec": {"template": template, **spec}}

    async def create(self, job: JsonObject) -> None:
        """Create a Job."""
        await self.client.create(JOBS, json.dumps(job).encode(), self.namespace)

    async def patch(self, name: str, **spec: Any) -> None:
        """Change a Job's spec."""
        await self.client.merge_patch(JOBS, name, json.dumps({"spec": spec}).encode(), self.namespace)

    async def get(self, resource: Resource, name: str) -> JsonObject:
        """Return an object."""
        namespace = self.namespace if resource.namespaced else None
        found: JsonObject = json.loads(await self.client.get(resource, name, namespace))
        return found

    async def pods(self) -> list[JsonObject]:
        """Return all pods of the namespace."""
        listed = json.loads(await self.client.request("GET", PODS.path(self.namespace)))
        found: list[JsonObject] = listed["items"]
        return found

    async def wait_job(self, name: str, holds: Callable[[JsonObject], bool]) -> JsonObject:
        """Return the Job once `holds` returns true for it."""
        job: JsonObject = await self.wait(lambda: self.get(JOBS, name), holds)
        return job

    async def wait_pods(self, holds: Callable[[list[JsonObject]], bool]) -> list[JsonObject]:
        """Return the namespace's pods once `holds` returns true for them."""
        pods: list[JsonObject] = await self.wait(self.pods, holds)
        return pods

    async def wait_gone(self, name: str) -> None:
        """Return once the Job is deleted: a foreground deletion keeps it until its last pod is deleted."""

        async def look() -> JsonObject | None:
            try:
                return await self.get(JOBS, name)
            except NotFound:
                return None

        await self.wait(look, lambda job: job is None)

    async def wait(self, look: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
        """Return the result of `look` once `holds` returns true for it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(found := await look()):
            assert time.monotonic() < deadline, (
                f"not within {PATIENCE_SECONDS:g} s: {json.dumps(found)[:3000]}"
            )
            await asyncio.sleep(0.05)
        return found


def has(job: JsonObject, type_: str) -> bool:
    """Whether a Job's condition of this type is True."""
    conditions = job["status"].get("conditions", ())
    return any(each["type"] == type_ and each["status"] == "True" for each in conditions)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Give each kind of cluster in turn; the real one has the real Job controller and scheduler."""
    is_real = request.param == "real"
    async with AsyncExitStack() as stack:
        if is_real:
            plane = request.getfixturevalue("control_plane")
            plane.start_controllers()
            kubeconfig, namespace = plane.kubeconfig, plane.create_namespace()
        else:
            server = await stack.enter_async_context(EmbeddedServer())
            kubeconfig, namespace = str(tmp_path / "kubeconfig"), "default"
            server.write_kubeconfig(kubeconfig)
        client = await stack.enter_async_context(await KubeClient.connect(kubeconfig))
        names = (f"{namespace}-n1", f"{namespace}-n2")
        nodes = [
            NodeSpec(name=name, allocatable={"cpu": "16", GPU: "4"}, labels={"pool": namespace})
            for name in names
        ]
        stand_ins = StandIns(
            client, nodes=nodes, speed=SPEED, job_controller=not is_real, scheduler=not is_real
        )
        running = asyncio.create_task(stand_ins.run())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await stand_ins.wait_ready()
        yield Cluster(client, stand_ins, namespace, names)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for name in names if is_real else ():
            await client.delete(NODES, name)
