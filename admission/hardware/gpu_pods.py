"""How many GPUs each pod on a node has, by which it is estimated what is free in one island."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from admission.hardware.islands import GpuPod, Island, free_in_islands

# Answers that are kept: nodes are of few kinds, and few mixes of pods are on them.
_MOST_ANSWERS = 4096
# A number of GPUs, and how many pods have it.
Sizes = tuple[tuple[int, int], ...]


class GpuPods:
    """The pods with GPUs at each place: a node by its name, or a leaf by its owner and values."""

    def __init__(self) -> None:
        self._sizes: dict[Hashable, dict[int, int]] = {}
        self._rooms: dict[tuple[Sequence[Island], Sizes, int], int] = {}

    def __contains__(self, place: Hashable) -> bool:
        return place in self._sizes

    def add(self, place: Hashable, *, gpus: int, pods: int) -> None:
        """Count this many more pods of `gpus` GPUs each at a place; a negative number removes them."""
        if not gpus or not pods:
            return
        sizes = self._sizes.setdefault(place, {})
        sizes[gpus] = sizes.get(gpus, 0) + pods
        # Trials add and remove again, so what cancels out must not stay.
        if not sizes[gpus]:
            del sizes[gpus]
            if not sizes:
                del self._sizes[place]

    def clear_leaves(self) -> None:
        """Forget the pods at leaves; those on nodes by name stay."""
        self._sizes = {place: sizes for place, sizes in self._sizes.items() if isinstance(place, str)}

    def linked_room(self, islands: Sequence[Island], places: Iterable[Hashable], gpus: int) -> int:
        """Return how many more pods with `gpus` linked GPUs each (at least 1) find an island.

        They come beside the pods at the places, one after another.
        """
        sizes = tuple(
            one for place in places if place in self._sizes for one in sorted(self._sizes[place].items())
        )
        key = islands, sizes, gpus
        room = self._rooms.get(key)
        if room is None:
            if len(self._rooms) >= _MOST_ANSWERS:
                self._rooms.clear()
            room = self._rooms[key] = _linked_room(islands, sizes, gpus)
        return room


def _linked_room(islands: Sequence[Island], sizes: Sizes, gpus: int) -> int:
    """Return how many pods find an island one after another, each beside those before it."""
    # A removal that overtakes its addition leaves a negative number for a moment.
    pods = [GpuPod(size) for size, count in sizes for _ in range(max(0, count))]
    room = 0
    while max(free_in_islands(islands, pods), default=0) >= gpus:
        pods.append(GpuPod(gpus))
        room += 1
    return room
