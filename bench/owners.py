"""What a Workload costs the controller by the kind of its owner: `python -m bench.owners`.

    python -m bench.owners [--owners 10000] [--turns 1] [--kinds mixed|NAME,NAME]

Through the embedded API server, in turns: so many Jobs, and so many owners of the kinds of `tests.owners`
that have an end, in equal parts. Each is created suspended, started by the controller, and reported as
running and then as succeeded, as its own controller would. The controller is a child process. Its CPU time
for each Workload is the figure; the ratio to that of Jobs is wanted at 1.3 or less. Nothing is asserted.
A process that ends, or owners that get no further, end the bench with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from admission.controller.writer.requests import owner_resource, source_resource
from api.jobs.owners.paths import value_at
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import AlreadyExists, KubeError, Timeout
from api.kube.informer import Change, Informer, Listener, ListWatch
from api.kube.resources import Resource
from api.objects.cluster import OwnerObject
from bench.processes import cost_of, while_running
from bench.shape import NAMESPACE, empty_queue_objects, queue_objects
from bench.throughput import BY_KIND, SERVERS, Server, start_controller
from tests.children import ChildError
from tests.owners import SAMPLES, condition, definition, template

IN_FLIGHT = 8
# How long no owner may end before the run is given up. An owner takes moments, on a busy machine seconds.
PATIENCE_SECONDS = 300.0
JOBS = "Job"
_QUEUE = "bench"
_Objects = Iterator[tuple[Resource, dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A kind, an object of it, and the statuses that its own controller gives one that was started."""

    resource: Resource
    suspend: tuple[str, ...]
    body: Mapping[str, Any]
    statuses: tuple[Mapping[str, Any], ...]


def _job() -> Played:
    # The server's own stand-in leaves a Job with another manager alone.
    pods = template("main", restartPolicy="Never")
    spec = {"suspend": True, "managedBy": "bench.berth.dev/played", "template": pods}
    done = [{**condition(type_), "lastTransitionTime": _NOW} for type_ in ("SuccessCriteriaMet", "Complete")]
    body = {"apiVersion": "batch/v1", "kind": JOBS, "spec": spec}
    return Played(
        resource=resources.JOBS,
        suspend=("spec", "suspend"),
        body=body,
        statuses=(
            {"active": 1, "ready": 1, "startTime": _NOW},
            {
                "active": 0,
                "ready": 0,
                "succeeded": 1,
                "startTime": _NOW,
                "completionTime": _NOW,
                "conditions": done,
            },
        ),
    )


_NOW = "2026-01-01T00:00:00Z"
KINDS: Mapping[str, Played] = {
    JOBS: _job(),
    **{
        sample.row.kind: Played(
            resource=owner_resource(sample.row),
            suspend=sample.row.suspend,
            body=sample.object(),
            statuses=(sample.ready, sample.succeeded),
        )
        for sample in SAMPLES
        if sample.succeeded is not None
    },
}
MIXED = tuple(kind for kind in KINDS if kind != JOBS)


class NothingEnds(Exception):
    """No owner has ended for too long, although every process runs."""


