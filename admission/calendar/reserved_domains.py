"""Topology domains that an advance reservation keeps whole: their nodes, and how others are kept off them.

    spec.reservations[].domain ─┐                   ┌─▶ spots: what the profile counts as taken
    flavors, nodes             ─┴─▶ find_domain ────┼─▶ amounts: what its nodes have, for the quota beside it
                                                    └─▶ or why there is no such domain, and what to do

The domain is looked up by its level values in the topology of each flavor of the ClusterQueue. It consists of
the nodes that are in it now: a node that is lost, cordoned or added changes the reservation, not the policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.tree import Values
from admission.placement.topology_cache import TopologyCache
from api.jobs.resource_requests import PODS
from api.queueing import ClusterQueue, ResourceFlavor
from queues.profile.capacity_profile import Spot, Spots
from queues.quota.resources import FlavorResource, Quantities

# More pods than any node takes. Every pod takes one place of its node, so claiming the places keeps off all
# pods: also those that request nothing else, and whatever the other pods of the node do meanwhile.
_ALL_PLACES = 1 << 40
# Caps the existing domains that a message lists when the requested one does not exist.
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedDomain:
    """A domain by its level values, widest first, and the flavors in whose topology it exists.

    `amounts` is the sum of its nodes' allocatable resources by flavor, `hosts` the number of nodes.
    """

    values: Values
    flavors: frozenset[str]
    spots: Spots
    amounts: Quantities = field(default_factory=dict)
    hosts: int = 0

    @property
    def name(self) -> str:
        """The domain as the policy writes it: level values joined by slashes."""
        return "/".join(self.values)

    def overlaps(self, other: ReservedDomain) -> bool:
        """Return whether the two have a node in common."""
        return not self.spots.keys().isdisjoint(other.spots)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyNodes:
    """The nodes, and the flavors whose topologies contain them."""

    topology_cache: TopologyCache = field(default_factory=TopologyCache)
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)


def find_domain(values: Values, spec: ClusterQueue, nodes: TopologyNodes) -> ReservedDomain | str:
    """Return the domain of these level values as it is now, or why it cannot be kept for the ClusterQueue."""
    names = dict.fromkeys(flavor.name for group in spec.resource_groups for flavor in group.flavors)
    sites = {
        name: nodes.topology_cache.topology(name) for name in names if nodes.topology_cache.has_topology(name)
    }
    if not sites:
        return (
            f"no flavor of ClusterQueue {spec.name} has a topology; give resources instead of a domain, or "
            "let a ResourceFlavor of it name a Topology"
        )
    found = {name: site for name, site in sites.items() if site.tree.find(values) is not None}
    if not found:
        return "; ".join(dict.fromkeys(_absence(values, name, sites[name], nodes) for name in sorted(sites)))
    spots: dict[Spot, Mapping[str, int]] = {}
    amounts: dict[FlavorResource, int] = {}
    for name, site in sorted(found.items()):
        for leaf in _leaves(site, values):
            spots[site.owner, site.names[leaf]] = {PODS: _ALL_PLACES}
            for node in site.nodes[leaf].values():
                for resource, amount in node.allocatable.items():
                    pair = FlavorResource(name, resource)
                    amounts[pair] = amounts.get(pair, 0) + amount
    return ReservedDomain(
        values=values,
        flavors=frozenset(found),
        spots=spots,
        amounts=amounts,
        hosts=_count_nodes(found, values),
    )


def _count_nodes(sites: Mapping[str, FlavorTopology], values: Values) -> int:
    # By node name, because flavors may share nodes.
    return len(
        {name for site in sites.values() for leaf in _leaves(site, values) for name in site.nodes[leaf]}
    )


def _leaves(site: FlavorTopology, values: Values) -> Iterator[int]:
    domain = site.tree.find(values)
    if domain is not None:
        yield from site.tree.leaves_below(domain)


def _absence(values: Values, flavor: str, site: FlavorTopology, nodes: TopologyNodes) -> str:
    """Return why the flavor's topology has no such domain, and which values its first missing level has."""
    topology = f"Topology {nodes.flavors[flavor].topology_name}"
    if len(values) > len(site.levels):
        levels = "/".join(site.levels)
        return f"{topology} has the levels {levels}, widest first; give at most one value of each"
    depth = next(depth for depth in range(len(values)) if site.tree.find(values[: depth + 1]) is None)
    above = values[:depth]
    there = sorted(
        "/".join(site.tree.values[index])
        for index in site.tree.at_level[depth]
        if site.tree.values[index][:depth] == above
    )
    named = ", ".join(there[:_MOST_NAMED]) + (", …" if len(there) > _MOST_NAMED else "")
    within = f" within {'/'.join(above)}" if above else ""
    return (
        f"{topology} of flavor {flavor} has no ready node with label {site.levels[depth]}={values[depth]}"
        f"{within}; there are {named or 'none'}"
    )
