"""How full the leaves of a topology are, for people and metrics: nodes and GPUs in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from admission.placement.topology.flavor_topology import FlavorTopology
from api.jobs.resource_requests import gpus_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainUsage:
    """One domain right above the nodes. A node is in use where any pod has GPUs of it, or anything where it
    has none; in part where GPUs are left. `domain` are the level values, widest first, with / between.
    """

    flavor: str
    domain: str
    nodes: int
    nodes_in_use: int
    nodes_in_part: int
    gpus: int
    gpus_in_use: int

    @property
    def utilization(self) -> float:
        """The part of the nodes that is in use."""
        return self.nodes_in_use / self.nodes

    @property
    def fragmentation(self) -> float:
        """The part of the nodes that is in use in part: what whole-node gangs cannot have."""
        return self.nodes_in_part / self.nodes

    @property
    def gpu_allocation(self) -> float | None:
        """The part of the GPUs that is in use, None where there are none."""
        return self.gpus_in_use / self.gpus if self.gpus else None


def domain_usages(site: FlavorTopology, flavor: str) -> Iterator[DomainUsage]:
    """Yield the leaves of the flavor; none where its topology has no level above the nodes, or no nodes."""
    depth = len(site.levels)
    # Without hosts below them domains have no nodes to count.
    if not site.is_by_host or depth < 2:
        return
    for domain in list(site.tree.at_level[depth - 2]):
        nodes = list(site.tree.leaves_below(domain))
        if nodes:
            yield _usage(site, flavor, domain, nodes)


def _usage(site: FlavorTopology, flavor: str, domain: int, nodes: list[int]) -> DomainUsage:
    gpus = gpus_in_use = in_use = in_part = 0
    for node in nodes:
        has, used = _node_gpus(site, node)
        gpus, gpus_in_use = gpus + has, gpus_in_use + used
        # A node without GPUs is in use by whatever runs on it.
        in_use += bool(used) if has else bool(site.used_of(node))
        in_part += 0 < used < has
    return DomainUsage(
        flavor=flavor,
        domain="/".join(site.tree.values[domain]),
        nodes=len(nodes),
        nodes_in_use=in_use,
        nodes_in_part=in_part,
        gpus=gpus,
        gpus_in_use=gpus_in_use,
    )


def _node_gpus(site: FlavorTopology, node: int) -> tuple[int, int]:
    """Return the GPUs of a node, and how many are in use by placed Workloads and by other pods."""
    has = sum(gpus_of(info.allocatable) for info in site.nodes[node].values())
    # What is left may be negative, where more is used than the node has.
    left = gpus_of(site.free_of(node))
    # Never more than it has, and never less than nothing: Workloads may hold places on nodes that shrank.
    return has, min(has, max(0, has - left))
