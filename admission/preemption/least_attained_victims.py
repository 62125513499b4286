"""Victims under least attained service: Workloads that have received more than the preemptor, in order.

Within one ClusterQueue and priority, Workloads of a higher level may be preempted by those of a lower one
(`admission.preemption.least_attained`): whole gangs, after their minimum run time, the highest level first,
then the least loss.

A gang that needs whole nodes is a special case. The cheapest victims are spread over all nodes, so taking
them one by one would stop half the cluster before one node is empty. So the nodes are ranked by the cost of
making room for one pod on them, and the victims come node by node:

    node-3   free 2, needs 6 more            w7 (4 GPUs), w9 (2)   costs  6 × 60 s    1st: w7, w9
    node-1   free 0, needs 8 more            w2 (8 GPUs)           costs  8 × 60 s    2nd: w2
    node-5   used by Workloads not allowed                         never

The ranking counts nodes of any domain. Whether the gang fits after the evictions is checked by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.request import PlacementRequest
from admission.preemption.least_attained import rules_of
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from queues.pending.least_attained import next_look
from queues.pending.pending_queue import Pending
from queues.quota.resources import FlavorResource

_Taken = tuple[HeldWorkload, Mapping[str, int], int]


class _Node(NamedTuple):
    """A leaf of the topology: the victims that make room for one pod, their loss, and the pods it could hold.

    `level` is the lowest level of the victims that are not leaving yet, infinity where all are.
    """

    level: float
    loss: float
    victims: list[HeldWorkload]
    most_pods: int


class LeastAttainedVictims:
    """The victims for one Workload on one snapshot; none where the queue has no such ordering."""

    def __init__(
        self,
        snapshot: Snapshot,
        queue: QueueState,
        pending: Pending,
        pairs: frozenset[FlavorResource],
        placing: tuple[PlacementRequest, ...],
    ) -> None:
        self._snapshot = snapshot
        self._queue = queue
        self._pending = pending
        self._pairs = pairs
        self._placing = placing
        self._by_node: list[HeldWorkload] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no victim, as far as that is known without examining each Workload."""
        turns = self._queue.turns
        # One lookup in the queue's index, which holds the Workloads above each level.
        return turns is None or next(turns.above(self._pending.level), None) is None

    def in_order(self, *, is_evicted: bool) -> Iterator[HeldWorkload]:
        """Yield the victims that are leaving already, or those that would have to be evicted.

        With a single placement request those come first that empty the cheapest nodes, since evictions spread
        over nodes free none of them. Otherwise the order is that of the queue's index.
        """
        if self.is_empty:
            return
        if len(self._placing) == 1:
            # Computed once for each object: both calls read the same list, each one its part.
            if self._by_node is None:
                self._by_node = self._node_by_node(self._placing[0])
            yield from (held for held in self._by_node if held.is_evicted is is_evicted)
        else:
            yield from (held for held in self._eligible() if held.is_evicted is is_evicted)

    def _eligible(self) -> Iterator[HeldWorkload]:
        """Yield all Workloads that may be victims; one that is leaving is included whatever its level."""
        assert self._queue.turns is not None
        priority, evictions = self._pending.workload.priority, self._snapshot.evictions
        for held in self._queue.turns.above(self._pending.level):
            # Only between equal priorities; others follow Kueue's own rules.
            is_equal = held.workload.priority == priority
            if is_equal and not self._pairs.isdisjoint(held.pairs) and not evictions.is_gone(held):
                yield held

    def _node_by_node(self, request: PlacementRequest) -> list[HeldWorkload]:
        """Return the victims, those first that empty the cheapest nodes; [] where all are not enough.

        A search that fails is not repeated before the next examination of levels. With dozens of gangs
        pending, each end of a small Workload would otherwise cost dozens of searches.
        """
        assert self._queue.turns is not None
        failed_until, question = self._queue.turns.failed_until, (self._pending.level, self._pending.shape)
        least = rules_of(self._queue).minimum_runtime_seconds
        # The next time that a Workload may cross a level: until then the same search would fail again.
        look = next_look(self._snapshot.now, minimum_runtime_seconds=least)
        if failed_until.get(question) == look:
            return []
        site = self._snapshot.topology_cache.topology(request.flavor)
        wanted = {resource: amount for resource, amount in request.per_pod.items() if amount > 0}
        on_leaf = self._on_leaves(site)
        nodes = [self._empty(site, leaf, wanted, on_leaf.get(leaf, ())) for leaf in site.tree.at_level[-1]]
        # Even with all victims gone there are not enough nodes for the gang.
        if sum(node.most_pods for node in nodes) < request.count:
            failed_until[question] = look
            return []
        chosen: dict[str, HeldWorkload] = {}
        # Only nodes that can hold a pod at all.
        for node in sorted((one for one in nodes if one.most_pods), key=_by_level):
            for held in node.victims:
                # Each once: a Workload may have pods on several of the nodes.
                chosen.setdefault(held.workload.uid, held)
        return list(chosen.values())

    def _on_leaves(self, site: FlavorTopology) -> dict[int, list[_Taken]]:
        """Return the victims on each leaf of the topology, with what each pod takes and their number."""
        on_leaf: dict[int, list[_Taken]] = {}
        for held in self._eligible():
            for place in held.places:
                for domain in place.assignment.domains:
                    leaf = site.find_leaf(domain.values)
                    if leaf is not None:
                        on_leaf.setdefault(leaf, []).append((held, place.per_pod, domain.count))
        return on_leaf

    def _empty(
        self, site: FlavorTopology, leaf: int, wanted: Mapping[str, int], taken: Iterable[_Taken]
    ) -> _Node:
        """Return the cost of making room for one pod on the leaf, taking victims in order until it fits."""
        turns = self._queue.turns
        assert turns is not None, "asked only where the queue takes turns"
        free = {resource: site.free(resource)[leaf] for resource in wanted}
        needed: list[HeldWorkload] = []
        loss, level = 0.0, inf
        fits = _pods(free, wanted) > 0
        for held, per_pod, count in taken:
            if not fits:
                needed.append(held)
                if not held.is_evicted:
                    of_victim, its_loss = turns.level_and_loss(held.key)
                    level, loss = min(level, of_victim), loss + its_loss
            # For all of them, so that `most_pods` counts the pods that fit when every victim has left.
            for resource in wanted:
                free[resource] += per_pod.get(resource, 0) * count
            fits = fits or _pods(free, wanted) > 0
        return _Node(level, loss, needed, _pods(free, wanted))


def _by_level(node: _Node) -> tuple[float, float, float, list[str]]:
    """Return the sort key of nodes: the highest level first, even if that costs more.

    With the loss alone, a small Workload of a middle level would be preempted for each one of the
    lowest level, come back, and preempt the next: the same GPU time would pass through three
    Workloads instead of two.

    Of equal nodes the one whose victims were queued last comes first, since these are also served last among
    pending Workloads. With the first ones, the same few Workloads would be preempted again and again, each
    time as soon as they have climbed the levels.
    """
    oldest = min((held.queued_at for held in node.victims), default=0.0)
    return -node.level, node.loss, -oldest, [held.workload.uid for held in node.victims]


def _pods(free: Mapping[str, int], wanted: Mapping[str, int]) -> int:
    """Return how many pods of `wanted` fit into `free`, 0 for a pod that wants nothing."""
    return min((max(0, free[resource]) // amount for resource, amount in wanted.items()), default=0)
