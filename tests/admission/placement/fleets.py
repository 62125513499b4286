"""Fleets to place pods in. Racks are written as a map: {"b0": {"r0": [8, 8], "r1": [4]}} in GPUs a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from admission.placement.topology.place import taken_per_pod
from admission.placement.topology.request import NodeRules, PlacementRequest
from admission.placement.topology_cache import TopologyCache, Unplaced
from api.node import NodeInfo
from api.objects.common import WireTaint
from api.queueing import ResourceFlavor, Topology
from api.workload import SliceConstraint, TopologyRequest

GPU = "nvidia.com/gpu"
BLOCK, RACK, HOST = "block", "rack", "kubernetes.io/hostname"
LEVELS = (BLOCK, RACK, HOST)
FLAVOR = "gpus"

Racks = Mapping[str, Mapping[str, Sequence[int]]]


def make_node(
    name: str, block: str, rack: str, gpus: int, *, taints: tuple[WireTaint, ...] = (), is_ready: bool = True
) -> NodeInfo:
    """Return a node of that many GPUs."""
    return NodeInfo(
        name=name,
        labels={BLOCK: block, RACK: rack, HOST: name},
        allocatable={GPU: gpus, "pods": 100},
        taints=taints,
        is_ready=is_ready,
    )


def make_fleet(racks: Racks, *, levels: tuple[str, ...] = LEVELS) -> TopologyCache:
    """Return a fleet with one flavor; its nodes are n0, n1, ... in the order given."""
    return fill_fleet(TopologyCache(), racks, levels=levels)


def fill_fleet(
    topology_cache: TopologyCache, racks: Racks, *, levels: tuple[str, ...] = LEVELS
) -> TopologyCache:
    """Give a fleet its flavor and nodes n0, n1, ... in the order given."""
    number = 0
    for block, of_block in racks.items():
        for rack, nodes in of_block.items():
            for gpus in nodes:
                topology_cache.put_node(make_node(f"n{number}", block, rack, gpus))
                number += 1
    flavor = ResourceFlavor(name=FLAVOR, topology_name="default")
    topology_cache.set_flavors({FLAVOR: flavor}, {"default": Topology(name="default", levels=levels)})
    return topology_cache


def make_request(
    count: int,
    *,
    gpus: int = 1,
    name: str = "main",
    required: str | None = None,
    preferred: str | None = None,
    unconstrained: bool = False,
    slices: tuple[tuple[str, int], ...] = (),
    group: str | None = None,
    rules: NodeRules | None = None,
    keeps_whole: bool = False,
) -> PlacementRequest:
    """Return a request of `count` pods; without any topology argument it asks for none."""
    topology = TopologyRequest(
        required=required,
        preferred=preferred,
        unconstrained=unconstrained,
        pod_set_group=group,
        slices=tuple(SliceConstraint(topology=level, size=size) for level, size in slices),
    )
    return PlacementRequest(
        pod_set=name,
        flavor=FLAVOR,
        count=count,
        per_pod=taken_per_pod({GPU: gpus} if gpus else {}),
        topology=None if topology == TopologyRequest() else topology,
        rules=rules or NodeRules(),
        keeps_domains_whole=keeps_whole,
    )


def counts(topology_cache: TopologyCache, *requests: PlacementRequest) -> dict[str, dict[str, int]] | str:
    """Return how many pods of each request go to which leaf, or the sentence that says why not."""
    found = topology_cache.place(requests)
    if isinstance(found, Unplaced):
        return found.message
    return {
        name: {",".join(domain.values): domain.count for domain in assignment.domains}
        for name, assignment in found.items()
    }
