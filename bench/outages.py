"""Time from an outage to the next admission, on a real control plane: `python -m bench.outages`.

    python -m bench.outages [--trials 20] [--only leader-sigkill,redis] [--json]

Two controllers with the default lease share a Redis. In each trial something fails and a Workload is created
as soon as the API server takes it; the time ends when the API server shows it as admitted. It begins

    leader-sigterm, leader-sigkill    with the signal to the leader; a new follower then takes its place
    redis                             when Redis is killed, which stays away until the Workload is admitted
    apiserver                         when a killed kube-apiserver answers again
    etcd                              when it answers again on a restored backup of etcd
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import AlreadyExists, KubeError
from bench.shape import NAMESPACE, queue_objects, workload_objects
from bench.throughput import BY_KIND, Server, start_controller
from tests.children import Child
from tests.controlplane import ControlPlane, find_assets
from tests.controlplane.definitions import install_definitions
from tests.redisserver import RedisServer

_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The seconds until the next admission after one kind of outage."""

    outage: str
    trials: int
    p50: float
    p99: float
    longest: float


def figures(outage: str, seconds: list[float]) -> Figures:
    """Return the figures of measured seconds, at least one."""
    taken = sorted(seconds)
    return Figures(
        outage=outage,
        trials=len(taken),
        p50=taken[(len(taken) - 1) // 2],
        p99=taken[min(len(taken) - 1, int(len(taken) * 0.99))],
        longest=taken[-1],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A running controller and the URL of its metrics."""

    child: Child
    metrics: str

    async def wait(self, says: str, *, path: str = "/metrics") -> None:
        """Return when a page of the controller contains this text. Raises TimeoutError."""
        async with aiohttp.ClientSession() as session, asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                async with session.get(f"{self.metrics}{path}") as answer:
                    if answer.status == 200 and says in await answer.text():
                        return
                await asyncio.sleep(_LOOK_SECONDS)


class Stage:
    """A control plane, a Redis and two controllers, of which `leader` leads."""

    def __init__(self, plane: ControlPlane, client: KubeClient, redis: RedisServer, folder: Path) -> None:
        self.leader: Controller
        self._follower: Controller
        self._plane = plane
        self._client = client
        self._redis = redis
        self._folder = folder
        self._numbers = itertools.count()
        # Of the smallest size, so that all of them fit.
        self._workloads: Iterator[dict[str, Any]] = (
            one for one in workload_objects(2_000) if one["metadata"]["name"].endswith("small")
        )
        self._backup: Path | None = None

    async def begin(self) -> None:
        """Create the queues and start both controllers."""
        for obj in queue_objects():
            resource = BY_KIND[obj["kind"]]
            await self._client.create(resource, msgspec.json.encode(obj), obj["metadata"].get("namespace"))
        self.leader = await self._start()
        await self.leader.wait('berth_leader{replica_role="leader"')
        self._follower = await self._start()

    async def _start(self) -> Controller:
        folder = self._folder / f"controller-{next(self._numbers)}"
        folder.mkdir()
        config = folder / "config.yaml"
        config.write_text("apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig\n")
        server = Server(kubeconfig=self._plane.kubeconfig, children=())
        child, metrics = await start_controller(server, folder, config, flags=("--redis", self._redis.url))
        made = Controller(child=child, metrics=metrics)
        await made.wait("", path="/readyz")
        return made

    def end(self) -> None:
        """Stop the controllers."""
        for one in (self._follower, self.leader):
            one.child.stop()

    async def admit(self) -> None:
        """Create a Workload as soon as possible, and return when it is admitted. Raises TimeoutError."""
        workload = next(self._workloads)
        body, name = msgspec.json.encode(workload), workload["metadata"]["name"]
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                with suppress(KubeError):
                    with suppress(AlreadyExists):
                        await self._client.create(resources.WORKLOADS, body, NAMESPACE)
                    if _is_admitted(await self._client.get(resources.WORKLOADS, name, NAMESPACE)):
                        return
                await asyncio.sleep(_LOOK_SECONDS)

    async def end_leader(self, way: signal.Signals) -> float:
        """End the leader and return how long it took."""
        began = time.perf_counter()
        os.kill(self.leader.child.pid, way)
        await self.admit()
        taken = time.perf_counter() - began
        self.leader.child.stop()
        self.leader, self._follower = self._follower, await self._start()
        return taken

    async def kill_redis(self) -> float:
        """Kill Redis and return how long it took; Redis is back afterwards."""
        began = time.perf_counter()
        self._redis.kill()
        await self.admit()
        taken = time.perf_counter() - began
        await asyncio.to_thread(self._redis.start)
        await self.leader.wait('berth_store_up{replica_role="leader"} 1.0')
        return taken

    async def restart_apiserver(self) -> float:
        """Kill the API server and return how long it took from when it was back."""
        await asyncio.to_thread(self._plane.restart_apiserver)
        return await self._timed_admission()

    async def restore_etcd(self) -> float:
        """Restore etcd from a backup that lacks what was admitted since, and return how long it took."""
        if self._backup is None:
            self._backup = await asyncio.to_thread(self._plane.back_up_etcd)
        await self.admit()
        await asyncio.to_thread(self._plane.restore_etcd, self._backup)
        return await self._timed_admission()

    async def _timed_admission(self) -> float:
        began = time.perf_counter()
        await self.admit()
        return time.perf_counter() - began


def _is_admitted(raw: bytes) -> bool:
    status = msgspec.json.decode(raw).get("status", {})
    conditions = status.get("conditions", ())
    return any((one["type"], one["status"]) == ("Admitted", "True") for one in conditions)


# In this order: after a restore either controller may lead.
OUTAGES: dict[str, Callable[[Stage], Awaitable[float]]] = {
    "leader-sigterm": lambda stage: stage.end_leader(signal.SIGTERM),
    "leader-sigkill": lambda stage: stage.end_leader(signal.SIGKILL),
    "redis": Stage.kill_redis,
    "apiserver": Stage.restart_apiserver,
    "etcd": Stage.restore_etcd,
}


@asynccontextmanager
async def _staged() -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        folder = Path(name)
        with ControlPlane(find_assets(), folder) as plane, RedisServer(folder / "redis") as redis:
            install_definitions(plane.rest)
            async with await KubeClient.connect(plane.kubeconfig) as client:
                stage = Stage(plane, client, redis, folder)
                await stage.begin()
                try:
                    yield stage
                finally:
                    stage.end()


async def measure(outage: str, trials: int) -> Figures:
    """Return the figures of one outage on a control plane of its own."""
    async with _staged() as stage:
        await stage.admit()
        return figures(outage, [await OUTAGES[outage](stage) for _ in range(trials)])


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--only", default=",".join(OUTAGES), help="comma list (default: all)")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each outage")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if unknown := [name for name in chosen if name not in OUTAGES]:
        parser.error(f"--only {unknown[0]}: expected some of {', '.join(OUTAGES)}")
    if arguments.trials < 1:
        parser.error(f"--trials {arguments.trials}: expected at least 1")
    if not arguments.json:
        print(f"{'outage':16}{'trials':>7}{'p50 s':>8}{'p99 s':>8}{'longest s':>11}", flush=True)
    for name in chosen:
        found = asyncio.run(measure(name, arguments.trials))
        line = f"{name:16}{found.trials:>7}{found.p50:>8.2f}{found.p99:>8.2f}{found.longest:>11.2f}"
        print(json.dumps(asdict(found)) if arguments.json else line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
