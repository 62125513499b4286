"""All nodes and pods, as seen through the flavors that have a topology, and who has been placed where.

Nodes and pods come by events, placed Workloads with the quota they hold. Trials take and give back the same
places, which leaves everything as it was: sums of integers.

Two flavors may claim the same host. Where their lowest level is the hostname, what is placed through one of
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
from admission.placement.topology.place import Change, Place, add_times, place_of, times_of
from admission.placement.topology.pod_room import PodRoom
from admission.placement.topology.request import NoPlacement, Placement, PlacementGates, PlacementRequest
from admission.placement.topology.tree import Values
from api.keys import HOSTNAME
from api.node import NodeInfo, PodUsage
from api.queueing import ResourceFlavor, Topology
from api.workload import TopologyAssignment
from queues.profile.capacity_profile import Spot, Spots
from queues.steps import Steps

PodKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """The first pod set that has no place, and why."""

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
        """Take in a node, new or changed. Returns the flavors whose nodes have changed."""
        known = self.nodes.get(node.name)
        # Nodes report every few seconds; most reports change nothing that placement cares about.
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
        """Forget a node. Returns the flavors whose nodes have changed."""
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
        """Take in a pod that was not placed here. Returns the flavors on whose nodes room came free by it."""
        key = (pod.namespace, pod.name)
        known = self._pods.get(key)
        if known == pod:
            return frozenset()
        # Taken out and counted anew: cheaper than to tell what has changed, and the sums are integers.
        freed = self.drop_pod(key)
        if pod.node:
            self._pods[key] = pod
            self._take(pod, sign=1)
        # Whatever came free, a pod that only grew in place frees nothing.
        # A pod that only grew where it is has given nothing back.
        return freed if known is not None and _leaves_room(known, pod) else frozenset()

    def drop_pod(self, key: PodKey) -> frozenset[str]:
        """Forget a pod. Returns the flavors on whose nodes room came free by it.

        A large cluster ends thousands of pods a minute; those on nodes of no flavor must wake nobody.
        """
        pod = self._pods.pop(key, None)
        return frozenset() if pod is None else self._take(pod, sign=-1)

    def observe(self, hosts: Collection[str], *, uid: str, at: float, outcome: float) -> None:
        """Count how a run went on these hosts that ended `at`; the same one again changes nothing."""
        self.performance.observe(hosts, uid=uid, at=at, outcome=outcome)
        for search in self._searches.values():
            if search.site.is_by_host:
                # A host's scores are read through its leaf, whose readers follow the log.
                search.site.touch((host,) for host in hosts)

    def set_flavors(self, flavors: Mapping[str, ResourceFlavor], topologies: Mapping[str, Topology]) -> bool:
        """Take in which flavors have a topology. Returns whether that has changed: then nothing is taken any
        more, and whoever holds places takes them again.
        """
        wanted = {
            name: (flavor, topologies[flavor.topology_name])
            for name, flavor in flavors.items()
            if flavor.topology_name is not None and flavor.topology_name in topologies
        }
        if wanted == self._specs:
            return False
        self._specs = wanted
        # With the trees the counts go; the cache takes everybody's places again.
        self._used_by_host.clear()
        self._searches = {name: self._make_search(*pair) for name, pair in sorted(wanted.items())}
        return True

    def _make_search(self, flavor: ResourceFlavor, topology: Topology) -> PlacementSearch:
        site = FlavorTopology(levels=topology.levels, node_labels=flavor.node_labels, used={})
        # Hosts share one count of what is used, so that flavors with the same nodes cannot
        # give them away twice.
        if site.is_by_host:
            site.used = self._used_by_host
        for name, node in self.nodes.items():
            site.put_node(node, self._taken.get(name, {}))
        search = PlacementSearch(site, topology.name, self._gates)
        search.performance = self.performance.scores
        return search

    def _take(self, pod: PodUsage, *, sign: int) -> frozenset[str]:
        """Count what a pod takes (1) or gives back (-1). Returns the flavors that have its node."""
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
        """Return whether any flavor has a topology."""
        return bool(self._searches)

    def label_problems(self, name: str) -> list[str]:
        """Return what is wrong with a node's labels for the topologies of its flavors, a sentence each."""
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
        """Return the nodes of a hostname, ready or not: one as a rule."""
        return [self.nodes[name] for name in self._by_host.get(host, ())]

    def has_domain(self, value: str) -> bool:
        """Return whether any topology has a domain of this label value; yes where none has any node."""
        trees = [search.site.tree for search in self._searches.values()]
        # A cluster without nodes cannot say that a domain does not exist.
        if not any(tree.at_level[0] for tree in trees):
            return True
        return any(tree.named(level, value) for tree in trees for level in range(tree.depth))

    def has_topology(self, flavor: str) -> bool:
        """Return whether pods of this flavor are placed here."""
        return flavor in self._searches

    def levels(self, flavor: str) -> tuple[str, ...]:
        """Return the levels of the flavor's topology, widest first."""
        return self._searches[flavor].site.levels

    def search(self, flavor: str) -> PlacementSearch:
        """Return the search in the flavor's nodes."""
        return self._searches[flavor]

    def preparing(self, requests: Iterable[PlacementRequest]) -> Steps[None]:
        """Work out what `place` reads of the nodes where that is much: of a shape that nobody asked for yet.

        Nothing else follows from it: `place` would do it itself, in one piece.
        """
        for request in requests:
            yield from self.search(request.flavor).preparing(request)

    def place(
        self, requests: Sequence[PlacementRequest], *, is_empty: bool = False
    ) -> dict[str, TopologyAssignment] | Unplaced:
        """Return where all pod sets go, each on top of those before it; or the first that has no place.

        Nothing is taken when this returns. `is_empty`: as if no other Workload was placed.
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
                    # After the last group nobody has to see what it takes, and most requests have one group.
                    if members is not groups[-1]:
                        taken.append(place_of(member, assignment))
                        self.use(taken[-1:], sign=1, is_empty=is_empty)
        finally:
            # In any case: what was taken for the search must not stay taken.
            self.use(taken, sign=-1, is_empty=is_empty)
        return placed

    def has_place(self, requests: Sequence[PlacementRequest]) -> bool:
        """Return whether `place` finds places for all: for searches that ask hundreds of times."""
        # By far the usual case, and hundreds of times cheaper than working out the places.
        if len(requests) == 1:
            return self.search(requests[0].flavor).has_place(requests[0])
        return not isinstance(self.place(requests), Unplaced)

    def fits(self, places: Iterable[Place]) -> bool:
        """Return whether the places are free, as far as their nodes are there."""
        needed: dict[tuple[str, Values], dict[str, int]] = {}
        for place in places:
            for domain in place.assignment.domains:
                total = needed.setdefault((place.flavor, domain.values), {})
                add_times(total, place.per_pod, domain.count)
        return all(self._is_free(flavor, values, total) for (flavor, values), total in needed.items())

    def _is_free(self, flavor: str, values: Values, amounts: Amounts) -> bool:
        search = self._searches.get(flavor)
        leaf = search.site.find_leaf(values) if search is not None else None
        # Nodes that are away hold nothing that could be had.
        if search is None or leaf is None:
            return False
        free = search.site.free
        return all(amount <= free(resource)[leaf] for resource, amount in amounts.items() if amount > 0)

    # --- places ------------------------------------------------------------------------------------------

    def use(self, places: Iterable[Place], *, sign: int, is_empty: bool = False) -> None:
        """Take the places (sign 1) or give them back (-1). With `is_empty` on the empty cluster."""
        for place in places:
            search = self._searches.get(place.flavor)
            # The flavor lost its topology; what was placed by it counts nowhere.
            if search is None:
                continue
            for names, taken, given in place.changes(is_by_host=search.site.is_by_host):
                change = (names, taken, given) if sign > 0 else (names, given, taken)
                self._change(search.site, change, is_empty=is_empty)

    def spots(self, places: Iterable[Place]) -> dict[Spot, dict[str, int]]:
        """Return what the places take of every leaf, so that places of several Workloads can be added up."""
        spots: dict[Spot, dict[str, int]] = {}
        for place in places:
            search = self._searches.get(place.flavor)
            if search is not None:
                owner = _owner(place.flavor, search.site)
                for domain in place.assignment.domains:
                    values = domain.values[-1:] if search.site.is_by_host else domain.values
                    add_times(spots.setdefault((owner, values), {}), place.per_pod, domain.count)
        return spots

    def spot(self, flavor: str, leaf: int) -> Spot:
        """Return the spot of a leaf of the flavor's nodes."""
        site = self._searches[flavor].site
        return _owner(flavor, site), site.names[leaf]

    def occupy(self, spots: Spots) -> None:
        """Take what the spots say, below 0: give it back. Spots of flavors that are gone are none."""
        for (owner, values), amounts in spots.items():
            search = self._owning(owner)
            if search is not None:
                self._change(search.site, ([values], amounts, times_of(amounts, -1)))

    @contextmanager
    def occupied(self, spots: Spots) -> Iterator[None]:
        """Count so much more of the spots as taken while in the block."""
        self.occupy(spots)
        try:
            yield
        finally:
            self.occupy({spot: {name: -one for name, one in taken.items()} for spot, taken in spots.items()})

    def room(self, flavor: str, request: PlacementRequest) -> PodRoom | None:
        """Return the room that the flavor's nodes have for pods of the request, None where there is no
        planning it.
        """
        search = self._searches[flavor]
        return search.room(request, _owner(flavor, search.site))

    def has_free(self, spots: Spots) -> bool:
        """Return whether all of the spots is free, and their nodes are there."""
        for (owner, values), amounts in spots.items():
            # Of hosts the owner is everybody, of other leaves the flavor that placed it.
            flavors = (
                [owner] if owner else [name for name, one in self._searches.items() if one.site.is_by_host]
            )
            if not any(self._is_free(flavor, values, amounts) for flavor in flavors):
                return False
        return True

    def has_nodes(self, spots: Spots) -> bool:
        """Return whether the nodes of all spots are there."""
        return all(
            any(
                search.site.find_leaf(values) is not None
                for flavor, search in self._searches.items()
                # Owners and not flavors are compared: a host has none.
                if _owner(flavor, search.site) == owner
            )
            for owner, values in spots
        )

    def _owning(self, owner: str) -> PlacementSearch | None:
        """Return the search that counts what is used of a leaf; of hosts any does, they share the count."""
        if owner:
            return self._searches.get(owner)
        return next((one for one in self._searches.values() if one.site.is_by_host), None)

    def _change(self, site: FlavorTopology, change: Change, *, is_empty: bool = False) -> None:
        """Take so much of each leaf that is named."""
        names, amounts, back = change
        if is_empty:
            # The empty cluster has no use to add to: it is the capacity that shrinks for a while.
            for name in names:
                site.shrink(name, amounts)
            return
        # Amounts of zero are many (a Workload of GPUs beside one of CPU); they change no column.
        if not any(amounts.values()):
            return
        all_used = site.used
        for name in names:
            used = all_used.get(name)
            if used is None:
                all_used[name] = dict(amounts)
            elif used == back:
                # What cancels out is dropped, so that `used` holds only leaves that anybody uses.
                del all_used[name]
            else:
                add_times(used, amounts, 1)
                if not any(used.values()):
                    del all_used[name]
        # Hosts are shared: what is placed through one flavor is missing in the others too.
        for search in self._searches.values():
            if search.site is site or (site.is_by_host and search.site.is_by_host):
                search.site.use(names, amounts)

    def validate(self, places: Iterable[Place]) -> None:
        """Raise AssertionError where what is used is not the sum over `places`."""
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
    """Return whether the pod takes less of the node where it was."""
    return before.node != after.node or any(
        after.requests.get(name, 0) < amount for name, amount in before.requests.items()
    )


def _owner(flavor: str, site: FlavorTopology) -> str:
    """Return who counts what is used: hosts are shared by all flavors."""
    return "" if site.is_by_host else flavor


def _groups(requests: Sequence[PlacementRequest]) -> list[list[PlacementRequest]]:
    groups: dict[object, list[PlacementRequest]] = {}
    for index, request in enumerate(requests):
        groups.setdefault(index if request.group is None else request.group, []).append(request)
    return list(groups.values())


def _workers_and_leader(
    members: list[PlacementRequest],
) -> tuple[PlacementRequest, PlacementRequest | None]:
    """Return who is placed, and the leader placed beside them: of two pod sets the smaller."""
    # Of two the smaller is the leader, as Kueue has it; of equals the first by sorting.
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
