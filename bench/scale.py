"""How memory and decisions grow with a cluster: `python -m bench.scale`. No API server, no Redis, no clock.

    python -m bench.scale [--quick] [--axis pending|nodes|queues] [-o table|json] [--picture FILE]
    python -m bench.scale --restart 100000 [--server embedded|real]

One axis at a time, with the others fixed at 20,000 pending Workloads, 1,000 nodes and 100 ClusterQueues:
- pending: 1,000 to 200,000 Workloads that wait;
- nodes: 100 to 20,000 nodes of 8 GPUs in racks and blocks, all in use;
- queues: 10 to 5,000 ClusterQueues in cohorts of ten, which share the nodes.

Every Workload is a pod with 8 GPUs that wants a rack. Each point is a process of its own: it takes in the
specs, the nodes, the running and the pending Workloads, decides until nothing is left to decide, and then
ends running Workloads one at a time; each end admits a successor. The columns are:

    MB            peak resident memory, with the interpreter and the modules
    intake µs     to take in a pending Workload
    first ms      of the first decisions after that, on the heads of all ClusterQueues
    decision µs   for an end and all that follows from it, for each admission
    step ms       the longest step of all that without a pause, during which a controller handles no event

Times are CPU times of the process. The last lines of an axis say how each column grows over its three
largest points, as the power of the axis. The time for one Workload or one end is to stay the same, with a
power near 0; memory and the first decisions are linear with a power of 1 or less. Nothing is asserted.

With --restart a controller is started and restarted instead, with so many Workloads on an API server
(`bench.restart`): the seconds to its first admission, with the CPU time and memory until then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from admission.controller.runtime.gc_freeze import keep_collector_off_what_lives_long
from api.objects.common import WireSelector
from api.queueing import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    Namespace,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
)
from api.workload import (
    Admission,
    DomainCount,
    PodSet,
    PodSetAssignment,
    TopologyAssignment,
    TopologyRequest,
    Workload,
    WorkloadKey,
)
from bench import restart
from bench.cluster import NAMESPACE, STEP_TARGET_MS, Cluster, pod_template, resource_groups
from bench.curves import Curve, power, to_svg
from bench.placement import BLOCK, GPU, HOST, RACK, make_node
from bench.processes import cost_of
from bench.throughput import SERVERS

_GPUS = 8
_QUEUES_OF_COHORT = 10
# How many running Workloads end: enough for a mean, and few enough for the largest points.
_ENDS, _QUICK_ENDS = 100, 50
# A power above which a column counts as not linear. The rest is what the noise of a busy machine explains.
_NOISE = 0.2
_LARGEST = 3

AXES = {
    "pending": (1_000, 5_000, 20_000, 50_000, 100_000, 200_000),
    "nodes": (100, 500, 1_000, 5_000, 10_000, 20_000),
    "queues": (10, 50, 100, 500, 1_000, 5_000),
}
_AXIS_WORDS = {"pending": "pending Workloads", "nodes": "nodes", "queues": "ClusterQueues"}
_QUICK_AXES = {"pending": (1_000, 4_000), "nodes": (100, 400), "queues": (10, 100)}
# By column: the power of the axis up to which the whole work, or the memory, is linear.
_LINEAR = {"mb": 1.0, "intake_us": 0.0, "first_ms": 1.0, "decision_us": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The size of a cluster."""

    pending: int = 20_000
    nodes: int = 1_000
    queues: int = 100


