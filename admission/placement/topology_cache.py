"""All nodes and pods, as seen through the flavors that have a topology, and the search for places on them.

Nodes and pods are reported by events. Workloads take their places in `usage` when they get quota.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from admission.hardware.gpu_shares import PodGpus
from admission.hardware.inventory import HardwareInventory
from admission.hardware.label_problems import hardware_problems, recorded_problems
from admission.hardware.record_faults import RecordFaults
from admission.hardware.rules import HardwareRules
from admission.placement.fragmentation_mix import DemandMix
from admission.placement.packing import demand_of
from admission.placement.performance import Performance
from admission.placement.search import PlacementSearch
from admission.placement.topology.address_book import AddressBook, Key
from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.gpu_room import gpu_size, gpu_state
from admission.placement.topology.hierarchy import node_problems
from admission.placement.topology.nodes import Nodes
from admission.placement.topology.place import Place, place_of
from admission.placement.topology.request import NoPlacement, Placement, PlacementGates, PlacementRequest
from admission.placement.topology_usage import TopologyUsage
from api.jobs.static_address import Reservations
from api.keys import GPU_MILLI, HOSTNAME
from api.node import NodeInfo, PodKey, PodUsage
from api.queueing import ResourceFlavor, Topology
from api.workload import TopologyAssignment
from queues.steps import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """The first pod set without a place, and the reason."""

    pod_set: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The assignments of all pod sets by name, and what they take of the topologies, in the same order."""

    assignments: Mapping[str, TopologyAssignment]
    places: tuple[Place, ...]


Found = Placed | Unplaced
# Placements kept for one state of the nodes, for users whose requests are all different.
_MOST_KEPT = 1024


class KeptPlacements:
    """What was found for requests in one state of the nodes, which a number stands for."""

    def __init__(self) -> None:
        self._state = -1
        self._found: dict[tuple[PlacementRequest, ...], Found] = {}

    def get(self, requests: Sequence[PlacementRequest], state: int) -> Found | None:
        """Return what was found in this state, None where it is not known."""
        return self._found.get(tuple(requests)) if state == self._state else None

    def put(self, requests: Sequence[PlacementRequest], found: Found, state: int) -> None:
        """Keep what was found in this state, and nothing of others."""
        if state != self._state or len(self._found) >= _MOST_KEPT:
            self._state = state
            self._found.clear()
        self._found[tuple(requests)] = found


