"""How long a controller that starts takes to decide, and what that costs: `python -m bench.scale --restart`.

An API server in a process of its own has the Workloads of `bench.shape`, each with a pod template of about
2 kB. A controller starts, and admits what fits. It is stopped, and another starts. Before each start a
Workload is created in a ClusterQueue that is empty: the time is measured from the start of the process until
the API server has the admission of that Workload. Python's start, the lease, all first lists and the
resolution of what the last one left are part of it. Redis outlives both, as in production: without it a new
leader waits until no write of the last one can be stored any more.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from api.kube import resources
from api.kube.client import KubeClient
from api.objects.workloads import WorkloadObject
from bench.processes import cost_of
from bench.shape import NAMESPACE, empty_queue_objects, queue_objects, workload_object, workload_objects
from bench.throughput import BY_KIND, SERVERS, Server, start_controller
from tests.redisserver import RedisServer

TARGET_SECONDS, TARGET_MB = 20.0, 1536.0
_CREATES_IN_FLIGHT = 16
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 300.0
_NAMES = ("first start", "restart")
# What the pod template of a training job has beside its requests.
_VARIABLES = [{"name": f"SETTING_{number:02}", "value": f"value-{number:02}" * 4} for number in range(24)]
_MOUNTS = [{"name": f"volume-{number}", "mountPath": f"/mnt/volume-{number}"} for number in range(4)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """One start: seconds to the first admission, and CPU seconds and peak MB of the controller."""

    name: str
    seconds: float
    cpu_seconds: float
    mb: float

    def to_text(self) -> str:
        """Return the figures as a line."""
        is_over = self.seconds > TARGET_SECONDS or self.mb > TARGET_MB
        return (
            f"{self.name:>12} {self.seconds:>10.1f} s {self.cpu_seconds:>10.1f} s CPU {self.mb:>10,.0f} MB"
            f" (target {TARGET_SECONDS:.0f} s, {TARGET_MB:,.0f} MB){' over' if is_over else ''}"
        )


async def measure(server_name: str, total: int) -> AsyncIterator[Started]:
    """Yield the figures of the first start and of the restart, with so many Workloads."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        folder = Path(name)
        async with (
            SERVERS[server_name](folder) as server,
            await KubeClient.connect(server.kubeconfig) as client,
        ):
            for obj in (*queue_objects(), *empty_queue_objects("empty")):
                resource = BY_KIND[obj["kind"]]
                await client.create(resource, msgspec.json.encode(obj), obj["metadata"].get("namespace"))
            await _create(client, map(_typical, workload_objects(total)))
            (folder / "redis").mkdir()
            with RedisServer(folder / "redis") as redis:
                for kind in _NAMES:
                    yield await _start(kind, client, server, ("--redis", redis.url), folder)


async def _create(client: KubeClient, workloads: Iterator[dict[str, Any]]) -> None:
    async def work() -> None:
        for workload in workloads:
            await client.create(resources.WORKLOADS, msgspec.json.encode(workload), NAMESPACE)

    async with asyncio.TaskGroup() as group:
        for _ in range(_CREATES_IN_FLIGHT):
            group.create_task(work())


def _typical(workload: dict[str, Any]) -> dict[str, Any]:
    """Return the Workload with a pod template as long as that of a training job."""
    [pod_set] = workload["spec"]["podSets"]
    [container] = pod_set["template"]["spec"]["containers"]
    container |= {"env": _VARIABLES, "volumeMounts": _MOUNTS}
    return workload


async def _start(
    kind: str, client: KubeClient, server: Server, flags: Sequence[str], folder: Path
) -> Started:
    name = kind.replace(" ", "-")
    own = folder / name
    own.mkdir()
    config = own / "config.yaml"
    config.write_text("apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig\n")
    workload = workload_object(name, "empty", cpus=1)
    await client.create(resources.WORKLOADS, msgspec.json.encode(workload), NAMESPACE)
    began = time.monotonic()
    controller, _ = await start_controller(server, own, config, flags=flags)
    try:
        await _wait_admitted(client, name)
        seconds, cost = time.monotonic() - began, cost_of(controller.pid)
    finally:
        controller.stop()
    return Started(name=kind, seconds=seconds, cpu_seconds=cost.cpu_seconds, mb=cost.peak_mb)


async def _wait_admitted(client: KubeClient, name: str) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            raw = await client.get(resources.WORKLOADS, name, NAMESPACE)
            status = msgspec.json.decode(raw, type=WorkloadObject).status
            if any(one.type == "Admitted" and one.status == "True" for one in status.conditions or ()):
                return
            await asyncio.sleep(_LOOK_SECONDS)
