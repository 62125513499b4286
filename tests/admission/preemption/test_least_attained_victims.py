"""The victims under LeastAttained, in order: by level and loss, or node by node where pods need places."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from math import inf
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import given

from admission.placement.topology.place import taken_per_pod
from admission.placement.topology.request import PlacementRequest
from admission.preemption.least_attained_victims import LeastAttainedVictims
from api.jobs.resource_requests import PODS
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.policy import AdmissionPolicy, Ordering, OrderingMode, PreemptionRules
from api.queueing import ResourceFlavor, Topology
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from queues.quota.resources import FlavorResource
from tests.admission.preemption.test_lost_work import placed
from tests.builders import (
    NAMESPACE,
    World,
    make_cluster_queue,
    make_condition,
    make_group,
    make_pod_set,
    make_workload,
    reserved,
    with_conditions,
)
from tests.examples import trying

GPU = "nvidia.com/gpu"
NOW = 120_000.0
NODES = ("a", "b", "c")
ENDS = (5000.0, 20_000.0)
TURNS = AdmissionPolicy(
    name="turns",
    ordering=Ordering(mode=OrderingMode.LEAST_ATTAINED, age_seconds=None, level_ends=ENDS),
    preemption=PreemptionRules(
        minimum_runtime_seconds=600, default_save_seconds=40, default_restart_seconds=20
    ),
)


class Job(NamedTuple):
    """A Workload with a pod of `gpus` on each of its nodes."""

    nodes: tuple[str, ...]
    gpus: int
    ran: int
    queued_at: int
    save_seconds: int
    priority: int = 0
    is_leaving: bool = False

    @property
    def service(self) -> int:
        """The device-seconds that it has received."""
        return len(self.nodes) * self.gpus * self.ran

    @property
    def level(self) -> int:
        """The level of its service."""
        return bisect_right(ENDS, self.service)

    @property
    def loss(self) -> int:
        """The loss of its eviction: it is asked to save, and starts again."""
        return len(self.nodes) * self.gpus * (self.save_seconds + 20)


def plain_order(jobs: dict[str, Job]) -> list[str]:
    """Return what a new Workload may preempt, the highest level first, then the least loss."""
    able = [name for name, job in jobs.items() if job.level > 0 and job.ran >= 600 and not job.priority]
    return sorted(able, key=lambda one: (-jobs[one].level, jobs[one].loss, -jobs[one].queued_at, one))


def plain_by_node(jobs: dict[str, Job], count: int, gpus: int) -> list[str]:
    """Return the same node by node: those come first that make room for a pod on the cheapest node."""
    able = plain_order(jobs)
    nodes: list[tuple[tuple[float, float, float, list[str]], list[str]]] = []
    room = 0
    for node in NODES:
        here = [name for name in able if node in jobs[name].nodes]
        pods = _free(jobs, node, here) // gpus
        room += pods
        victims: list[str] = []
        while _free(jobs, node, victims) < gpus and len(victims) < len(here):
            victims.append(here[len(victims)])
        paying = [jobs[name] for name in victims if not jobs[name].is_leaving]
        level, loss = min((job.level for job in paying), default=inf), sum(job.loss for job in paying)
        oldest = min((jobs[name].queued_at for name in victims), default=0)
        if pods:
            nodes.append(((-level, loss, -oldest, victims), victims))
    found = [name for _, victims in sorted(nodes) for name in victims]
    return list(dict.fromkeys(found)) if room >= count else []


def _free(jobs: dict[str, Job], node: str, gone: Collection[str]) -> int:
    return 8 - sum(job.gpus for name, job in jobs.items() if node in job.nodes and name not in gone)


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Job]:
    """Return Jobs on nodes of 8 GPUs."""
    jobs: dict[str, Job] = {}
    for number in range(draw(st.integers(2, 9))):
        job = Job(
            nodes=tuple(draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=2, unique=True))),
            gpus=draw(st.integers(1, 6)),
            ran=draw(st.sampled_from([599, 600, 3000, 9000])),
            queued_at=draw(st.integers(0, 2)),
            save_seconds=draw(st.sampled_from([10, 30, 60])),
            priority=draw(st.sampled_from([0, 0, 0, 1])),
            is_leaving=draw(st.sampled_from([False, False, False, True])),
        )
        if all(_free(jobs, node, ()) >= job.gpus for node in job.nodes):
            jobs[f"w{number}"] = job
    return jobs


class _Case:
    """The Jobs in an engine, and the victims for a new Workload."""

    def __init__(self, jobs: dict[str, Job], *placing: PlacementRequest) -> None:
        world = World(now=NOW).put(
            TURNS,
            Topology(name="t", levels=(HOSTNAME,)),
            ResourceFlavor(name="default", topology_name="t"),
            *(NodeInfo(name=one, labels={HOSTNAME: one}, allocatable={GPU: 8, PODS: 99}) for one in NODES),
            make_cluster_queue(groups=(make_group(default=24, resource=GPU),)),
            *(_held(name, job) for name, job in jobs.items()),
            make_workload("new", pod_sets=(make_pod_set(requests={GPU: 1}),), at=NOW),
        )
        world.engine.wake_heads(now=NOW)
        ((queue, pending),) = world.engine._workload_store.trees.pop_heads(9)
        self.snapshot = world.engine._cache.snapshot(now=NOW)
        self.queue, self.pending, self.placing = queue, pending, placing
        self.victims = self.new_search()

    def new_search(self) -> LeastAttainedVictims:
        """Return a search that has found nothing yet."""
        pairs = frozenset({FlavorResource("default", GPU)})
        return LeastAttainedVictims(self.snapshot, self.queue, self.pending, pairs, self.placing)

    def evict(self, name: str) -> None:
        """Let the cycle evict a Workload."""
        self.snapshot.evictions.evict(self.queue, self.queue.held[WorkloadKey(NAMESPACE, name)])

    def names(self, *, is_evicted: bool) -> list[str]:
        """Return the victims that are leaving already, or the others."""
        return [held.key.name for held in self.victims.in_order(is_evicted=is_evicted)]


def _held(name: str, job: Job) -> Workload:
    pods = make_pod_set(count=len(job.nodes), requests={GPU: job.gpus})
    workload = make_workload(
        name,
        pod_sets=(pods,),
        at=float(job.queued_at),
        priority=job.priority,
        uid=name,
        annotations={"berth.dev/checkpoint-save-seconds": str(job.save_seconds)},
    )
    running = placed(reserved(workload, at=NOW - job.ran), *job.nodes)
    evicted = make_condition(ConditionType.EVICTED, reason="Preempted", at=NOW)
    return with_conditions(running, evicted) if job.is_leaving else running


def _request(count: int, gpus: int) -> PlacementRequest:
    return PlacementRequest(pod_set="main", flavor="default", count=count, per_pod=taken_per_pod({GPU: gpus}))


@trying(60)
@given(clusters())
def test_without_places_the_highest_level_comes_first_and_then_the_least_loss(jobs: dict[str, Job]) -> None:
    case = _Case(jobs)
    want = plain_order(jobs)

    assert case.victims.is_empty is not any(job.level and job.ran >= 600 for job in jobs.values())
    for is_leaving in (True, False):
        named = [name for name in want if jobs[name].is_leaving is is_leaving]
        assert case.names(is_evicted=is_leaving) == named
    if want:
        case.evict(want[0])
        assert want[0] not in case.names(is_evicted=jobs[want[0]].is_leaving)


@trying(120)
@given(clusters(), st.integers(1, 4), st.integers(3, 8))
def test_a_gang_gets_victims_node_by_node(jobs: dict[str, Job], count: int, gpus: int) -> None:
    case = _Case(jobs, _request(count, gpus))
    want = plain_by_node(jobs, count, gpus)

    found = {is_leaving: case.names(is_evicted=is_leaving) for is_leaving in (True, False)}

    assert found == {
        is_leaving: [name for name in want if jobs[name].is_leaving is is_leaving]
        for is_leaving in (True, False)
    }


def test_a_search_that_failed_is_repeated_at_the_next_look() -> None:
    job = Job(("a",), 8, 9000, 0, 10)
    higher = {node: job._replace(nodes=(node,), priority=1) for node in "bc"}
    case = _Case({"w": job, **higher}, _request(2, 8))
    assert case.names(is_evicted=False) == []

    # Room has come, of which the search takes no notice within a minute.
    case.evict("b")
    case.victims = case.new_search()
    assert case.names(is_evicted=False) == []

    case.snapshot.now = NOW + 60
    case.victims = case.new_search()
    assert case.names(is_evicted=False) == ["w"]
