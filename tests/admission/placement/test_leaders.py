"""Law of groups with a leader: they get places where a node can host it beside them, one for every pod."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from admission.placement.topology.place import place_of
from admission.placement.topology_cache import Placed
from tests.admission.placement.fleets import BLOCK, HOST, LEVELS, RACK, Racks, make_fleet, make_request
from tests.examples import trying

NODES = st.lists(st.integers(0, 9), min_size=1, max_size=4)
RACKS = st.dictionaries(
    st.sampled_from(["b0", "b1"]),
    st.dictionaries(st.sampled_from(["r0", "r1"]), NODES, min_size=1),
    min_size=1,
)


@trying(150)
@given(
    RACKS,
    st.integers(1, 8),
    st.integers(1, 5),
    st.integers(0, 5),
    st.sampled_from([None, *LEVELS]),
    st.sampled_from([1, 1, 2]),
)
def test_a_group_fits_where_a_domain_holds_its_leader_beside_all_workers(
    racks: Racks, workers: int, gpus: int, of_leader: int, required: str | None, slice_size: int
) -> None:
    racks = unique(racks)
    # The smaller of the pod sets is the leader.
    count = max(2, workers // slice_size * slice_size)
    slices = ((HOST, slice_size),) if slice_size > 1 else ()
    asked = make_request(
        count,
        gpus=gpus,
        name="workers",
        required=required,
        unconstrained=required is None and not slices,
        slices=slices,
        group="g",
    )
    leader = make_request(1, gpus=of_leader, name="leader", required=required, group="g")
    topology_cache = make_fleet(racks)
    found = topology_cache.find([leader, asked])

    domains = domains_of(racks, required)
    fits = any(holds(nodes, count, gpus, of_leader, slice_size) for nodes in domains)
    assert isinstance(found, Placed) == fits
    if not isinstance(found, Placed):
        return
    placed = found.assignments
    assert sum(one.count for one in placed["leader"].domains) == 1
    assert sum(one.count for one in placed["workers"].domains) == count
    assert all(one.count % slice_size == 0 for one in placed["workers"].domains)
    places = [place_of(asked, placed["workers"]), place_of(leader, placed["leader"])]
    assert topology_cache.usage.fits(places)


def unique(racks: Racks) -> Racks:
    """Return the racks with names of their own."""
    return {
        block: {f"{block}-{rack}": nodes for rack, nodes in of_block.items()}
        for block, of_block in racks.items()
    }


def domains_of(racks: Racks, required: str | None) -> list[list[int]]:
    """Return the GPUs of the nodes of each domain that may hold the group."""
    blocks = [[list(nodes) for nodes in of_block.values()] for of_block in racks.values()]
    if required == HOST:
        return [[gpus] for block in blocks for nodes in block for gpus in nodes]
    if required == RACK:
        return [nodes for block in blocks for nodes in block]
    if required == BLOCK:
        return [[gpus for nodes in block for gpus in nodes] for block in blocks]
    return [[gpus for block in blocks for nodes in block for gpus in nodes]]


def holds(nodes: list[int], count: int, gpus: int, of_leader: int, slice_size: int) -> bool:
    """Return whether any node can host the leader while the nodes hold all workers in whole slices."""

    def room(free: int) -> int:
        return free // gpus // slice_size * slice_size

    plain = sum(map(room, nodes))
    return any(plain - room(free) + room(free - of_leader) >= count for free in nodes if free >= of_leader)
