"""Where the pod of a group's leader finds room, and how many of the group's other pods fit beside it.

The leader has requests, hardware and a static address of its own, and shares the node with the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from admission.hardware.fit import HardwareRequest, misfit
from admission.hardware.gpu_pods import ANY_NUMBER, Size
from admission.hardware.node_hardware import NodeHardware
from admission.placement.topology.address_book import AddressRule
from admission.placement.topology.address_room import AddressRoom
from admission.placement.topology.flavor_topology import Amounts, FlavorTopology
from admission.placement.topology.gpu_room import LinkedRoom, SharedRoom, gpu_rooms, size_needed
from api.node import NodeInfo


@dataclass(slots=True, kw_only=True, eq=False)
class LeaderRoom:
    """The room for a leader that takes `amounts`, beside pods that take `per_pod` each.

    `rooms` and `addressed` limit those pods beyond amounts. `addresses` says which static addresses the
    leader has already, None for one without. `is_empty`: without placed pods.
    """

    site: FlavorTopology
    amounts: Amounts
    hardware: HardwareRequest | None
    addresses: AddressRule | None
    per_pod: Amounts
    rooms: tuple[LinkedRoom | SharedRoom, ...]
    addressed: AddressRoom | None
    is_empty: bool
    # For each resource of the leader or the pods: the column, the leader's amount, the amount per pod.
    _columns: tuple[tuple[list[int], int, int], ...] = field(init=False)
    # The GPUs of the leader's pod, the room for them, and which kinds of nodes suit it.
    _size: Size = field(init=False)
    _own_rooms: tuple[LinkedRoom | SharedRoom, ...] = field(init=False)
    _own_addresses: AddressRoom | None = field(init=False)
    _kinds: dict[NodeHardware, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        site = self.site
        column = site.capacity if self.is_empty else site.free
        # A node that takes the leader must hold the leader's pod and the pods beside it at once.
        self._columns = tuple(
            (column(one), self.amounts.get(one, 0), self.per_pod.get(one, 0))
            for one in {**self.amounts, **self.per_pod}
        )
        self._size = size_needed(self.amounts, self.hardware)
        self._own_rooms = gpu_rooms(site, self._size, is_empty=self.is_empty)
        self._own_addresses = (
            AddressRoom(site=site, rule=self.addresses, is_empty=self.is_empty)
            if self.addresses is not None and site.is_by_host
            else None
        )

    @property
    def has_addresses(self) -> bool:
        """Whether the leader asks for an address, which other nodes of the pool may take from it."""
        return self._own_addresses is not None

    def beside(self, leaf: int) -> int | None:
        """Return how many pods fit beside the leader on the leaf; None where the leader itself does not.

        The leaf must not refuse the pods.
        """
        if any(column[leaf] < leader for column, leader, _ in self._columns if leader):
            return None
        if not self._has_gpus(leaf):
            return None
        addresses = self._addresses_beside(leaf)
        if addresses is None:
            return None
        # Only resources that the pods request limit how many fit beside the leader.
        left = ((column[leaf] - leader) // amount for column, leader, amount in self._columns if amount)
        return max(0, min(addresses, self._gpus_beside(leaf), *left))

    def _addresses_beside(self, leaf: int) -> int | None:
        """Return how many pods have addresses on the leaf beside the leader; None where it has none."""
        own, others = self._own_addresses, self.addressed
        if own is None:
            return ANY_NUMBER if others is None else others.at(leaf)
        left = own.left_at(leaf)
        if left <= 0:
            return None
        if others is None:
            return ANY_NUMBER
        # What the pool has beyond the addresses that its hosts are counted with. No other pod gets the
        # leader's own.
        if own.has_own_at(leaf) or left > others.new_at(leaf):
            return others.at(leaf)
        # The leader takes the address of one of the pods here, but of none on another host.
        return others.at(leaf) - 1 if others.at(leaf) > 0 else None

    def _has_gpus(self, leaf: int) -> bool:
        """Return whether the hardware of a leaf suits the leader, with an island and GPUs left for it."""
        rooms = [room for room in self._own_rooms if room.is_needed]
        return all(room.at(leaf) > 0 for room in rooms) and (
            self.hardware is None or any(self._suits(node) for node in self.site.nodes[leaf].values())
        )

    def _suits(self, node: NodeInfo) -> bool:
        need, kind = self.hardware, self.site.hardware.of(node)
        suits = self._kinds.get(kind)
        if suits is None:
            suits = self._kinds[kind] = need is None or misfit(need, kind) is None
        return suits

    def _gpus_beside(self, leaf: int) -> int:
        """Return how many pods the islands and GPUs of a leaf hold beside the leader's pod."""
        if not self.rooms:
            return ANY_NUMBER
        # As it will be counted once it has its place.
        gpu_pods, node = self.site.hardware.gpu_pods, next(iter(self.site.nodes[leaf]), "")
        gpu_pods.add(node, self._size, pods=1)
        found = min([room.at(leaf) for room in self.rooms if room.is_needed], default=ANY_NUMBER)
        gpu_pods.add(node, self._size, pods=-1)
        return found
