"""Where gangs go by size rules, strategies and scores. The articles' rules are named by their node counts.

spine s0: leaves l0 ... l7       spine s1: leaves l8 ... l15       a leaf: 4 nodes of 8 GPUs
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from admission.placement.replacement import RemainingPlace, replace_hosts
from admission.placement.topology.place import Place, place_of
from admission.placement.topology.placement_options import PlacementOptions, Strategy
from admission.placement.topology.request import Bandwidth, NodeRules, PlacementRequest
from admission.placement.topology_cache import TopologyCache, Unplaced
from api.keys import NETWORK_BANDWIDTH
from api.policy import DomainRules, ScoringWeights, SizeRule
from tests.admission.placement.fleets import FLAVOR, Racks, make_fleet, make_request
from tests.examples import trying

PER_LEAF = 4
RULES = DomainRules()
SPINES: Racks = {
    f"s{spine}": {f"l{leaf:02}": [8] * PER_LEAF for leaf in range(8 * spine, 8 * spine + 8)}
    for spine in range(2)
}


def gang(
    nodes: int, *, strategy: Strategy = Strategy.BALANCED, gpus: int = 8, **fields: object
) -> PlacementRequest:
    """Return a gang of one pod a node."""
    options = PlacementOptions(**{"strategy": strategy, "rules": RULES, "gpus_per_pod": gpus, **fields})  # type: ignore[arg-type]
    return structs.replace(make_request(nodes, gpus=gpus), options=options)


def leaf_of(node: str) -> int:
    """Return the number of the leaf that a node of SPINES is on."""
    return int(node.removeprefix("n")) // PER_LEAF


def place(topology_cache: TopologyCache, request: PlacementRequest) -> dict[str, int]:
    """Return the pods on each node; fail where there is no place."""
    found = topology_cache.place([request])
    assert not isinstance(found, Unplaced), found.message
    return {domain.values[-1]: domain.count for domain in found["main"].domains}


def take(topology_cache: TopologyCache, *nodes: str, gpus: int = 8) -> None:
    """Let other work use GPUs of these nodes."""
    for node in nodes:
        request = structs.replace(
            make_request(1, gpus=gpus), rules=NodeRules(node_selector=(("kubernetes.io/hostname", node),))
        )
        found = topology_cache.place([request])
        assert not isinstance(found, Unplaced)
        topology_cache.usage.use([place_of(request, found["main"])], sign=1)


def leaves(placed: dict[str, int]) -> dict[int, int]:
    """Return the nodes used of each leaf."""
    return dict(sorted(Counter(leaf_of(node) for node in placed).items()))


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param(1, [1], id="1 node on one leaf"),
        pytest.param(2, [2], id="2 nodes on the same leaf"),
        pytest.param(3, [3], id="3 nodes on the same leaf"),
        pytest.param(4, [4], id="4 nodes on a complete leaf"),
        pytest.param(5, [4, 1], id="5 nodes on two adjacent leaves"),
        pytest.param(6, [4, 2], id="6 nodes on two adjacent leaves"),
        pytest.param(7, [4, 3], id="7 nodes on two adjacent leaves"),
        pytest.param(8, [4, 4], id="8 nodes on two adjacent leaves, complete"),
        pytest.param(9, [4, 4, 1], id="9 nodes on three adjacent leaves"),
        pytest.param(12, [4, 4, 4], id="12 nodes on three adjacent leaves, complete"),
        pytest.param(15, [4, 4, 4, 3], id="15 nodes on four adjacent leaves"),
        pytest.param(16, [4, 4, 4, 4], id="16 nodes on four adjacent leaves, complete"),
        pytest.param(32, [4] * 8, id="32 nodes on a whole spine"),
    ],
)
@pytest.mark.parametrize("strategy", [Strategy.CONSOLIDATED, Strategy.BALANCED])
def test_a_gang_goes_by_its_size(nodes: int, want: list[int], strategy: Strategy) -> None:
    placed = place(make_fleet(SPINES), gang(nodes, strategy=strategy))

    by_leaf = leaves(placed)
    assert sorted(by_leaf.values(), reverse=True) == want
    assert len({leaf // 8 for leaf in by_leaf}) == 1, "below one spine"


def test_a_gang_wider_than_any_spine_takes_as_few_leaves_as_hold_it() -> None:
    by_leaf = leaves(place(make_fleet(SPINES), gang(40)))

    assert list(by_leaf.values()) == [4] * 10


@pytest.mark.parametrize(
    ("nodes", "taken", "want"),
    [
        pytest.param(2, ["n0", "n1", "n2"], {1: 2}, id="2 nodes pass over a leaf with one node left"),
        pytest.param(4, ["n0"], {1: 4}, id="4 nodes pass over a leaf that is not whole"),
        pytest.param(8, ["n0", "n4", "n8"], {3: 4, 4: 4}, id="8 nodes take the first whole leaves"),
        pytest.param(
            16,
            [f"n{4 * leaf}" for leaf in range(5)],
            {8: 4, 9: 4, 10: 4, 11: 4},
            id="16 nodes go to the spine that has four whole leaves",
        ),
    ],
)
def test_a_gang_passes_over_leaves_that_are_in_use(
    nodes: int, taken: list[str], want: dict[int, int]
) -> None:
    topology_cache = make_fleet(SPINES)
    take(topology_cache, *taken)

    assert leaves(place(topology_cache, gang(nodes, strategy=Strategy.CONSOLIDATED))) == want


def test_a_gang_waits_rather_than_be_split() -> None:
    topology_cache = make_fleet(SPINES)
    take(topology_cache, *(f"n{4 * leaf}" for leaf in range(16)))

    found = topology_cache.place([gang(4)])

    assert isinstance(found, Unplaced)
    assert found.message.startswith(
        'topology "default" has no room by its size rules: a gang of 4 nodes asks for one leaf free of other'
        " work; 0 of 16 have room."
    )
    assert not isinstance(topology_cache.place([gang(4)], is_empty=True), Unplaced), (
        "it fits the empty cluster"
    )


def test_four_nodes_share_their_leaf_with_no_other_gang_even_where_there_is_room() -> None:
    """One GPU of every node of the leaf is in use: four pods of 7 GPUs would fit beside."""
    topology_cache = make_fleet({"s0": {"l00": [8] * 4, "l01": [8] * 4}})
    take(topology_cache, "n0", gpus=1)

    assert leaves(place(topology_cache, gang(4, gpus=7))) == {1: 4}


def test_a_leaf_that_lost_a_node_makes_the_rule_smaller() -> None:
    """Four nodes never fit one leaf of three; they wait for no leaf that cannot be."""
    placed = place(make_fleet({"s0": {"l00": [8] * 3, "l01": [8] * 3}}), gang(4))

    assert len(placed) == 4


def test_work_that_ends_after_its_leaf_lost_all_nodes_changes_no_place() -> None:
    topology_cache = make_fleet({"s0": {"l00": [8], "l01": [8, 8]}})
    running = make_request(1, gpus=8, rules=NodeRules(node_selector=(("kubernetes.io/hostname", "n0"),)))
    assigned = topology_cache.place([running])
    assert not isinstance(assigned, Unplaced)
    held = place_of(running, assigned["main"])
    topology_cache.usage.use([held], sign=1)
    topology_cache.drop_node("n0")
    assert place(topology_cache, gang(2)) == {"n1": 1, "n2": 1}

    topology_cache.usage.use([held], sign=-1)

    assert place(topology_cache, gang(2)) == {"n1": 1, "n2": 1}


def test_a_gang_takes_no_more_of_a_wide_leaf_than_allowed() -> None:
    placed = place(make_fleet({"s0": {"l00": [8] * 16, "l01": [8] * 16}}), gang(8))

    assert Counter("l00" if int(node[1:]) < 16 else "l01" for node in placed) == {"l00": 4, "l01": 4}


def test_gpus_of_a_leaf_are_limited_too() -> None:
    rules = DomainRules(max_gpus_per_leaf=16)

    placed = place(make_fleet(SPINES), gang(4, rules=rules))

    assert sorted(leaves(placed).values()) == [2, 2]


def test_a_policys_own_rule_comes_before_the_standard_one() -> None:
    rules = DomainRules(size_rules=(SizeRule(max_nodes=4, leaves=2, is_complete=True),))
    topology_cache = make_fleet({"s0": {f"l{leaf:02}": [8] * 2 for leaf in range(4)}})
    take(topology_cache, "n0")

    placed = place(topology_cache, gang(4, rules=rules))

    assert sorted(placed) == ["n2", "n3", "n4", "n5"]


def test_a_gang_that_its_rule_can_never_hold_gets_a_reason() -> None:
    rules = DomainRules(size_rules=(SizeRule(max_nodes=8, leaves=1),))

    found = make_fleet(SPINES).place([gang(8, rules=rules)])

    assert isinstance(found, Unplaced)
    assert "can never hold a gang of 8 nodes by its size rules, which ask for one leaf" in found.message


def test_adjacent_leaves_may_be_marked_by_a_label() -> None:
    """Leaves form a row across the spines; l07 and l08 are neighbours."""
    topology_cache = make_fleet(SPINES)
    for name, node in list(topology_cache.nodes.by_name.items()):
        topology_cache.put_node(replace(node, labels={**node.labels, "row": str(leaf_of(name))}))
    take(topology_cache, *(f"n{4 * leaf}" for leaf in range(16) if leaf not in (3, 7, 8, 12)))

    placed = place(topology_cache, gang(8, rules=DomainRules(adjacency_label="row")))

    assert leaves(placed) == {7: 4, 8: 4}


# --- strategies --------------------------------------------------------------------------------------


def test_consolidated_work_goes_on_one_node_where_one_holds_it() -> None:
    topology_cache = make_fleet({"s0": {"l00": [4, 4], "l01": [8, 8]}})

    assert place(topology_cache, gang(8, gpus=1, strategy=Strategy.CONSOLIDATED)) == {"n2": 8}


def test_distributed_work_is_spread_over_leaves_and_nodes() -> None:
    placed = place(make_fleet(SPINES), gang(16, gpus=1, strategy=Strategy.DISTRIBUTED))

    assert list(leaves(placed).values()) == [1] * 16


def test_distributed_work_beyond_the_leaves_goes_to_further_nodes() -> None:
    placed = place(make_fleet(SPINES), gang(32, gpus=1, strategy=Strategy.DISTRIBUTED))

    assert set(placed.values()) == {1}
    assert list(leaves(placed).values()) == [2] * 16


def test_distributed_work_that_is_sensitive_to_latency_stays_on_one_leaf() -> None:
    placed = place(
        make_fleet(SPINES), gang(4, gpus=1, strategy=Strategy.DISTRIBUTED, is_latency_sensitive=True)
    )

    assert list(leaves(placed).values()) == [4]


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize(
    ("domain", "want"),
    [pytest.param("l05", {5}, id="a leaf"), pytest.param("s1", set(range(8, 16)), id="a spine")],
)
def test_the_preferred_domain_is_taken_where_it_has_room(
    strategy: Strategy, domain: str, want: set[int]
) -> None:
    placed = place(make_fleet(SPINES), gang(2, strategy=strategy, preferred_domain=domain))

    assert set(leaves(placed)) <= want


@pytest.mark.parametrize("domain", ["l00", "nowhere"])
def test_a_preferred_domain_without_room_is_passed_over(domain: str) -> None:
    topology_cache = make_fleet(SPINES)
    take(topology_cache, "n0", "n1", "n2", "n3")

    placed = place(topology_cache, gang(2, preferred_domain=domain))

    assert 0 not in leaves(placed)


@pytest.mark.parametrize(
    ("taken", "nodes", "scattered", "packed"),
    [
        pytest.param(["n21"], 2, 0, 5, id="a leaf in use is filled first"),
        pytest.param(["n0", "n4", "n5"], 1, 2, 1, id="of leaves in use the one with least room"),
        pytest.param(["n32"], 4, 0, 9, id="a leaf that is filled is taken below the spine with least room"),
    ],
)
def test_where_fragmentation_is_avoided(taken: list[str], nodes: int, scattered: int, packed: int) -> None:
    topology_cache = make_fleet(SPINES)
    take(topology_cache, *taken)
    emptiest = ScoringWeights(
        resource_availability=1.0, topology_alignment=0.0, domain_utilization=0.0, historical_performance=0.0
    )

    ignoring = place(topology_cache, gang(nodes, weights=emptiest))
    avoiding = place(topology_cache, gang(nodes, weights=emptiest, avoids_fragmentation=True))

    assert (set(leaves(ignoring)), set(leaves(avoiding))) == ({scattered}, {packed})


@pytest.mark.parametrize(
    ("weight", "want"),
    [
        pytest.param("resource_availability", 1, id="the emptier leaf has more room"),
        pytest.param("domain_utilization", 0, id="the fuller leaf is used better"),
        pytest.param("historical_performance", 2, id="the leaf where work went well"),
    ],
)
def test_each_weight_moves_the_choice(weight: str, want: int) -> None:
    topology_cache = make_fleet({"s0": {f"l{leaf:02}": [8] * 4 for leaf in range(3)}})
    take(topology_cache, "n0", gpus=4)
    take(topology_cache, "n8", gpus=1)
    topology_cache.search(FLAVOR).performance = {f"n{number}": 0.9 for number in range(8, 12)}
    none = dict.fromkeys(ScoringWeights.__dataclass_fields__, 0.0)
    weights = ScoringWeights(**{**none, weight: 1.0})

    placed = place(topology_cache, gang(1, gpus=1, weights=weights))

    assert set(leaves(placed)) == {want}


# --- bandwidth ---------------------------------------------------------------------------------------


def test_nodes_with_less_bandwidth_than_asked_for_are_left_out() -> None:
    topology_cache = make_fleet({"s0": {"l00": [8] * 4, "l01": [8] * 4}})
    for number, node in enumerate(list(topology_cache.nodes.by_name.values())):
        speed = "100Gb" if number < 4 else "400Gb"
        topology_cache.put_node(replace(node, labels={**node.labels, NETWORK_BANDWIDTH: speed}))

    def asking(mbits: int) -> PlacementRequest:
        return structs.replace(gang(2), rules=NodeRules(bandwidth=Bandwidth(mbits=mbits)))

    assert set(leaves(place(topology_cache, asking(200_000)))) == {1}
    other = structs.replace(gang(1), rules=NodeRules(bandwidth=Bandwidth(mbits=1, label="speed")))
    assert isinstance(topology_cache.place([other]), Unplaced)
    refused = topology_cache.place([asking(800_000)])
    assert isinstance(refused, Unplaced)
    assert "networkBandwidth: 8" in refused.message


# --- laws --------------------------------------------------------------------------------------------

GANGS = st.builds(
    gang,
    st.integers(1, 40),
    strategy=st.sampled_from(list(Strategy)),
    gpus=st.sampled_from([1, 2, 3, 8]),
    rules=st.sampled_from([None, RULES, DomainRules(max_nodes_per_leaf=2)]),
    avoids_fragmentation=st.booleans(),
    is_latency_sensitive=st.booleans(),
    preferred_domain=st.sampled_from(["", "l01", "s1"]),
)
FLEETS = st.dictionaries(
    st.sampled_from(["s0", "s1"]),
    st.dictionaries(
        st.sampled_from([f"l{leaf:02}" for leaf in range(5)]),
        st.lists(st.sampled_from([4, 8]), min_size=1, max_size=5),
        min_size=1,
    ),
    min_size=1,
)


@trying()
@given(racks=FLEETS, gangs=st.lists(GANGS, max_size=6))
def test_every_gang_that_is_placed_fits_node_by_node(racks: Racks, gangs: list[PlacementRequest]) -> None:
    topology_cache = make_fleet(racks)
    places: list[Place] = []
    for request in gangs:
        found = topology_cache.place([request])
        if isinstance(found, Unplaced):
            continue
        assert sum(domain.count for domain in found["main"].domains) == request.count
        place = place_of(request, found["main"])
        assert topology_cache.usage.fits([place])
        topology_cache.usage.use([place], sign=1)
        places.append(place)
        topology_cache.usage.validate(places)


@trying()
@given(racks=FLEETS, request=GANGS)
def test_equal_clusters_give_equal_places(racks: Racks, request: PlacementRequest) -> None:
    """Whatever the order in which the nodes were seen."""
    one, other = make_fleet(racks), make_fleet(racks)
    for node in reversed(list(one.nodes.by_name.values())):
        other.drop_node(node.name)
    for node in reversed(list(one.nodes.by_name.values())):
        other.put_node(node)

    assert one.place([request]) == other.place([request])


# --- nodes that fail ---------------------------------------------------------------------------------


def replaced(
    topology_cache: TopologyCache, request: PlacementRequest, lost: str
) -> dict[str, int] | Unplaced:
    """Return where the pods of the placed gang are once a node is lost."""
    found = topology_cache.place([request])
    assert not isinstance(found, Unplaced)
    topology_cache.usage.use([place_of(request, found["main"])], sign=1)
    mended = replace_hosts(
        topology_cache, [RemainingPlace(request=request, assignment=found["main"])], {lost}
    )
    if isinstance(mended, Unplaced):
        return mended
    return {domain.values[-1]: domain.count for domain in mended["main"].domains}


def test_a_failed_node_is_replaced_on_the_leaf_that_the_size_rule_gave() -> None:
    got = replaced(make_fleet(SPINES), gang(3), "n1")

    assert not isinstance(got, Unplaced)
    assert (set(leaves(got)), "n1" in got) == ({0}, False)


def test_a_gang_that_fills_its_leaves_gets_no_node_elsewhere() -> None:
    got = replaced(make_fleet(SPINES), gang(8), "n1")

    assert isinstance(got, Unplaced)
    assert got.message == "the leaves that its size rule gave it have no room"