class TopologyCache:
    """Nodes, pods and the topologies of flavors. One task owns it."""

    def __init__(self, gates: PlacementGates | None = None, hardware: HardwareRules | None = None) -> None:
        self._gates = gates or PlacementGates()
        self.nodes = Nodes()
        # What all nodes offer, also those of flavors without a topology.
        self.hardware = HardwareInventory(hardware)
        self.addresses = AddressBook()
        self._specs: dict[str, tuple[ResourceFlavor, Topology]] = {}
        # Both by flavor. A flavor without a topology is in neither.
        self._topologies: dict[str, FlavorTopology] = {}
        self._searches: dict[str, PlacementSearch] = {}
        self.usage = TopologyUsage(self._topologies)
        self.performance = Performance()
        # What pods usually demand, by which fragmentation is measured.
        self.mix = DemandMix()
        # How often the empty cluster has changed: by nodes, the pods of others, or what hosts have achieved.
        self._node_changes = 0
        # Nodes whose pods have recorded other GPUs since `take_recorded_on`.
        self._recorded_on: dict[str, None] = {}
        self._record_faults = RecordFaults()
        self._found, self._found_on_empty = KeptPlacements(), KeptPlacements()
        # How often `place` and `has_place` have found none.
        self.refusals = 0

    # --- what is known -----------------------------------------------------------------------------------

    def put_node(self, node: NodeInfo) -> frozenset[str]:
        """Add or update a node. Return the flavors whose nodes have changed."""
        if not self.nodes.put(node):
            return frozenset()
        self.hardware.put(node)
        self.addresses.put_node(node)
        self._node_changes += 1
        taken = self.nodes.taken(node.name)
        return frozenset(
            flavor for flavor, topology in self._topologies.items() if topology.put_node(node, taken)
        )

    def drop_node(self, name: str) -> frozenset[str]:
        """Remove a node. Return the flavors whose nodes have changed."""
        self.nodes.drop(name)
        self.hardware.drop(name)
        self.addresses.drop_node(name)
        self._node_changes += 1
        return frozenset(flavor for flavor, topology in self._topologies.items() if topology.drop_node(name))

    def put_pod(self, pod: PodUsage) -> frozenset[str]:
        """Add or update a pod. Return the flavors on whose nodes it may have freed capacity.

        What a pod takes that Berth has placed is known by its Workload, but not which GPUs it has.
        """
        key = (pod.namespace, pod.name)
        known = self.nodes.pod(key)
        regrouped = self._record_gpus(key, pod)
        if known == pod:
            return regrouped
        # Removed and added again, which is cheaper than comparing; the sums are integers, so they are exact.
        freed = self._drop_pod(key)
        if pod.node:
            self.nodes.add_pod(pod)
            self._take(pod, sign=1)
        # A pod that only grew on its node has freed nothing, although it was removed in between.
        return regrouped | freed if known is not None and _leaves_room(known, pod) else regrouped

    def drop_pod(self, key: PodKey) -> frozenset[str]:
        """Remove a pod. Return the flavors on whose nodes it may have freed capacity.

        A large cluster ends thousands of pods a minute. Those on nodes of no flavor must wake no queue.
        """
        return self._record_gpus(key, None) | self._drop_pod(key)

    def _drop_pod(self, key: PodKey) -> frozenset[str]:
        pod = self.nodes.pop_pod(key)
        return frozenset() if pod is None else self._take(pod, sign=-1)

    def _record_gpus(self, key: PodKey, pod: PodUsage | None) -> frozenset[str]:
        """Note which GPUs of its node a pod has, whether Berth has placed it or not.

        Return the flavors of nodes on which other GPUs are free than before.
        """
        gpus = None
        if pod is not None and pod.gpu_ids:
            gpus = PodGpus(pod.gpus, pod.share, pod.gpu_ids)
        node, fault = (pod.gpu_node, pod.gpu_fault) if pod is not None else ("", "")
        self._recorded_on.update(dict.fromkeys(self._record_faults.put(key, node, fault)))
        names = self.hardware.gpu_pods.changed_by(key, node, gpus)
        if not names:
            return frozenset()
        before = self._gpu_states(names)
        self.hardware.gpu_pods.record(key, node, gpus)
        self._recorded_on.update(dict.fromkeys(names))
        self._touch(names)
        # Which pods have the same GPUs decides what is left, and how many have ended is often known before.
        after = self._gpu_states(names)
        return frozenset(flavor for flavor, states in after.items() if states != before[flavor])

    def _gpu_states(self, nodes: Iterable[str]) -> dict[str, list[object]]:
        """Return what decides the room on the GPUs of these nodes, by flavor."""
        return {
            flavor: [gpu_state(topology, name) for name in nodes]
            for flavor, topology in self._topologies.items()
        }

    def take_recorded_on(self) -> tuple[str, ...]:
        """Return the nodes whose pods have recorded other GPUs since the last call."""
        names = tuple(self._recorded_on)
        self._recorded_on.clear()
        return names

    def reserve_addresses(self, key: Key, reservations: Reservations) -> frozenset[str]:
        """Let a Workload have these addresses and no others. Return the flavors whose nodes it concerns."""
        return self._touch(self.addresses.reserve(key, reservations))

    def note_placed(self, key: Key, *, is_placed: bool) -> None:
        """Note whether the pods of a Workload have places, whose addresses count once then."""
        self._touch(self.addresses.note_placed(key, is_placed=is_placed))

    def _touch(self, nodes: Collection[str]) -> frozenset[str]:
        """Have these nodes evaluated again. Return the flavors that include any."""
        if not nodes:
            return frozenset()
        self._node_changes += 1
        touched = {
            flavor
            for flavor, topology in self._topologies.items()
            for name in nodes
            if topology.touch_node(name)
        }
        return frozenset(touched)

    def observe(self, hosts: Collection[str], *, uid: str, at: float, outcome: float) -> None:
        """Record the outcome of a run that ended `at` on these hosts. A run counts once, by its uid."""
        self.performance.observe(hosts, uid=uid, at=at, outcome=outcome)
        self._node_changes += 1
        for topology in self._topologies.values():
            if topology.is_by_host:
                # Scores are read per leaf, and readers of leaves follow the log.
                topology.touch((host,) for host in hosts)

    def learn(self, places: Iterable[Place]) -> None:
        """Count what pods demand that were placed, for the mix by which fragmentation is measured."""
        for place in places:
            self.mix.observe(demand_of(place.per_pod), sum(one.count for one in place.assignment.domains))

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
        self.usage.clear()
        self.hardware.gpu_pods.clear_leaves()
        self._topologies.clear()
        self._searches.clear()
        # The logs of the new trees begin again, so that no earlier placement may be found by their ends.
        self._found, self._found_on_empty = KeptPlacements(), KeptPlacements()
        for name, (flavor, spec) in sorted(wanted.items()):
            topology = self._topologies[name] = self._make_topology(name, flavor, spec)
            search = self._searches[name] = PlacementSearch(topology, spec.name, self._gates)
            search.performance = self.performance.scores
            search.mix = self.mix
        return True

    def _make_topology(self, name: str, flavor: ResourceFlavor, spec: Topology) -> FlavorTopology:
        topology = FlavorTopology(
            flavor=name,
            levels=spec.levels,
            node_labels=flavor.node_labels,
            used={},
            hardware=self.hardware,
            addresses=self.addresses,
        )
        topology.used = self.usage.new_record(is_by_host=topology.is_by_host)
        for node in self.nodes.by_name.values():
            topology.put_node(node, self.nodes.taken(node.name))
        return topology

    def _take(self, pod: PodUsage, *, sign: int) -> frozenset[str]:
        """Count what a pod takes (1) or gives back (-1). Return the flavors that include its node."""
        self.hardware.gpu_pods.add(pod.node, gpu_size(pod.requests, is_linked=False), pods=sign)
        flavors = frozenset(
            flavor
            for flavor, topology in self._topologies.items()
            if topology.take(pod.node, pod.requests, sign=sign)
        )
        self._node_changes += bool(flavors)
        return flavors

    # --- questions ---------------------------------------------------------------------------------------

    @property
    def has_flavors(self) -> bool:
        """Whether any flavor has a topology."""
        return bool(self._searches)

    def label_problems(self, name: str) -> list[str]:
        """Return a sentence for each problem of a node's labels on hardware and on its flavors' levels.

        And for each GPU that several of its pods record.
        """
        node = self.nodes.get(name)
        if node is None:
            return []
        at_host = self.nodes.at_host(node.labels.get(HOSTNAME, ""))
        found: dict[str, None] = dict.fromkeys(hardware_problems(node))
        recorded = self.hardware.gpu_pods.recorded(name)
        found.update(dict.fromkeys(recorded_problems(node, self.hardware.of(node), recorded)))
        found.update(dict.fromkeys(self._record_faults.on(name)))
        if (clash := self.addresses.clashes(node)) is not None:
            address, other = clash
            said = f"node {name} offers the address {address}, which is in the pool of node {other}"
            found[f"{said}; it counts there alone"] = None
        for search in self._searches.values():
            if search.site.is_of_flavor(node):
                found.update(
                    dict.fromkeys(node_problems(node, search.site, search.topology, at_host=at_host))
                )
        return list(found)

    def has_domain(self, value: str) -> bool:
        """Return whether any topology has a domain with this label value; True while no node is known."""
        trees = [topology.tree for topology in self._topologies.values()]
        # Without nodes it is unknown which domains exist.
        if not any(tree.at_level[0] for tree in trees):
            return True
        return any(tree.named(level, value) for tree in trees for level in range(tree.depth))

    def has_topology(self, flavor: str) -> bool:
        """Return whether the flavor has a topology, so that its pods are placed."""
        return flavor in self._searches

    def topology(self, flavor: str) -> FlavorTopology:
        """Return the flavor's nodes as a tree. Raises KeyError for a flavor without a topology."""
        return self._topologies[flavor]

    def search(self, flavor: str) -> PlacementSearch:
        """Return the search in the flavor's nodes. Raises KeyError for a flavor without a topology."""
        return self._searches[flavor]

    def preparing(self, requests: Sequence[PlacementRequest]) -> Steps[None]:
        """Compute in steps what `find` needs for shapes that are not cached.

        This has no other effect: `find` would compute it itself, without a pause.
        """
        for request in requests:
            yield from self.search(request.flavor).preparing(request)

    def place(
        self, requests: Sequence[PlacementRequest], *, is_empty: bool = False
    ) -> Mapping[str, TopologyAssignment] | Unplaced:
        """Return the assignments of all pod sets by name, or the first without a place; see `find`."""
        found = self.find(requests, is_empty=is_empty)
        return found if isinstance(found, Unplaced) else found.assignments

    def find(self, requests: Sequence[PlacementRequest], *, is_empty: bool = False) -> Found:
        """Return the places of all pod sets, each beside those before it; or the first without a place.

        Nothing is held on return. `is_empty`: as if no other Workload was placed. Equal requests in the same
        state cost a look-up, and get the same values.
        """
        found = self.known(requests, is_empty=is_empty)
        if found is not None:
            return found
        found = self._find(requests, is_empty=is_empty)
        # A trial of several pod sets moves the logs, and leaves the nodes as they were.
        if is_empty:
            self._found_on_empty.put(requests, found, self._node_changes)
        else:
            self._found.put(requests, found, self._state())
        self.refusals += isinstance(found, Unplaced)
        return found

    def known(self, requests: Sequence[PlacementRequest], *, is_empty: bool = False) -> Found | None:
        """Return what `find` would find if that costs no search, None where it does."""
        if is_empty:
            found = self._found_on_empty.get(requests, self._node_changes)
        else:
            found = self._found.get(requests, self._state())
        self.refusals += isinstance(found, Unplaced)
        return found

    def _state(self) -> int:
        """Return a number that rises with every change of nodes and of what Workloads take of them."""
        return sum([one.nodes_log.end + one.uses_log.end for one in self._topologies.values()])

    def _find(self, requests: Sequence[PlacementRequest], *, is_empty: bool) -> Found:
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
                        self.usage.use(taken[-1:], sign=1, is_empty=is_empty)
        finally:
            # Trial places must be given back in any case.
            self.usage.use(taken, sign=-1, is_empty=is_empty)
        places = tuple([place_of(one, placed[one.pod_set]) for one in requests if one.pod_set in placed])
        return Placed(assignments=placed, places=places)

    def has_place(self, requests: Sequence[PlacementRequest]) -> bool:
        """Return whether `place` would find places for all pod sets, for searches that repeat it."""
        # By far the most common case, and hundreds of times cheaper than computing the places.
        if len(requests) == 1:
            is_found = self.search(requests[0].flavor).has_place(requests[0])
            self.refusals += not is_found
            return is_found
        return not isinstance(self.place(requests), Unplaced)


def _leaves_room(before: PodUsage, after: PodUsage) -> bool:
    """Return whether the pod takes less of the node that it was on."""
    if before.node != after.node:
        return True
    # A share of a GPU is an amount that is added to the one of the whole GPU.
    is_share_now = GPU_MILLI in after.requests and GPU_MILLI not in before.requests
    return is_share_now or any(
        after.requests.get(name, 0) < amount for name, amount in before.requests.items()
    )


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
