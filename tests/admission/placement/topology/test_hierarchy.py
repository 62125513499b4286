"""What node labels make of a list of levels, and what is wrong with them."""

from __future__ import annotations

import random

import pytest

from admission.placement.topology.hierarchy import inspect
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.topology_presets import PRESETS, find_preset, preset_levels

BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = (BLOCK, RACK, HOSTNAME)


def make_node(name: str, **labels: str) -> NodeInfo:
    known = {"block": BLOCK, "rack": RACK, "host": HOSTNAME}
    return NodeInfo(
        name=name, labels={HOSTNAME: name, **{known[key]: value for key, value in labels.items()}}
    )


def test_levels_are_counted_by_whole_path() -> None:
    # block a: racks 1 (2 nodes) and 2 (1 node); block b: a rack 1 of its own.
    nodes = [
        make_node("n1", block="a", rack="1"),
        make_node("n2", block="a", rack="1"),
        make_node("n3", block="a", rack="2"),
        make_node("n4", block="b", rack="1"),
    ]

    found = inspect(nodes, LEVELS)

    assert [(one.domains, one.fewest_nodes, one.most_nodes) for one in found.levels] == [
        (2, 1, 3),
        (3, 1, 2),
        (4, 1, 1),
    ]
    assert found.complete_nodes == 4


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param(
            [make_node("n1", block="a", rack="r1"), make_node("n2", block="a")],
            "1 of 2 nodes lack the label example.com/rack and are no part of the topology: n2",
            id="a node without a rack is named",
        ),
        pytest.param(
            [make_node("n1", block="a", rack="r1"), make_node("n2", block="b", rack="r1")],
            "1 values of example.com/rack do not nest: 'r1' lies within example.com/block a, b; they are "
            "domains of their own, but a selector needs both labels",
            id="a rack under two blocks is named",
        ),
        pytest.param(
            [
                make_node("n1", block="a", rack="r1", host="h"),
                make_node("n2", block="a", rack="r1", host="h"),
            ],
            "nodes n1, n2 share the kubernetes.io/hostname 'h'; each host needs a value of its own",
            id="two nodes with one hostname are named",
        ),
        pytest.param(
            [make_node("n1", block="a", rack="r" * 64)],
            "node n1: label example.com/rack is 64 characters long, more than the 63 that a selector may "
            "name; have the labeller hash it",
            id="an over-long value is named",
        ),
        pytest.param(
            [make_node("n1", block="a", rack="")],
            "node n1: label example.com/rack is empty, which names no domain",
            id="an empty value is named",
        ),
    ],
)
def test_what_is_wrong_with_labels_is_one_sentence(nodes: list[NodeInfo], want: str) -> None:
    assert inspect(nodes, LEVELS).problems == (want,)


def test_of_many_nodes_only_the_first_are_named() -> None:
    found = inspect([make_node(f"n{index}", block="a") for index in range(8)], LEVELS)

    assert found.problems[0].endswith("n0, n1, n2, n3, n4 and 3 more")


def test_the_order_of_nodes_does_not_matter() -> None:
    nodes = [make_node(f"n{index}", block=str(index % 3), rack=str(index % 5)) for index in range(20)]
    shuffled = random.Random(1).sample(nodes, len(nodes))

    assert inspect(shuffled, LEVELS) == inspect(nodes, LEVELS)


@pytest.mark.parametrize(
    ("preset", "labels", "want"),
    [
        pytest.param(
            "topograph1",
            ["fabric.topograph.run/tier-0", "fabric.topograph.run/tier-10", "fabric.topograph.run/tier-2"],
            ("fabric.topograph.run/tier-10", "fabric.topograph.run/tier-2", "fabric.topograph.run/tier-0"),
            id="tiers are counted from the nearest switch, so the highest number is the widest",
        ),
        pytest.param(
            "topograph0",
            ["network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"],
            ("network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"),
            id="a level that no node carries is left out",
        ),
        pytest.param(
            "nvl72",
            ["fabric.topograph.run/tier-1", "nvidia.com/gpu.clique"],
            ("fabric.topograph.run/tier-1", "nvidia.com/gpu.clique"),
            id="an NVLink partition is below the switches",
        ),
    ],
)
def test_a_preset_takes_its_levels_from_the_nodes(
    preset: str, labels: list[str], want: tuple[str, ...]
) -> None:
    found = preset_levels(find_preset(preset), [dict.fromkeys(labels, "x")])

    assert found == (*want, HOSTNAME)


def test_a_preset_without_any_of_its_labels_is_none() -> None:
    assert all(preset_levels(preset, [{"app": "web"}]) == () for preset in PRESETS)
    assert preset_levels(find_preset("nvl72"), [{"fabric.topograph.run/tier-0": "x"}]) == ()
