"""The linked GPUs of a node, and how many of them are free in one island.

The islands are read from labels, which the node agent writes (`admission.node_agent`):

    berth.dev/nvlink-island.0: "0-3"        the GPUs 0 to 3 are linked with each other
    berth.dev/nvlink-island.1: "4_6-7"      the GPUs 4, 6 and 7
    berth.dev/nvlink-island.2: "4"          an island of four; their indexes are not given
    nvidia.com/gpu-topology: nvswitch       without such labels: all GPUs of the node are one island

Free GPUs count, not the size of the island: by total capacity a second job of four would be sent to an island
of four. The count is exact for pods that record their GPUs (`berth.dev/gpu-ids`). Other pods are assumed to
be in the smallest island with room for them, as a packing device plugin would place them; where none has room
they are assumed to take GPUs from the roomiest islands first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from api import keys
from api.parsing.decimals import whole_number

# A mistaken label such as "0-9999999999" must not create a huge set.
_MOST_GPUS = 1024


class Island(NamedTuple):
    """Linked GPUs: their number, and their indexes; none where these are not known."""

    size: int
    ids: frozenset[int] = frozenset()

    def count(self, ids: Iterable[int]) -> int:
        """Return how many of these GPUs are in the island."""
        return len(self.ids.intersection(ids))


class GpuPod(NamedTuple):
    """A pod on a node: how many GPUs it has, and their indexes; () where they are not recorded."""

    gpus: int
    ids: tuple[int, ...] = ()


def read_islands(labels: Mapping[str, str], topology: str, gpus: int) -> tuple[Island, ...]:
    """Return the islands of a node with these labels and this number of GPUs.

    A GPU that several islands name is in the first of them, by the order of their keys. Islands of more GPUs
    than the node has are smaller by the difference: it is not known which of them lacks the GPUs.
    """
    found: list[Island] = []
    named: set[int] = set()
    for key in sorted(key for key in labels if key.startswith(keys.NODE_ISLAND_PREFIX)):
        island = read_island(labels[key])
        ids = island.ids - named
        found.append(Island(island.size - len(island.ids) + len(ids), ids))
        named |= ids
    missing = sum(island.size for island in found) - gpus
    if found and missing > 0:
        return tuple(Island(max(0, island.size - missing), island.ids) for island in found)
    # A switch links all GPUs of a node with each other, so they are one island.
    if not found and topology == "nvswitch":
        return (Island(gpus, frozenset(range(min(gpus, _MOST_GPUS)))),)
    return tuple(found)


def read_island(value: str) -> Island:
    """Return the island of one label; one without GPUs for a value that cannot be read."""
    # One number alone is how many GPUs it has; a part that is none leaves the whole value without meaning.
    if (count := whole_number(value)) is not None:
        return Island(count)
    parts = [_indexes(part) for part in value.split("_")]
    ids = frozenset(number for part in parts for number in part)
    return Island(len(ids), ids) if all(parts) else Island(0)


def _indexes(part: str) -> range:
    """Return the GPUs of "2" or "0-3"; an empty range for any other text."""
    first, dash, last = part.partition("-")
    begin, end = whole_number(first), whole_number(last if dash else first)
    if begin is None or end is None:
        return range(0)
    return range(begin, min(end, begin + _MOST_GPUS - 1) + 1)


def free_in_islands(islands: Iterable[Island], pods: Iterable[GpuPod]) -> list[int]:
    """Return how many GPUs of each island these pods leave."""
    islands = tuple(islands)
    free = [island.size for island in islands]
    unrecorded = []
    for pod in pods:
        if pod.ids:
            # Pods with recorded GPUs are subtracted first, because the others are only estimated.
            for place, island in enumerate(islands):
                free[place] -= island.count(pod.ids)
        elif pod.gpus:
            unrecorded.append(pod.gpus)
    # The largest pods first, because small ones still fit into what they leave.
    for gpus in sorted(unrecorded, reverse=True):
        _seat(free, gpus)
    return free


def _seat(free: list[int], gpus: int) -> None:
    """Subtract the GPUs of one pod."""
    fitting = [place for place, left in enumerate(free) if left >= gpus]
    if fitting:
        # The tightest island that fits, as an NVLink-aware device plugin would choose.
        free[min(fitting, key=free.__getitem__)] -= gpus
        return
    # No island has room, so the pod is spread over the roomiest ones, which breaks up the fewest.
    for place in sorted(range(len(free)), key=lambda one: -free[one]):
        taken = min(gpus, max(0, free[place]))
        free[place] -= taken
        gpus -= taken
