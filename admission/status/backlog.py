"""The backlog of a ClusterQueue for metrics: how many different requests wait, for how much, and how long.

It is counted by groups of equal requests, so that thousands of equal Workloads cost one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.parsing.quantities import add_amounts
from queues.pending.pending_queue import PendingQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The Workloads pending in one ClusterQueue, summed up.

    `active_shapes` and `parked_shapes` count different requests. `requested` is the sum of all requests by
    resource, in canonical units. `oldest_at` (Unix seconds) is since when the longest waiting Workload of
    the highest priority has been queued, parked or not; None if the queue is empty.
    """

    active_shapes: int
    parked_shapes: int
    requested: Mapping[str, int]
    oldest_at: float | None


def backlog(queue: PendingQueue) -> Backlog:
    """Return the backlog of a queue."""
    active: set[bytes] = set()
    parked: set[bytes] = set()
    requested: dict[str, int] = {}
    first: tuple[int, float] | None = None
    for pending, size, is_parked in queue.groups():
        (parked if is_parked else active).add(pending.shape)
        for pod_set in pending.requests:
            add_amounts(requested, pod_set.total(), size)
        rank = (-pending.workload.priority, pending.queued_at)
        first = rank if first is None else min(first, rank)
    return Backlog(
        active_shapes=len(active),
        parked_shapes=len(parked),
        requested=requested,
        oldest_at=first[1] if first is not None else None,
    )