class Player:
    """Creates objects of these kinds in turn, and plays their controllers until all have succeeded."""

    def __init__(
        self,
        client: KubeClient,
        kinds: Sequence[str],
        total: int,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._total = total
        self._patience_seconds = patience_seconds
        self._ended = 0
        self._started: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._seen: set[tuple[str, str]] = set()
        self._done = asyncio.Event()

    async def run(self) -> None:
        """Return when all have succeeded. Raises NothingEnds."""
        numbers = iter(range(self._total))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._informer(kind).run()) for kind in self._kinds]
            tasks += [group.create_task(self._create(numbers)) for _ in range(IN_FLIGHT)]
            tasks += [group.create_task(self._play()) for _ in range(IN_FLIGHT)]
            await self._wait_done()
            for task in tasks:
                task.cancel()
        if self._ended < self._total:
            raise NothingEnds(
                f"{self._ended} of {self._total} owners ended, no other in {self._patience_seconds:g} s"
            )

    async def _wait_done(self) -> None:
        """Return when all have succeeded, or none within the patience."""
        ended = -1
        while ended < self._ended < self._total:
            ended = self._ended
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_seconds):
                    await self._done.wait()

    def _informer(self, kind: str) -> Informer[OwnerObject]:
        played = KINDS[kind]

        def changed(change: Change[OwnerObject]) -> None:
            obj, name = change.object, change.object.metadata.name
            if value_at({"spec": obj.spec}, played.suspend) is False and (kind, name) not in self._seen:
                self._seen.add((kind, name))
                self._started.put_nowait((kind, name))

        what = ListWatch(resource=played.resource, type_=OwnerObject, namespace=NAMESPACE)
        return Informer(self._client, what, Listener(on_change=changed))

    async def _create(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            played = KINDS[self._kinds[number % len(self._kinds)]]
            metadata = {"name": f"j{number:05}", "labels": {"kueue.x-k8s.io/queue-name": _QUEUE}}
            body = msgspec.json.encode({**played.body, "metadata": metadata})
            with suppress(AlreadyExists):  # an earlier attempt was carried out, though nothing said so
                await _patiently(partial(self._client.create, played.resource, body, NAMESPACE))

    async def _play(self) -> None:
        while True:
            kind, name = await self._started.get()
            played = KINDS[kind]
            for status in played.statuses:
                body = msgspec.json.encode({"status": status})
                await _patiently(
                    partial(
                        self._client.merge_patch, played.resource, name, body, NAMESPACE, subresource="status"
                    )
                )
            self._ended += 1
            if self._ended == self._total:
                self._done.set()


async def _patiently(request: Callable[[], Awaitable[object]]) -> None:
    """Send a request until it is answered: a machine that others use as well may halt for seconds."""
    while True:
        with suppress(Timeout):
            await request()
            return


async def measure(kinds: Sequence[str], total: int) -> float:
    """Return the controller's CPU time in ms for each of so many owners of these kinds."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        folder = Path(name)
        async with (
            SERVERS["embedded"](folder) as server,
            await KubeClient.connect(server.kubeconfig) as client,
        ):
            for resource, body in _setup(kinds):
                await client.create(resource, msgspec.json.encode(body), body["metadata"].get("namespace"))
            return await _measure_on(server, client, folder, kinds, total)


async def _measure_on(
    server: Server, client: KubeClient, folder: Path, kinds: Sequence[str], total: int
) -> float:
    frameworks = [sample.row.framework for sample in SAMPLES if sample.row.kind in kinds]
    config = folder / "config.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        f"integrations: {{frameworks: {json.dumps(['batch/job', *frameworks])}}}\n"
    )
    controller, _ = await start_controller(server, folder, config)
    try:
        before, started = cost_of(controller.pid), time.monotonic()
        await while_running([controller, *server.children], Player(client, kinds, total).run())
        spent = cost_of(controller.pid).cpu_seconds - before.cpu_seconds
        print(f"  {total} of {', '.join(kinds)}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    finally:
        controller.stop()
    return 1000 * spent / total


def _setup(kinds: Sequence[str]) -> _Objects:
    samples = [sample for sample in SAMPLES if sample.row.kind in kinds]
    for sample in samples:
        yield resources.CRDS, definition(sample.row)
        for source in sample.row.sources:
            yield resources.CRDS, definition(source)
        if sample.runtime:
            (named,) = (one for one in sample.row.sources if one.kind == sample.runtime["kind"])
            yield source_resource(named), sample.runtime
    namespace, flavor, *_ = queue_objects()
    queue, local = empty_queue_objects(_QUEUE)
    (group,) = queue["spec"]["resourceGroups"]
    # Enough for all, so that each costs the same.
    covered = {"cpu": "1000000", "memory": "1000Ti"}
    group["coveredResources"] = list(covered)
    group["flavors"][0]["resources"] = [
        {"name": name, "nominalQuota": quota} for name, quota in covered.items()
    ]
    for one in (namespace, flavor, queue, local):
        yield BY_KIND[one["kind"]], one


def main() -> int:
    """Print the CPU time of both, turn by turn, and the median ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--owners", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--kinds", default="mixed", help=f"mixed, or names among {', '.join(KINDS)}")
    asked = parser.parse_args()
    kinds = MIXED if asked.kinds == "mixed" else tuple(asked.kinds.split(","))
    ratios = []
    for _ in range(asked.turns):
        jobs = asyncio.run(measure((JOBS,), asked.owners))
        others = asyncio.run(measure(kinds, asked.owners))
        ratios.append(others / jobs)
        print(f"Jobs {jobs:.2f} ms CPU each, {asked.kinds} {others:.2f} ms: {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KubeError, ChildError, NothingEnds) as error:
        sys.exit(f"bench.owners: {error}")
