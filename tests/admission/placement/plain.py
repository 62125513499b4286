"""The search for a place as one would write it down: everything is counted each time, every domain looked at.

No tree is kept, no count, no order; what this finds is what `admission.placement` must find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from admission.placement.topology.place import Place
from admission.placement.topology.request import PlacementRequest
from api.node import NodeInfo, PodUsage
from api.workload import TopologyRequest

Path = tuple[str, ...]


def plain_counts(
    nodes: Iterable[NodeInfo],
    pods: Iterable[PodUsage],
    places: Iterable[Place],
    request: PlacementRequest,
    levels: Sequence[str],
) -> dict[Path, int]:
    """Return how many pods of the request each node takes, by the node's path from the widest level."""
    free = {node.name: dict(node.allocatable) for node in nodes}
    for pod in pods:
        _take(free, pod.node, pod.requests, 1)
    for place in places:
        for domain in place.assignment.domains:
            _take(free, domain.values[-1], place.per_pod, domain.count)
    return {
        tuple(node.labels[level] for level in levels): 0
        if node.taints
        else max(0, min(free[node.name].get(name, 0) // one for name, one in request.per_pod.items()))
        for node in nodes
        if node.is_ready
    }


def _take(free: Mapping[str, dict[str, int]], node: str, amounts: Mapping[str, int], times: int) -> None:
    if node in free:
        for name, amount in amounts.items():
            free[node][name] = free[node].get(name, 0) - amount * times


def plain_place(
    counts: Mapping[Path, int], request: PlacementRequest, levels: Sequence[str]
) -> dict[str, int] | None:
    """Return how many pods each host gets, None where there is no place. Only slices of one layer."""
    asked = request.topology or TopologyRequest()
    named = asked.required or asked.preferred
    slice_depth, size = len(levels), 1
    if asked.slices:
        slice_depth, size = levels.index(asked.slices[0].topology) + 1, asked.slices[0].size
    by_slices = bool(asked.slices) and named is None
    depth = levels.index(named) + 1 if named else 1 if by_slices else len(levels)
    is_least_free = named is None

    def room(path: Path) -> int:
        """How many slices a domain holds, at or above their level; pods below it."""
        if len(path) > slice_depth:
            return _sum(counts, path)
        inner = {one[:slice_depth] for one in counts if one[: len(path)] == path}
        return sum(_sum(counts, one) // size for one in inner)

    need = request.count // size
    domains, depth = _domains(counts, room, need, depth, is_required=asked.required is not None, named=named)
    sign = 1 if is_least_free else -1
    shares = _fill(sorted(domains, key=lambda one: (sign * room(one), one)), room, need, is_least_free)
    if sum(shares.values()) < need:
        return None
    while depth < min(slice_depth, len(levels)):
        depth += 1
        pool = {one[:depth] for one in counts if one[: depth - 1] in shares}
        # Domains of as many slices are sorted by the pods that they hold.
        order = sorted(pool, key=lambda one: (sign * room(one), _sum(counts, one), one))
        shares = _fill(order, room, need, is_least_free)
    shares = {path: count * size for path, count in shares.items()}
    while depth < len(levels):
        depth += 1
        below = {}
        for path, count in shares.items():
            pool = {one[:depth] for one in counts if one[: len(path)] == path}
            order = sorted(pool, key=lambda one: (_sum(counts, one), one))
            below.update(_fill(order, lambda one: _sum(counts, one), count, is_least_free))
        shares = below
    return {path[-1]: count for path, count in shares.items()}


def _domains(
    counts: Mapping[Path, int],
    room: Callable[[Path], int],
    need: int,
    depth: int,
    *,
    is_required: bool,
    named: str | None,
) -> tuple[list[Path], int]:
    """Return the one domain that holds all, on the narrowest level allowed, or all of the widest."""
    while True:
        domains = list({path[:depth] for path in counts})
        fitting = [one for one in domains if room(one) >= need]
        if fitting:
            return [min(fitting, key=lambda one: (room(one), _sum(counts, one), one))], depth
        if is_required:
            return [], depth
        if depth == 1 or named is None:
            return domains, depth
        depth -= 1


def _fill(
    order: Sequence[Path], room: Callable[[Path], int], need: int, is_least_free: bool
) -> dict[Path, int]:
    shares: dict[Path, int] = {}
    for index, path in enumerate(order):
        if need <= 0:
            break
        if room(path) >= need:
            if not is_least_free:
                # The first of those with the least room.
                path = min((one for one in order[index:] if room(one) >= need), key=room)
            shares[path] = need
            break
        if room(path):
            shares[path] = room(path)
            need -= room(path)
    return shares


def _sum(counts: Mapping[Path, int], path: Path) -> int:
    return sum(count for one, count in counts.items() if one[: len(path)] == path)
