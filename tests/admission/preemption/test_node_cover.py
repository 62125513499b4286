"""Which nodes are freed for a gang: those where least is lost, looked at together, not one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given

from api.disruption_budget import DisruptionBudget
from api.keys import HOSTNAME, MIN_REPLICAS, REPLICA_OF, WORKLOAD_TYPE
from api.objects.common import Meta, WireSelector
from api.objects.templates import WirePodTemplate
from api.policy import AdmissionPolicy, PreemptionRules, VictimRules
from api.queueing import FlavorQuotas, ResourceFlavor, ResourceGroup, Topology
from api.workload import TopologyRequest, Workload
from tests.admission.preemption.test_lost_work import LOWER, NOW, RACK, make_node, placed, running
from tests.builders import (
    NAMESPACE,
    World,
    evicts,
    make_cluster_queue,
    make_pod_set,
    make_quota,
    make_template,
    make_workload,
)
from tests.examples import trying

RESTART = 30


class Job(NamedTuple):
    """A Job on these nodes, with `gpus` GPUs on each, that saved `saved` seconds ago."""

    nodes: str
    gpus: int
    saved: int


def make_world(jobs: dict[str, Job], nodes: str, *, pods: int, gpus: int, quota: int | None = None) -> World:
    """Return nodes of 8 GPUs, each named by a letter, what runs there, and a gang that needs room."""
    wanted = make_pod_set(count=pods, requests={"gpu": gpus})
    return World(now=NOW).put(
        AdmissionPolicy(name="policy", uid="p", preemption=PreemptionRules(minimum_runtime_seconds=0)),
        Topology(name="t", levels=(HOSTNAME,)),
        ResourceFlavor(name="default", topology_name="t"),
        *(make_node(name) for name in nodes),
        make_cluster_queue(quota=8 * len(nodes) if quota is None else quota, preemption=LOWER),
        *(_running(name, job, age) for age, (name, job) in enumerate(jobs.items())),
        make_workload("incoming", pod_sets=(wanted,), priority=5, at=NOW),
    )


def _running(name: str, job: Job, age: int) -> Workload:
    """Return the Job's Workload, the first one the last to start: the first in Kueue's order."""
    pod_set = make_pod_set(count=len(job.nodes), requests={"gpu": job.gpus})
    return placed(running(name, pod_sets=(pod_set,), saved=job.saved, ran=9000 + age), *job.nodes)


@pytest.mark.parametrize(
    ("jobs", "pods", "gpus", "want"),
    [
        pytest.param(
            {"x": Job("a", 8, 100), "y": Job("b", 4, 60), "z": Job("b", 4, 10)},
            1,
            8,
            ["y", "z"],
            id="a whole node: the one whose Jobs lose less together",
        ),
        pytest.param(
            {"x": Job("a", 4, 50), "y": Job("a", 4, 500), "z": Job("b", 4, 60), "u": Job("b", 4, 60)},
            1,
            4,
            ["x"],
            id="half a node: one Job of the node where both would lose more",
        ),
        pytest.param(
            {"x": Job("a", 8, 900), "y": Job("b", 8, 20), "z": Job("c", 8, 800), "u": Job("d", 8, 10)},
            2,
            8,
            ["u", "y"],
            id="two nodes that lie anywhere: the two cheapest",
        ),
        pytest.param(
            {"x": Job("ab", 8, 100), "y": Job("c", 8, 90), "z": Job("d", 8, 300)},
            2,
            8,
            ["x"],
            id="a gang on two nodes frees both, though one of another would lose less than it",
        ),
        pytest.param(
            {"x": Job("a", 2, 10), "y": Job("a", 6, 20), "z": Job("b", 8, 50)},
            1,
            6,
            ["y"],
            id="a candidate that turns out not to be needed stays",
        ),
        pytest.param(
            {"x": Job("a", 4, 3000), "y": Job("b", 8, 200)},
            1,
            8,
            ["y"],
            id="what is free already makes no node cheap where the rest loses more",
        ),
    ],
)
def test_nodes_are_freed_where_least_is_lost(
    jobs: dict[str, Job], pods: int, gpus: int, want: list[str]
) -> None:
    nodes = "".join(sorted({node for job in jobs.values() for node in job.nodes}))
    world = make_world(jobs, nodes, pods=pods, gpus=gpus)

    assert sorted(evicts(world.settle())) == want


def test_where_quota_is_short_as_well_the_nodes_alone_do_not_decide() -> None:
    """The cheapest node has half of its GPUs free, but of the quota nothing is left."""
    jobs = {"x": Job("a", 4, 10), "y": Job("b", 8, 20), "z": Job("c", 4, 30)}
    world = make_world(jobs, "abc", pods=1, gpus=8, quota=16)

    assert sorted(evicts(world.settle())) == ["y"]


RACKS = (RACK, HOSTNAME)


def _racks(jobs: dict[str, Job], nodes: str, request: TopologyRequest, *, pods: int, quota: int) -> World:
    """Return nodes each in a rack of its own but `a` and `b`, and a gang that asks for its topology."""
    wanted = make_pod_set(count=pods, requests={"gpu": 8}, topology_request=request)
    return World(now=NOW).put(
        AdmissionPolicy(name="policy", uid="p", preemption=PreemptionRules(minimum_runtime_seconds=0)),
        Topology(name="t", levels=RACKS),
        ResourceFlavor(name="default", topology_name="t"),
        *(replace(make_node(name), labels={RACK: _rack(name), HOSTNAME: name}) for name in nodes),
        make_cluster_queue(quota=quota, preemption=LOWER),
        *(_running(name, job, age) for age, (name, job) in enumerate(jobs.items())),
        make_workload("incoming", pod_sets=(wanted,), priority=5, at=NOW),
    )


def _rack(node: str) -> str:
    return "a" if node in "ab" else node


def test_where_a_rack_is_free_and_quota_short_the_smallest_loss_is_evicted() -> None:
    """Node a is free, and in its rack; of the quota nothing is, and y and z run elsewhere."""
    jobs = {"z": Job("d", 8, 3000), "y": Job("c", 8, 3000), "x": Job("b", 8, 10)}
    world = _racks(jobs, "abcd", TopologyRequest(required=RACK), pods=1, quota=24)

    assert sorted(evicts(world.settle())) == ["x"]


def test_where_no_rack_holds_all_that_would_rather_share_one_the_cheapest_nodes_are_freed() -> None:
    jobs = {
        "p": Job("a", 4, 60),
        "q": Job("a", 4, 60),
        "r": Job("c", 4, 5),
        "s": Job("c", 4, 100),
        "t": Job("d", 4, 1),
        "u": Job("d", 4, 900),
        "v": Job("e", 8, 20),
    }
    world = _racks(jobs, "acde", TopologyRequest(preferred=RACK), pods=2, quota=32)

    assert sorted(evicts(world.settle())) == ["r", "s", "v"]


_NODE = make_node("a").allocatable
_QUOTAS = FlavorQuotas(name="default", resources={"gpu": make_quota(16), "cpu": make_quota(64)})
_GROUP = ResourceGroup(covered_resources=("gpu", "cpu"), flavors=(_QUOTAS,))
# r and s are the last to start, and lose the least one by one; p and q lose less together.
_BESIDES = {"r": Job("b", 4, 60), "s": Job("b", 4, 61), "p": Job("a", 4, 1), "q": Job("a", 4, 100)}


def serving(name: str, node: str, *, gpus: int = 8, floor: int = 1) -> Workload:
    """Return a replica of an application on a node; at least `floor` are to stay."""
    annotations = {REPLICA_OF: "Deployment/chat", WORKLOAD_TYPE: "inference", MIN_REPLICAS: str(floor)}
    template = make_template({"gpu": gpus})
    labelled = WirePodTemplate(metadata=Meta(labels={"app": "chat"}), spec=template.spec)
    pods = make_pod_set(template=labelled)
    return placed(replace(running(name, pod_sets=(pods,), ran=9999), annotations=annotations), node)


_BUDGET = DisruptionBudget(
    namespace=NAMESPACE, name="chat", selector=WireSelector(match_labels={"app": "chat"}), allowed=0
)


@pytest.mark.parametrize(
    ("known", "nodes", "pods", "want"),
    [
        pytest.param([serving("chat", "c")], "abc", 1, ["p", "q"], id="the only replica stays"),
        pytest.param(
            [serving("chat", "c", floor=0), _BUDGET], "abc", 1, ["p", "q"], id="a budget allows no eviction"
        ),
        pytest.param(
            [serving("chat-0", "c"), serving("chat-1", "d")],
            "abcd",
            2,
            ["chat-0", "p", "q"],
            id="one of two goes, and the other stays",
        ),
        pytest.param(
            [serving(f"chat-{number}", "c", gpus=4) for number in range(2)],
            "abc",
            1,
            ["p", "q"],
            id="one of two on a node would not be enough",
        ),
    ],
)
def test_no_node_is_chosen_that_replicas_have_to_stay_on(
    known: list[object], nodes: str, pods: int, want: list[str]
) -> None:
    world = make_world(_BESIDES, nodes, pods=pods, gpus=8)
    rules = PreemptionRules(minimum_runtime_seconds=0, rules=VictimRules(prefers_inference=True))
    world.put(AdmissionPolicy(name="policy", uid="p", preemption=rules), *known)

    assert sorted(evicts(world.settle())) == want


def test_a_node_that_lacks_what_a_gang_asks_nothing_of_is_as_good_as_any() -> None:
    """Node a has shrunk below the CPU that `keeps` uses there, of which the gang asks for 0."""
    world = make_world(_BESIDES, "ab", pods=1, gpus=8)
    keeps = placed(running("keeps", pod_sets=(make_pod_set(requests={"cpu": 4}),), saved=9000), "a")
    shrunk = {name: replace(make_node(name), allocatable={**_NODE, "cpu": 1000}) for name in "ab"}
    wanted = make_pod_set(requests={"gpu": 8, "cpu": 0})
    world.put(
        *shrunk.values(),
        make_cluster_queue(groups=(_GROUP,), preemption=LOWER),
        keeps,
        make_workload("incoming", pod_sets=(wanted,), priority=5, at=NOW),
    )

    assert sorted(evicts(world.settle())) == ["p", "q"]


_JOBS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(1, 8), st.integers(0, 3000)), min_size=1, max_size=9
)


@trying(150)
@given(_JOBS, st.integers(1, 3), st.integers(1, 8))
def test_the_gang_fits_node_by_node_and_whole_nodes_cost_the_least_possible(
    drawn: list[tuple[str, int, int]], pods: int, gpus: int
) -> None:
    jobs: dict[str, Job] = {}
    for node, size, saved in drawn:
        if sum(job.gpus for job in jobs.values() if job.nodes == node) + size <= 8:
            jobs[f"w{len(jobs)}"] = Job(node, size, saved)

    gone = set(evicts(make_world(jobs, "abcd", pods=pods, gpus=gpus).settle()))

    assert _pods(jobs, gone, gpus) >= pods
    # No Job is evicted needlessly.
    assert not any(_pods(jobs, gone - {one}, gpus) >= pods for one in gone)
    if gpus == 8:
        sets = (set(some) for size in range(len(jobs) + 1) for some in combinations(jobs, size))
        least = min(_lost(jobs, some) for some in sets if _pods(jobs, some, gpus) >= pods)
        assert _lost(jobs, gone) == least


def _pods(jobs: dict[str, Job], gone: set[str], gpus: int) -> int:
    """Return how many pods of `gpus` GPUs fit when these Jobs are gone."""
    used = {
        node: sum(job.gpus for name, job in jobs.items() if node in job.nodes and name not in gone)
        for node in "abcd"
    }
    return sum((8 - amount) // gpus for amount in used.values())


def _lost(jobs: dict[str, Job], gone: set[str]) -> int:
    return sum(jobs[name].gpus * (jobs[name].saved + RESTART) for name in gone)
