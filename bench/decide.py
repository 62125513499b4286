"""Decisions per second of the core alone: `python -m bench.decide`. No API server, no Redis, no clock.

Four shapes in virtual time, with every decision carried out at once:
- backlog: 15,000 Workloads in 5 cohorts of 6 ClusterQueues, small, medium and large ones mixed as in Kueue's
  own scalability test, all submitted at the start;
- baseline: the same, arriving at that test's pace, so that later ones of higher
  priority preempt earlier ones;
- wide: 1,000 ClusterQueues in one tree of cohorts, so that every change affects all of them;
- placed: a fifth of the baseline, whose gangs need a place in a rack of 640 nodes that have room for all, and
  whose runs end one at a time.

A full cluster (full): about 2,000 Workloads run and 15,000 wait, and at each end a successor is chosen. The
output is the cost of such an end, with everything that follows.

One search (search): a Workload that has to preempt some of 700 running ones in 20 ClusterQueues.

The output is Workloads per second of engine time, the time of a cycle, the number of decisions, and two
digests: of admissions and evictions, and of these and all waits. A change that leaves both equal has
changed no decision, no place and no message. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

import msgspec

from admission.controller.runtime.gc_freeze import keep_collector_off_what_lives_long
from admission.decisions.decision import Admit, Decision, Evict
from admission.engine.engine import Engine
from api.node import NodeInfo
from api.objects.common import WireSelector
from api.queueing import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceQuota,
    Topology,
)
from api.reasons import ConditionType
from api.workload import (
    Admission,
    Condition,
    PodSet,
    PodSetAssignment,
    TopologyRequest,
    Workload,
    WorkloadKey,
)
from bench.cluster import NAMESPACE, STEP_TARGET_MS, admitted, pod_template, resource_groups, with_conditions
from bench.placement import HOST, RACK

_TARGET_PER_SECOND = 10_000
_SEARCH_TARGET_MS = 100.0
_CANDIDATES = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """Workloads of one kind in every ClusterQueue: their number, size, interval and run time."""

    name: str
    count: int
    cpu: int
    priority: int
    every_seconds: float
    run_seconds: float
    pods: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A cluster and its Workloads. `depth` is the number of cohort levels above a ClusterQueue.

    With `nodes`, pods are placed by topology. Runs end `apart_seconds` after each other at least.
    """

    name: str
    cohorts: int
    queues_per_cohort: int
    depth: int
    nominal_cpu: int
    borrowing_cpu: int
    classes: tuple[Class, ...]
    nodes: int = 0
    apart_seconds: float = 0.0

    def queues(self) -> Iterator[tuple[str, str]]:
        """Yield the ClusterQueues, each with its cohort."""
        for cohort in range(self.cohorts):
            for queue in range(self.queues_per_cohort):
                yield f"queue-{cohort}-{queue}", f"cohort-{cohort}"


