"""How many GPUs each pod on a node has, by which it is estimated what is free on each GPU and in each island.

Two sources say it. What Berth has placed is known by place before there are pods, and other pods are known by
node: both by their numbers alone. Pods that record their GPUs (`berth.dev/gpu-ids`) are known one by one, and
each takes the place of one of equal size.

Pods that were placed together arrive in any order, and the device plugin gives each the GPUs that it likes.
So a pod comes to a node only where each linked pod there still finds an island beside all others, as if it
came last. A linked pod that records its GPUs needs that no more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from admission.hardware.gpu_shares import (
    GpuFree,
    PodGpus,
    can_hold,
    counted,
    free_gpus,
    linked_pods,
    room_for_share,
    whole_gpus,
)
from admission.hardware.islands import free_in_islands
from admission.hardware.node_hardware import NodeHardware
from api.jobs.gpu_share import WHOLE, GpuShare
from api.node import PodKey

# More pods than any node takes.
ANY_NUMBER = 1 << 40
# Caps the search for room beside linked pods, for shares of a thousandth: kubelets take 250 pods at most.
_MOST_PODS = 256
# Answers that are kept: nodes are of few kinds, and few mixes of pods are on them.
_MOST_ANSWERS = 4096


class LinkedGpus(NamedTuple):
    """A number of whole GPUs that must be in one island."""

    gpus: int


# What a pod has: a number of whole GPUs, linked or not, or a share of one.
Size = int | LinkedGpus | GpuShare
# All pods of a node, those of equal size and ids together, in a fixed order.
Mix = tuple[tuple[PodGpus, int], ...]
_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")


class GpuPods:
    """The pods with GPUs at each place: a node by its name, or a leaf by its owner and values."""

    def __init__(self) -> None:
        self._sizes: dict[Hashable, dict[Size, int]] = {}
        # Pods that record their GPUs, by the name of their node, and where each of them is.
        self._recorded: dict[str, dict[PodKey, PodGpus]] = {}
        self._node_of: dict[PodKey, str] = {}
        # How many places have pods with a share of a GPU, and how many have linked pods.
        self._shared_places = self._linked_places = 0
        self._rooms: dict[tuple[NodeHardware, Mix, Size, bool], int] = {}
        self._free: dict[tuple[NodeHardware, Mix], tuple[GpuFree, ...]] = {}

    def __contains__(self, place: Hashable) -> bool:
        return place in self._sizes or place in self._recorded

    @property
    def has_shares(self) -> bool:
        """Whether any pod has a share of a GPU; without any, whole GPUs are counted by their number alone."""
        return self._shared_places > 0

    @property
    def has_linked(self) -> bool:
        """Whether any pod that was placed has linked GPUs; without any, all others may take what is free."""
        return self._linked_places > 0

    def add(self, place: Hashable, size: Size, *, pods: int) -> None:
        """Count this many more pods of a size at a place; a negative number removes."""
        self.add_all([(place, pods)], size)

    def add_all(self, places: Iterable[tuple[Hashable, int]], size: Size) -> None:
        """Count pods of one size at several places, each with the number of pods; see `add`."""
        if not size:
            return
        kind = type(size)
        all_sizes = self._sizes
        for place, pods in places:
            if not pods:
                continue
            sizes = all_sizes.get(place)
            if sizes is None:
                sizes = all_sizes[place] = {}
            had = sizes.pop(size, 0)
            count = had + pods
            # The first of this size come, or the last ones leave, and the place has no other of the kind.
            if kind is not int and not (had and count) and not _has(sizes, kind):
                if kind is GpuShare:
                    self._shared_places += 1 if count else -1
                else:
                    self._linked_places += 1 if count else -1
            # Trials add and remove again, so what cancels out must not stay.
            if count:
                sizes[size] = count
            elif not sizes:
                del all_sizes[place]

    def changed_by(self, pod: PodKey, node: str, gpus: PodGpus | None) -> tuple[str, ...]:
        """Return the nodes on which this record changes something: none, one, or the former one too."""
        before, after = self._node_of.get(pod), node if gpus is not None else ""
        if before is not None and (before != after or self._recorded[before][pod] != gpus):
            return tuple(dict.fromkeys(name for name in (before, after) if name))
        return (after,) if before is None and after else ()

    def record(self, pod: PodKey, node: str, gpus: PodGpus | None) -> None:
        """Set which GPUs of its node a pod has, None for no longer."""
        before = self._node_of.pop(pod, None)
        if before is not None:
            del self._recorded[before][pod]
            if not self._recorded[before]:
                del self._recorded[before]
        if gpus is not None and node:
            self._recorded.setdefault(node, {})[pod] = gpus
            self._node_of[pod] = node

    def recorded(self, node: str) -> Mapping[PodKey, PodGpus]:
        """Return the pods of a node that record their GPUs."""
        return self._recorded.get(node, {})

    def clear_leaves(self) -> None:
        """Forget the pods at leaves; those on nodes by name stay."""
        self._sizes = {place: sizes for place, sizes in self._sizes.items() if isinstance(place, str)}
        self._shared_places = sum(_has(sizes, GpuShare) for sizes in self._sizes.values())
        self._linked_places = sum(_has(sizes, LinkedGpus) for sizes in self._sizes.values())

    def linked_room(self, kind: NodeHardware, places: Collection[Hashable], size: Size) -> int:
        """Return how many more pods of this size leave an island to each linked pod, themselves included.

        They come beside the pods at the places, one after another. A linked pod that cannot have an island,
        by the GPUs that others record, keeps nothing off the node.
        """
        mix = self.mix(places)
        return _kept(self._rooms, (kind, mix, size, True), lambda: _linked_room(kind, mix, _pod(size)))

    def free(self, kind: NodeHardware, places: Collection[Hashable]) -> tuple[GpuFree, ...]:
        """Return what the pods at the places leave of each GPU of a node of this kind, by its index."""
        mix = self.mix(places)
        return _kept(self._free, (kind, mix), lambda: _free(kind, mix))

    def room(self, kind: NodeHardware, places: Collection[Hashable], size: Size) -> int:
        """Return how many more pods of this size (at least 1) the GPUs of a node of this kind hold."""
        mix = self.mix(places)
        return _kept(self._rooms, (kind, mix, size, False), lambda: _room(kind, mix, _pod(size)))

    def mix(self, places: Collection[Hashable]) -> Mix:
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
        known: list[tuple[PodGpus, int]] = []
        for pod in sorted(recorded, key=lambda pod: _order((pod, 1))):
            # Which of them records its GPUs is not known by number. As long as any does not, it may be the
            # one that still needs an island.
            own: tuple[Size, ...] = (pod.gpus, LinkedGpus(pod.gpus)) if pod.share is None else (pod.share,)
            found = next((one for one in own if counts[one] > 0), None)
            # Without a place it has left the node, as victims do in a trial: of equal pods any may have.
            if found is not None:
                counts[found] -= 1
                known.append((pod, 1))
        # A removal that overtakes its addition leaves a negative number for a moment.
        unrecorded = [(_pod(size), count) for size, count in counts.items() if count > 0]
        if not known and len(unrecorded) < 2:
            return tuple(unrecorded)
        return tuple(sorted((*unrecorded, *known), key=_order))


def _has(sizes: dict[Size, int], kind: type) -> bool:
    return kind in map(type, sizes)


def _pod(size: Size) -> PodGpus:
    if isinstance(size, int):
        return PodGpus(gpus=size)
    return PodGpus(share=size) if isinstance(size, GpuShare) else PodGpus(gpus=size.gpus, is_linked=True)


def _order(entry: tuple[PodGpus, int]) -> tuple[object, ...]:
    pod, count = entry
    return pod.gpus, pod.share or (), pod.ids, pod.is_linked, count


def _kept(answers: dict[_Key, _Answer], key: _Key, compute: Callable[[], _Answer]) -> _Answer:
    """Return the answer to a question, which is kept."""
    known = answers.get(key)
    if known is None:
        if len(answers) >= _MOST_ANSWERS:
            answers.clear()
        known = answers[key] = compute()
    return known


def _pods_of(kind: NodeHardware, mix: Mix) -> list[PodGpus]:
    return counted((pod for pod, count in mix for _ in range(count)), kind.slices)


def _free(kind: NodeHardware, mix: Mix) -> tuple[GpuFree, ...]:
    return tuple(free_gpus(kind.devices, kind.memory_mib, _pods_of(kind, mix)))


def _room(kind: NodeHardware, mix: Mix, more: PodGpus) -> int:
    """Return how many such pods the GPUs hold, of which links do not matter."""
    if kind.is_mig and more.share is None:
        # No shares are given of its GPUs, so its amounts alone limit the pods.
        return ANY_NUMBER
    free = _free(kind, mix)
    if more.share is not None:
        room = room_for_share(free, more.share)
    elif kind.slices > 1:
        room = room_for_share(free, GpuShare(WHOLE // kind.slices)) // more.gpus
    else:
        room = whole_gpus(free) // more.gpus
    if not mix:
        return room

    def is_too_many(pods: int) -> bool:
        return not can_hold(kind.devices, kind.memory_mib, _pods_of(kind, (*mix, (more, pods))))

    # Packing the largest first may find no room for shares that can be held: less is free then than it seems.
    return bisect_left(range(1, min(room, _MOST_PODS) + 1), True, key=is_too_many)


def _linked_room(kind: NodeHardware, mix: Mix, more: PodGpus) -> int:
    """Return how many such pods come one after another and break no island that a linked pod needs."""
    pods = _pods_of(kind, mix)
    known = [pod for pod in pods if pod.ids]
    # What its neighbours have for certain, no decision changes; what is reserved beyond the room must keep
    # others off, as an amount below zero does.
    needed = {pod for pod in pods if pod.is_linked and _finds_island(kind, [*known, pod], pod)}
    if more.is_linked:
        needed.add(more)
    if not needed:
        return ANY_NUMBER
    for room in range(_MOST_PODS):
        pods.append(more)
        if not all(_finds_island(kind, pods, pod) for pod in needed):
            return room
    return _MOST_PODS


def _finds_island(kind: NodeHardware, pods: Sequence[PodGpus], pod: PodGpus) -> bool:
    """Return whether one of the pods has an island though all others came before it."""
    others = list(pods)
    others.remove(pod)
    left = free_in_islands(kind.islands, linked_pods(kind.devices, kind.memory_mib, others))
    return max(left, default=0) >= pod.gpus
