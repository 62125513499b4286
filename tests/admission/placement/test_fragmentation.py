"""How much of a node's free GPUs later pods can use."""

from __future__ import annotations

import pytest

from admission.placement.fragmentation import Demand, Gradient, NodeState, outcomes
from admission.placement.fragmentation_mix import DemandMix
from api.jobs.gpu_share import WHOLE

HALF, PAIR = Demand(4_000, 1, 500), Demand(16_000, 2)
MIX = {HALF: 3, PAIR: 1}


@pytest.mark.parametrize(
    ("node", "want"),
    [
        pytest.param(NodeState(64_000, (WHOLE, WHOLE)), 0.0, id="an idle node suits every demand"),
        pytest.param(NodeState(64_000, (WHOLE,)), 250.0, id="one GPU is useless to a quarter of the pods"),
        pytest.param(NodeState(64_000, (200,)), 200.0, id="less than any share is lost"),
        pytest.param(
            NodeState(64_000, (500, WHOLE, WHOLE)), 125.0, id="what is left of a GPU is lost to whole GPUs"
        ),
        pytest.param(NodeState(1_000, (WHOLE, WHOLE)), 2000.0, id="without CPU no GPU can be used"),
        pytest.param(NodeState(8_000, (WHOLE, WHOLE)), 500.0, id="too little CPU for the larger demand"),
    ],
)
def test_what_is_fragmented(node: NodeState, want: float) -> None:
    assert Gradient(MIX).fragmented(node) == pytest.approx(want)


def test_gpus_that_the_cpu_cannot_feed_are_stranded() -> None:
    # 28 CPUs for 3,500 milli of GPU: 8 for each GPU.
    node = NodeState(20_000, (WHOLE,) * 4)
    assert Gradient(MIX).stranded(node) == pytest.approx(1500)
    assert Gradient(MIX, feeds_gpus=False).stranded(node) == 0


def test_a_share_goes_to_the_gpu_that_is_in_use() -> None:
    found = Gradient(MIX).rise(NodeState(64_000, (500, WHOLE, WHOLE)), HALF)
    assert found is not None
    assert found[1] == NodeState(60_000, (0, WHOLE, WHOLE))


def test_of_equal_nodes_the_fullest_is_taken() -> None:
    gradient = Gradient({HALF: 1}, feeds_gpus=False)
    full = gradient.rise(NodeState(64_000, (500,)), HALF)
    roomy = gradient.rise(NodeState(64_000, (500, WHOLE)), HALF)
    assert full is not None
    assert roomy is not None
    assert full[0].useless == roomy[0].useless == 0
    assert full < roomy


@pytest.mark.parametrize(
    ("demand", "want"),
    [
        pytest.param(Demand(1_000), [(200, 600, 600, WHOLE)], id="CPU alone leaves the GPUs"),
        pytest.param(Demand(1_000, 1), [(0, 200, 600, 600)], id="a whole GPU"),
        pytest.param(Demand(1_000, 2), [], id="more whole GPUs than are free"),
        pytest.param(
            Demand(1_000, 1, 300), [(200, 300, 600, WHOLE), (200, 600, 600, 700)], id="equal GPUs count once"
        ),
        pytest.param(Demand(99_000, 1, 300), [], id="too little CPU"),
    ],
)
def test_what_is_left_of_a_node(demand: Demand, want: list[tuple[int, ...]]) -> None:
    node = NodeState(8_000, (200, 600, 600, WHOLE))
    assert [left.gpus for left in outcomes(node, demand)] == want


def test_a_known_mix_is_seldom_measured_again() -> None:
    mix, seen = DemandMix(), []
    for _ in range(1_000):
        mix.observe(HALF, 1)
        seen.append(mix.gradient)
    renewals = [number for number in range(1, 1_000) if seen[number] is not seen[number - 1]]
    assert renewals[:3] == [1, 2, 3]
    assert len(renewals) < 35
    mix.observe(Demand(1_000), 1_000_000)
    assert mix.gradient is seen[-1], "pods without GPUs use none"


def test_a_mix_follows_what_is_asked_for_now() -> None:
    mix = DemandMix()
    mix.observe(PAIR, 100_000)
    for _ in range(3):
        mix.observe(HALF, 100_000)
    # Each time the older counts are halved.
    assert mix.gradient.fragmented(NodeState(64_000, (500,))) < 100
