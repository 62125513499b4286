"""Admissions through an API server: Workloads per second, CPU, writes and memory, beside Kueue's figures.

    python -m bench.throughput [--server real|embedded|both] [--workloads 1500] [--no-events]

A generator creates the Workloads of `bench.shape`, lets each "run" for its time once it is admitted, and
marks it finished. These are one create and one status write per Workload, the least that the Job controller
would need. The controller is a child process, as in production. All processes share the cores of this
machine, so absolute numbers depend on the API server as much as on Berth: read the CPU per Workload.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Conflict
from api.kube.informer import Change, Informer, Listener, ListWatch
from api.objects.workloads import WorkloadObject
from api.parsing.times import to_rfc3339
from bench.processes import Cost, cost_of, while_running
from bench.shape import NAMESPACE, RUNTIME_ANNOTATION, queue_objects, workload_objects
from tests.children import Child
from tests.controlplane import ControlPlane, find_assets
from tests.controlplane.definitions import install_definitions

# The longest delay, in seconds, that the controller's event loop should have.
LAG_TARGET = 0.05
CREATES_IN_FLIGHT = 8
FINISHES_IN_FLIGHT = 8
_LISTENING = re.compile(r"^{.*listening.*}$", re.MULTILINE)
KUEUE = "Kueue on two such cores: 24-27 Workloads/s, 7-8 ms CPU a Workload, 416-565 MB"

# Nothing is asked there, and another controller on this machine may listen on the usual numbers.
_NO_PORTS = ("http", "extender", "visibility", "webhook")

BY_KIND = {
    resource.kind: resource
    for resource in (
        resources.NAMESPACES,
        resources.RESOURCE_FLAVORS,
        resources.CLUSTER_QUEUES,
        resources.LOCAL_QUEUES,
        resources.WORKLOADS,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run. CPU is in ms per Workload. `writes` are the controller's, by purpose."""

    server: str
    workloads: int
    seconds: float
    controller_ms: float
    controller_mb: float
    apiserver_ms: float
    writes: dict[str, int] = field(default_factory=dict)
    conflicts: int = 0
    # How often the controller's event loop woke a task late, by the upper bound of the delay in seconds.
    lags: dict[float, int] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the figures as text, one per line."""
        total = sum(self.writes.values())
        purposes = ", ".join(f"{purpose} {count}" for purpose, count in sorted(self.writes.items()))
        return "\n".join(
            (
                f"{self.server}: {self.workloads} Workloads in {self.seconds:.1f} s",
                f"  {self.workloads / self.seconds:8.1f} Workloads/s",
                f"  {self.controller_ms:8.2f} ms CPU a Workload, controller",
                f"  {self.apiserver_ms:8.2f} ms CPU a Workload, API server",
                f"  {total / self.workloads:8.2f} writes a Workload ({purposes})",
                f"  {self.controller_mb:8.0f} MB peak, controller",
                f"  {self._lag_text()}",
                f"  {self.conflicts:8} of the generator's own writes met a conflict",
            )
        )

    def _lag_text(self) -> str:
        samples, late = sum(self.lags.values()), sum(n for most, n in self.lags.items() if most > LAG_TARGET)
        worst = max((most for most, n in self.lags.items() if n), default=0.0)
        return (
            f"{late:8} of {samples} checks of the controller's event loop were over "
            f"{1000 * LAG_TARGET:.0f} ms late (target 0), none over {1000 * worst:.0f} ms; "
            "other processes on these cores affect this"
        )


class Generator:
    """Creates Workloads and finishes admitted ones, each after its run time."""

    def __init__(self, client: KubeClient, total: int) -> None:
        self._client = client
        self._total = total
        self._due: list[tuple[float, str]] = []
        self._seen: set[str] = set()
        self._wake = asyncio.Event()
        self.finished = 0
        self.conflicts = 0
        self.done = asyncio.Event()
        self._informer = Informer(
            client,
            ListWatch(resource=resources.WORKLOADS, type_=WorkloadObject, namespace=NAMESPACE),
            Listener(on_change=self._changed),
            keep_raw=True,
        )

    async def run(self) -> None:
        """Return when all Workloads have finished. The first task that fails ends the run."""
        bodies = iter([msgspec.json.encode(workload) for workload in workload_objects(self._total)])
        ready: asyncio.Queue[str] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._informer.run())]
            await self._informer.synced.wait()
            tasks += [group.create_task(self._create(bodies)) for _ in range(CREATES_IN_FLIGHT)]
            tasks += [group.create_task(self._finish(ready)) for _ in range(FINISHES_IN_FLIGHT)]
            tasks.append(group.create_task(self._release(ready)))
            await self.done.wait()
            for task in tasks:
                task.cancel()

    def _changed(self, change: Change[WorkloadObject]) -> None:
        obj = change.object
        is_admitted = any(c.type == "Admitted" and c.status == "True" for c in obj.status.conditions or ())
        if is_admitted and obj.metadata.name not in self._seen:
            self._seen.add(obj.metadata.name)
            runtime = float((obj.metadata.annotations or {}).get(RUNTIME_ANNOTATION, "0"))
            heapq.heappush(self._due, (time.monotonic() + runtime, obj.metadata.name))
            self._wake.set()

    async def _create(self, bodies: Iterator[bytes]) -> None:
        for body in bodies:
            await self._client.create(resources.WORKLOADS, body, NAMESPACE)

    async def _release(self, ready: asyncio.Queue[str]) -> None:
        while True:
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                ready.put_nowait(heapq.heappop(self._due)[1])
            self._wake.clear()
            timeout = self._due[0][0] - now if self._due else None
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _finish(self, ready: asyncio.Queue[str]) -> None:
        while True:
            name = await ready.get()
            raw = self._informer.raw[NAMESPACE, name]
            while True:
                try:
                    await self._client.replace(
                        resources.WORKLOADS, name, _finished(raw), NAMESPACE, subresource="status"
                    )
                    break
                except Conflict:
                    self.conflicts += 1
                    raw = await self._client.get(resources.WORKLOADS, name, NAMESPACE)
            self.finished += 1
            if self.finished == self._total:
                self.done.set()


def _finished(raw: bytes) -> bytes:
    """Return the Workload as its owner's controller would write it when it has finished."""
    workload = msgspec.json.decode(raw)
    workload["status"]["conditions"].append(
        {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "done",
            "lastTransitionTime": to_rfc3339(time.time()),
        }
    )
    return msgspec.json.encode(workload)


