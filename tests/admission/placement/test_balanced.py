"""Balanced placement: a gang that prefers a level is spread evenly over as few of its domains as hold it."""

from __future__ import annotations

from typing import Any

import pytest

from admission.placement.topology.request import PlacementGates
from admission.placement.topology_cache import TopologyCache, Unplaced
from tests.admission.placement.fleets import BLOCK, RACK, counts, fill_fleet, make_request

BALANCED = PlacementGates(is_balanced=True)


def racks_of(topology_cache: TopologyCache, count: int, **asked: Any) -> dict[str, int]:
    """Return how many pods of a gang go into each rack."""
    found = topology_cache.place([make_request(count, **asked)])
    assert not isinstance(found, Unplaced)
    total: dict[str, int] = {}
    for domain in found["main"].domains:
        labels = topology_cache.nodes.by_name[domain.values[-1]].labels
        rack = f"{labels[BLOCK]}/{labels[RACK]}"
        total[rack] = total.get(rack, 0) + domain.count
    return total


TWO_BLOCKS = {"b0": {"r0": [8], "r1": [8], "r2": [4]}, "b1": {"r3": [6], "r4": [3]}}


@pytest.mark.parametrize(
    ("count", "asked", "want"),
    [
        pytest.param(10, {"preferred": RACK}, {"b0/r0": 5, "b0/r1": 5}, id="two halves and not 8 and 2"),
        pytest.param(6, {"preferred": RACK}, {"b1/r3": 6}, id="one rack where one holds all, the tightest"),
        pytest.param(15, {"preferred": RACK}, {"b0/r0": 8, "b0/r1": 7}, id="the odd one to the first"),
        pytest.param(
            18,
            {"preferred": RACK},
            {"b0/r0": 8, "b0/r1": 6, "b0/r2": 4},
            id="the least roomy sets the share",
        ),
        pytest.param(
            9,
            {"preferred": BLOCK, "slices": ((RACK, 3),)},
            {"b1/r3": 6, "b1/r4": 3},
            id="in whole slices, over the racks of one block",
        ),
    ],
)
def test_a_gang_is_spread(count: int, asked: dict[str, Any], want: dict[str, int]) -> None:
    topology_cache = fill_fleet(TopologyCache(BALANCED), TWO_BLOCKS)

    assert racks_of(topology_cache, count, **asked) == want


def test_of_racks_with_room_for_their_share_those_with_least_to_spare_are_taken() -> None:
    topology_cache = fill_fleet(TopologyCache(BALANCED), {"b0": {"r0": [8], "r1": [8], "r2": [6]}})

    assert racks_of(topology_cache, 12, preferred=RACK) == {"b0/r1": 6, "b0/r2": 6}


@pytest.mark.parametrize(
    ("count", "asked"),
    [
        pytest.param(24, {"preferred": RACK}, id="too large for one block"),
        pytest.param(10, {"required": BLOCK}, id="required"),
        pytest.param(10, {"unconstrained": True}, id="anywhere"),
    ],
)
def test_best_fit_decides_for_a_gang_that_is(count: int, asked: dict[str, Any]) -> None:
    balanced, plain = (fill_fleet(TopologyCache(gates), TWO_BLOCKS) for gates in (BALANCED, None))

    assert racks_of(balanced, count, **asked) == racks_of(plain, count, **asked)


def test_by_default_best_fit_fills_one_after_the_other() -> None:
    topology_cache = fill_fleet(TopologyCache(), TWO_BLOCKS)

    assert racks_of(topology_cache, 10, preferred=RACK) == {"b0/r0": 8, "b0/r2": 2}


@pytest.mark.parametrize(
    ("is_mixed", "want"),
    [
        pytest.param(True, {"n0": 1, "n1": 1, "n2": 2}, id="mixed: the fullest nodes first"),
        pytest.param(False, {"n0": 3, "n1": 1}, id="otherwise the roomiest"),
    ],
)
def test_pods_that_may_go_anywhere_go(is_mixed: bool, want: dict[str, int]) -> None:
    topology_cache = fill_fleet(TopologyCache(PlacementGates(is_mixed=is_mixed)), {"b0": {"r0": [3, 1, 2]}})

    assert counts(topology_cache, make_request(4, unconstrained=True)) == {"main": want}
