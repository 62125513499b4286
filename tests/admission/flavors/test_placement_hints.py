"""What a policy and a Workload's annotations do to its place, through the engine."""

from __future__ import annotations

from typing import Any

import pytest

from admission.decisions.decision import Admit
from api.jobs.placement_annotations import annotation_faults, gpu_count_fault, parse_bandwidth
from api.node import NodeInfo
from api.policy import (
    AdmissionPolicy,
    Aliases,
    DomainRules,
    PlacementRules,
    ScoringWeights,
    StrategyChoice,
)
from api.queueing import ResourceFlavor, Topology
from tests.builders import (
    World,
    admitted,
    make_cluster_queue,
    make_condition,
    make_pod_set,
    make_template,
    make_workload,
    waits,
    with_conditions,
)

HOST = "kubernetes.io/hostname"
RULES = PlacementRules(domain_rules=DomainRules())


def make_world(placement: PlacementRules | None = RULES, aliases: Aliases = Aliases.NONE) -> World:
    """Return four leaves of four nodes of 8 GPUs, l0 ... l3, under a policy."""
    nodes = [
        NodeInfo(
            name=f"n{number}",
            labels={
                "leaf": f"l{number // 4}",
                HOST: f"n{number}",
                "berth.dev/network-bandwidth": "400Gb" if number < 8 else "100Gb",
            },
            allocatable={"gpu": 8, "pods": 100},
        )
        for number in range(16)
    ]
    return World().put(
        Topology(name="t", levels=("leaf", HOST)),
        ResourceFlavor(name="default", topology_name="t"),
        make_cluster_queue(quota=128),
        AdmissionPolicy(name="p", placement=placement, aliases=aliases),
        *nodes,
    )


def gang(name: str = "w", pods: int = 2, gpus: int = 8, **fields: Any) -> Any:
    """Return a Workload of `pods` pods."""
    pod_set = make_pod_set(count=pods, template=make_template({"gpu": gpus}))
    return make_workload(name, pod_sets=(pod_set,), **fields)


def admit(world: World, *workloads: Any) -> dict[str, list[str]]:
    """Return the nodes that each Workload gets."""
    world.put(*workloads)
    return {
        one.key.name: [domain.values[-1] for domain in one.admission.pod_sets[0].topology.domains]
        for one in world.settle()
        if isinstance(one, Admit) and one.admission.pod_sets[0].topology is not None
    }


def leaves(nodes: list[str]) -> set[int]:
    return {int(node[1:]) // 4 for node in nodes}


def test_without_a_section_for_placement_annotations_say_nothing() -> None:
    placed = admit(make_world(None), gang(annotations={"berth.dev/preferred-domain": "l3"}))

    assert leaves(placed["w"]) == {0}


@pytest.mark.parametrize(
    ("key", "aliases", "want"),
    [
        pytest.param("berth.dev/preferred-domain", Aliases.NONE, {3}, id="Berth's own key"),
        pytest.param("topology.scheduler/preferred-domain", Aliases.ARTICLES, {3}, id="an alias"),
        pytest.param("topology.scheduler/preferred-domain", Aliases.NONE, {0}, id="an alias that is off"),
    ],
)
def test_the_preferred_domain_is_read(key: str, aliases: Aliases, want: set[int]) -> None:
    placed = admit(make_world(aliases=aliases), gang(annotations={key: "l3"}))

    assert leaves(placed["w"]) == want


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, {0}, id="as without the section"),
        pytest.param({"network-bandwidth": "800Gb"}, set(), id="but on nodes of its bandwidth"),
        pytest.param({"placement-strategy": "balanced"}, {3}, id="but for a Job that names a strategy"),
    ],
)
def test_with_kueues_strategy_a_job_is_placed(annotations: dict[str, str], want: set[int]) -> None:
    own = {f"berth.dev/{key}": value for key, value in annotations.items()} | {
        "berth.dev/preferred-domain": "l3"
    }

    placed = admit(make_world(PlacementRules(strategy=StrategyChoice.KUEUE)), gang(annotations=own))

    assert leaves(placed.get("w", [])) == want


@pytest.mark.parametrize(
    ("annotations", "choice", "want"),
    [
        pytest.param({"workload-type": "training"}, StrategyChoice.BY_WORKLOAD_TYPE, 1, id="training"),
        pytest.param({"workload-type": "inference"}, StrategyChoice.BY_WORKLOAD_TYPE, 4, id="inference"),
        pytest.param({}, StrategyChoice.BY_WORKLOAD_TYPE, 1, id="no type"),
        pytest.param({}, StrategyChoice.DISTRIBUTED, 4, id="the policy's word"),
        pytest.param(
            {"placement-strategy": "distributed"}, StrategyChoice.CONSOLIDATED, 4, id="the Job's own word"
        ),
        pytest.param(
            {"placement-strategy": "Distributed"}, StrategyChoice.CONSOLIDATED, 4, id="whatever its case"
        ),
        pytest.param(
            {"placement-strategy": "tight", "workload-type": "inference"},
            StrategyChoice.BY_WORKLOAD_TYPE,
            4,
            id="a word that is none is passed over",
        ),
    ],
)
def test_the_strategy_follows_the_job_the_policy_and_the_type(
    annotations: dict[str, str], choice: StrategyChoice, want: int
) -> None:
    world = make_world(PlacementRules(strategy=choice))
    own = {f"berth.dev/{key}": value for key, value in annotations.items()}

    placed = admit(world, gang(pods=4, gpus=1, annotations=own))

    assert len(placed["w"]) == want


