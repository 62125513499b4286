"""What a node has a number of is counted, whatever it is; and nodes are looked at once for all equal pods."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from admission.placement.topology.request import NodeRules
from admission.placement.topology_cache import TopologyCache
from api.node import PodUsage
from api.queueing import ResourceFlavor, Topology
from api.selectors import matches_node
from tests.admission.placement.fleets import FLAVOR, LEVELS, counts, make_node, make_request

# Addresses that are reserved for pods of a node, advertised by a device plugin or an operator.
ADDRESS = "example.com/reserved-ip"


def make_fleet(addresses: dict[str, int]) -> TopologyCache:
    """Return a fleet of a rack whose nodes have these numbers of addresses."""
    topology_cache = TopologyCache()
    for name, count in addresses.items():
        node = make_node(name, "b0", "r0", 8)
        topology_cache.put_node(replace(node, allocatable={**node.allocatable, ADDRESS: count}))
    flavor = ResourceFlavor(name=FLAVOR, topology_name="default")
    topology_cache.set_flavors({FLAVOR: flavor}, {"default": Topology(name="default", levels=LEVELS)})
    return topology_cache


@pytest.mark.covers("004_09")
def test_pods_go_where_the_addresses_that_they_need_are_free() -> None:
    topology_cache = make_fleet({"n0": 1, "n1": 2, "n2": 0})
    topology_cache.put_pod(PodUsage(namespace="x", name="taken", node="n1", requests={ADDRESS: 1}))
    stateful = structs.replace(make_request(2), per_pod={ADDRESS: 1, "pods": 1})

    assert counts(topology_cache, stateful) == {"main": {"n0": 1, "n1": 1}}
    assert "fit only 2 out of 3" in str(counts(topology_cache, structs.replace(stateful, count=3)))


@pytest.mark.covers("004_10", "004_21")
def test_a_thousand_nodes_are_looked_at_once_for_all_equal_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a pod of the gang nor a second gang of the shape asks any node about its labels again."""
    topology_cache = make_fleet({f"n{number}": 1 for number in range(1000)})
    looks: list[str] = []

    def counting(*arguments: object, name: str, **fields: object) -> object:
        looks.append(name)
        return matches_node(*arguments, name=name, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr("admission.placement.topology.node_exclusions.matches_node", counting)
    gang = make_request(500, gpus=8, rules=NodeRules(node_selector=(("rack", "r0"),)))

    first, second = counts(topology_cache, gang), counts(topology_cache, gang)

    assert first == second
    assert isinstance(first, dict)
    assert len(first["main"]) == 500
    # One verdict for all nodes that read alike.
    assert len(looks) == 1
