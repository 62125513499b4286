"""How many GPUs each pod on a node has, by which it is estimated what is free on each GPU and in each island.

Two sources say it. What Berth has placed is known by place before there are pods, and other pods are known by
node: both by their numbers alone. Pods that record their GPUs (`berth.dev/gpu-ids`) are known one by one, and
each takes the place of one of equal size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import TypeVar

from admission.hardware.gpu_shares import (
    GpuFree,
    PodGpus,
    as_offered,
    free_gpus,
    linked_pods,
    room_for_share,
    whole_gpus,
)
from admission.hardware.islands import GpuPod, free_in_islands
from admission.hardware.node_hardware import NodeHardware
from api.jobs.gpu_share import WHOLE, GpuShare

# Answers that are kept: nodes are of few kinds, and few mixes of pods are on them.
_MOST_ANSWERS = 4096
# What a pod has: a number of whole GPUs, or a share of one.
Size = int | GpuShare
# All pods of a node, those of equal size and ids together, in a fixed order.
Mix = tuple[tuple[PodGpus, int], ...]
PodKey = tuple[str, str]
_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


class GpuPods:
    """The pods with GPUs at each place: a node by its name, or a leaf by its owner and values."""

    def __init__(self) -> None:
        self._sizes: dict[Hashable, dict[Size, int]] = {}
        # Pods that record their GPUs, by the name of their node, and where each of them is.
        self._recorded: dict[str, dict[PodKey, PodGpus]] = {}
        self._node_of: dict[PodKey, str] = {}
        # How many places have pods with a share of a GPU.
        self._shared_places = 0
        self._rooms: dict[tuple[NodeHardware, Mix, int], int] = {}
        self._free: dict[tuple[NodeHardware, Mix], tuple[GpuFree, ...]] = {}

    def __contains__(self, place: Hashable) -> bool:
        return place in self._sizes or place in self._recorded

    @property
    def has_shares(self) -> bool:
        """Whether any pod has a share of a GPU; without any, whole GPUs are counted by their number alone."""
        return self._shared_places > 0

    def add(self, place: Hashable, *, pods: int, gpus: int = 0, share: GpuShare | None = None) -> None:
        """Count this many more pods at a place, of `gpus` GPUs or a share each; a negative number removes."""
        self.add_all([(place, pods)], gpus=gpus, share=share)

    def add_all(
        self, places: Iterable[tuple[Hashable, int]], *, gpus: int = 0, share: GpuShare | None = None
    ) -> None:
        """Count pods of one size at several places, each with the number of pods; see `add`."""
        size: Size = gpus if share is None else share
        if not size:
            return
        all_sizes = self._sizes
        for place, pods in places:
            if not pods:
                continue
            sizes = all_sizes.get(place)
            if sizes is None:
                sizes = all_sizes[place] = {}
            had_shares = share is not None and _has_shares(sizes)
            count = sizes.get(size, 0) + pods
            # Trials add and remove again, so what cancels out must not stay.
            if count:
                sizes[size] = count
            else:
                del sizes[size]
                if not sizes:
                    del all_sizes[place]
            if share is not None:
                self._shared_places += _has_shares(sizes) - had_shares

    def record(self, pod: PodKey, node: str, gpus: PodGpus | None) -> str | None:
        """Set which GPUs of its node a pod has, None for no longer. Return a node whose count has changed."""
        before = self._node_of.get(pod)
        if gpus is None or not node:
            if before is None:
                return None
            del self._node_of[pod], self._recorded[before][pod]
            if not self._recorded[before]:
                del self._recorded[before]
            return before
        of_node = self._recorded.setdefault(node, {})
        if of_node.get(pod) == gpus:
            return None
        if before is not None and before != node:
            self.record(pod, before, None)
        of_node[pod], self._node_of[pod] = gpus, node
        return node

    def clear_leaves(self) -> None:
        """Forget the pods at leaves; those on nodes by name stay."""
        self._sizes = {place: sizes for place, sizes in self._sizes.items() if isinstance(place, str)}
        self._shared_places = sum(map(_has_shares, self._sizes.values()))

    def linked_room(self, kind: NodeHardware, places: Collection[Hashable], gpus: int) -> int:
        """Return how many more pods with `gpus` linked GPUs each (at least 1) find an island.

        They come beside the pods at the places, one after another.
        """
        mix = self._mix(places)
        return _kept(self._rooms, (kind, mix, gpus), lambda: _linked_room(kind, mix, gpus))

    def free(self, kind: NodeHardware, places: Collection[Hashable]) -> tuple[GpuFree, ...]:
        """Return what the pods at the places leave of each GPU of a node of this kind, by its index."""
        mix = self._mix(places)
        return _kept(self._free, (kind, mix), lambda: _free(kind, mix))

    def room(self, kind: NodeHardware, places: Collection[Hashable], size: Size) -> int:
        """Return how many more pods of this size (at least 1) the GPUs of a node of this kind hold."""
        free = self.free(kind, places)
        if not isinstance(size, int):
            return room_for_share(free, size)
        if kind.slices > 1:
            return room_for_share(free, GpuShare(WHOLE // kind.slices)) // size
        return whole_gpus(free) // size

    def _mix(self, places: Collection[Hashable]) -> Mix:
        """Return the pods at the places, each once."""
        if not self._recorded:
            # Nearly all nodes have pods of one size alone, which need no sorting.
            there = [sizes for place in places if (sizes := self._sizes.get(place)) is not None]
            if not there:
                return ()
            if len(there) == 1 and len(there[0]) == 1:
                ((size, count),) = there[0].items()
                return ((_pod(size), count),) if count > 0 else ()
        counts: Counter[Size] = Counter()
        recorded: list[PodGpus] = []
        for place in places:
            if (sizes := self._sizes.get(place)) is not None:
                counts.update(sizes)
            if isinstance(place, str) and place in self._recorded:
                recorded += self._recorded[place].values()
        for pod in recorded:
            counts[pod.gpus if pod.share is None else pod.share] -= 1
        # A removal that overtakes its addition leaves a negative number for a moment.
        unrecorded = [(_pod(size), count) for size, count in counts.items() if count > 0]
        if not recorded and len(unrecorded) < 2:
            return tuple(unrecorded)
        return tuple(sorted((*unrecorded, *Counter(recorded).items()), key=_order))


def _has_shares(sizes: dict[Size, int]) -> bool:
    return any(not isinstance(size, int) for size in sizes)


def _pod(size: Size) -> PodGpus:
    return PodGpus(gpus=size) if isinstance(size, int) else PodGpus(share=size)


def _order(entry: tuple[PodGpus, int]) -> tuple[object, ...]:
    pod, count = entry
    return pod.gpus, pod.share or (), pod.ids, count


def _kept(answers: dict[_Key, _Answer], key: _Key, compute: Callable[[], _Answer]) -> _Answer:
    """Return the answer to a question, which is kept."""
    known = answers.get(key)
    if known is None:
        if len(answers) >= _MOST_ANSWERS:
            answers.clear()
        known = answers[key] = compute()
    return known


def _pods_of(kind: NodeHardware, mix: Mix) -> list[PodGpus]:
    return list(as_offered((pod for pod, count in mix for _ in range(count)), kind.slices))


def _free(kind: NodeHardware, mix: Mix) -> tuple[GpuFree, ...]:
    return tuple(free_gpus(kind.devices, kind.memory_mib, _pods_of(kind, mix)))


def _linked_room(kind: NodeHardware, mix: Mix, gpus: int) -> int:
    """Return how many pods find an island one after another, each beside those before it."""
    pods = linked_pods(kind.devices, kind.memory_mib, _pods_of(kind, mix))
    room = 0
    while max(free_in_islands(kind.islands, pods), default=0) >= gpus:
        pods.append(GpuPod(gpus))
        room += 1
    return room
