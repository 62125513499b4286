"""All nodes and pods, as seen through the flavors that have a topology, and the places that Workloads hold.

Nodes and pods are reported by events; Workloads take their places when they get quota. A trial takes places
and gives them back, which restores the state exactly, because all totals are sums of integers.

Two flavors may include the same host. Where their lowest level is the hostname, what is placed through one of
them is missing in the other too. Source: Kueue, gate TASHandleOverlappingFlavors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from admission.placement.performance import Performance
from admission.placement.search import PlacementSearch
from admission.placement.topology.flavor_topology import Amounts, FlavorTopology, UsedByLeaf
from admission.placement.topology.hierarchy import node_problems
from admission.placement.topology.place import Change, Place, place_of, times_of
from admission.placement.topology.pod_room import PodRoom
from admission.placement.topology.request import NoPlacement, Placement, PlacementGates, PlacementRequest
from admission.placement.topology.tree import Values
from api.keys import HOSTNAME
from api.node import NodeInfo, PodUsage
from api.parsing.quantities import add_amounts
from api.queueing import ResourceFlavor, Topology
from api.workload import TopologyAssignment
from queues.profile.capacity_profile import Spot, Spots
from queues.steps import Steps

PodKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """The first pod set without a place, and the reason."""

    pod_set: str
    message: str


class TopologyCache:
    """Nodes, pods and places. One task owns it."""

    def __init__(self, gates: PlacementGates | None = None) -> None:
        self._gates = gates or PlacementGates()
        self.nodes: dict[str, NodeInfo] = {}
        self._by_host: dict[str, dict[str, None]] = {}
        self._pods: dict[PodKey, PodUsage] = {}
        self._taken: dict[str, dict[str, int]] = {}
        self._searches: dict[str, PlacementSearch] = {}
        self._specs: dict[str, tuple[ResourceFlavor, Topology]] = {}
        self._used_by_host: UsedByLeaf = {}
        self.performance = Performance()

    # --- what is known -----------------------------------------------------------------------------------

    def put_node(self, node: NodeInfo) -> frozenset[str]:
        """Add or update a node. Return the flavors whose nodes have changed."""
        known = self.nodes.get(node.name)
        # Nodes report every few seconds, and most reports change nothing that placement reads.
        if known == node:
            return frozenset()
        if known is not None:
            self._leave_host(known)
        self.nodes[node.name] = node
        # The hostname label may differ from the node's name, and two nodes may claim one.
        self._by_host.setdefault(node.labels.get(HOSTNAME, node.name), {})[node.name] = None
        taken = self._taken.get(node.name, {})
        return frozenset(
            flavor for flavor, search in self._searches.items() if search.site.put_node(node, taken)
        )

    def drop_node(self, name: str) -> frozenset[str]:
        """Remove a node. Return the flavors whose nodes have changed."""
        known = self.nodes.pop(name, None)
        if known is not None:
            self._leave_host(known)
        return frozenset(flavor for flavor, search in self._searches.items() if search.site.drop_node(name))

    def _leave_host(self, node: NodeInfo) -> None:
        host = node.labels.get(HOSTNAME, node.name)
        del self._by_host[host][node.name]
        if not self._by_host[host]:
            del self._by_host[host]

    def put_pod(self, pod: PodUsage) -> frozenset[str]:
        """Add or update a pod not placed by Berth. Return the flavors on whose nodes it freed capacity."""
        key = (pod.namespace, pod.name)
        known = self._pods.get(key)
        if known == pod:
            return frozenset()
        # Removed and added again, which is cheaper than comparing; the sums are integers, so they are exact.
        freed = self.drop_pod(key)
        if pod.node:
            self._pods[key] = pod
            self._take(pod, sign=1)
        # A pod that only grew on its node has freed nothing, although it was removed in between.
        return freed if known is not None and _leaves_room(known, pod) else frozenset()

    def drop_pod(self, key: PodKey) -> frozenset[str]:
        """Remove a pod. Return the flavors on whose nodes it freed capacity.

        A large cluster ends thousands of pods a minute. Those on nodes of no flavor must wake no queue.
        """
        pod = self._pods.pop(key, None)
        return frozenset() if pod is None else self._take(pod, sign=-1)

    def observe(self, hosts: Collection[str], *, uid: str, at: float, outcome: float) -> None:
        """Record the outcome of a run that ended `at` on these hosts. A run counts once, by its uid."""
        self.performance.observe(hosts, uid=uid, at=at, outcome=outcome)
        for search in self._searches.values():
            if search.site.is_by_host:
                # Scores are read per leaf, and readers of leaves follow the log.
                search.site.touch((host,) for host in hosts)

    def set_flavors(self, flavors: Mapping[str, ResourceFlavor], topologies: Mapping[str, Topology]) -> bool:
        """Set which flavors have a topology. Return whether that has changed.

        If so, no place is held any more, and every Workload has to take its places again.
        """
        wanted = {
            name: (flavor, topologies[flavor.topology_name])
            for name, flavor in flavors.items()
            if flavor.topology_name is not None and flavor.topology_name in topologies
        }
        if wanted == self._specs:
            return False
        self._specs = wanted
        # The new trees count no places; the caller takes those of all Workloads again.
        self._used_by_host.clear()
        self._searches = {name: self._make_search(*pair) for name, pair in sorted(wanted.items())}
        return True

    def _make_search(self, flavor: ResourceFlavor, topology: Topology) -> PlacementSearch:
        site = FlavorTopology(levels=topology.levels, node_labels=flavor.node_labels, used={})
        # Flavors by host share one record of usage, so that two flavors with the same nodes cannot both give
        # away the same place.
        if site.is_by_host:
            site.used = self._used_by_host
        for name, node in self.nodes.items():
            site.put_node(node, self._taken.get(name, {}))
        search = PlacementSearch(site, topology.name, self._gates)
        search.performance = self.performance.scores
        return search

    def _take(self, pod: PodUsage, *, sign: int) -> frozenset[str]:
        """Count what a pod takes (1) or gives back (-1). Return the flavors that include its node."""
        total = self._taken.setdefault(pod.node, {})
        for resource, amount in pod.requests.items():
            total[resource] = total.get(resource, 0) + sign * amount
        return frozenset(
            flavor
            for flavor, search in self._searches.items()
            if search.site.take(pod.node, pod.requests, sign=sign)
        )

    # --- questions ---------------------------------------------------------------------------------------

    @property
    def has_flavors(self) -> bool:
        """Whether any flavor has a topology."""
        return bool(self._searches)

    def label_problems(self, name: str) -> list[str]:
        """Return one sentence for each problem of a node's labels with the topologies of its flavors."""
        node = self.nodes.get(name)
        if node is None:
            return []
        at_host = self.nodes_at(node.labels.get(HOSTNAME, ""))
        found: dict[str, None] = {}
        for search in self._searches.values():
            if search.site.is_of_flavor(node):
                found.update(
                    dict.fromkeys(node_problems(node, search.site, search.topology, at_host=at_host))
                )
        return list(found)

    def nodes_at(self, host: str) -> list[NodeInfo]:
        """Return the nodes with this hostname, ready or not. As a rule there is one."""
        return [self.nodes[name] for name in self._by_host.get(host, ())]

    def has_domain(self, value: str) -> bool:
        """Return whether any topology has a domain with this label value; True while no node is known."""
        trees = [search.site.tree for search in self._searches.values()]
        # Without nodes it is unknown which domains exist.
        if not any(tree.at_level[0] for tree in trees):
            return True
        return any(tree.named(level, value) for tree in trees for level in range(tree.depth))

    def has_topology(self, flavor: str) -> bool:
        """Return whether the flavor has a topology, so that its pods are placed."""
        return flavor in self._searches

    def levels(self, flavor: str) -> tuple[str, ...]:
        """Return the levels of the flavor's topology, widest first."""
        return self._searches[flavor].site.levels

    def search(self, flavor: str) -> PlacementSearch:
        """Return the search in the flavor's nodes. Raises KeyError for a flavor without a topology."""
        return self._searches[flavor]

    def preparing(self, requests: Iterable[PlacementRequest]) -> Steps[None]:
        """Compute in steps what `place` needs for shapes that are not cached.

        This has no other effect: `place` would compute it itself, without a pause.
        """
        for request in requests:
            yield from self.search(request.flavor).preparing(request)

    def place(
        self, requests: Sequence[PlacementRequest], *, is_empty: bool = False
    ) -> dict[str, TopologyAssignment] | Unplaced:
        """Return the places of all pod sets, each beside those before it; or the first without a place.

        Nothing is held on return. `is_empty`: as if no other Workload was placed.
        """
        placed: dict[str, TopologyAssignment] = {}
        taken: list[Place] = []
        groups = _groups(requests)
        try:
            for members in groups:
                workers, leader = _workers_and_leader(members)
                found = self.search(workers.flavor).find(workers, leader=leader, is_empty=is_empty)
                if isinstance(found, NoPlacement):
                    return Unplaced(pod_set=workers.pod_set, message=found.message)
                for member, assignment in _assignments(workers, leader, found):
                    placed[member.pod_set] = assignment
                    # Nothing follows the last group, and most requests have only one.
                    if members is not groups[-1]:
                        taken.append(place_of(member, assignment))
                        self.use(taken[-1:], sign=1, is_empty=is_empty)
        finally:
            # Trial places must be given back in any case.
            self.use(taken, sign=-1, is_empty=is_empty)
        return placed

    def has_place(self, requests: Sequence[PlacementRequest]) -> bool:
        """Return whether `place` would find places for all pod sets, for searches that repeat it."""
        # By far the most common case, and hundreds of times cheaper than computing the places.
        if len(requests) == 1:
            return self.search(requests[0].flavor).has_place(requests[0])
        return not isinstance(self.place(requests), Unplaced)

    def fits(self, places: Iterable[Place]) -> bool:
        """Return whether the places are free and their nodes present."""
        needed: dict[tuple[str, Values], dict[str, int]] = {}
        for place in places:
            for domain in place.assignment.domains:
                total = needed.setdefault((place.flavor, domain.values), {})
                add_amounts(total, place.per_pod, domain.count)
        return all(self._is_free(flavor, values, total) for (flavor, values), total in needed.items())

    def _is_free(self, flavor: str, values: Values, amounts: Amounts) -> bool:
        search = self._searches.get(flavor)
        leaf = search.site.find_leaf(values) if search is not None else None
        # A node that is absent has nothing free.
        if search is None or leaf is None:
            return False
        free = search.site.free
        return all(amount <= free(resource)[leaf] for resource, amount in amounts.items() if amount > 0)

    # --- places ------------------------------------------------------------------------------------------

    def use(self, places: Iterable[Place], *, sign: int, is_empty: bool = False) -> None:
        """Take the places (sign 1) or give them back (-1). With `is_empty`: on the empty cluster."""
        for place in places:
            search = self._searches.get(place.flavor)
            # The flavor has lost its topology, so its places count nowhere.
            if search is None:
                continue
            for names, taken, given in place.changes(is_by_host=search.site.is_by_host):
                change = (names, taken, given) if sign > 0 else (names, given, taken)
                self._change(search.site, change, is_empty=is_empty)

    def spots(self, places: Iterable[Place]) -> dict[Spot, dict[str, int]]:
        """Return what the places take of every leaf, in a form that can be added up over Workloads."""
        spots: dict[Spot, dict[str, int]] = {}
        for place in places:
            search = self._searches.get(place.flavor)
            if search is not None:
                owner = _owner(place.flavor, search.site)
                for domain in place.assignment.domains:
                    values = domain.values[-1:] if search.site.is_by_host else domain.values
                    add_amounts(spots.setdefault((owner, values), {}), place.per_pod, domain.count)
        return spots

    def spot(self, flavor: str, leaf: int) -> Spot:
        """Return the spot of a leaf of the flavor's nodes."""
        site = self._searches[flavor].site
        return _owner(flavor, site), site.names[leaf]

    def occupy(self, spots: Spots) -> None:
        """Take what the spots say; negative amounts give back. Spots of removed flavors are ignored."""
        for (owner, values), amounts in spots.items():
            search = self._owning(owner)
            if search is not None:
                self._change(search.site, ([values], amounts, times_of(amounts, -1)))

    @contextmanager
    def occupied(self, spots: Spots) -> Iterator[None]:
        """Count this much more of the spots as taken within the block."""
        self.occupy(spots)
        try:
            yield
        finally:
            self.occupy({spot: {name: -one for name, one in taken.items()} for spot, taken in spots.items()})

    def room(self, flavor: str, request: PlacementRequest) -> PodRoom | None:
        """Return the room of the flavor's nodes for pods of the request.

        None where the request does not suit the flavor's topology.
        """
        search = self._searches[flavor]
        return search.room(request, _owner(flavor, search.site))

    def has_free(self, spots: Spots) -> bool:
        """Return whether all of the spots is free and their nodes are present."""
        for (owner, values), amounts in spots.items():
            # Hosts belong to all flavors by host, other leaves to the flavor that placed pods on them.
            flavors = (
                [owner] if owner else [name for name, one in self._searches.items() if one.site.is_by_host]
            )
            if not any(self._is_free(flavor, values, amounts) for flavor in flavors):
                return False
        return True

    def has_nodes(self, spots: Spots) -> bool:
        """Return whether the nodes of all spots are present."""
        return all(
            any(
                search.site.find_leaf(values) is not None
                for flavor, search in self._searches.items()
                # Owners are compared and not flavors, because a host has no owner.
                if _owner(flavor, search.site) == owner
            )
            for owner, values in spots
        )

    def _owning(self, owner: str) -> PlacementSearch | None:
        """Return the search whose site counts usage of these leaves. For hosts any does: they share it."""
        if owner:
            return self._searches.get(owner)
        return next((one for one in self._searches.values() if one.site.is_by_host), None)

    def _change(self, site: FlavorTopology, change: Change, *, is_empty: bool = False) -> None:
        """Change the usage of each named leaf."""
        names, amounts, back = change
        if is_empty:
            # On the empty cluster usage does not count, so the capacity is lowered instead.
            for name in names:
                site.shrink(name, amounts)
            return
        # Zero amounts are common (a GPU Workload beside one with CPU only) and change no column.
        if not any(amounts.values()):
            return
        all_used = site.used
        for name in names:
            used = all_used.get(name)
            if used is None:
                all_used[name] = dict(amounts)
            elif used == back:
                # Entries that cancel out are removed, so that `used` holds only leaves in use.
                del all_used[name]
            else:
                add_amounts(used, amounts)
                if not any(used.values()):
                    del all_used[name]
        # Hosts are shared: what is placed through one flavor is missing in the others too.
        for search in self._searches.values():
            if search.site is site or (site.is_by_host and search.site.is_by_host):
                search.site.use(names, amounts)

    def validate(self, places: Iterable[Place]) -> None:
        """Raise AssertionError where the recorded usage is not the sum over `places`."""
        expected = self.spots(places)
        found = {
            (_owner(flavor, search.site), values): used
            for flavor, search in self._searches.items()
            for values, used in search.site.used.items()
        }
        for key in expected.keys() | found.keys():
            want = {name: amount for name, amount in expected.get(key, {}).items() if amount}
            got = {name: amount for name, amount in found.get(key, {}).items() if amount}
            assert got == want, f"{key} counts {got} as used, its Workloads hold {want}"


