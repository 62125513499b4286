"""Work that may run anywhere leaves whole domains to gangs that need them, where a policy asks for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.placement.topology.place import place_of
from admission.placement.topology.request import NodeRules
from admission.placement.topology_cache import TopologyCache, Unplaced
from tests.admission.placement.fleets import HOST, RACK, Racks, counts, make_fleet, make_request

# b0 ── r0 ── n0 n1       b1 ── r2 ── n4 n5       8 GPUs each
#    └─ r1 ── n2 n3          └─ r3 ── n6 n7
RACKS: Racks = {"b0": {"r0": [8, 8], "r1": [8, 8]}, "b1": {"r2": [8, 8], "r3": [8, 8]}}
NODES = [f"n{index}" for index in range(8)]


def fleet_with(used: dict[str, int]) -> TopologyCache:
    """Return RACKS with `used` GPUs of these nodes taken."""
    topology_cache = make_fleet(RACKS)
    for node, gpus in used.items():
        request = make_request(1, gpus=gpus, rules=NodeRules(node_selector=((HOST, node),)))
        placed = topology_cache.place([request])
        assert not isinstance(placed, Unplaced)
        topology_cache.usage.use([place_of(request, placed["main"])], sign=1)
    return topology_cache


@pytest.mark.parametrize(
    ("used", "pods", "want", "want_by_default"),
    [
        pytest.param({"n5": 1}, 8, {"n4": 8}, {"n0": 8}, id="a whole node is taken in the rack in use"),
        pytest.param({"n5": 4}, 2, {"n5": 2}, {"n5": 2}, id="a part of a node is taken in the node in use"),
        pytest.param({"n4": 6, "n0": 7, "n2": 7}, 4, {"n1": 4}, {"n1": 4}, id="the fuller block goes first"),
        pytest.param(
            {"n0": 1, "n4": 1, "n6": 7, "n7": 7},
            7,
            {"n4": 7},
            {"n0": 7},
            id="a rack without room is passed by",
        ),
        pytest.param(
            {"n6": 4}, 12, {"n6": 4, "n7": 8}, {"n0": 8, "n6": 4}, id="several nodes are of one rack"
        ),
    ],
)
def test_small_work_goes_where_others_are(
    used: dict[str, int], pods: int, want: dict[str, int], want_by_default: dict[str, int]
) -> None:
    topology_cache = fleet_with(used)

    assert counts(topology_cache, make_request(pods, keeps_whole=True)) == {"main": want}
    assert counts(topology_cache, make_request(pods)) == {"main": want_by_default}


def test_a_workload_that_asks_for_a_level_is_placed_as_ever() -> None:
    topology_cache = fleet_with({"n5": 1})

    kept = counts(topology_cache, make_request(8, required=RACK, keeps_whole=True))

    assert kept == counts(topology_cache, make_request(8, required=RACK))


@given(
    used=st.dictionaries(st.sampled_from(NODES), st.integers(1, 8)),
    pods=st.integers(1, 40),
)
def test_no_unused_block_is_opened_while_one_in_use_has_room(used: dict[str, int], pods: int) -> None:
    free = {node: 8 - used.get(node, 0) for node in NODES}
    blocks = {"b0": NODES[:4], "b1": NODES[4:]}

    placed = counts(fleet_with(used), make_request(pods, keeps_whole=True))

    if isinstance(placed, str):
        assert pods > sum(free.values())
        return
    for name, nodes in blocks.items():
        if set(placed["main"]) & set(nodes) and not set(used) & set(nodes):
            in_use = [other for key, other in blocks.items() if key != name and set(used) & set(other)]
            assert all(sum(free[node] for node in other) < pods for other in in_use)
