"""What the domains above the nodes have left now: the GPUs of each node, and how many of them are free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from admission.placement.topology.domain_usage import node_gpus
from admission.placement.topology.flavor_topology import FlavorTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainRoom:
    """One domain. `level` is the node label of the last of its `values`.

    `gpus` has an entry for each of its nodes that pods may be placed on: all of its GPUs, and the free ones.
    """

    flavor: str
    level: str
    values: tuple[str, ...]
    gpus: tuple[tuple[int, int], ...]


def domain_rooms(site: FlavorTopology, flavor: str) -> Iterator[DomainRoom]:
    """Yield the domains of all levels above the nodes, the widest level first.

    None where the lowest level is not the node: free GPUs of single nodes are not known there.
    """
    if not site.is_by_host:
        return
    for depth, level in enumerate(site.levels[:-1]):
        for domain in sorted(site.tree.at_level[depth], key=lambda one: site.tree.values[one]):
            yield DomainRoom(
                flavor=flavor,
                level=level,
                values=site.tree.values[domain],
                gpus=tuple(_left(site, node) for node in site.tree.leaves_below(domain)),
            )


def _left(site: FlavorTopology, node: int) -> tuple[int, int]:
    has, used = node_gpus(site, node)
    return has, has - used