def _leaves_room(before: PodUsage, after: PodUsage) -> bool:
    """Return whether the pod takes less of the node that it was on."""
    return before.node != after.node or any(
        after.requests.get(name, 0) < amount for name, amount in before.requests.items()
    )


def _owner(flavor: str, site: FlavorTopology) -> str:
    """Return the owner of a site's leaves: empty for hosts, which flavors share, otherwise the flavor."""
    return "" if site.is_by_host else flavor


def _groups(requests: Sequence[PlacementRequest]) -> list[list[PlacementRequest]]:
    groups: dict[object, list[PlacementRequest]] = {}
    for index, request in enumerate(requests):
        groups.setdefault(index if request.group is None else request.group, []).append(request)
    return list(groups.values())


def _workers_and_leader(
    members: list[PlacementRequest],
) -> tuple[PlacementRequest, PlacementRequest | None]:
    """Return the workers and, of two pod sets, the leader placed beside them."""
    # The smaller pod set is the leader, as in Kueue; of equal ones the first.
    if len(members) == 1:
        return members[0], None
    leader, workers = sorted(members, key=lambda one: one.count)[:2]
    return workers, leader


def _assignments(
    workers: PlacementRequest, leader: PlacementRequest | None, found: Placement
) -> list[tuple[PlacementRequest, TopologyAssignment]]:
    pairs = [(workers, found.assignment)]
    if leader is not None and found.leader is not None:
        pairs.append((leader, found.leader))
    return pairs
