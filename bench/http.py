"""What the query API costs a controller that admits at full speed: `python -m bench.http`.

    python -m bench.http [--pending 15000] [--nodes 4000] [--seconds 20] [--json]

One process decides without a pause, as a leader does: running Workloads end one after the other, and each
end admits a successor. It also serves /v1. A second process asks, one question after the other: a page of
the list of pending Workloads, an explanation, and what would happen if a Job was submitted. The output is
p50 and p99 of each question in milliseconds, by the clock and so only of use on a quiet machine; and the
longest time for which the event loop was held up, and the admissions per second of CPU, without questions
and with them, which may be compared on any machine. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import aiohttp

from admission.controller.cluster_state.cluster_state import ClusterState, ClusterStateSettings
from admission.controller.http.query_api import QueryApi
from admission.controller.queries.authorization import Authorization
from admission.controller.queries.callers import Callers, RateLimits, Rights
from admission.controller.queries.service import QueryService
from admission.controller.runtime.clock import SystemClock
from admission.controller.runtime.gc_freeze import keep_collector_off_what_lives_long, stop_collector
from api.http.server import HttpServer
from api.kube.client import KubeClient
from api.kube.credentials import FixedCredentials
from api.kube.kubeconfig import Endpoint
from api.workload import Workload
from bench.cluster import NAMESPACE, Cluster
from bench.scale import Point, full_cluster, waiting

# The p99 in milliseconds that is wanted.
_TARGETS = {"list": 50.0, "explain": 100.0, "what-if": 250.0}
# More than arrive in any run.
_MANY = 10**9
# Below the rate that a caller may ask for questions that are tried.
_PAUSE_SECONDS = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the event loop had to bear: its longest step, and the admissions for a second of CPU."""

    longest_ms: float
    admissions_per_second: float


async def _decide(cluster: Cluster, arriving: Iterator[Workload], seconds: float) -> Load:
    """Let running Workloads end for so long, and as many arrive. Return what was decided meanwhile."""
    began, spent, before = time.monotonic(), time.process_time(), cluster.admissions
    probe = asyncio.create_task(_probe())
    while time.monotonic() - began < seconds:
        cluster.put(next(arriving), time.time())
        cluster.end(cluster.running[0], time.time())
        await asyncio.sleep(0)
    probe.cancel()
    longest = (await asyncio.gather(probe, return_exceptions=True))[0]
    cpu = time.process_time() - spent
    admissions = (cluster.admissions - before) / max(cpu, 1e-9)
    return Load(longest_ms=_longest_of(longest), admissions_per_second=admissions)


class _ProbeEnded(Exception):
    """Carries the longest step."""


async def _probe() -> None:
    longest, before = 0.0, time.monotonic()
    try:
        while True:
            await asyncio.sleep(0)
            now = time.monotonic()
            longest, before = max(longest, now - before), now
    except asyncio.CancelledError:
        raise _ProbeEnded(1e3 * longest) from None


def _longest_of(ended: Any) -> float:
    assert isinstance(ended, _ProbeEnded)
    return float(ended.args[0])


def _server(cluster: Cluster) -> HttpServer:
    clock = SystemClock()
    nowhere = Endpoint(server="http://nowhere", origin="a benchmark", credentials=FixedCredentials())
    authorization = Authorization(KubeClient(nowhere), clock)
    state = ClusterState(cluster.engine, clock, ClusterStateSettings())
    service = QueryService(state, clock, Rights(authorization), RateLimits(clock), decisions=None)
    return HttpServer(QueryApi(service, Callers(authorization, is_open=True)).routes())


async def measure(pending: int, nodes: int, seconds: float) -> dict[str, Any]:
    """Return the figures of a cluster of this size."""
    point = Point(pending=pending, nodes=nodes, queues=100)
    cluster = full_cluster(point)
    arriving = waiting(replace(point, pending=_MANY))
    for workload in islice(arriving, pending):
        cluster.put(workload, time.time())
    cluster.decide(time.time())
    keep_collector_off_what_lives_long()
    stop_collector()
    alone = await _decide(cluster, arriving, seconds)
    async with _server(cluster) as server:
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.http", "--ask", server.url, "--seconds", str(seconds)),
            stdout=asyncio.subprocess.PIPE,
        )
        asked = await _decide(cluster, arriving, seconds + 2.0)
        output, _ = await asking.communicate()
    return {"alone": _load(alone), "asked": _load(asked), "questions": json.loads(output)}


def _load(load: Load) -> dict[str, float]:
    return {"longestMs": load.longest_ms, "admissionsPerSecond": load.admissions_per_second}


async def ask(url: str, seconds: float) -> dict[str, list[float]]:
    """Return how long each answer took, in milliseconds by question."""
    times: dict[str, list[float]] = {name: [] for name in _TARGETS}
    async with aiohttp.ClientSession(url) as session:

        async def question(name: str, method: str, path: str, body: Any = None) -> Any:
            began = time.monotonic()
            async with session.request(method, path, json=body) as answer:
                found = await answer.json()
            times[name].append(1e3 * (time.monotonic() - began))
            if answer.status != 200:
                raise SystemExit(f"{name}: {answer.status} {found}")
            return found

        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(5):
                page = await question("list", "GET", "/v1/workloads?status=pending&limit=100&sort=-name")
            await asyncio.sleep(_PAUSE_SECONDS)
            # The one that arrived last waits longest.
            path = f"/v1/workloads/{NAMESPACE}/{page['items'][0]['name']}/explanation"
            await question("explain", "GET", path)
            await asyncio.sleep(_PAUSE_SECONDS)
            await question("what-if", "POST", "/v1/what-if", {"namespace": NAMESPACE, "objects": [_JOB]})
    return times


_CONTAINER = {
    "name": "c",
    "image": "i",
    "resources": {"requests": {"nvidia.com/gpu": 8}, "limits": {"nvidia.com/gpu": 8}},
}
_JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "asked", "labels": {"kueue.x-k8s.io/queue-name": "queue-0000"}},
    "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}}},
}


def _lines(figures: dict[str, Any]) -> Iterator[str]:
    for name, times in figures["questions"].items():
        if len(times) > 1:
            p99 = statistics.quantiles(times, n=100)[-1]
            yield (
                f"{name}: {len(times)} answers, p50 {statistics.median(times):.0f} ms, p99 {p99:.0f} ms"
                f" (wanted {_TARGETS[name]:g})"
            )
    for name in ("alone", "asked"):
        load = figures[name]
        yield (
            f"{name}: longest step {load['longestMs']:.1f} ms,"
            f" {load['admissionsPerSecond']:.0f} admissions for a second of CPU"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, or ask for it with --ask. Return 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.http", description="the cost of the query API")
    parser.add_argument("--pending", type=int, default=15_000)
    parser.add_argument("--nodes", type=int, default=4_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ask", metavar="URL", help="only ask the server at this address")
    given = parser.parse_args(arguments)
    if given.ask:
        print(json.dumps(asyncio.run(ask(given.ask, given.seconds))))
        return 0
    figures = asyncio.run(measure(given.pending, given.nodes, given.seconds))
    for line in [json.dumps(figures)] if given.json else _lines(figures):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
