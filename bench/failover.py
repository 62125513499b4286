"""Time from the end of a leader to the next admission: `python -m bench.failover`.

    python -m bench.failover [--server real|embedded|both] [--trials 5]

Two controllers share a Redis. In each trial the leader receives SIGTERM, and releases its lease, or SIGKILL,
and does not. A Workload is created at once, and the time is measured until a watcher sees that the other
controller, which then leads, has admitted it. A new follower takes the place of the old leader. This is done
with the default lease and with a short one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.informer import Change, Informer, Listener, ListWatch
from api.objects.workloads import WorkloadObject
from bench.shape import NAMESPACE, queue_objects, workload_objects
from bench.throughput import BY_KIND, SERVERS, Server, start_controller
from tests.children import Child
from tests.redisserver import RedisServer

# durationSeconds, renewSeconds, deadlineSeconds: the default, and a short lease.
LEASES = ((15.0, 2.0, 10.0), (4.0, 1.0, 2.5))
WAYS = (signal.SIGTERM, signal.SIGKILL)
_PATIENCE_SECONDS = 60.0


class Watcher:
    """Tells when a Workload is admitted, as the API server reports it."""

    def __init__(self, client: KubeClient) -> None:
        self._admitted: set[str] = set()
        self._changed = asyncio.Event()
        what = ListWatch(resource=resources.WORKLOADS, type_=WorkloadObject, namespace=NAMESPACE)
        self.informer = Informer(client, what, Listener(on_change=self._take))

    def _take(self, change: Change[WorkloadObject]) -> None:
        conditions = change.object.status.conditions or ()
        if any(one.type == "Admitted" and one.status == "True" for one in conditions):
            self._admitted.add(change.object.metadata.name)
            self._changed.set()

    async def wait_admitted(self, name: str) -> None:
        """Return when the Workload is admitted. Raises TimeoutError after `_PATIENCE_SECONDS`."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while name not in self._admitted:
                self._changed.clear()
                await self._changed.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Starts controllers that compete for one lease and share one Redis."""

    server: Server
    folder: Path
    redis: RedisServer
    numbers: itertools.count[int]

    async def start(self, config: Path) -> Child:
        """Start one and return it once it has listed everything."""
        folder = self.folder / f"controller-{next(self.numbers)}"
        folder.mkdir()
        child, metrics = await start_controller(
            self.server, folder, config, flags=("--redis", self.redis.url)
        )
        async with aiohttp.ClientSession() as session, asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                async with session.get(f"{metrics}/readyz") as answer:
                    if answer.status == 200:
                        return child
                await asyncio.sleep(0.05)


@asynccontextmanager
async def _stage(server_name: str) -> AsyncIterator[tuple[KubeClient, Watcher, Replicas]]:
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        folder = Path(name)
        (folder / "redis").mkdir()
        async with (
            SERVERS[server_name](folder) as server,
            await KubeClient.connect(server.kubeconfig) as client,
        ):
            for obj in queue_objects():
                resource = BY_KIND[obj["kind"]]
                await client.create(resource, msgspec.json.encode(obj), obj["metadata"].get("namespace"))
            watcher = Watcher(client)
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watcher.informer.run())
                with RedisServer(folder / "redis") as redis:
                    numbers = itertools.count()
                    yield (
                        client,
                        watcher,
                        Replicas(server=server, folder=folder, redis=redis, numbers=numbers),
                    )
                watching.cancel()


async def measure(server_name: str, trials: int) -> AsyncIterator[tuple[float, signal.Signals, list[float]]]:
    """Yield lease duration, way to end and the measured seconds, sorted, of each combination."""
    async with _stage(server_name) as (client, watcher, replicas):
        # Of the smallest size, one for each trial and each first leader.
        small = (one for one in workload_objects(1_000) if one["metadata"]["name"].endswith("small"))

        async def admit() -> None:
            workload = next(small)
            await client.create(resources.WORKLOADS, msgspec.json.encode(workload), NAMESPACE)
            await watcher.wait_admitted(workload["metadata"]["name"])

        for lease in LEASES:
            config = replicas.folder / f"{lease[0]:g}.yaml"
            times = "durationSeconds: {}, renewSeconds: {}, deadlineSeconds: {}".format(*lease)
            config.write_text(f"apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig\nlease: {{{times}}}\n")
            leader = await replicas.start(config)
            await admit()
            follower = await replicas.start(config)
            for way in WAYS:
                taken = []
                for _ in range(trials):
                    began = time.perf_counter()
                    os.kill(leader.pid, way)
                    await admit()
                    taken.append(time.perf_counter() - began)
                    leader.stop()
                    leader, follower = follower, await replicas.start(config)
                yield lease[0], way, sorted(taken)
            follower.stop()
            leader.stop()


async def _print(server_name: str, trials: int) -> None:
    async for duration, way, taken in measure(server_name, trials):
        print(
            f"{server_name:9} lease of {duration:g} s, {way.name}: the next admission after"
            f" {taken[len(taken) // 2]:.1f} s (median), {taken[-1]:.1f} s (longest of {len(taken)})",
            flush=True,
        )


def main() -> int:
    """Print the figures of the chosen API servers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=("real", "embedded", "both"), default="both")
    parser.add_argument("--trials", type=int, default=5)
    arguments = parser.parse_args()
    for server in ("real", "embedded") if arguments.server == "both" else (arguments.server,):
        asyncio.run(_print(server, arguments.trials))
    return 0


if __name__ == "__main__":
    sys.exit(main())
