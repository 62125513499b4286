"""How many pods the GPUs of each host hold, beside the pods that are there: by islands, and by shares.

Amounts alone do not say it: two free GPUs may be in two islands, or be the last that a linked pod can use,
which has a place and is not there yet; and half of two GPUs is no GPU. Idle nodes of one kind have the same
room, so a full pass costs a comparison for most leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from admission.hardware.fit import HardwareRequest
from admission.hardware.gpu_pods import ANY_NUMBER, LinkedGpus, Size
from admission.hardware.node_hardware import NodeHardware
from admission.placement.topology.flavor_topology import FlavorTopology
from api.jobs.gpu_share import GpuShare, share_in
from api.jobs.resource_requests import gpus_of
from api.node import NodeInfo


def gpu_size(per_pod: Mapping[str, int], *, is_linked: bool) -> Size:
    """Return the GPUs of a pod that takes these amounts of its node; 0 for one without."""
    gpus = gpus_of(per_pod)
    return share_in(per_pod) or (LinkedGpus(gpus) if is_linked and gpus else gpus)


def size_needed(per_pod: Mapping[str, int], need: HardwareRequest | None) -> Size:
    """Return the GPUs of a pod with these amounts and needs; 0 for one without."""
    return gpu_size(per_pod, is_linked=need is not None and need.is_linked)


def gpu_rooms(site: FlavorTopology, size: Size, *, is_empty: bool) -> tuple[LinkedRoom | SharedRoom, ...]:
    """Return the rooms that limit pods of this size beyond amounts, if they are needed.

    `is_empty`: without placed pods.
    """
    if not site.is_by_host or not size:
        return ()
    return (
        LinkedRoom(site=site, size=size, is_empty=is_empty),
        SharedRoom(site=site, size=size, is_empty=is_empty),
    )


def gpu_state(site: FlavorTopology, node: str) -> object:
    """Return what decides, beyond amounts, how many pods the GPUs of a node hold; None if nothing does.

    Equal where it is equal, whichever pods have recorded their GPUs meanwhile.
    """
    leaf = site.leaf_of(node)
    if leaf is None or not site.is_by_host:
        return None
    kind, gpu_pods = site.hardware.of(site.nodes[leaf][node]), site.hardware.gpu_pods
    places = (node, (site.owner, site.names[leaf]))
    # A linked pod needs an island until it has recorded its GPUs.
    if (kind.islands and not kind.is_one_island) or (gpu_pods.has_linked and gpu_pods.has_shares):
        return gpu_pods.mix(places)
    if kind.slices <= 1 and not kind.offers_more_than_it_has and not gpu_pods.has_shares:
        return None
    # All of its GPUs are equal.
    return sorted(gpu_pods.free(kind, places))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedRoom:
    """The room for pods of a size, by the islands of linked pods. `is_empty`: without placed pods."""

    site: FlavorTopology
    size: Size
    is_empty: bool

    @property
    def is_needed(self) -> bool:
        """Whether amounts do not tell the room: for linked pods, and for others beside any.

        Where the GPUs of each node are all linked and none is shared, those that are free are an island.
        """
        gpu_pods = self.site.hardware.gpu_pods
        if not self.site.unlinked_kinds and not gpu_pods.has_shares:
            return False
        return isinstance(self.size, LinkedGpus) or (not self.is_empty and gpu_pods.has_linked)

    @property
    def lack(self) -> str:
        """What a leaf lacks that has enough of every resource."""
        return "fragmented NVLink islands"

    def at(self, leaf: int) -> int:
        """Return how many more of the pods find an island on the leaf, whatever else they need."""
        gpu_pods = self.site.hardware.gpu_pods
        if not gpu_pods.has_shares and all(map(self._is_linked, self.site.nodes[leaf].values())):
            return ANY_NUMBER
        return sum(
            gpu_pods.linked_room(kind, places, self.size)
            for kind, places in _nodes(self.site, leaf, is_empty=self.is_empty)
        )

    def _is_linked(self, node: NodeInfo) -> bool:
        """Return whether all GPUs of the node are linked, so that those that are free are, too."""
        return self.site.hardware.of(node).is_one_island

    def limit(self, pods: list[int]) -> None:
        """Lower the number of pods of each leaf to what its islands hold."""
        site, gpu_pods = self.site, self.site.hardware.gpu_pods
        for kind, leaves in site.kinds.items():
            if kind.is_one_island and not gpu_pods.has_shares:
                continue
            idle = gpu_pods.linked_room(kind, (), self.size)
            for leaf in leaves:
                if pods[leaf]:
                    is_idle = _is_idle(site, leaf, is_empty=self.is_empty)
                    pods[leaf] = min(pods[leaf], idle if is_idle else self.at(leaf))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRoom:
    """The room for pods of a share of a GPU each, or of whole GPUs. `is_empty`: without placed pods."""

    site: FlavorTopology
    size: Size
    is_empty: bool

    @property
    def is_needed(self) -> bool:
        """Whether amounts do not tell the room.

        For shares; and for whole GPUs while any is shared, or where nodes offer each of theirs several times.
        """
        is_shared = isinstance(self.size, GpuShare) or self.site.hardware.gpu_pods.has_shares
        return is_shared or self.site.oversold_kinds > 0

    @property
    def lack(self) -> str:
        """What a leaf lacks that has enough of every resource."""
        return "fragmented GPU shares"

    def at(self, leaf: int) -> int:
        """Return how many more of the pods the GPUs of the leaf hold, whatever else they need."""
        room = self.site.hardware.gpu_pods.room
        return sum(
            room(kind, places, self.size) for kind, places in _nodes(self.site, leaf, is_empty=self.is_empty)
        )

    def limit(self, pods: list[int]) -> None:
        """Lower the number of pods of each leaf to what its GPUs hold."""
        site, gpu_pods = self.site, self.site.hardware.gpu_pods
        for kind, leaves in site.kinds.items():
            idle = gpu_pods.room(kind, (), self.size)
            for leaf in leaves:
                if pods[leaf]:
                    is_idle = _is_idle(site, leaf, is_empty=self.is_empty)
                    pods[leaf] = min(pods[leaf], idle if is_idle else self.at(leaf))


_Places = tuple[object, ...]


def _nodes(site: FlavorTopology, leaf: int, *, is_empty: bool) -> list[tuple[NodeHardware, _Places]]:
    """Return the kind of each node of a leaf, with the places whose pods count; two of one host add up."""
    placed: _Places = () if is_empty else ((site.owner, site.names[leaf]),)
    nodes: Mapping[str, NodeInfo] = site.nodes[leaf]
    return [(site.hardware.of(node), (node.name, *placed)) for node in nodes.values()]


def _is_idle(site: FlavorTopology, leaf: int, *, is_empty: bool) -> bool:
    """Return whether the leaf is one node without pods that have GPUs."""
    gpu_pods, nodes = site.hardware.gpu_pods, site.nodes[leaf]
    is_used = not is_empty and (site.owner, site.names[leaf]) in gpu_pods
    return len(nodes) == 1 and not is_used and not any(name in gpu_pods for name in nodes)
