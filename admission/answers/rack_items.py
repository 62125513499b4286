"""Topology domains above the nodes as items of a list: free GPUs, and the largest gangs that fit now."""

from __future__ import annotations

from collections.abc import Iterator

from admission.answers.items import GangItem, RackItem
from admission.engine.engine import Engine
from admission.placement.topology.domain_room import DomainRoom


def rack_items(engine: Engine) -> Iterator[RackItem]:
    """Yield the domains of topologies whose lowest level is the node, by flavor, the widest level first."""
    return (_item(one) for one in engine.nodes.domain_rooms())


def _item(room: DomainRoom) -> RackItem:
    return RackItem(
        flavor=room.flavor,
        level=room.level,
        domain="/".join(room.values),
        nodes=len(room.gpus),
        free_nodes=sum(free == has for has, free in room.gpus),
        gpus=sum(has for has, _ in room.gpus),
        free_gpus=sum(free for _, free in room.gpus),
        largest_gangs=tuple(_gangs(room)),
    )


def _gangs(room: DomainRoom) -> Iterator[GangItem]:
    """Yield the largest gang of each size of pods: 1, 2, 4 and so on up to all GPUs of the largest node."""
    largest = max((has for has, _ in room.gpus), default=0)
    sizes = {1 << power for power in range(largest.bit_length())} | {largest}
    for size in sorted(sizes - {0}):
        yield GangItem(gpus_per_pod=size, pods=sum(free // size for _, free in room.gpus))
