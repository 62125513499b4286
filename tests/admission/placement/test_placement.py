"""Where pods go, by the rules of Kueue's topology-aware scheduling (KEP 2724)."""

from __future__ import annotations

import pytest

from admission.placement.topology.request import NodeRules, PlacementRequest
from api.node import PodUsage
from api.objects.common import WireTaint, WireToleration
from tests.admission.placement.fleets import (
    BLOCK,
    GPU,
    HOST,
    RACK,
    Racks,
    counts,
    make_fleet,
    make_node,
    make_request,
)

# b0 ── r0 ── n0 (8) n1 (8)        b1 ── r2 ── n4 (8) n5 (8) n6 (8)
#    └─ r1 ── n2 (4) n3 (4)
RACKS: Racks = {"b0": {"r0": [8, 8], "r1": [4, 4]}, "b1": {"r2": [8, 8, 8]}}


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(
            make_request(8, required=RACK),
            {"n2": 4, "n3": 4},
            id="the rack with the least room that holds all",
        ),
        pytest.param(make_request(12, required=RACK), {"n0": 8, "n1": 4}, id="the last node is the tightest"),
        pytest.param(make_request(24, required=RACK), {"n4": 8, "n5": 8, "n6": 8}, id="a whole rack"),
        pytest.param(
            make_request(20, required=BLOCK), {"n0": 8, "n1": 8, "n2": 4}, id="the block with the least room"
        ),
        pytest.param(
            make_request(8, preferred=HOST), {"n0": 8}, id="the preferred level, where one holds all"
        ),
        pytest.param(make_request(10, preferred=HOST), {"n0": 8, "n1": 2}, id="else the level above"),
        pytest.param(
            make_request(30, preferred=RACK),
            {"n2": 4, "n3": 2, "n4": 8, "n5": 8, "n6": 8},
            id="at the top several domains, their racks the largest first",
        ),
        pytest.param(make_request(3, unconstrained=True), {"n2": 3}, id="the fullest node that holds all"),
        pytest.param(make_request(3), {"n2": 3}, id="no request is placed as an unconstrained one"),
        pytest.param(
            make_request(10, unconstrained=True),
            {"n0": 2, "n2": 4, "n3": 4},
            id="else the fullest nodes first",
        ),
    ],
)
def test_pods_go_where_the_rule_says(request_: PlacementRequest, want: dict[str, int]) -> None:
    assert counts(make_fleet(RACKS), request_) == {"main": want}


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(
            make_request(24, required=BLOCK, slices=((RACK, 8),)),
            {"n0": 8, "n1": 8, "n2": 4, "n3": 4},
            id="slices stay within their racks",
        ),
        pytest.param(
            make_request(12, required=BLOCK, slices=((HOST, 6),)), {"n0": 6, "n1": 6}, id="slices of a node"
        ),
        pytest.param(
            make_request(8, slices=((RACK, 8),)),
            {"n2": 4, "n3": 4},
            id="slices alone start at the widest level",
        ),
        pytest.param(
            make_request(12, required=RACK, slices=((RACK, 12), (HOST, 6))),
            {"n0": 6, "n1": 6},
            id="slices within slices",
        ),
    ],
)
def test_slices_are_not_split(request_: PlacementRequest, want: dict[str, int]) -> None:
    assert counts(make_fleet(RACKS), request_) == {"main": want}


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(
            make_request(30, required=RACK),
            'topology "default" allows to fit only 24 out of 30 pod(s). Total nodes: 7',
            id="as many as the best rack holds",
        ),
        pytest.param(
            make_request(2, gpus=16, required=RACK),
            'topology "default" doesn\'t allow to fit any of 2 pod(s). Total nodes: 7; '
            'excluded: resource "nvidia.com/gpu": 7',
            id="none, and what is missing",
        ),
        pytest.param(
            make_request(32, required=RACK, slices=((RACK, 16),)),
            'topology "default" allows to fit only 1 out of 2 slice(s). Total nodes: 7',
            id="slices",
        ),
        pytest.param(
            make_request(49, preferred=RACK),
            'topology "default" allows to fit only 48 out of 49 pod(s). Total nodes: 7',
            id="all there is",
        ),
        pytest.param(
            make_request(1, required="room"),
            "no requested topology level: room",
            id="a level that is not there",
        ),
        pytest.param(
            make_request(5, required=RACK, slices=((HOST, 2),)),
            "pod count 5 must be divisible by slice size 2",
            id="slices that do not come out even",
        ),
    ],
)
def test_what_has_no_place_is_reported_with_counts(request_: PlacementRequest, want: str) -> None:
    assert counts(make_fleet(RACKS), request_) == want


