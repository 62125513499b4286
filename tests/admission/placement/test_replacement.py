"""Where the pods of lost nodes go: near those that remain, in whole slices, several nodes at once.

The slice cases are those of Kueue's own tests of the second pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from msgspec import structs

from admission.placement.replacement import RemainingPlace, replace_hosts
from admission.placement.topology.place import Place
from admission.placement.topology.placement_options import PlacementOptions
from admission.placement.topology.request import PlacementRequest
from admission.placement.topology_cache import TopologyCache, Unplaced
from api.policy import DomainRules
from api.workload import DomainCount, TopologyAssignment
from tests.admission.placement.fleets import BLOCK, FLAVOR, GPU, HOST, RACK, counts, make_fleet, make_request

# b0: r0 n0 n1 | r1 n2 n3      b1: r2 n4 n5 | r3 n6 n7      8 GPUs each
RACKS = {"b0": {"r0": [8, 8], "r1": [8, 8]}, "b1": {"r2": [8, 8], "r3": [8, 8]}}


def make_assignment(**pods: int) -> TopologyAssignment:
    """Return an assignment of `pods` to hosts, by count."""
    domains = tuple(DomainCount(values=(host,), count=count) for host, count in pods.items())
    return TopologyAssignment(levels=(HOST,), domains=domains)


def put(topology_cache: TopologyCache, request: PlacementRequest, **pods: int) -> RemainingPlace:
    """Place the pods of a request on these hosts."""
    place = Place(flavor=FLAVOR, assignment=make_assignment(**pods), per_pod=request.per_pod)
    topology_cache.usage.use([place], sign=1)
    return RemainingPlace(request=request, assignment=place.assignment)


def pods_of(assignment: TopologyAssignment) -> dict[str, int]:
    """Return the pods by host."""
    return {domain.values[-1]: domain.count for domain in assignment.domains}


def replaced(
    topology_cache: TopologyCache, *places: RemainingPlace, lost: str
) -> Mapping[str, dict[str, int]] | str:
    """Return the new pods by host of each pod set that changed, or why there is no room."""
    for host in lost.split():
        topology_cache.drop_node(host)
    found = replace_hosts(topology_cache, places, lost.split())
    if isinstance(found, Unplaced):
        return found.message
    return {name: pods_of(assignment) for name, assignment in found.items()}


@pytest.mark.parametrize(
    ("request_", "pods", "lost", "want"),
    [
        pytest.param(
            make_request(8, required=RACK), {"n0": 8}, "n0", {"n1": 8}, id="a whole gang finds another rack"
        ),
        pytest.param(
            make_request(12, required=RACK),
            {"n2": 8, "n3": 4},
            "n3",
            "doesn't allow to fit any of 4 pod(s)",
            id="a full rack has no room for those it lost",
        ),
        pytest.param(
            make_request(2, gpus=4, required=RACK),
            {"n4": 1, "n5": 1},
            "n5",
            {"n4": 2},
            id="survivors' nodes take the lost pods in, where one rack is required",
        ),
        pytest.param(
            make_request(3, gpus=8, required=BLOCK),
            {"n0": 1, "n1": 1, "n2": 1},
            "n1 n2",
            "allows to fit only 1 out of 2 pod(s)",
            id="two nodes at once: one is left in the block, and two are needed",
        ),
        pytest.param(
            make_request(2, gpus=8, preferred=RACK),
            {"n4": 1, "n5": 1},
            "n5",
            {"n4": 1, "n6": 1},
            id="a full preferred rack: the next best is its block, though other racks are as empty",
        ),
        pytest.param(
            make_request(2, gpus=4, unconstrained=True),
            {"n0": 1, "n7": 1},
            "n7",
            {"n0": 2},
            id="without a preference the fullest node with room",
        ),
        pytest.param(
            make_request(8, gpus=2, preferred=BLOCK, slices=((BLOCK, 4),)),
            {"n0": 2, "n2": 2, "n4": 2, "n7": 2},
            "n7",
            {"n0": 2, "n2": 2, "n4": 2, "n6": 2},
            id="a slice that was torn is mended in its own domain",
        ),
        pytest.param(
            make_request(8, gpus=2, preferred=BLOCK, slices=((RACK, 8),)),
            {"n2": 4, "n3": 4},
            "n2",
            "fit",
            id="a torn slice stays in its rack, and where that is full it cannot be mended",
        ),
        pytest.param(
            make_request(12, gpus=2, required=BLOCK, slices=((RACK, 4),)),
            {"n2": 4, "n3": 4, "n0": 4},
            "n3",
            {"n0": 4, "n1": 4, "n2": 4},
            id="a whole slice may move to another rack of its block",
        ),
        pytest.param(
            make_request(4, gpus=4, required=RACK, slices=((HOST, 2),)),
            {"n0": 2, "n1": 2},
            "n0 n1",
            {"n2": 2, "n3": 2},
            id="all lost: as if it had never been placed",
        ),
        pytest.param(
            make_request(8, required=BLOCK, slices=((RACK, 2),)),
            {"n0": 3, "n2": 5},
            "n0",
            {"n2": 8},
            id="half a slice and whole ones: all to where the torn one is, while there is room",
        ),
        pytest.param(
            make_request(8, required=BLOCK, slices=((RACK, 4), (HOST, 2))),
            {"n0": 2, "n1": 2, "n2": 2, "n3": 2},
            "n1 n3",
            {"n0": 4, "n2": 4},
            id="slices within slices, each torn one in its own rack",
        ),
    ],
)
def test_lost_pods_go(
    request_: PlacementRequest, pods: dict[str, int], lost: str, want: dict[str, int] | str
) -> None:
    topology_cache = make_fleet(RACKS)

    got = replaced(topology_cache, put(topology_cache, request_, **pods), lost=lost)

    if isinstance(want, str):
        assert want in str(got)
    else:
        assert got == {"main": want}


RULES = PlacementOptions(rules=DomainRules())


@pytest.mark.parametrize(
    ("options", "pods", "lost", "want"),
    [
        pytest.param(
            PlacementOptions(),
            {"n4": 1},
            "n5",
            {"n4": 1, "n6": 1},
            id="near: the leaf is full, its block is not",
        ),
        pytest.param(RULES, {"n4": 1}, "n5", "have no room", id="by rules on its leaf or not at all"),
        pytest.param(
            RULES, {"n4": 1, "n6": 1}, "n5", {"n4": 1, "n6": 1, "n7": 1}, id="by rules on any of its leaves"
        ),
    ],
)
def test_a_gang_that_a_policy_put_together_stays_together(
    options: PlacementOptions, pods: dict[str, int], lost: str, want: dict[str, int] | str
) -> None:
    topology_cache = make_fleet(RACKS)
    request = structs.replace(make_request(len(pods) + 1, gpus=8), options=options)

    got = replaced(topology_cache, put(topology_cache, request, **pods, **{lost: 1}), lost=lost)

    assert want in str(got) if isinstance(want, str) else got == {"main": want}


def test_nothing_is_taken_by_the_search() -> None:
    topology_cache = make_fleet(RACKS)
    request = make_request(2, gpus=8, required=BLOCK, slices=((HOST, 1),))
    gang = put(topology_cache, request, n0=1, n1=1)
    topology_cache.drop_node("n1")

    for _ in range(2):
        assert replaced(topology_cache, gang, lost="n1") == {"main": {"n0": 1, "n2": 1}}

    topology_cache.usage.validate([Place(flavor=FLAVOR, assignment=gang.assignment, per_pod=request.per_pod)])


def test_a_node_that_still_exists_is_not_chosen_when_it_is_called_lost() -> None:
    topology_cache = make_fleet({"b0": {"r0": [8]}, "b1": {"r1": [8]}})
    gang = put(topology_cache, make_request(1, gpus=4, preferred=HOST), n0=1)

    found = replace_hosts(topology_cache, [gang], ["n0"])

    assert not isinstance(found, Unplaced)
    assert pods_of(found["main"]) == {"n1": 1}
    assert counts(topology_cache, make_request(1, gpus=4, required=HOST)) == {"main": {"n0": 1}}


def test_a_leader_that_lost_its_node_stays_with_its_workers() -> None:
    topology_cache = make_fleet(RACKS)
    workers = put(topology_cache, make_request(4, gpus=2, name="workers", required=RACK, group="g"), n4=4)
    leader = put(topology_cache, make_request(1, gpus=0, name="leader", required=RACK, group="g"), n5=1)

    assert replaced(topology_cache, workers, leader, lost="n5") == {"leader": {"n4": 1}}


def test_a_level_that_the_topology_no_longer_has_is_reported() -> None:
    topology_cache = make_fleet(RACKS)
    request = make_request(2, gpus=8, required=BLOCK)
    gang = put(topology_cache, request, n0=1, n1=1)
    topology = request.topology
    assert topology is not None
    moved = replace(gang, request=structs.replace(request, topology=replace(topology, required="row")))

    assert replaced(topology_cache, moved, lost="n1") == "no requested topology level: row"


def test_survivors_on_nodes_that_are_not_ready_still_show_where_the_gang_is() -> None:
    topology_cache = make_fleet(RACKS)
    gang = put(topology_cache, make_request(2, gpus=4, required=BLOCK), n4=1, n5=1)
    topology_cache.put_node(replace(topology_cache.nodes.by_name["n4"], is_ready=False))

    got = replaced(topology_cache, gang, lost="n5")

    assert got == {"main": {"n4": 1, "n6": 1}}
    assert GPU in topology_cache.nodes.by_name["n6"].allocatable
