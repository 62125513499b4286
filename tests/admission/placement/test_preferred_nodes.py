"""Preferred node affinity, with Kueue's gate: what suits better comes before what has less room left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.placement.topology.request import NodeRules, PlacementGates
from admission.placement.topology_cache import TopologyCache
from api.objects.common import WireSelectorRequirement, WireTaint
from api.objects.templates import WireAffinity, WireNodeAffinity, WireNodeSelectorTerm, WirePreferredTerm
from tests.admission.placement.fleets import BLOCK, RACK, Racks, counts, fill_fleet, make_request

PREFERRING = PlacementGates(prefers_nodes=True)


def preferred(*terms: tuple[int, str, str]) -> NodeRules:
    """Return rules of pods that prefer nodes: weight, label and value of each term."""
    wanted = tuple(
        WirePreferredTerm(
            weight=weight,
            preference=WireNodeSelectorTerm(
                match_expressions=(WireSelectorRequirement(key=key, operator="In", values=(value,)),)
            ),
        )
        for weight, key, value in terms
    )
    nodes = WireNodeAffinity(preferred_during_scheduling_ignored_during_execution=wanted)
    return NodeRules(affinity=WireAffinity(node_affinity=nodes))


def make_fleet(
    racks: Racks, labels: dict[str, dict[str, str]], gates: PlacementGates = PREFERRING
) -> TopologyCache:
    """Return a fleet of which some nodes have labels besides those of the topology."""
    fleet = fill_fleet(TopologyCache(gates), racks)
    label(fleet, labels)
    return fleet


def label(fleet: TopologyCache, labels: dict[str, dict[str, str]]) -> None:
    """Add labels to nodes."""
    for name, added in labels.items():
        node = fleet.nodes.by_name[name]
        fleet.put_node(replace(node, labels={**node.labels, **added}))


FAST = {"disk": "fast"}
THREE = {"b0": {"r0": [4, 4, 4]}}


@pytest.mark.parametrize(
    ("asked", "gates", "want"),
    [
        pytest.param({}, PREFERRING, "n2", id="that may go anywhere"),
        pytest.param({"required": RACK}, PREFERRING, "n2", id="in one rack"),
        pytest.param({"preferred": RACK}, PREFERRING, "n2", id="preferably in one rack"),
        pytest.param({}, PlacementGates(prefers_nodes=True, is_mixed=False), "n2", id="by best fit"),
        pytest.param({}, PlacementGates(), "n0", id="without the gate, which is off by default"),
    ],
)
def test_a_pod_goes_to_the_node_that_it_prefers(
    asked: dict[str, Any], gates: PlacementGates, want: str
) -> None:
    fleet = make_fleet(THREE, {"n2": FAST}, gates)

    assert counts(fleet, make_request(1, rules=preferred((10, "disk", "fast")), **asked)) == {
        "main": {want: 1}
    }


def test_weights_add_up() -> None:
    fleet = make_fleet(
        THREE, {"n0": {"zone": "a"}, "n1": {"disk": "fast"}, "n2": {"zone": "b", "disk": "fast"}}
    )

    rules = preferred((5, "zone", "a"), (4, "disk", "fast"), (2, "zone", "b"))

    assert counts(fleet, make_request(1, rules=rules)) == {"main": {"n2": 1}}


def test_of_nodes_that_suit_alike_the_tightest_is_taken() -> None:
    fleet = make_fleet({"b0": {"r0": [8, 6, 2]}}, {"n0": FAST, "n1": FAST})

    request = make_request(2, required=RACK, rules=preferred((1, "disk", "fast")))

    assert counts(fleet, request) == {"main": {"n1": 2}}


def test_a_full_node_that_is_preferred_leaves_the_others() -> None:
    fleet = make_fleet({"b0": {"r0": [4, 1]}}, {"n1": FAST})

    assert counts(fleet, make_request(3, rules=preferred((1, "disk", "fast")))) == {"main": {"n0": 3}}


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param({"required": RACK}, {"n0": 4, "n1": 2}, id="a required level takes one that suits less"),
        pytest.param(
            {"preferred": RACK},
            {"n2": 3, "n0": 3},
            id="a preferred level is left for a wider one, and the nodes that suit best are filled first",
        ),
    ],
)
def test_where_the_domain_that_suits_best_is_too_small(asked: dict[str, Any], want: dict[str, int]) -> None:
    fleet = make_fleet({"b0": {"r0": [4, 4], "r1": [3]}}, {"n2": FAST})

    assert counts(fleet, make_request(6, rules=preferred((1, "disk", "fast")), **asked)) == {"main": want}


def test_a_block_is_as_good_as_the_sum_of_its_nodes() -> None:
    fleet = make_fleet({"b0": {"r0": [2, 2]}, "b1": {"r1": [2, 2]}}, {"n0": FAST, "n2": FAST, "n3": FAST})

    request = make_request(3, required=BLOCK, rules=preferred((1, "disk", "fast")))

    assert counts(fleet, request) == {"main": {"n2": 2, "n3": 1}}


def test_a_node_that_refuses_the_pods_makes_no_domain_better() -> None:
    fleet = make_fleet({"b0": {"r0": [2, 2]}, "b1": {"r1": [2]}}, {"n0": FAST, "n2": FAST})
    node = fleet.nodes.by_name["n0"]
    fleet.put_node(replace(node, taints=(WireTaint(key="broken", effect="NoSchedule"),)))

    request = make_request(2, required=BLOCK, rules=preferred((1, "disk", "fast")))

    assert counts(fleet, request) == {"main": {"n2": 2}}


def test_a_node_whose_labels_change_is_compared_by_the_new_ones() -> None:
    fleet, request = make_fleet(THREE, {"n2": FAST}), make_request(1, rules=preferred((1, "disk", "fast")))
    counts(fleet, request)

    label(fleet, {"n2": {"disk": "slow"}, "n1": FAST})

    assert counts(fleet, request) == {"main": {"n1": 1}}