def test_a_tainted_node_is_for_pods_that_tolerate_it() -> None:
    topology_cache = make_fleet({"b0": {"r0": [2]}})
    topology_cache.put_node(
        make_node("tainted", "b0", "r0", 8, taints=(WireTaint(key="k", effect="NoSchedule"),))
    )
    tolerant = NodeRules(tolerations=(WireToleration(key="k", operator="Exists"),))

    assert counts(topology_cache, make_request(8, required=RACK, rules=tolerant)) == {"main": {"tainted": 8}}
    assert counts(topology_cache, make_request(8, required=RACK)) == (
        'topology "default" allows to fit only 2 out of 8 pod(s). Total nodes: 2; '
        'excluded: taint "k:NoSchedule": 1'
    )


def test_a_node_selector_is_kept() -> None:
    rules = NodeRules(node_selector=((RACK, "r1"),))

    assert counts(make_fleet(RACKS), make_request(1, required=HOST, rules=rules)) == {"main": {"n2": 1}}


def test_a_node_that_is_not_ready_does_not_count() -> None:
    topology_cache = make_fleet({"b0": {"r0": [8]}})
    topology_cache.put_node(make_node("n0", "b0", "r0", 8, is_ready=False))

    assert "doesn't allow to fit any" in str(counts(topology_cache, make_request(1, required=HOST)))


def test_pods_of_others_take_their_share_of_a_node() -> None:
    topology_cache = make_fleet({"b0": {"r0": [8, 8]}})
    topology_cache.put_pod(PodUsage(namespace="sys", name="p", node="n0", requests={GPU: 5, "pods": 1}))

    assert counts(topology_cache, make_request(4, required=HOST)) == {"main": {"n1": 4}}
    assert counts(topology_cache, make_request(3, required=HOST)) == {"main": {"n0": 3}}
    assert topology_cache.drop_pod(("sys", "p"))
    assert counts(topology_cache, make_request(8, required=HOST)) == {"main": {"n0": 8}}


def test_a_leader_is_in_the_rack_of_its_workers() -> None:
    topology_cache = make_fleet({"b0": {"r0": [8], "r1": [8, 1]}})
    leader = make_request(1, name="leader", required=RACK, group="g")

    assert counts(topology_cache, leader, make_request(8, name="workers", required=RACK, group="g")) == {
        "leader": {"n1": 1},
        "workers": {"n1": 7, "n2": 1},
    }


def test_a_leader_goes_where_it_takes_no_workers_place_if_all_places_are_needed() -> None:
    topology_cache = make_fleet({"b0": {"r0": [9, 4]}})
    leader = make_request(1, name="leader", required=RACK, group="g")
    workers = make_request(4, gpus=3, name="workers", required=RACK, group="g")

    # More workers fit beside it on n0, but then only three of the four have a place.
    assert counts(topology_cache, leader, workers) == {"leader": {"n1": 1}, "workers": {"n0": 3, "n1": 1}}


def test_pod_sets_are_placed_on_top_of_each_other() -> None:
    topology_cache = make_fleet({"b0": {"r0": [8, 4]}})
    first, second = make_request(8, name="a", required=HOST), make_request(4, name="b", required=HOST)

    assert counts(topology_cache, first, second) == {"a": {"n0": 8}, "b": {"n1": 4}}
    topology_cache.usage.validate(())


def test_levels_above_the_host_are_named_in_full() -> None:
    topology_cache = make_fleet(RACKS, levels=(BLOCK, RACK))

    assert counts(topology_cache, make_request(8, required=RACK)) == {"main": {"b0,r1": 8}}
