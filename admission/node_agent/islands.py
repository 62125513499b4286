"""Which GPUs of a node are linked with each other, and by what.

An island is a set of GPUs in which each has an NVLink to each other. In a hybrid cube mesh (DGX-1) all eight
GPUs are connected, but only four are linked pairwise: it has two islands.
"""

from __future__ import annotations

from collections.abc import Sequence

from admission.node_agent.links import Links

NVSWITCH, NVLINK, PCIE = "nvswitch", "nvlink", "pcie"
# The most NVLinks of one GPU (Hopper and Blackwell). With more than that to all others there is a switch.
_MOST_LINKS = 18


def find_islands(gpus: Sequence[int], links: Links) -> list[tuple[int, ...]]:
    """Return the islands of two and more GPUs, the largest first; each GPU is in one at most.

    `gpus` are indexes in ascending order. Of equally large islands that with the lowest indexes comes first.
    """
    found = []
    rest = tuple(gpus)
    while len(island := _largest(rest, links)) > 1:
        found.append(island)
        rest = tuple(gpu for gpu in rest if gpu not in island)
    return found


def fabric_kind(gpus: Sequence[int], links: Links) -> str:
    """Return what links these GPUs: nvswitch, nvlink where each has an NVLink, else pcie; "" for one GPU."""
    if len(gpus) < 2:
        return ""
    counts = [links.get((one, other), 0) for one in gpus for other in gpus if one < other]
    if min(counts) * (len(gpus) - 1) > _MOST_LINKS:
        return NVSWITCH
    here = {gpu for pair in links if pair[0] in gpus and pair[1] in gpus for gpu in pair}
    return NVLINK if here.issuperset(gpus) else PCIE


def _largest(gpus: tuple[int, ...], links: Links) -> tuple[int, ...]:
    """Return the largest set of pairwise linked GPUs, the first in order among equals."""
    best: tuple[int, ...] = ()

    def grow(island: tuple[int, ...], others: tuple[int, ...]) -> None:
        """Extend the island by `others`, each of which is linked with all of it."""
        nonlocal best
        if len(island) > len(best):
            best = island
        for at, gpu in enumerate(others):
            if len(island) + len(others) - at <= len(best):
                return
            grow((*island, gpu), tuple(other for other in others[at + 1 :] if (gpu, other) in links))

    grow((), gpus)
    return best
