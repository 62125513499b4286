"""New nodes for the part of a placed Workload that was lost, the others staying where they are.

Theory of operation. The pods that live fix most of the answer; what is asked for is where the k others go:

    1 mend    a slice that lost some of its pods is torn: its domain must take as many again, or all its
              pods would have to move. Inner layers first: a torn inner slice tears all around it
    2 place   what is left are whole slices (or pods, where there are none)
                required     in the domain that those who live are in
                by size      on a leaf that one of those who live is on (a policy's size rules)
                by strategy  near one that lives, from its leaf upwards, unless the policy spreads pods
                preferred    in a domain that one of those who live is in, from the level asked for upwards;
                             then wherever it fits
                else         wherever it fits
    3 merge   with those who live

Kueue searches for a preferred level anew, wherever it fits; here those who live draw the others to them,
since a gang that was near itself is meant to stay so. Several lost nodes are replaced in one step; Kueue
replaces one, and evicts where a second fails meanwhile.

Lost nodes are kept out of the search by taking all their pods' places for the time of it: one that is
tainted or cordoned, or was called unhealthy by somebody else, still stands in the tree.
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
from admission.placement.topology.place import Place
from admission.placement.topology.placement_options import Strategy
from admission.placement.topology.request import NoPlacement, PlacementRequest
from admission.placement.topology.tree import Values
from admission.placement.topology_cache import TopologyCache, Unplaced
from api.jobs.resource_requests import PODS
from api.workload import DomainCount, SliceConstraint, TopologyAssignment, TopologyRequest

# More pods than any node takes: what keeps a lost node from being chosen.
_ALL_PLACES = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPlace:
    """One pod set as it stands: what it asked for, and where its pods were put."""

    request: PlacementRequest
    assignment: TopologyAssignment


def replace_hosts(
    topology_cache: TopologyCache, standing: Sequence[RemainingPlace], lost: Collection[str]
) -> dict[str, TopologyAssignment] | Unplaced:
    """Return the new assignments of the pod sets that had pods on `lost` hosts, by pod set.

    Unplaced says which pod set has no room for its lost pods, and why. What the Workload holds counts as
    taken, also on lost hosts. Nothing is taken when this returns.
    """
    found: dict[str, TopologyAssignment] = {}
    taken: list[Place] = []
    try:
        for one in standing:
            # Nothing of this pod set was lost.
            if not any(host in lost for host in hosts_of(one.assignment)):
                continue
            mending = _mending(topology_cache, one, standing, lost)
            # Only for the search: what is found lies on hosts that stay.
            with _without(mending.site, lost):
                assignment = mending.run()
            # Kept until all pod sets have theirs, so that none takes the place of another.
            taken += mending.taken
            if isinstance(assignment, NoPlacement):
                return Unplaced(pod_set=one.request.pod_set, message=assignment.message)
            found[one.request.pod_set] = assignment
    finally:
        # In any case; who asked takes what is returned.
        topology_cache.use(taken, sign=-1)
    return found


@contextmanager
def _without(site: FlavorTopology, hosts: Collection[str]) -> Iterator[None]:
    """Keep pods off these hosts while in the block."""
    there = [(host,) for host in sorted(hosts) if site.find_leaf((host,)) is not None]
    # The tree knows only hosts that are there; a lost one need not be among them.
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
    standing: Sequence[RemainingPlace],
    lost: Collection[str],
) -> _Mending:
    search = topology_cache.search(one.request.flavor)
    kept = {host: count for host, count in _counts(one.assignment).items() if host not in lost}
    total = sum(domain.count for domain in one.assignment.domains)
    group = one.request.group
    # A leader and its workers share their domain: where the others of the group live counts as well.
    near = {
        host
        for other in standing
        if other is one or (group is not None and other.request.group == group)
        for host in _counts(other.assignment)
        if host not in lost
    }
    return _Mending(
        topology_cache=topology_cache,
        search=search,
        request=one.request,
        kept=kept,
        near=tuple(sorted(near)),
        missing=total - sum(kept.values()),
    )


# By host: assignments of hosts name nothing else.
def _counts(assignment: TopologyAssignment) -> dict[str, int]:
    counts: dict[str, int] = {}
    for domain in assignment.domains:
        counts[domain.values[-1]] = counts.get(domain.values[-1], 0) + domain.count
    return counts


@dataclass(slots=True, kw_only=True)
class _Mending:
    """The search for one pod set. `kept` are its living pods by host, `near` all hosts of its group."""

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
        """What the pod set asked of the topology."""
        return self.request.topology or TopologyRequest()

    def run(self) -> TopologyAssignment | NoPlacement:
        # Levels first: a Topology may have been edited since the Workload was placed.
        """Return the whole assignment, the living and the new."""
        named = (self.topology.required, self.topology.preferred, *(s.topology for s in self.topology.slices))
        unknown = [level for level in named if level is not None and level not in self.site.levels]
        if unknown:
            return NoPlacement(message=f"no requested topology level: {unknown[0]}")
        problem = self._mend() if self.topology.slices else None
        if problem is None and self.missing:
            problem = self._place_rest()
        return problem if problem is not None else self._merged()

    # --- 1: torn slices -----------------------------------------------------------------------------------

    def _mend(self) -> NoPlacement | None:
        layers = self.topology.slices
        torn = self._torn(layers[0])
        if len(layers) == 1 and len(torn) == 1:
            # All in the torn slice's own domain where there is room: nothing is nearer.
            (domain,) = torn
            if self._put(self.missing, domain, ()) is None:
                return None
        # Inner layers first: a torn inner slice tears the outer ones around it, so it is mended
        # before they are counted.
        for index in reversed(range(len(layers))):
            for domain, count in self._torn(layers[index]).items():
                # More is lacking than was lost: it was placed by other rules, and mending it would
                # mean to move who lives.
                if count > self.missing:
                    return NoPlacement(message="its slices were incomplete before")
                problem = self._put(count, domain, layers[index + 1 :])
                if problem is not None:
                    return problem
        return None

    def _torn(self, layer: SliceConstraint) -> dict[int, int]:
        """Return how many pods each domain of the layer's level lacks to whole slices, where it lacks any."""
        level = self.site.levels.index(layer.topology)
        held: dict[Values, int] = {}
        for host, count in self.kept.items():
            values = self._values(host)[: level + 1]
            held[values] = held.get(values, 0) + count
        # What is lacking to the next whole slice.
        lacking = {values: -count % layer.size for values, count in sorted(held.items())}
        found = {self.site.tree.find(values): count for values, count in lacking.items() if count}
        return {domain: count for domain, count in found.items() if domain is not None}

    # --- 2: the rest --------------------------------------------------------------------------------------

    def _place_rest(self) -> NoPlacement | None:
        topology, count = self.topology, self.missing
        wishes = self.request.wishes
        # By size: the leaves that the gang's size gave it, and no others.
        if self.request.topology is None and wishes is not None and wishes.has_size_rules and self.near:
            return self._place_by_size(leaf_level(self.site.levels, wishes.rules))
        level = topology.required or topology.preferred
        if level is None and self.near and self._is_wished_near():
            return self._place_near()
        if level is None or not self.near:
            # Nobody lives to be near to, or nothing says near: wherever there is room.
            return self._find(count, self.request.topology, None)
        depth = self.site.levels.index(level)
        if topology.required is not None:
            # Required is where those who live are, and nowhere else.
            domains = self._domains_near(depth)
            if not domains:
                return NoPlacement(message=f"no node of its {level} is left")
            return self._find(count, topology, domains[0])
        # Near those who live, from the level asked for upwards, then anywhere.
        for wider in range(depth, -1, -1):
            for domain in self._domains_near(wider):
                if self._put(count, domain, self._slices_within(wider)) is None:
                    return None
        return self._find(count, topology, None)

    def _place_by_size(self, level: int) -> NoPlacement | None:
        """Put the lost pods on the leaves that the gang's size gave it: on no others, or the rule was broken.

        A gang that filled its leaf finds no room there. It is evicted then, and gets another one whole.
        """
        # All on one leaf if it has room for all, else one by one on those that it has.
        for domain in self._domains_near(level):
            if self._put(self.missing, domain, ()) is None:
                return None
        while self.missing:
            if all(self._put(1, leaf, ()) is not None for leaf in self._domains_near(level)):
                return NoPlacement(message="the leaves that its size rule gave it have no room")
        return None

    def _is_wished_near(self) -> bool:
        """Return whether it was a policy that put the pods near each other."""
        wishes = self.request.wishes
        asks = self.request.topology is not None
        return wishes is not None and not asks and wishes.strategy is not Strategy.DISTRIBUTED

    def _place_near(self) -> NoPlacement | None:
        # From their leaf upwards, then anywhere; the host level itself is one node.
        for wider in range(max(0, len(self.site.levels) - 2), -1, -1):
            for domain in self._domains_near(wider):
                if self._put(self.missing, domain, ()) is None:
                    return None
        return self._find(self.missing, None, None)

    def _slices_within(self, depth: int) -> tuple[SliceConstraint, ...]:
        levels = self.site.levels
        return tuple(layer for layer in self.topology.slices if levels.index(layer.topology) >= depth)

    def _domains_near(self, depth: int) -> list[int]:
        """Return the domains of a level with living pods, those with most of them first."""
        held: dict[Values, int] = {}
        for host in self.near:
            values = self._values(host)[: depth + 1]
            # At least one for each host: a leader of the group lives there as well, and counts.
            held[values] = held.get(values, 0) + max(self.kept.get(host, 0), 1)
        in_order = sorted(held, key=lambda values: (-held[values], values))
        return [found for values in in_order if (found := self.site.tree.find(values)) is not None]

    # --- both ---------------------------------------------------------------------------------------------

    def _put(self, count: int, domain: int, slices: tuple[SliceConstraint, ...]) -> NoPlacement | None:
        """Put so many pods into one domain."""
        # "Required" within one domain: none of it may lie elsewhere.
        level = self.site.levels[self.site.tree.level[domain]]
        return self._find(count, TopologyRequest(required=level, slices=slices), domain)

    def _find(self, count: int, topology: TopologyRequest | None, within: int | None) -> NoPlacement | None:
        request = structs.replace(self.request, count=count, topology=topology)
        found = self.search.find(request, within=within)
        if isinstance(found, NoPlacement):
            return found
        place = Place(flavor=self.request.flavor, assignment=found.assignment, per_pod=self.request.per_pod)
        # Taken at once, so that the next part of the search sees it.
        self.topology_cache.use([place], sign=1)
        self.taken.append(place)
        for host, pods in _counts(found.assignment).items():
            self.kept[host] = self.kept.get(host, 0) + pods
        self.missing -= count
        return None

    # --- 3: merging ---------------------------------------------------------------------------------------

    def _merged(self) -> TopologyAssignment:
        # By place in the tree, then by name, as a placement that was found in one go would stand.
        hosts = sorted(self.kept, key=lambda host: (*self._values(host), host))
        return TopologyAssignment(
            levels=self.site.assignment_levels,
            domains=tuple(DomainCount(values=(host,), count=self.kept[host]) for host in hosts),
        )

    def _values(self, host: str) -> Values:
        """Return the level values of a host, also of one that takes no pods just now."""
        # A lost node may be gone: its host then has no values but its own.
        nodes: Sequence[Mapping[str, str]] = [node.labels for node in self.topology_cache.nodes_at(host)]
        labels = nodes[0] if nodes else {}
        # The host last, whatever the level above it is called.
        return (*(labels.get(level, "") for level in self.site.levels[:-1]), host)
