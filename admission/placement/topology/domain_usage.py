"""The usage of a topology's leaves, for status and metrics: nodes and GPUs in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from admission.placement.topology.flavor_topology import FlavorTopology
from api.jobs.resource_requests import gpus_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainUsage:
    """One domain right above the nodes.

    A node is in use where pods use any of its GPUs; a node without GPUs, where anything runs on it. A
    node is in use in part where some of its GPUs are free. `domain` holds the level values, the widest
    first, joined by /.
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
        """The share of the nodes that is in use, from 0 to 1."""
        return self.nodes_in_use / self.nodes

    @property
    def fragmentation(self) -> float:
        """The share of the nodes in use in part, from 0 to 1: gangs of whole nodes cannot use them."""
        return self.nodes_in_part / self.nodes

    @property
    def gpu_allocation(self) -> float | None:
        """The share of the GPUs that is in use, from 0 to 1; None where there are none."""
        return self.gpus_in_use / self.gpus if self.gpus else None


def domain_usages(site: FlavorTopology, flavor: str) -> Iterator[DomainUsage]:
    """Yield the usage of the flavor's leaves; none where its topology has no level above the nodes.

    `site` is the topology as the flavor sees it. GPUs are whole devices; a GPU that another program uses
    counts as in use.
    """
    depth = len(site.levels)
    # Without the host as the lowest level a domain's nodes cannot be counted.
    if not site.is_by_host or depth < 2:
        return
    for domain in list(site.tree.at_level[depth - 2]):
        nodes = list(site.tree.leaves_below(domain))
        if nodes:
            yield _usage(site, flavor, domain, nodes)


def _usage(site: FlavorTopology, flavor: str, domain: int, nodes: list[int]) -> DomainUsage:
    """Return the usage of one leaf switch, summed over its nodes."""
    gpus = gpus_in_use = in_use = in_part = 0
    for node in nodes:
        has, used = node_gpus(site, node)
        gpus, gpus_in_use = gpus + has, gpus_in_use + used
        # A node without GPUs is in use if anything runs on it.
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


def node_gpus(site: FlavorTopology, node: int) -> tuple[int, int]:
    """Return a node's GPUs, and how many of them Workloads and other pods use."""
    has = sum(gpus_of(info.allocatable) for info in site.nodes[node].values())
    # What is left may be negative where usage exceeds the node's capacity.
    left = gpus_of(site.free_of(node))
    # Capped to what the node has, because Workloads may hold places on nodes that have shrunk.
    return has, min(has, max(0, has - left))