_QUICK_POINT = Point(pending=2_000, nodes=200, queues=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a point costs, as the description of this module lists it."""

    mb: float
    intake_us: float
    first_ms: float
    decision_us: float
    step_ms: float
    admissions: int


def measure(point: Point, ends: int) -> Figures:
    """Return what a cluster of this size costs. To be called in a process of its own, for its memory."""
    cluster = full_cluster(point)
    keep_collector_off_what_lives_long()
    cluster.reset()
    pending = list(waiting(point))
    times = [time.process_time()]
    for workload in pending:
        cluster.put(workload, 1.0)
    times.append(time.process_time())
    keep_collector_off_what_lives_long()
    times.append(time.process_time())
    cluster.decide(1.0)
    times.append(time.process_time())
    before = cluster.admissions
    for number in range(ends):
        # The one that has run longest.
        cluster.end(cluster.running[0], 2.0 + number)
    times.append(time.process_time())
    admissions = cluster.admissions - before
    return Figures(
        mb=cost_of(os.getpid()).peak_mb,
        intake_us=1e6 * (times[1] - times[0]) / point.pending,
        first_ms=1e3 * (times[3] - times[2]),
        decision_us=1e6 * (times[4] - times[3]) / max(1, admissions),
        step_ms=1e3 * cluster.longest,
        admissions=admissions,
    )


def full_cluster(point: Point) -> Cluster:
    """Return a cluster whose nodes are all in use, before anything waits."""
    cluster = Cluster()
    for value in _specs(point):
        cluster.put(value, 0.0)
    cluster.decide(0.0)
    for workload, node in _running(point):
        cluster.run(workload, _admission(workload, node), 0.0)
    cluster.decide(0.0)
    return cluster


def _specs(point: Point) -> Iterator[Any]:
    """Yield everything but Workloads. The GPUs are the cohorts', in equal shares of whole nodes."""
    yield Namespace(name=NAMESPACE)
    yield Topology(name="default", levels=(BLOCK, RACK, HOST))
    yield ResourceFlavor(name="gpus", topology_name="default")
    for number in range(point.nodes):
        yield make_node(number)
    cohorts = math.ceil(point.queues / _QUEUES_OF_COHORT)
    for number in range(cohorts):
        # The first cohorts have the nodes that do not divide evenly.
        nodes = point.nodes // cohorts + (number < point.nodes % cohorts)
        yield Cohort(name=f"cohort-{number}", resource_groups=_groups(nodes * _GPUS))
    for number in range(point.queues):
        name = _queue(number)
        yield ClusterQueue(
            name=name,
            cohort=f"cohort-{number // _QUEUES_OF_COHORT}",
            resource_groups=_groups(0),
            namespace_selector=WireSelector(),
        )
        yield LocalQueue(namespace=NAMESPACE, name=name, cluster_queue=name)


def _groups(gpus: int) -> tuple[ResourceGroup, ...]:
    return resource_groups(GPU, "gpus", ResourceQuota(nominal=gpus))


def _running(point: Point) -> Iterator[tuple[Workload, int]]:
    """Yield a Workload for each node, in the cohort that has its quota."""
    cohorts = math.ceil(point.queues / _QUEUES_OF_COHORT)
    for number in range(point.nodes):
        cohort, turn = number % cohorts, number // cohorts
        members = min(_QUEUES_OF_COHORT, point.queues - cohort * _QUEUES_OF_COHORT)
        yield _workload(f"running-{number:06}", cohort * _QUEUES_OF_COHORT + turn % members), number


def waiting(point: Point) -> Iterator[Workload]:
    for number in range(point.pending):
        yield _workload(f"pending-{number:06}", number % point.queues, at=1.0)


def _workload(name: str, queue: int, *, at: float = 0.0) -> Workload:
    template = pod_template(GPU, str(_GPUS))
    asked = TopologyRequest(preferred=RACK)
    return Workload(
        key=WorkloadKey(NAMESPACE, name),
        uid=name,
        created_at=at,
        pod_sets=(PodSet(name="main", count=1, template=template, topology_request=asked),),
        queue_name=_queue(queue),
        generation=1,
    )


def _admission(workload: Workload, node: int) -> Admission:
    where = TopologyAssignment(levels=(HOST,), domains=(DomainCount(values=(f"n{node:05}",), count=1),))
    assignment = PodSetAssignment(
        name="main", count=1, flavors={GPU: "gpus"}, usage={GPU: _GPUS}, topology=where
    )
    return Admission(cluster_queue=workload.queue_name, pod_sets=(assignment,))


def _queue(number: int) -> str:
    return f"queue-{number:04}"


def curve(axis: str, sizes: Sequence[int], fixed: Point, ends: int) -> Iterator[tuple[int, Figures]]:
    """Yield the figures of each point on an axis, each measured in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=context) as pool:
        for size in sizes:
            yield size, pool.submit(measure, replace(fixed, **{axis: size}), ends).result()


def growth(points: Sequence[tuple[int, Figures]]) -> dict[str, float]:
    """Return by column the power of the axis with which it grows over the largest points."""
    largest = points[-_LARGEST:]
    return {
        column: power([(size, getattr(figures, column)) for size, figures in largest]) for column in _LINEAR
    }


def not_linear(powers: dict[str, float]) -> list[str]:
    """Return the columns whose growth makes the whole work, or the memory, more than linear."""
    return [column for column, found in powers.items() if found > _LINEAR[column] + _NOISE]


_HEADINGS = ("MB", "intake µs", "first ms", "decision µs", "step ms")


def _row(first: str, cells: Sequence[str]) -> str:
    return f"{first:>10}" + "".join(f"{cell:>13}" for cell in cells)


def to_row(size: int, figures: Figures) -> str:
    """Return a line of the table."""
    cells = (figures.mb, figures.intake_us, figures.first_ms, figures.decision_us)
    late = " over 50" if figures.step_ms > STEP_TARGET_MS else ""
    return _row(f"{size:,}", [*(f"{cell:,.0f}" for cell in cells), f"{figures.step_ms:,.1f}"]) + late


def _summary(axis: str, powers: dict[str, float]) -> str:
    grows = _row("power", [f"{found:.2f}" for found in powers.values()])
    beyond = not_linear(powers)
    verdict = f"not linear: {', '.join(beyond)}" if beyond else "linear"
    return f"{grows}\n{axis}: {verdict}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the axes and print a table or JSON."""
    asked = _parser().parse_args(arguments)
    if asked.restart is not None:
        asyncio.run(_restart(asked.server, asked.restart, as_json=asked.output == "json"))
        return 0
    axes, fixed = (_QUICK_AXES, _QUICK_POINT) if asked.quick else (AXES, Point())
    found: dict[str, list[tuple[int, Figures]]] = {}
    for axis in [asked.axis] if asked.axis else axes:
        if asked.output == "table":
            print(_row(axis, _HEADINGS), flush=True)
        points = found[axis] = []
        for size, figures in curve(axis, axes[axis], fixed, _QUICK_ENDS if asked.quick else _ENDS):
            points.append((size, figures))
            if asked.output == "table":
                print(to_row(size, figures), flush=True)
        if asked.output == "table":
            print(_summary(axis, growth(points)), flush=True)
    if asked.output == "json":
        print(json.dumps({axis: _as_json(axis, points, fixed) for axis, points in found.items()}, indent=1))
    if asked.picture is not None:
        asked.picture.write_text(picture(found))
    return 0


async def _restart(server: str, total: int, *, as_json: bool) -> None:
    found = []
    async for started in restart.measure(server, total):
        found.append(asdict(started))
        if not as_json:
            print(started.to_text(), flush=True)
    if as_json:
        print(json.dumps({"workloads": total, "server": server, "starts": found}, indent=1))


def _as_json(axis: str, points: Sequence[tuple[int, Figures]], fixed: Point) -> dict[str, Any]:
    powers = growth(points)
    return {
        "points": [{**asdict(replace(fixed, **{axis: size})), **asdict(figures)} for size, figures in points],
        "power": powers,
        "notLinear": not_linear(powers),
    }


def picture(found: dict[str, list[tuple[int, Figures]]]) -> str:
    """Return an SVG with memory and the cost of a decision along each axis, on logarithmic scales."""
    columns = (("mb", "memory in MB"), ("decision_us", "CPU µs for an end and its admission"))
    return to_svg(
        [
            Curve(
                title=f"{words}, by {_AXIS_WORDS[axis]}",
                points=tuple((size, getattr(figures, column)) for size, figures in points),
            )
            for axis, points in found.items()
            for column, words in columns
        ]
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="two small points of each axis, in a minute")
    parser.add_argument("--axis", choices=tuple(AXES), help="this axis only")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--restart", type=int, metavar="WORKLOADS", help="start a controller twice with so many Workloads"
    )
    parser.add_argument(
        "--server", choices=tuple(SERVERS), default="embedded", help="of --restart; default embedded"
    )
    parser.add_argument("--picture", type=Path, help="write the curves as an SVG to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
