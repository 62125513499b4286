"""New nodes for the part of a placed Workload that was lost, while its other pods stay where they are.

Theory of operation. The remaining pods determine most of the answer. The search places the k lost ones:

    1 mend    a slice that lost some of its pods is incomplete: its domain must take as many again, or all its
              pods would have to move. Inner layers first: an incomplete inner slice makes all around it
              incomplete
    2 place   what is left are whole slices (or pods, where there are none)
                required     in the domain of the remaining pods
                by size      on a leaf with a remaining pod (a policy's size rules)
                by strategy  near a remaining pod, from its leaf upwards, unless the policy spreads pods
                preferred    in a domain with a remaining pod, from the wanted level upwards; then anywhere
                otherwise    wherever they fit
    3 merge   with the remaining pods

For a preferred level Kueue searches again without regard to the remaining pods. Here the lost pods are placed
near them, because the gang was meant to stay together. Several lost nodes are replaced in one step; Kueue
replaces one, and evicts the Workload where a second fails meanwhile.

Lost nodes are excluded from the search by taking all their pods' places while it runs: a node that
is tainted, cordoned, or reported unhealthy by another controller is still part of the tree.
Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go, findReplacementAssignment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from msgspec import structs

from admission.placement.rules import leaf_level
from admission.placement.search import PlacementSearch
from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.node_health import hosts_of
from admission.placement.topology.place import Place, place_of
from admission.placement.topology.placement_options import Strategy
from admission.placement.topology.request import NoPlacement, PlacementRequest
from admission.placement.topology.tree import Values
from admission.placement.topology_cache import TopologyCache, Unplaced
from api.jobs.resource_requests import PODS
from api.workload import DomainCount, SliceConstraint, TopologyAssignment, TopologyRequest

# More pods than any node takes, which keeps a lost node from being chosen.
_ALL_PLACES = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPlace:
    """One pod set of a running Workload: its request, and where its pods were placed."""

    request: PlacementRequest
    assignment: TopologyAssignment


def replace_hosts(
    topology_cache: TopologyCache, remaining: Sequence[RemainingPlace], lost: Collection[str]
) -> dict[str, TopologyAssignment] | Unplaced:
    """Return the new assignments of the pod sets that had pods on `lost` hosts, by pod set.

    Unplaced names the pod set without room for its lost pods, and the reason. What the Workload holds counts
    as taken, also on lost hosts. Nothing more is taken on return.
    """
    found: dict[str, TopologyAssignment] = {}
    taken: list[Place] = []
    try:
        for one in remaining:
            # This pod set lost no pod.
            if not any(host in lost for host in hosts_of(one.assignment)):
                continue
            mending = _mending(topology_cache, one, remaining, lost)
            # Excluded for the search only; the result is on other hosts.
            with _without(mending.site, lost):
                assignment = mending.run()
            # Held until all pod sets have their places, so that none takes another's.
            taken += mending.taken
            if isinstance(assignment, NoPlacement):
                return Unplaced(pod_set=one.request.pod_set, message=assignment.message)
            found[one.request.pod_set] = assignment
    finally:
        # In any case. The caller takes the places that are returned.
        topology_cache.usage.use(taken, sign=-1)
    return found


@contextmanager
def _without(site: FlavorTopology, hosts: Collection[str]) -> Iterator[None]:
    """Exclude these hosts within the block."""
    there = [(host,) for host in sorted(hosts) if site.find_leaf((host,)) is not None]
    # Only hosts in the tree can be excluded, and a lost one need not be.
    for values in there:
        site.shrink(values, {PODS: _ALL_PLACES})
    try:
        yield
    finally:
        for values in there:
            site.shrink(values, {PODS: -_ALL_PLACES})


def _mending(
    topology_cache: TopologyCache,
    one: RemainingPlace,
    remaining: Sequence[RemainingPlace],
    lost: Collection[str],
) -> _Mending:
    """Return the search for the pods that one pod set has lost."""
    search = topology_cache.search(one.request.flavor)
    kept = {host: count for host, count in _counts(one.assignment).items() if host not in lost}
    total = sum(domain.count for domain in one.assignment.domains)
    group = one.request.group
    # A leader and its workers share their domain, so the remaining pods of the whole group count.
    near = {
        host
        for other in remaining
        if other is one or (group is not None and other.request.group == group)
        for host in _counts(other.assignment)
        if host not in lost
    }
    request, rules = one.request, one.request.rules
    if rules.addresses is not None:
        # The pods that stay keep their addresses, and those that are lost have none but their own.
        addresses = topology_cache.addresses.beside(rules.addresses, kept)
        request = structs.replace(request, rules=structs.replace(rules, addresses=addresses))
    return _Mending(
        topology_cache=topology_cache,
        search=search,
        request=request,
        kept=kept,
        near=tuple(sorted(near)),
        missing=total - sum(kept.values()),
    )


def _counts(assignment: TopologyAssignment) -> dict[str, int]:
    """Return the pods by host. The assignment must be one of hosts."""
    counts: dict[str, int] = {}
    for domain in assignment.domains:
        counts[domain.values[-1]] = counts.get(domain.values[-1], 0) + domain.count
    return counts


@dataclass(slots=True, kw_only=True)
class _Mending:
    """The search for one pod set. `kept` are its remaining pods by host, `near` the hosts of its group."""

    topology_cache: TopologyCache
    search: PlacementSearch
    request: PlacementRequest
    kept: dict[str, int]
    near: tuple[str, ...]
    missing: int
    taken: list[Place] = field(default_factory=list)

    @property
    def site(self) -> FlavorTopology:
        """The nodes of the flavor."""
        return self.search.site

    @property
    def topology(self) -> TopologyRequest:
        """The topology request of the pod set."""
        return self.request.topology or TopologyRequest()

    def run(self) -> TopologyAssignment | NoPlacement:
        """Return the whole assignment, of the remaining and the replaced pods, or why there is none.

        On NoPlacement the places in `taken` are still applied to the topology: the caller gives them back in
        either case.
        """
        # Levels first, because the Topology may have been edited since the Workload was placed.
        named = (self.topology.required, self.topology.preferred, *(s.topology for s in self.topology.slices))
        unknown = [level for level in named if level is not None and level not in self.site.levels]
        if unknown:
            return NoPlacement(message=f"no requested topology level: {unknown[0]}")
        problem = self._mend() if self.topology.slices else None
        if problem is None and self.missing:
            problem = self._place_rest()
        return problem if problem is not None else self._merged()

    # --- 1: incomplete slices -----------------------------------------------------------------------------

    def _mend(self) -> NoPlacement | None:
        """Complete the slices that have lost pods, each in its domain; return why that fails."""
        layers = self.topology.slices
        torn = self._torn(layers[0])
        if len(layers) == 1 and len(torn) == 1:
            # All of them in the domain of the incomplete slice, if it has room: nothing is nearer.
            (domain,) = torn
            if self._put(self.missing, domain, ()) is None:
                return None
        # Inner layers first: an incomplete inner slice makes the outer ones incomplete, so it is completed
        # before they are counted.
        for index in reversed(range(len(layers))):
            for domain, count in self._torn(layers[index]).items():
                # More pods lack than were lost: the pods were placed by other rules, and completing the
                # slice would move remaining ones.
                if count > self.missing:
                    return NoPlacement(message="its slices were incomplete before")
                problem = self._put(count, domain, layers[index + 1 :])
                if problem is not None:
                    return problem
        return None

    def _torn(self, layer: SliceConstraint) -> dict[int, int]:
        """Return how many pods each domain of the layer's level lacks to complete its slices, if any."""
        level = self.site.levels.index(layer.topology)
        held: dict[Values, int] = {}
        for host, count in self.kept.items():
            values = self._values(host)[: level + 1]
            held[values] = held.get(values, 0) + count
        # The pods missing to the next whole slice.
        lacking = {values: -count % layer.size for values, count in sorted(held.items())}
        found = {self.site.tree.find(values): count for values, count in lacking.items() if count}
        return {domain: count for domain, count in found.items() if domain is not None}

    # --- 2: the rest --------------------------------------------------------------------------------------

    def _place_rest(self) -> NoPlacement | None:
        """Place the other pods, as near to the remaining ones as the request asks."""
        topology, count = self.topology, self.missing
        options = self.request.options
        # With size rules only the leaves that the gang was given may be used.
        if self.request.topology is None and options is not None and options.has_size_rules and self.near:
            return self._place_by_size(leaf_level(self.site.levels, options.rules))
        level = topology.required or topology.preferred
        if level is None and self.near and self._wants_near():
            return self._place_near()
        if level is None or not self.near:
            # No pod remains to be near to, or nothing requires nearness.
            return self._find(count, self.request.topology, None)
        depth = self.site.levels.index(level)
        if topology.required is not None:
            # A required domain is the one of the remaining pods.
            domains = self._domains_near(depth)
            if not domains:
                return NoPlacement(message=f"no node of its {level} is left")
            return self._find(count, topology, domains[0])
        # Near the remaining pods, from the wanted level upwards, then anywhere.
        for wider in range(depth, -1, -1):
            for domain in self._domains_near(wider):
                if self._put(count, domain, self._slices_within(wider)) is None:
                    return None
        return self._find(count, topology, None)

    def _place_by_size(self, level: int) -> NoPlacement | None:
        """Put the lost pods on the leaves that the gang was given; any other leaf would break its size rule.

        A gang that filled its leaf finds no room there. It is then evicted, and gets another whole leaf.
        """
        # On one leaf with room for all of them, otherwise one by one.
        for domain in self._domains_near(level):
            if self._put(self.missing, domain, ()) is None:
                return None
        while self.missing:
            if all(self._put(1, leaf, ()) is not None for leaf in self._domains_near(level)):
                return NoPlacement(message="the leaves that its size rule gave it have no room")
        return None

    def _wants_near(self) -> bool:
        """Return whether a policy placed the pods near each other."""
        options = self.request.options
        asks = self.request.topology is not None
        return options is not None and not asks and options.strategy is not Strategy.DISTRIBUTED

    def _place_near(self) -> NoPlacement | None:
        """Place the pods in the narrowest domain around the remaining ones that has room, else anywhere."""
        # From their leaf upwards, then anywhere. The host level is left out: a host is a single node.
        for wider in range(max(0, len(self.site.levels) - 2), -1, -1):
            for domain in self._domains_near(wider):
                if self._put(self.missing, domain, ()) is None:
                    return None
        return self._find(self.missing, None, None)

    def _slices_within(self, depth: int) -> tuple[SliceConstraint, ...]:
        """Return the layers of slices at or below this level, which still apply inside one domain of it."""
        levels = self.site.levels
        return tuple(layer for layer in self.topology.slices if levels.index(layer.topology) >= depth)

    def _domains_near(self, depth: int) -> list[int]:
        """Return the domains of a level with remaining pods, those with the most of them first."""
        held: dict[Values, int] = {}
        for host in self.near:
            values = self._values(host)[: depth + 1]
            # At least one per host, so that hosts with pods of another pod set of the group count too.
            held[values] = held.get(values, 0) + max(self.kept.get(host, 0), 1)
        in_order = sorted(held, key=lambda values: (-held[values], values))
        return [found for values in in_order if (found := self.site.tree.find(values)) is not None]

    # --- both ---------------------------------------------------------------------------------------------

    def _put(self, count: int, domain: int, slices: tuple[SliceConstraint, ...]) -> NoPlacement | None:
        """Put `count` pods into one domain."""
        # A required level, so that all of them are placed within the domain.
        level = self.site.levels[self.site.tree.level[domain]]
        return self._find(count, TopologyRequest(required=level, slices=slices), domain)

    def _find(self, count: int, topology: TopologyRequest | None, within: int | None) -> NoPlacement | None:
        """Place `count` pods below `within` and take the place; return why there is none."""
        request = structs.replace(self.request, count=count, topology=topology)
        found = self.search.find(request, within=within)
        if isinstance(found, NoPlacement):
            return found
        place = place_of(self.request, found.assignment)
        # Taken at once, so that the next part of the search counts it.
        self.topology_cache.usage.use([place], sign=1)
        self.taken.append(place)
        for host, pods in _counts(found.assignment).items():
            self.kept[host] = self.kept.get(host, 0) + pods
        self.missing -= count
        return None

    # --- 3: merging ---------------------------------------------------------------------------------------

    def _merged(self) -> TopologyAssignment:
        """Return the assignment of all pods, remaining and new, in the order of the tree."""
        # Sorted by place in the tree, then by name, as in an assignment found by one search.
        hosts = sorted(self.kept, key=lambda host: (*self._values(host), host))
        return TopologyAssignment(
            levels=self.site.assignment_levels,
            domains=tuple(DomainCount(values=(host,), count=self.kept[host]) for host in hosts),
        )

    def _values(self, host: str) -> Values:
        """Return the level values of a host, also of one that takes no pods at present."""
        # A lost node may have been deleted. Its values above the host are then empty.
        nodes: Sequence[Mapping[str, str]] = [node.labels for node in self.topology_cache.nodes.at_host(host)]
        labels = nodes[0] if nodes else {}
        # The hostname comes last, whatever the levels above it are.
        return (*(labels.get(level, "") for level in self.site.levels[:-1]), host)