@dataclass(slots=True, kw_only=True)
class Server:
    """A running API server, and its processes."""

    kubeconfig: str
    children: tuple[Child, ...]


@asynccontextmanager
async def _real_server(folder: Path) -> AsyncIterator[Server]:
    with ControlPlane(find_assets(), folder) as plane:
        install_definitions(plane.rest)
        yield Server(kubeconfig=plane.kubeconfig, children=(plane.apiserver, plane.etcd))


@asynccontextmanager
async def _embedded_server(folder: Path) -> AsyncIterator[Server]:
    kubeconfig = folder / "kubeconfig"
    program = str(Path(sys.executable).with_name("berth"))
    child = Child(
        name="apiserver",
        arguments=(program, "apiserver", "--port", "0", "--nodes", "1x0", "--kubeconfig", str(kubeconfig)),
        log=folder / "apiserver.log",
    )
    child.start()
    try:
        await _wait_for(kubeconfig.exists)
        yield Server(kubeconfig=str(kubeconfig), children=(child,))
    finally:
        child.stop()


SERVERS = {"real": _real_server, "embedded": _embedded_server}


async def measure(server_name: str, total: int, *, with_events: bool) -> Measured:
    """Run once and return the figures."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        folder = Path(name)
        serve = SERVERS[server_name]
        async with serve(folder) as server, await KubeClient.connect(server.kubeconfig) as client:
            for obj in queue_objects():
                resource = BY_KIND[obj["kind"]]
                await client.create(resource, msgspec.json.encode(obj), obj["metadata"].get("namespace"))
            return await _measure_on(server_name, server, client, folder, total, with_events)


async def _measure_on(
    name: str, server: Server, client: KubeClient, folder: Path, total: int, with_events: bool
) -> Measured:
    config = folder / "config.yaml"
    rate = 20 if with_events else 0
    config.write_text(
        f"apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig\nevents: {{perSecond: {rate}}}\n"
    )
    controller, metrics = await start_controller(server, folder, config)
    try:
        before = [cost_of(child.pid) for child in server.children]
        own = cost_of(controller.pid)
        started = time.monotonic()
        generator = Generator(client, total)
        await while_running([controller, *server.children], generator.run())
        seconds = time.monotonic() - started
        after = [cost_of(child.pid) for child in server.children]
        end = cost_of(controller.pid)
        text = await _read_metrics(metrics)
    finally:
        controller.stop()
    return Measured(
        server=f"{name}, {'with' if with_events else 'without'} events",
        workloads=total,
        seconds=seconds,
        controller_ms=1000 * (end.cpu_seconds - own.cpu_seconds) / total,
        controller_mb=end.peak_mb,
        apiserver_ms=1000 * (_sum(after) - _sum(before)) / total,
        writes=writes_by_purpose(text),
        conflicts=generator.conflicts,
        lags=_lags(text),
    )


def _sum(costs: list[Cost]) -> float:
    return sum(cost.cpu_seconds for cost in costs)


async def start_controller(
    server: Server, folder: Path, config: Path, *, flags: Sequence[str] = ()
) -> tuple[Child, str]:
    """Start the controller and return it with the URL of its metrics, once it listens."""
    log = folder / "controller.log"
    child = Child(
        name="controller",
        arguments=(
            str(Path(sys.executable).with_name("berth")),
            *("controller", "--kubeconfig", server.kubeconfig, "--config", str(config)),
            *("--metrics-port", "0"),
            *(word for port in _NO_PORTS for word in (f"--{port}-port", "-1")),
            *("--log-level", "warning", *flags),
        ),
        log=log,
    )
    child.start()
    await _wait_for(lambda: _LISTENING.search(log.read_text()) is not None)
    found = _LISTENING.search(log.read_text())
    assert found is not None
    return child, json.loads(found[0])["metrics"]


async def _wait_for(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.05)


async def _read_metrics(url: str) -> str:
    import aiohttp

    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        return await answer.text()


def _lags(text: str) -> dict[float, int]:
    """Return how often the event loop was late, by the upper bound in seconds, from the metrics."""
    pattern = r'^berth_event_loop_lag_seconds_bucket{le="([^"]+)"[^}]*role="leader"[^}]*} (\S+)$'
    lags, below = {}, 0
    for bound, count in re.findall(pattern, text, re.MULTILINE):
        lags[float(bound)], below = int(float(count)) - below, int(float(count))
    return lags


def writes_by_purpose(text: str) -> dict[str, int]:
    """Return the number of the controller's writes by purpose, from the metrics."""
    found = re.findall(r'^berth_writes_total{purpose="([^"]+)"[^}]*} (\S+)$', text, re.MULTILINE)
    totals: dict[str, int] = {}
    for purpose, count in found:
        totals[purpose] = totals.get(purpose, 0) + int(float(count))
    return totals


def main() -> int:
    """Print the figures of the chosen API servers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=("real", "embedded", "both"), default="both")
    parser.add_argument("--workloads", type=int, default=1500)
    parser.add_argument("--no-events", action="store_true")
    arguments = parser.parse_args()
    print(f"cores: {os.cpu_count()}; {KUEUE}")
    for server in ("real", "embedded") if arguments.server == "both" else (arguments.server,):
        measured = asyncio.run(measure(server, arguments.workloads, with_events=not arguments.no_events))
        print(measured.to_text(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
