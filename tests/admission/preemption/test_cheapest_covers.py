"""The nodes that are freed for a gang, compared with a search of all nodes and all sets of victims.

Rack a has the nodes a1 and a2, rack b the nodes b1 and b2. Each has 8 GPUs, 8 CPUs and places for 3 pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from admission.engine.engine import Engine
from admission.placement.topology.place import taken_per_pod
from admission.placement.topology.request import PlacementRequest
from admission.preemption.candidate_pools import Pools
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.node_cover import cheapest_covers, may_make_room
from admission.preemption.preemption_request import CandidateOrder, PreemptionRequest
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import PODS
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.objects.common import WireTaint
from api.policy import AdmissionPolicy, PreemptionRules
from api.queueing import (
    FlavorQuotas,
    LocalQueue,
    Namespace,
    ResourceFlavor,
    ResourceGroup,
    Topology,
)
from api.reasons import ConditionType
from api.workload import TopologyRequest, Workload, WorkloadKey
from queues.quota.resources import FlavorResource
from queues.steps import finish
from tests.admission.preemption.test_lost_work import LOWER, NOW, RACK, placed, running
from tests.builders import (
    NAMESPACE,
    make_cluster_queue,
    make_condition,
    make_pod_set,
    make_quota,
    make_workload,
    with_conditions,
)
from tests.examples import trying

NODES = ("a1", "a2", "b1", "b2")
# Two nodes of another flavor.
SIDE = ("c1", "c2")
FLAVORS = ("default", "side")
RACKS = {"a": ("a1", "a2"), "b": ("b1", "b2")}
RESTART = 30
PRIORITY = 5
# How grave an eviction is: whether it is of the preemptor's own queue, and the priority; and what is lost.
Cost = tuple[tuple[bool, float], float]
NOTHING: Cost = ((False, -inf), 0.0)


class Job(NamedTuple):
    """A Job with a pod of `gpus` and `cpus` on each of its nodes, that saved `saved` seconds ago."""

    nodes: tuple[str, ...]
    gpus: int
    cpus: int = 0
    saved: int = 0
    priority: int = 0
    queue: str = "queue"
    is_leaving: bool = False
    flavor: str = "default"

    @property
    def cost(self) -> Cost:
        """What its eviction costs."""
        if self.is_leaving:
            return NOTHING
        devices = max(1, self.gpus * len(self.nodes))
        return (self.queue == "queue", float(self.priority)), float(devices * (self.saved + RESTART))


class Pods(NamedTuple):
    """The pods that need room."""

    number: int
    gpus: int
    cpus: int = 0
    required: str | None = None
    preferred: str | None = None
    flavor: str = "default"


class Cluster(NamedTuple):
    """Nodes with Jobs; the pods must not use those that are `tainted`."""

    jobs: Mapping[str, Job]
    tainted: frozenset[str] = frozenset()

    def room(self, pods: Pods, nodes: Collection[str], gone: Collection[str]) -> int:
        """Return how many of the pods fit on these nodes with these Jobs gone, node by node."""
        total = 0
        for node in nodes:
            staying = [job for name, job in self.jobs.items() if node in job.nodes and name not in gone]
            free = 8 - sum(job.gpus for job in staying), 8 - sum(job.cpus for job in staying)
            asked = (free[0], pods.gpus), (free[1], pods.cpus), (3 - len(staying), 1)
            total += 0 if node in self.tainted else min(max(0, one // each) for one, each in asked if each)
        return total

    def cost(self, gone: Collection[str]) -> Cost:
        """Return the highest severity of these evictions, and the sum of their losses."""
        costs = [self.jobs[name].cost for name in gone]
        return max((severity for severity, _ in costs), default=NOTHING[0]), sum(lost for _, lost in costs)

    def regions(self, pods: Pods) -> list[tuple[str, ...]]:
        """Return the nodes of each domain of which one must hold all pods."""
        if pods.required is None and pods.preferred is None:
            return [NODES]
        return [*RACKS.values(), *([NODES] if pods.required is None else [])]

    def candidates(self) -> list[str]:
        """Return the Jobs that may be evicted: lower ones, and those of the other queue where it borrows."""
        is_borrowing = any(job.queue == "other" and (job.gpus or job.cpus) for job in self.jobs.values())
        return [
            name
            for name, job in self.jobs.items()
            if (is_borrowing if job.queue == "other" else job.priority < PRIORITY)
        ]


class _Case:
    """The cluster in an engine, as a search reads it."""

    def __init__(self, cluster: Cluster, *pods: Pods, rules: PreemptionRules | None = None) -> None:
        engine = Engine()
        names = ("gpu", "cpu")
        values: list[Any] = [
            Namespace(name=NAMESPACE),
            AdmissionPolicy(
                name="policy", uid="p", preemption=rules or PreemptionRules(minimum_runtime_seconds=0)
            ),
            Topology(name="t", levels=(RACK, HOSTNAME)),
            *(ResourceFlavor(name=one, topology_name="t", node_labels={"of": one}) for one in FLAVORS),
            *(_node(name, is_tainted=name in cluster.tainted) for name in (*NODES, *SIDE)),
        ]
        for queue, quota in (("queue", 64), ("other", 0)):
            amounts = {one: make_quota(quota, resource=one) for one in names}
            quotas = tuple(FlavorQuotas(name=one, resources=amounts) for one in FLAVORS)
            group = ResourceGroup(covered_resources=names, flavors=quotas)
            values.append(make_cluster_queue(queue, groups=(group,), preemption=LOWER, cohort="team"))
            values.append(LocalQueue(namespace=NAMESPACE, name=queue, cluster_queue=queue))
        values += [_held(name, job) for name, job in cluster.jobs.items()]
        values.append(make_workload("incoming", priority=PRIORITY, at=NOW))
        for value in values:
            engine.objects.upsert(value, now=NOW)
        engine.wake_heads(now=NOW)
        ((_, pending),) = engine._workload_store.trees.pop_heads(256)
        self.snapshot: Snapshot = engine._cache.snapshot(now=NOW)
        self.need = PreemptionRequest(
            queue=self.snapshot.queues["queue"],
            pending=pending,
            usage={},
            pairs=frozenset(FlavorResource(flavor, one) for flavor in FLAVORS for one in names),
            losses=EvictionLosses(now=NOW),
            order=CandidateOrder.LOSS,
            placing=tuple(_request(one, f"p{number}") for number, one in enumerate(pods)),
        )

    def covers(self, most: int = 9) -> list[set[str]]:
        """Return the covers, each as the names of its Jobs."""
        found = finish(cheapest_covers(self.snapshot, self.need, Pools(self.snapshot), most=most))
        return [{key.name for key in keys} for keys in found]

    def may_make_room(self, gone: Collection[str]) -> bool:
        """Return whether the pods may have room with these Jobs gone."""
        held = {key: one for queue in self.snapshot.queues.values() for key, one in queue.held.items()}
        leaving = [held[WorkloadKey(NAMESPACE, name)] for name in gone]
        return may_make_room(self.snapshot, self.need, leaving)


def _node(name: str, *, is_tainted: bool) -> NodeInfo:
    return NodeInfo(
        name=name,
        labels={RACK: name[0], HOSTNAME: name, "of": "side" if name in SIDE else "default"},
        allocatable={"gpu": 8, "cpu": 8000, PODS: 3},
        taints=(WireTaint(key="broken", effect="NoSchedule"),) if is_tainted else (),
        is_ready=True,
    )


def _held(name: str, job: Job) -> Workload:
    pods = make_pod_set(count=len(job.nodes), requests={"gpu": job.gpus, "cpu": job.cpus})
    fields: dict[str, Any] = {"queue": job.queue, "priority": job.priority, "ran": 9000}
    workload = placed(running(name, pod_sets=(pods,), saved=job.saved, **fields), *job.nodes)
    assert workload.admission is not None
    (given,) = workload.admission.pod_sets
    flavors = dict.fromkeys(given.flavors, job.flavor)
    admission = replace(workload.admission, pod_sets=(replace(given, flavors=flavors),))
    workload = replace(workload, admission=admission)
    evicted = make_condition(ConditionType.EVICTED, reason="Preempted", at=NOW)
    return with_conditions(workload, evicted) if job.is_leaving else workload


def _request(pods: Pods, name: str) -> PlacementRequest:
    has_topology = pods.required is not None or pods.preferred is not None
    return PlacementRequest(
        pod_set=name,
        flavor=pods.flavor,
        count=pods.number,
        per_pod=taken_per_pod({"gpu": pods.gpus, "cpu": pods.cpus * 1000}),
        topology=TopologyRequest(required=pods.required, preferred=pods.preferred) if has_topology else None,
    )


def _jobs(*, most_on_node: int, most_nodes: int) -> st.SearchStrategy[Cluster]:
    """Return clusters in which no node has more Jobs than that, nor a Job more nodes."""
    job = st.builds(
        Job,
        nodes=st.lists(st.sampled_from(NODES), min_size=1, max_size=most_nodes, unique=True).map(tuple),
        gpus=st.sampled_from([2, 4, 8, 3, 1, 0]),
        cpus=st.sampled_from([0, 4, 2, 8]),
        saved=st.integers(0, 3000),
        priority=st.sampled_from([0, 0, 1, 9]),
        queue=st.sampled_from(["queue", "queue", "other"]),
        is_leaving=st.sampled_from([False, False, False, True]),
        flavor=st.just("default"),
    )

    def packed(drawn: Sequence[Job], tainted: frozenset[str]) -> Cluster:
        jobs: dict[str, Job] = {}
        for one in drawn:
            beside = [[job for job in jobs.values() if node in job.nodes] for node in one.nodes]
            if all(
                len(some) < most_on_node
                and sum(job.gpus for job in some) + one.gpus <= 8
                and sum(job.cpus for job in some) + one.cpus <= 8
                for some in beside
            ):
                jobs[f"w{len(jobs)}"] = one
        return Cluster(jobs, tainted)

    tainted = st.frozensets(st.sampled_from(NODES), max_size=1)
    return st.builds(packed, st.lists(job, min_size=4, max_size=12), tainted)


_DOMAINS: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}, {"required": RACK}, {"preferred": RACK}])


def _sets(names: Collection[str]) -> Iterator[tuple[str, ...]]:
    for size in range(len(names) + 1):
        yield from combinations(names, size)


@trying(80)
@given(_jobs(most_on_node=2, most_nodes=2), st.integers(1, 8), st.integers(0, 8), _DOMAINS, st.integers(1, 3))
def test_a_pod_gets_the_node_and_the_victims_that_cost_least(
    cluster: Cluster, gpus: int, cpus: int, domain: dict[str, Any], most: int
) -> None:
    pods = Pods(1, gpus, cpus, **domain)
    # What is leaving costs as little as what is free, so either may be taken.
    assume(not cluster.room(pods, NODES, ()) or not any(job.is_leaving for job in cluster.jobs.values()))

    covers = _Case(cluster, pods).covers(most)

    want = []
    for nodes in cluster.regions(pods):
        enough = [
            cluster.cost(some)
            for node in nodes
            for some in _sets([name for name in cluster.candidates() if node in cluster.jobs[name].nodes])
            if cluster.room(pods, (node,), some)
        ]
        want += [min(enough)] if enough else []
    if cluster.room(pods, NODES, ()):
        want = []
    assert [cluster.cost(some) for some in covers] == sorted(want)[:most]
    for some in covers:
        assert cluster.room(pods, NODES, some)


@trying(80)
@given(
    _jobs(most_on_node=3, most_nodes=3),
    st.integers(1, 5),
    st.sampled_from([2, 4, 8, 3]),
    st.sampled_from([0, 0, 3]),
    _DOMAINS,
)
def test_a_gang_gets_a_cover_for_each_domain_that_could_hold_it(
    cluster: Cluster, count: int, gpus: int, cpus: int, domain: dict[str, Any]
) -> None:
    pods = Pods(count, gpus, cpus, **domain)
    regions = cluster.regions(pods)
    assume(not any(cluster.room(pods, nodes, ()) >= count for nodes in regions))

    covers = _Case(cluster, pods).covers()

    able = [nodes for nodes in regions if cluster.room(pods, nodes, cluster.candidates()) >= count]
    assert len(covers) == len(able)
    assert all(any(cluster.room(pods, nodes, some) >= count for nodes in able) for some in covers)
    assert all(some <= set(cluster.candidates()) for some in covers)
    costs = [cluster.cost(some) for some in covers]
    assert costs == sorted(costs)


@trying(60)
@given(
    st.dictionaries(
        st.sampled_from(NODES),
        st.tuples(st.sampled_from([0, 1, 9]), st.sampled_from(["queue", "other"]), st.integers(0, 3000)),
        min_size=4,
    ),
    st.integers(1, 4),
    _DOMAINS,
)
def test_a_gang_of_whole_nodes_gets_the_cheapest_nodes_of_each_domain(
    drawn: dict[str, tuple[int, str, int]], count: int, domain: dict[str, Any]
) -> None:
    jobs = {
        f"on-{node}": Job((node,), 8, 0, saved, priority, queue)
        for node, (priority, queue, saved) in drawn.items()
    }
    cluster, pods = Cluster(jobs), Pods(count, 8, **domain)

    covers = _Case(cluster, pods).covers()

    want = []
    for nodes in cluster.regions(pods):
        able = [jobs[name] for name in cluster.candidates() if jobs[name].nodes[0] in nodes]
        cheapest = sorted(job.cost for job in able)[:count]
        if len(cheapest) == count:
            want.append((cheapest[-1][0], sum(lost for _, lost in cheapest)))
    assert [cluster.cost(some) for some in covers] == sorted(want)


@trying(60)
@given(
    _jobs(most_on_node=3, most_nodes=3),
    st.integers(1, 9),
    st.sampled_from([2, 4, 8, 3]),
    st.sampled_from([0, 0, 3]),
    st.data(),
)
def test_room_is_ruled_out_only_where_the_nodes_lack_it_with_the_victims_gone(
    cluster: Cluster, count: int, gpus: int, cpus: int, data: st.DataObject
) -> None:
    pods = Pods(count, gpus, cpus)
    gone = [name for name in cluster.jobs if data.draw(st.booleans())]

    assert _Case(cluster, pods).may_make_room(gone) is (cluster.room(pods, NODES, gone) >= count)


# Evictions cost 480, 1040 and 4240 device-seconds.
THREE = {"x": Job(("a1", "b1"), 8), "y": Job(("a2",), 8, saved=100), "z": Job(("b2",), 8, saved=500)}


ASIDE = {f"on-{node}": Job((node,), 8, saved=100, flavor="side") for node in SIDE}


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(
            [Pods(1, 8), Pods(1, 8)], {"x"}, id="the room that a Job leaves elsewhere serves the next pod set"
        ),
        pytest.param(
            [Pods(2, 8), Pods(2, 4)], {"x", "y"}, id="what one pod set takes is not there for the next"
        ),
        pytest.param([Pods(1, 8, required=RACK), Pods(1, 8)], {"x", "y"}, id="one domain holds all pod sets"),
        pytest.param(
            [Pods(1, 8), Pods(2, 8, flavor="side")], {"x", "on-c1", "on-c2"}, id="each on nodes of its flavor"
        ),
        pytest.param(
            [Pods(1, 8, required=RACK), Pods(2, 8, flavor="side")],
            {"x", "on-c1", "on-c2"},
            id="the domain of one flavor does not bind the pods of another",
        ),
        pytest.param([Pods(1, 8), Pods(3, 8, flavor="side")], None, id="more pods of one flavor than it has"),
        pytest.param([Pods(3, 8), Pods(2, 8)], None, id="more pods in all than the nodes could hold"),
    ],
)
def test_several_pod_sets_are_given_room_together(pods: list[Pods], want: set[str] | None) -> None:
    assert _Case(Cluster({**THREE, **ASIDE}), *pods).covers()[:1] == ([] if want is None else [want])


def test_one_large_victim_goes_where_it_loses_less_than_the_small_ones_that_replace_it() -> None:
    """Each of the small ones loses less than the large one, and for what it frees it loses more."""
    small = {name: Job(("a1",), 2, saved=300) for name in ("s1", "s2")}
    jobs = {**small, "large": Job(("a1",), 4, saved=200)}

    assert _Case(Cluster(jobs, frozenset({"a2", "b1", "b2"})), Pods(1, 4)).covers() == [{"large"}]


def test_a_level_that_the_topology_does_not_have_gives_no_cover() -> None:
    assert _Case(Cluster(THREE), Pods(1, 8, required="zone")).covers() == []


def test_pods_without_places_give_no_cover() -> None:
    assert _Case(Cluster(THREE)).covers() == []


@pytest.mark.parametrize(
    ("number", "want"),
    [pytest.param(1, [], id="its node is free"), pytest.param(3, [{"x"}], id="it is no victim again")],
)
def test_a_workload_that_the_cycle_has_evicted_is_gone(number: int, want: list[set[str]]) -> None:
    case = _Case(Cluster(THREE), Pods(number, 8))
    queue = case.need.queue
    case.snapshot.evictions.evict(queue, queue.held[WorkloadKey(NAMESPACE, "y")])

    assert case.covers() == want


def test_a_workload_that_its_policy_spares_is_no_candidate() -> None:
    rules = PreemptionRules(minimum_runtime_seconds=9100)
    equal = {name: job._replace(priority=PRIORITY) for name, job in THREE.items()}

    assert _Case(Cluster({**THREE, "x": equal["x"]}), Pods(1, 8), rules=rules).covers() == [{"y"}]


def test_only_workloads_that_hold_something_needed_are_candidates() -> None:
    case = _Case(Cluster({**THREE, "idle": Job(("a2",), 0, saved=0)}), Pods(2, 8))
    case.need = replace_pairs(case.need, "gpu")

    assert all("idle" not in some for some in case.covers())


def replace_pairs(need: PreemptionRequest, *names: str) -> PreemptionRequest:
    """Return the request with only these resources to come from evictions."""
    pairs = frozenset(FlavorResource("default", one) for one in names)
    fields = {name: getattr(need, name) for name in need.__struct_fields__}
    return PreemptionRequest(**{**fields, "pairs": pairs})