BASELINE = Shape(
    name="baseline",
    cohorts=5,
    queues_per_cohort=6,
    depth=1,
    nominal_cpu=20,
    borrowing_cpu=100,
    classes=(
        Class(name="small", count=350, cpu=1, priority=50, every_seconds=0.1, run_seconds=0.2),
        Class(name="medium", count=100, cpu=5, priority=100, every_seconds=0.5, run_seconds=0.5),
        Class(name="large", count=50, cpu=20, priority=200, every_seconds=1.2, run_seconds=1.0),
    ),
)
_BACKLOG = replace(
    BASELINE, name="backlog", classes=tuple(replace(one, every_seconds=0.0) for one in BASELINE.classes)
)
_WIDE = Shape(
    name="wide",
    cohorts=50,
    queues_per_cohort=20,
    depth=2,
    nominal_cpu=20,
    borrowing_cpu=100,
    classes=(
        Class(name="small", count=10, cpu=5, priority=50, every_seconds=0.1, run_seconds=0.4),
        Class(name="large", count=5, cpu=20, priority=100, every_seconds=0.2, run_seconds=1.0),
    ),
)
_PODS = {"small": 2, "medium": 4, "large": 8}
_PLACED = replace(
    BASELINE,
    name="placed",
    nodes=640,
    apart_seconds=0.02,
    classes=tuple(replace(one, count=one.count // 5, pods=_PODS[one.name]) for one in BASELINE.classes),
)

# Equal priorities, so that no Workload is preempted; distinct run times, so that they end one at a time.
_FULL = replace(
    _BACKLOG,
    name="full",
    nominal_cpu=250,
    classes=tuple(
        replace(one, count=count, priority=50, run_seconds=1000.0)
        for one, count in zip(BASELINE.classes, (400, 110, 57), strict=True)
    ),
)
_ENDS = 2_000


class Digest:
    """Digests of decisions in their order: of those that start or stop Workloads, and of all."""

    def __init__(self) -> None:
        self._acts = hashlib.blake2b(digest_size=6)
        self._all = hashlib.blake2b(digest_size=6)

    def add(self, decisions: Iterable[Decision], now: float) -> None:
        """Count what a cycle has decided at `now`."""
        for decision in decisions:
            # Sorted, because the order of a mapping's keys is no part of a decision.
            text = msgspec.json.encode((now, decision), order="sorted", enc_hook=_plain)
            self._all.update(text)
            if isinstance(decision, Admit | Evict):
                self._acts.update(text)

    def __str__(self) -> str:
        return f"digest {self._acts.hexdigest()}, with waits {self._all.hexdigest()}"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value)} has no plain form")


@dataclass(slots=True)
class Run:
    """A run of one shape: the engine, the virtual clock, and the events that are due."""

    shape: Shape
    engine: Engine = field(default_factory=Engine)
    due: list[tuple[float, int, str, Workload]] = field(default_factory=list)
    workloads: dict[WorkloadKey, Workload] = field(default_factory=dict)
    run_seconds: dict[WorkloadKey, float] = field(default_factory=dict)
    engine_seconds: float = 0.0
    # The cost of each end with what follows from it. `most_ends` stops the run after that many.
    most_ends: int | None = None
    end_seconds: list[float] = field(default_factory=list)
    longest_cycle_seconds: float = 0.0
    longest_step_seconds: float = 0.0
    cycles: int = 0
    admits: int = 0
    evicts: int = 0
    finished: int = 0
    digest: Digest = field(default_factory=Digest)
    _sequence: int = 0
    _last_end: float = 0.0

    def go(self) -> None:
        """Submit everything, and decide until all Workloads have finished."""
        for value in _cluster(self.shape):
            self.engine.objects.upsert(value, now=0.0)
        for at, workload, seconds in _submissions(self.shape):
            self.run_seconds[workload.key] = seconds
            self._plan(at, "submit", workload)
        keep_collector_off_what_lives_long()
        while self.due and (self.most_ends is None or self.finished < self.most_ends):
            now = self.due[0][0]
            finished, spent = self.finished, self.engine_seconds
            while self.due and self.due[0][0] == now:
                _, _, what, workload = heappop(self.due)
                self._happen(what, workload, now)
            self._decide(now)
            if self.finished > finished:
                self.end_seconds.append((self.engine_seconds - spent) / (self.finished - finished))

    def _plan(self, at: float, what: str, workload: Workload) -> None:
        self._sequence += 1
        heappush(self.due, (round(at, 6), self._sequence, what, workload))

    def _happen(self, what: str, workload: Workload, now: float) -> None:
        if what == "finish":
            if self.workloads[workload.key] is not workload:
                return  # evicted meanwhile
            workload = with_conditions(workload, Condition(type=ConditionType.FINISHED, status=True, at=now))
            self.finished += 1
        self._put(workload, now)

    def _put(self, workload: Workload, now: float) -> None:
        self.workloads[workload.key] = workload
        began = time.process_time()
        self.engine.objects.upsert(workload, now=now)
        self.engine_seconds += time.process_time() - began

    def _decide(self, now: float) -> None:
        while True:
            began = time.process_time()
            decisions = self._cycle(now) if self.engine.wake_heads(now=now) else None
            spent = time.process_time() - began
            self.engine_seconds += spent
            if decisions is None:
                return
            self.cycles += 1
            self.longest_cycle_seconds = max(self.longest_cycle_seconds, spent)
            self.digest.add(decisions, now)
            for decision in decisions:
                self._carry_out(decision, now)

    def _cycle(self, now: float) -> tuple[Decision, ...]:
        """Run a cycle in steps, as the controller does, which handles events between two of them."""
        cycle = self.engine.begin_cycle(now=now)
        at, goes_on = time.process_time(), True
        while goes_on:
            goes_on = cycle.step()
            was, at = at, time.process_time()
            self.longest_step_seconds = max(self.longest_step_seconds, at - was)
        return tuple(cycle.decisions)

    def _carry_out(self, decision: Decision, now: float) -> None:
        workload = self.workloads[decision.key]
        if isinstance(decision, Admit):
            self.admits += 1
            workload = replace(
                with_conditions(
                    workload,
                    Condition(type=ConditionType.QUOTA_RESERVED, status=True, at=now),
                    Condition(type=ConditionType.ADMITTED, status=True, at=now),
                    Condition(type=ConditionType.EVICTED, status=False, at=now),
                ),
                admission=decision.admission,
            )
            self._put(workload, now)
            # With `most_ends` the run times are spread, so that no two Workloads end at the same instant.
            spread = self.admits * 0.137 if self.most_ends is not None else 0.0
            ends = now + self.run_seconds[workload.key] + spread % 997
            if self.shape.apart_seconds:
                ends = self._last_end = max(ends, self._last_end + self.shape.apart_seconds)
            self._plan(ends, "finish", workload)
        elif isinstance(decision, Evict):
            self.evicts += 1
            # Its pods stop at once: it is evicted, and then loses its quota.
            evicted = Condition(type=ConditionType.EVICTED, status=True, reason=decision.reason, at=now)
            reserved = Condition(type=ConditionType.QUOTA_RESERVED, status=False, at=now)
            self._put(replace(with_conditions(workload, evicted, reserved), admission=None), now)


