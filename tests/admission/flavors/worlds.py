"""A world whose nodes are placed on by a topology, with one queue for the tests of this folder to fill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.keys import HOSTNAME
from api.node import NodeInfo
from api.queueing import FlavorQuotas, ResourceFlavor, ResourceGroup, ResourceQuota, Topology
from tests.builders import World, make_cluster_queue


def fill(
    world: World,
    *nodes: NodeInfo,
    amounts: Mapping[str, int],
    levels: tuple[str, ...] = (HOSTNAME,),
    **queue: Any,
) -> World:
    """Put the nodes into the world as flavor `only`, and a queue with a quota of these amounts."""
    quotas = {name: ResourceQuota(nominal=amount) for name, amount in amounts.items()}
    group = ResourceGroup(
        covered_resources=tuple(amounts), flavors=(FlavorQuotas(name="only", resources=quotas),)
    )
    world.put(Topology(name="tree", levels=levels), *nodes)
    world.put(ResourceFlavor(name="only", topology_name="tree"))
    return world.put(make_cluster_queue("queue", groups=(group,), **queue))