def test_a_workload_that_asks_for_bandwidth_waits_for_nodes_that_have_it() -> None:
    world = make_world()
    fast = {"berth.dev/network-bandwidth": "200Gb"}

    placed = admit(world, *(gang(name, pods=4, at=at, annotations=fast) for at, name in enumerate("abc")))

    assert {name: leaves(nodes) for name, nodes in placed.items()} == {"a": {0}, "b": {1}}


def test_workloads_with_different_hints_are_tried_apart() -> None:
    """The first cannot be placed; that says nothing about one of equal requests that asks for less."""
    world = make_world()
    impossible = gang("a", annotations={"berth.dev/network-bandwidth": "1.6Tb"})

    world.put(impossible, gang("b", at=1))
    decisions = world.settle()

    assert [one.key.name for one in decisions if isinstance(one, Admit)] == ["b"]
    assert list(waits(decisions)) == ["a"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("100Gb", 100_000),
        ("200 Gbps", 200_000),
        ("1.6T", 1_600_000),
        ("800Mbit/s", 800),
        ("25g", 25_000),
        ("fast", None),
        ("100", None),
        ("", None),
    ],
)
def test_bandwidths_are_read_as_people_write_them(text: str, want: int | None) -> None:
    assert parse_bandwidth(text) == want


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("berth.dev/network-bandwidth", "fast", "a bandwidth such as 100Gb"),
        ("topology.scheduler/latency-sensitive", "yes", "true or false"),
        ("berth.dev/gpu-memory-mib", "80Gi", "a whole number of MiB"),
        ("berth.dev/gpu-generation", "newest", "a number, a model or a family such as ampere"),
        ("berth.dev/parallelism", "pipeline", "ddp, tensor or none"),
        ("berth.dev/gpu-milli", "0.5", "a whole number from 1 to 1000, the thousandths of a GPU"),
    ],
)
def test_a_value_that_cannot_be_read_is_named(key: str, text: str, expected: str) -> None:
    assert list(annotation_faults(({key: text},))) == [
        f"{key} is {text!r}, but must be {expected}; it is ignored"
    ]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("berth.dev/gpu-memory-mib", "81920"),
        ("berth.dev/gpu-generation", "H100"),
        ("berth.dev/gpu-generation", "9"),
        ("berth.dev/parallelism", "DDP"),
        ("berth.dev/parallelism", "none"),
        # A template leaves a key unset by an empty value.
        ("berth.dev/gpu-memory-mib", ""),
    ],
)
def test_a_value_that_can_be_read_is_not(key: str, text: str) -> None:
    assert list(annotation_faults(({key: text},))) == []


@pytest.mark.parametrize(
    ("annotations", "is_reported"),
    [
        pytest.param({}, False, id="nothing is said"),
        pytest.param({"berth.dev/gpu-count": "16"}, False, id="what the pods ask for"),
        pytest.param({"berth.dev/gpu-count": "8"}, True, id="less"),
        pytest.param({"topology.scheduler/gpu-count": "32"}, True, id="more, by the alias"),
    ],
)
def test_a_gpu_count_that_does_not_match_the_pods_is_reported(
    annotations: dict[str, str], is_reported: bool
) -> None:
    assert (gpu_count_fault((annotations,), 16) is not None) is is_reported


ONLY_HISTORY = ScoringWeights(
    resource_availability=0.0, topology_alignment=0.0, domain_utilization=0.0, historical_performance=1.0
)


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        pytest.param("Failed", 1, id="work that failed there speaks against a leaf"),
        pytest.param("Succeeded", 0, id="work that ended well does not"),
        pytest.param("OutOfSync", 0, id="work that was replaced says nothing"),
    ],
)
def test_how_earlier_work_went_is_part_of_the_score(reason: str, want: int) -> None:
    world = make_world(PlacementRules(domain_rules=DomainRules(), weights=ONLY_HISTORY))
    assert leaves(admit(world, gang("first", pods=4))["first"]) == {0}
    ((_, admission),) = world.engine.workloads.admissions()

    ended = with_conditions(
        admitted(world.get("first"), admission, at=1000.0),
        make_condition("Finished", reason=reason, at=1100.0),
    )
    world.put(ended)

    assert leaves(admit(world, gang("second", pods=4))["second"]) == {want}