def _cluster(
    shape: Shape,
) -> Iterator[Namespace | Topology | NodeInfo | ResourceFlavor | Cohort | ClusterQueue | LocalQueue]:
    yield Namespace(name=NAMESPACE)
    if shape.nodes:
        yield Topology(name="default", levels=(RACK, HOST))
    for number in range(shape.nodes):
        labels = {RACK: f"rack-{number // 64}", HOST: f"node-{number}"}
        yield NodeInfo(name=labels[HOST], labels=labels, allocatable={"cpu": 96_000, "pods": 110})
    yield ResourceFlavor(name="default", topology_name="default" if shape.nodes else None)
    if shape.depth > 1:
        for cohort in range(shape.cohorts):
            yield Cohort(name=f"cohort-{cohort}", parent="root")
    quota = ResourceQuota(nominal=shape.nominal_cpu * 1000, borrowing_limit=shape.borrowing_cpu * 1000)
    groups = resource_groups("cpu", "default", quota)
    for name, cohort_name in shape.queues():
        yield ClusterQueue(
            name=name,
            cohort=cohort_name,
            resource_groups=groups,
            namespace_selector=WireSelector(),
            preemption=Preemption(
                within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY,
                reclaim_within_cohort=PreemptionPolicy.ANY,
            ),
        )
        yield LocalQueue(namespace=NAMESPACE, name=name, cluster_queue=name)


def _workload(name: str, queue: str, *, cpu: int, priority: int, at: float = 0.0, pods: int = 1) -> Workload:
    topology = TopologyRequest(required=RACK) if pods > 1 else None
    template = pod_template("cpu", f"{1000 * cpu // pods}m")
    return Workload(
        key=WorkloadKey(NAMESPACE, name),
        uid=name,
        created_at=at,
        pod_sets=(PodSet(name="main", count=pods, template=template, topology_request=topology),),
        queue_name=queue,
        priority=priority,
        generation=1,
    )


def _running(workload: Workload, *, cpu: int) -> Workload:
    assignment = PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, usage={"cpu": cpu * 1000})
    return admitted(workload, Admission(cluster_queue=workload.queue_name, pod_sets=(assignment,)), 0.0)


