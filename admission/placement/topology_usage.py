"""What placed Workloads take of the topologies, by *spot*: a host, or another lowest domain.

A trial takes places and gives them back, which restores the state exactly, because all totals are sums of
integers. Two flavors may include the same host. Where their lowest level is the hostname, what is placed
through one of them is missing in the other too. Source: Kueue, gate TASHandleOverlappingFlavors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from admission.placement.topology.address_room import AddressRoom
from admission.placement.topology.flavor_topology import Amounts, FlavorTopology, UsedByLeaf
from admission.placement.topology.gpu_room import gpu_rooms
from admission.placement.topology.place import Change, Place, times_of
from admission.placement.topology.tree import Values
from api.parsing.quantities import add_amounts
from queues.profile.capacity_profile import Spot, Spots


class TopologyUsage:
    """What is taken of the topologies of all flavors, which the owner of `topologies` keeps up to date."""

    def __init__(self, topologies: Mapping[str, FlavorTopology]) -> None:
        self._topologies = topologies
        # Flavors by host share one record of usage, so that two flavors with the same nodes cannot both give
        # away the same place.
        self._used_by_host: UsedByLeaf = {}

    def new_record(self, *, is_by_host: bool) -> UsedByLeaf:
        """Return the record of usage for a new topology: for hosts the common one, otherwise an empty one."""
        return self._used_by_host if is_by_host else {}

    def clear(self) -> None:
        """Forget the usage of hosts, for new topologies that count no places yet."""
        self._used_by_host.clear()

    # --- places ------------------------------------------------------------------------------------------

    def use(self, places: Iterable[Place], *, sign: int, is_empty: bool = False) -> None:
        """Take the places (sign 1) or give them back (-1). With `is_empty`: on the empty cluster."""
        for place in places:
            topology = self._topologies.get(place.flavor)
            # The flavor has lost its topology, so its places count nowhere.
            if topology is None:
                continue
            for names, taken, given in place.changes(is_by_host=topology.is_by_host):
                change = (names, taken, given) if sign > 0 else (names, given, taken)
                self._change(topology, change, is_empty=is_empty)
            if place.size and not is_empty:
                _count_gpus(topology, place, sign)

    def fits(self, places: Sequence[Place]) -> bool:
        """Return whether the places are free and their nodes present, with GPUs and addresses for pods."""
        needed: dict[tuple[str, Values], dict[str, int]] = {}
        for place in places:
            for domain in place.assignment.domains:
                total = needed.setdefault((place.flavor, domain.values), {})
                add_amounts(total, place.per_pod, domain.count)
        is_free = all(self._is_free(flavor, values, total) for (flavor, values), total in needed.items())
        return is_free and self._has_rooms(places)

    def spots(self, places: Iterable[Place]) -> dict[Spot, dict[str, int]]:
        """Return what the places take of every leaf, in a form that can be added up over Workloads."""
        spots: dict[Spot, dict[str, int]] = {}
        for place in places:
            topology = self._topologies.get(place.flavor)
            if topology is not None:
                owner = topology.owner
                for domain in place.assignment.domains:
                    values = domain.values[-1:] if topology.is_by_host else domain.values
                    add_amounts(spots.setdefault((owner, values), {}), place.per_pod, domain.count)
        return spots

    def flavors_at(self, places: Iterable[Place]) -> frozenset[str]:
        """Return the flavors on whose nodes these places are: their own, and others that have the hosts."""
        found: set[str] = set()
        for place in places:
            found.add(place.flavor)
            topology = self._topologies.get(place.flavor)
            # Leaves that are no hosts count for the flavor that placed pods on them alone.
            if topology is None or not topology.is_by_host:
                continue
            for flavor, other in self._topologies.items():
                if other.is_by_host and flavor not in found and _has_any(other, place):
                    found.add(flavor)
        return frozenset(found)

    # --- spots -------------------------------------------------------------------------------------------

    def occupy(self, spots: Spots) -> None:
        """Take what the spots say; negative amounts give back. Spots of removed flavors are ignored."""
        for (owner, values), amounts in spots.items():
            topology = self._owning(owner)
            if topology is not None:
                self._change(topology, ([values], amounts, times_of(amounts, -1)))

    @contextmanager
    def occupied(self, spots: Spots) -> Iterator[None]:
        """Count this much more of the spots as taken within the block."""
        self.occupy(spots)
        try:
            yield
        finally:
            self.occupy({spot: {name: -one for name, one in taken.items()} for spot, taken in spots.items()})

    def has_free(self, spots: Spots) -> bool:
        """Return whether all of the spots is free and their nodes are present."""
        for (owner, values), amounts in spots.items():
            # Hosts belong to all flavors by host, other leaves to the flavor that placed pods on them.
            flavors = [owner] if owner else [name for name, one in self._topologies.items() if one.is_by_host]
            if not any(self._is_free(flavor, values, amounts) for flavor in flavors):
                return False
        return True

    def has_nodes(self, spots: Spots) -> bool:
        """Return whether the nodes of all spots are present."""
        return all(
            any(
                topology.find_leaf(values) is not None
                for topology in self._topologies.values()
                # Owners are compared and not flavors, because a host has no owner.
                if topology.owner == owner
            )
            for owner, values in spots
        )

    def validate(self, places: Iterable[Place]) -> None:
        """Raise AssertionError where the recorded usage is not the sum over `places`."""
        expected = self.spots(places)
        found = {
            (topology.owner, values): used
            for topology in self._topologies.values()
            for values, used in topology.used.items()
        }
        for key in expected.keys() | found.keys():
            want = {name: amount for name, amount in expected.get(key, {}).items() if amount}
            got = {name: amount for name, amount in found.get(key, {}).items() if amount}
            assert got == want, f"{key} counts {got} as used, its Workloads hold {want}"

    # --- within ------------------------------------------------------------------------------------------

    def _is_free(self, flavor: str, values: Values, amounts: Amounts) -> bool:
        topology = self._topologies.get(flavor)
        leaf = topology.find_leaf(values) if topology is not None else None
        # A node that is absent has nothing free.
        if topology is None or leaf is None:
            return False
        free = topology.free
        return all(amount <= free(resource)[leaf] for resource, amount in amounts.items() if amount > 0)

    def _has_rooms(self, places: Sequence[Place]) -> bool:
        """Return whether the pods find islands, shares of GPUs and addresses, which amounts do not tell."""
        # A place without domains takes nothing, and its flavor may be gone.
        places = [place for place in places if place.assignment.domains]
        if all(self._is_by_amounts(place) for place in places):
            return True
        counted: list[Place] = []
        for place in places:
            if not _has_room(self._topologies[place.flavor], place):
                break
            # Pod sets may share nodes and pools, so each comes beside those before it.
            counted.append(place)
            self.use([place], sign=1)
        self.use(counted, sign=-1)
        return len(counted) == len(places)

    def _is_by_amounts(self, place: Place) -> bool:
        """Return whether pods fit a leaf of which enough of every resource is free."""
        rooms = gpu_rooms(self._topologies[place.flavor], place.size, is_empty=False)
        return place.addresses is None and not any(room.is_needed for room in rooms)

    def _owning(self, owner: str) -> FlavorTopology | None:
        """Return the topology that counts usage of these leaves. For hosts any does: they share it."""
        if owner:
            return self._topologies.get(owner)
        return next((one for one in self._topologies.values() if one.is_by_host), None)

    def _change(self, topology: FlavorTopology, change: Change, *, is_empty: bool = False) -> None:
        """Change the usage of each named leaf."""
        names, amounts, back = change
        if is_empty:
            # On the empty cluster usage does not count, so the capacity is lowered instead.
            for name in names:
                topology.shrink(name, amounts)
            return
        # Zero amounts are common (a GPU Workload beside one with CPU only) and change no column.
        if not any(amounts.values()):
            return
        all_used = topology.used
        for name in names:
            used = all_used.get(name)
            if used is None:
                all_used[name] = dict(amounts)
            elif used == back:
                # Entries that cancel out are removed, so that `used` holds only leaves in use.
                del all_used[name]
            else:
                add_amounts(used, amounts, 1)
                if not any(used.values()):
                    del all_used[name]
        # Hosts are shared: what is placed through one flavor is missing in the others too.
        for other in self._topologies.values():
            if other is topology or (topology.is_by_host and other.is_by_host):
                other.use(names, amounts)


def _has_any(topology: FlavorTopology, place: Place) -> bool:
    """Return whether any host of a place is a node of this flavor by host."""
    return any(topology.find_leaf(domain.values) is not None for domain in place.assignment.domains)


def _count_gpus(topology: FlavorTopology, place: Place, sign: int) -> None:
    """Count the place's pods on each leaf by their GPUs."""
    spot_of = topology.spot_of
    pods = [(spot_of(domain.values), sign * domain.count) for domain in place.assignment.domains]
    topology.hardware.gpu_pods.add_all(pods, place.size)


def _has_room(topology: FlavorTopology, place: Place) -> bool:
    """Return whether the leaves of a place, which are present, have GPUs and addresses for its pods."""
    # Added up: an assignment that another client wrote may name a domain twice.
    pods = Counter[int | None]()
    hosts = Counter[str]()
    for domain in place.assignment.domains:
        pods[topology.find_leaf(domain.values)] += domain.count
        hosts[domain.values[-1]] += domain.count
    rooms = [room for room in gpu_rooms(topology, place.size, is_empty=False) if room.is_needed]
    if any(room.at(leaf) < count for leaf, count in pods.items() if leaf is not None for room in rooms):
        return False
    if place.addresses is None or not topology.is_by_host:
        return True
    addresses = AddressRoom(site=topology, rule=place.addresses, is_empty=False)
    return addresses.has_for(hosts)
