"""The strategies: how the pods given to a domain are put on its nodes, and which of several domains is taken.

    consolidated   fewest nodes; the domain that keeps the pods nearest to each other, then the best score
    balanced       fewest nodes; the domain with the best score
    packed         the domain as for consolidated; a single pod goes anywhere; on the nodes where the least of
                   the free GPUs becomes useless (`admission.placement.packing`)
    distributed    as many nodes as there are pods, leaf by leaf in turn: losing one node affects few pods

Before these criteria come the Workload's preferred domain and, where the policy avoids fragmentation, the
domains that break up the fewest unused leaves, and of those the fullest from the widest level down. Ties are
broken by name, so equal clusters give equal results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import msgspec

from admission.placement.scoring import SubScores
from admission.placement.topology.placement_options import PlacementOptions, Strategy

# Scores are rounded to this many digits, so that the order does not depend on rounding errors.
SCORE_DIGITS = 9


class DomainRoom(NamedTuple):
    """A node, and how many pods of the gang it has room for."""

    node: int
    pods: int
    name: tuple[str, ...]


class DomainCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """Domains that hold the whole gang, with the criteria by which they are compared.

    `depth` is how many levels the narrowest domain around all pods fixes.
    """

    name: tuple[tuple[str, ...], ...]
    scores: SubScores
    depth: int


def score_order(
    candidate: DomainCandidate, options: PlacementOptions
) -> tuple[int, float, tuple[tuple[str, ...], ...]]:
    """Return the candidate's sort key in the order of the strategy; the lowest goes first.

    Scores are rounded to `SCORE_DIGITS`, so that sums in another order do not change the choice. The name
    breaks ties.
    """
    is_near_first = (
        options.strategy in (Strategy.CONSOLIDATED, Strategy.PACKED) or options.is_latency_sensitive
    )
    return (
        -candidate.depth if is_near_first else 0,
        -round(candidate.scores.weighted(options.weights), SCORE_DIGITS),
        candidate.name,
    )


def fewest_nodes(nodes: Iterable[DomainRoom], pods: int) -> list[tuple[int, int]]:
    """Return nodes with the pods that each gets: the roomiest first, the last one the tightest fit.

    The nodes must have room for all pods together.

    The nodes are indexes of leaves, each at most once. O(n log n) for n nodes.
    """
    rest = sorted([node for node in nodes if node.pods], key=lambda one: (-one.pods, one.name))
    shares: list[tuple[int, int]] = []
    for position, roomiest in enumerate(rest):
        # The last node is the smallest that holds the rest, so that larger ones stay free for others.
        if roomiest.pods >= pods:
            holding = [node for node in rest[position:] if node.pods >= pods]
            tightest = min(holding, key=lambda one: (one.pods, one.name))
            return [*shares, (tightest.node, pods)]
        shares.append((roomiest.node, roomiest.pods))
        pods -= roomiest.pods
    return shares


def spread(leaves: Sequence[Sequence[DomainRoom]], pods: int) -> list[tuple[int, int]]:
    """Return nodes with the pods that each gets: one to each leaf in turn, within a leaf one to each node.

    Leaves earlier in the sequence come first. Returns fewer than `pods` where there is no more room.

    The nodes are indexes of leaves. O(n + pods · log n).
    """
    given: dict[int, int] = {}
    # For each leaf a heap of its nodes, the least used and roomiest first.
    heaps = [[(0, -room.pods, room.name, room) for room in leaf if room.pods] for leaf in leaves]
    turns = [(0, index) for index, heap in enumerate(heaps) if heap]
    for heap in heaps:
        heapify(heap)
    heapify(turns)
    while pods > 0 and turns:
        count, index = turns[0]
        heap = heaps[index]
        used, _, name, room = heap[0]
        if used >= room.pods:
            # The least used node of the leaf is full, so it takes no more pods.
            heappop(heap)
            if not heap:
                heappop(turns)
            continue
        given[room.node] = used + 1
        heapreplace(heap, (used + 1, used + 1 - room.pods, name, room))
        # The leaf goes behind all leaves with fewer pods.
        heapreplace(turns, (count + 1, index))
        pods -= 1
    return list(given.items())