def _submissions(shape: Shape) -> Iterator[tuple[float, Workload, float]]:
    for class_ in shape.classes:
        for queue, _ in shape.queues():
            for index in range(class_.count):
                at = round((index + 1) * class_.every_seconds, 6)
                name = f"{queue}-{class_.name}-{index}"
                workload = _workload(
                    name, queue, cpu=class_.cpu, priority=class_.priority, at=at, pods=class_.pods
                )
                yield at, workload, class_.run_seconds


def _report(shape: Shape) -> str:
    run = Run(shape)
    run.go()
    total = len(run.workloads)
    decisions = run.admits + run.evicts
    return (
        f"{shape.name:<9} {total:>6} workloads, {len(list(shape.queues())):>5} queues: "
        f"{total / run.engine_seconds:>8,.0f} workloads/s, {decisions / run.engine_seconds:>8,.0f} "
        f"decisions/s of engine time (target {_TARGET_PER_SECOND:,}); "
        f"{run.cycles:,} cycles, mean {1000 * run.engine_seconds / run.cycles:.2f} ms, "
        f"longest {1000 * run.longest_cycle_seconds:.1f} ms, longest step without a pause "
        f"{1000 * run.longest_step_seconds:.1f} ms (target {STEP_TARGET_MS:.0f}); "
        f"{run.admits:,} admissions, {run.evicts:,} evictions; {run.digest}"
    )


def _full() -> str:
    """Return a line with the cost of an end while thousands of Workloads wait."""
    run = Run(_FULL, most_ends=_ENDS)
    run.go()
    running, times = run.admits - run.finished, sorted(run.end_seconds)
    return (
        f"full      {running:>6} running, {len(run.workloads) - run.admits:,} waiting: an end costs "
        f"{1e6 * sum(times) / len(times):,.0f} µs, at the 99th percentile "
        f"{1e6 * times[len(times) * 99 // 100]:,.0f} µs, and {run.cycles / run.finished:.1f} cycles; longest "
        f"step without a pause {1000 * run.longest_step_seconds:.1f} ms (target {STEP_TARGET_MS:.0f}); "
        f"{run.digest}"
    )


def _search() -> str:
    """Return a line with the time of a cycle that has to find victims among 700 running Workloads."""
    shape = replace(_WIDE, cohorts=1, queues_per_cohort=21, nominal_cpu=34, classes=())
    engine = Engine()
    for value in _cluster(shape):
        engine.objects.upsert(value, now=0.0)
    for index in range(_CANDIDATES):
        workload = _workload(f"running-{index:03}", f"queue-0-{1 + index % 20}", cpu=1, priority=index % 7)
        engine.objects.upsert(_running(workload, cpu=1), now=0.0)
    # Every other queue borrows 1 CPU of the first one's 34; 14 are free, so 6 must be reclaimed.
    engine.objects.upsert(_workload("urgent", "queue-0-0", cpu=20, priority=9), now=1.0)
    engine.wake_heads(now=1.0)
    began = time.process_time()
    decisions = engine.cycle(now=1.0)
    spent = time.process_time() - began
    victims = sum(1 for one in decisions if isinstance(one, Evict))
    digest = Digest()
    digest.add(decisions, 1.0)
    return (
        f"search    {_CANDIDATES:>6} candidates, 20 queues: {1000 * spent:.1f} ms for {victims} victims "
        f"(target {_SEARCH_TARGET_MS:.0f} ms; Kueue: up to 40 s a cycle on 2,000 nodes with topology); "
        f"{digest}"
    )


def main() -> None:
    """Run all shapes, or the named one, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    shapes = {shape.name: shape for shape in (_BACKLOG, BASELINE, _WIDE, _PLACED)}
    parser.add_argument("what", nargs="?", choices=(*shapes, "full", "search"))
    chosen = parser.parse_args().what
    for name, shape in shapes.items():
        if chosen in (None, name):
            print(_report(shape), flush=True)
    if chosen in (None, "full"):
        print(_full(), flush=True)
    if chosen in (None, "search"):
        print(_search())


if __name__ == "__main__":
    main()
