"""Flavors by score: of those that fit now the best is taken. Without the policy Kueue's order decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from admission.decisions.decision import Wait
from api.node import NodeInfo
from api.policy import AdmissionPolicy, FlavorRules, PlacementRules
from api.queueing import FlavorFungibility, FungibilityPolicy, ResourceFlavor, Topology
from api.workload import PodSet, Workload
from tests.builders import (
    World,
    make_cluster_queue,
    make_group,
    make_template,
    make_workload,
)

GPU, HOST, MODEL = "nvidia.com/gpu", "kubernetes.io/hostname", "nvidia.com/gpu.product"
SPOT = {"karpenter.sh/capacity-type": "spot"}
KIND, INTERVAL = "berth.dev/workload-type", "berth.dev/checkpoint-interval-seconds"
RUNTIME = "berth.dev/expected-runtime-seconds"
POLICY = AdmissionPolicy(name="scores", placement=PlacementRules(flavors=FlavorRules()))


def node(pool: str, labels: Mapping[str, str], *, price: str, gpus: int = 8) -> NodeInfo:
    name = f"{pool}-0"
    return NodeInfo(
        name=name,
        labels={HOST: name, "pool": pool, "node-cost-per-hour": price, **labels},
        allocatable={GPU: gpus, "cpu": 64_000, "pods": 110},
    )


# Kueue's order: reserved H100, A100, spot.
NODES = (
    node("h100", {MODEL: "NVIDIA-H100-80GB-HBM3"}, price="32"),
    node("a100", {MODEL: "NVIDIA-A100-SXM4-80GB"}, price="16"),
    node("spot", {MODEL: "NVIDIA-A100-SXM4-80GB", **SPOT}, price="4.80"),
)
NAMES = ("h100", "a100", "spot")


def world(
    *policies: AdmissionPolicy,
    nodes: tuple[NodeInfo, ...] = NODES,
    quotas: Mapping[str, int] | None = None,
    topology: str | None = None,
    **queue: Any,
) -> World:
    here = World().put(Topology(name="hosts", levels=(HOST,)), *nodes, *policies)
    for name in NAMES:
        here.put(ResourceFlavor(name=name, node_labels={"pool": name}, topology_name=topology))
    group = make_group(*NAMES, resource=GPU, **{name: (quotas or {}).get(name, 8) for name in NAMES})
    return here.put(make_cluster_queue("queue", groups=(group,), **queue))


def job(
    name: str = "w", keys: Mapping[str, str] | None = None, *, gpus: int = 8, pods: int = 1, at: float = 0
) -> Workload:
    pod_sets = (PodSet(name="main", count=pods, template=make_template({GPU: gpus})),)
    return make_workload(name, pod_sets=pod_sets, annotations=dict(keys or {}), at=at)


def held(here: World) -> dict[str, str]:
    """Return the flavor of each Workload that holds quota."""
    here.settle()
    return {
        key.name: admission.pod_sets[0].flavors[GPU] for key, admission in here.engine.workloads.admissions()
    }


TOPOLOGIES = pytest.mark.parametrize("topology", ["hosts", None], ids=["with topologies", "without"])


@TOPOLOGIES
@pytest.mark.parametrize(
    ("policies", "want"),
    [
        pytest.param((), ["h100", "a100", "spot"], id="Kueue's order without the policy"),
        pytest.param(
            (AdmissionPolicy(name="p", placement=PlacementRules()),),
            ["h100", "a100", "spot"],
            id="Kueue's order without the section",
        ),
        pytest.param((POLICY,), ["spot", "a100", "h100"], id="the cheapest first"),
    ],
)
def test_the_best_of_the_flavors_that_fit_is_taken(
    topology: str | None, policies: tuple[AdmissionPolicy, ...], want: list[str]
) -> None:
    here = world(*policies, topology=topology)
    jobs = [job(f"w{number}", at=number) for number in range(4)]
    assert list(held(here.put(*jobs)).values()) == want
    assert list(held(here)) == ["w0", "w1", "w2"]


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        pytest.param({}, "spot", id="work that says nothing"),
        pytest.param({KIND: "batch"}, "spot", id="batch"),
        pytest.param({KIND: "inference"}, "a100", id="not inference"),
        pytest.param({KIND: "training"}, "a100", id="not training without checkpoints"),
        pytest.param({KIND: "training", INTERVAL: "600"}, "spot", id="training with checkpoints"),
    ],
)
def test_spot_is_for_work_that_bears_interruptions(keys: Mapping[str, str], want: str) -> None:
    assert held(world(POLICY).put(job("w", keys))) == {"w": want}


def test_work_that_does_not_bear_interruptions_rather_waits_than_uses_spot() -> None:
    here = world(POLICY, quotas={"h100": 0, "a100": 0}).put(job("w", {KIND: "inference"}))
    (decision,) = here.settle()
    assert isinstance(decision, Wait)
    assert "flavor spot has only spot nodes, which inference may not use" in decision.message


def test_a_policy_may_let_all_work_use_spot() -> None:
    every = AdmissionPolicy(name="all", placement=PlacementRules(flavors=FlavorRules(spot_for_all=True)))
    assert held(world(every).put(job("w", {KIND: "inference"}))) == {"w": "spot"}


def test_equal_requests_do_not_share_an_answer_that_depends_on_checkpoints() -> None:
    here = world(POLICY, quotas={"h100": 0, "a100": 0})
    here.put(job("no", {KIND: "training"}), job("yes", {KIND: "training", INTERVAL: "600"}, at=1))
    assert held(here) == {"yes": "spot"}


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        pytest.param({RUNTIME: "600"}, "spot", id="a short run may be interrupted"),
        pytest.param({RUNTIME: "432000"}, "a100", id="a run of five days may not"),
        pytest.param(
            {RUNTIME: "432000", KIND: "training", INTERVAL: "600"}, "spot", id="with checkpoints it may"
        ),
    ],
)
def test_the_expected_loss_depends_on_run_time_and_checkpoints(keys: Mapping[str, str], want: str) -> None:
    assert held(world(POLICY).put(job("w", keys))) == {"w": want}


def test_prices_of_flavors_count_where_nodes_have_none() -> None:
    here = world(POLICY, nodes=())
    for name, cost in zip(NAMES, (4.0, 1.0, 2.0), strict=True):
        here.put(ResourceFlavor(name=name, node_labels={"pool": name}, cost_per_device_hour=cost))
    assert held(here.put(job())) == {"w": "a100"}


def test_flavors_of_equal_score_are_taken_in_the_order_of_the_queue() -> None:
    assert held(world(POLICY, nodes=()).put(job())) == {"w": "h100"}


def test_a_flavor_with_quota_and_no_place_is_passed_over() -> None:
    # The spot node has quota for the gang and a host of half the size.
    nodes = (*NODES[:2], node("spot", SPOT, price="1", gpus=4))
    assert held(world(POLICY, nodes=nodes, topology="hosts").put(job())) == {"w": "a100"}


@pytest.mark.parametrize(
    ("choice", "want"),
    [
        pytest.param(FungibilityPolicy.TRY_NEXT_FLAVOR, "a100", id="its own quota before what it borrows"),
        pytest.param(FungibilityPolicy.MAY_STOP_SEARCH, "spot", id="own or borrowed, the score decides"),
    ],
)
def test_what_the_queue_says_of_borrowing_counts_before_the_score(
    choice: FungibilityPolicy, want: str
) -> None:
    fungibility = FlavorFungibility(when_can_borrow=choice)
    here = world(POLICY, quotas={"spot": 0}, cohort="all", fungibility=fungibility)
    lender = make_group(*NAMES, resource=GPU, **dict.fromkeys(NAMES, 16))
    here.put(make_cluster_queue("lender", groups=(lender,), cohort="all"))
    assert held(here.put(job())) == {"w": want}


def test_a_new_price_counts_for_the_next_workload() -> None:
    here = world(POLICY).put(job("first", gpus=1))
    assert held(here) == {"first": "spot"}
    here.put(node("spot", SPOT, price="64"), job("second", gpus=1, at=1))
    assert held(here) == {"first": "spot", "second": "a100"}


def test_a_wait_ends_when_a_flavor_gets_nodes_that_are_not_spot() -> None:
    nodes = (node("h100", SPOT, price="8"), node("spot", {}, price="32"))
    here = world(POLICY, nodes=nodes, quotas={"a100": 0, "spot": 1})
    jobs = [job(f"w{number}", {KIND: "inference"}, gpus=1, at=number) for number in range(3)]
    assert held(here.put(*jobs)) == {"w0": "spot"}
    here.put(replace(node("h100", {}, price="8"), name="another"))
    assert held(here) == {"w0": "spot", "w1": "h100", "w2": "h100"}


def test_explain_shows_the_scores_that_decide() -> None:
    here = world(POLICY).put(job("w", {RUNTIME: "3600"}, gpus=16))
    (pod_set,) = here.engine.workloads.explanation(here.get("w"))
    scores = {one.flavor: one.score for one in pod_set.flavors}
    assert all(scores.values())
    terms = {name: one.terms for name, one in scores.items() if one is not None}
    assert terms["h100"].cost == pytest.approx(64.0)
    assert terms["spot"].cost == pytest.approx(9.6, rel=0.05)
    assert [one.generation for one in terms.values()] == [9, 8, 8]
    assert terms["spot"].lost_seconds > terms["a100"].lost_seconds == 0


def test_explain_shows_no_scores_in_kueues_order() -> None:
    here = world().put(job("w"))
    (pod_set,) = here.engine.workloads.explanation(here.get("w"))
    assert [one.score for one in pod_set.flavors] == [None, None, None]
