"""What a Workload needs from evictions, and what can be said of one that holds some of it.

Whether the policy of a ClusterQueue lets the one take the other's place, and who of several goes first. Which
of them a search looks at, and by which right, is `admission.preemption.candidates`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf

import msgspec

from admission.placement.topology.request import PlacementRequest
from admission.preemption.lost_work import EvictionLosses
from admission.snapshot.snapshot import HeldWorkload, QueueState
from api.queueing import PreemptionPolicy
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.quota.resources import FlavorResource, Quantities

Rank = tuple[int, float, float, str]


class CandidateOrder(Enum):
    """Who goes first of equal priority."""

    KUEUE = "the last to start"
    LOSS = "who loses least"
    LOSS_PER_AMOUNT = "who loses least for what it gives"


class PreemptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a Workload needs: `usage` in all, of which `pairs` are to come from evictions, and places.

    `within`: only these may be evicted; None: anybody. `most_taken`: after so many a search gives up.
    """

    queue: QueueState
    pending: Pending
    usage: Quantities
    pairs: frozenset[FlavorResource]
    losses: EvictionLosses
    order: CandidateOrder
    placing: tuple[PlacementRequest, ...] = ()
    within: frozenset[WorkloadKey] | None = None
    most_taken: int | None = None

    def rank(self, held: HeldWorkload) -> Rank:
        """Return the order among candidates of equal standing: lowest priority, then what `order` says, then
        the last to start.
        """
        loss = 0.0
        # Worked out only where it decides: with Kueue's order nobody's checkpoints are read.
        if self.order is not CandidateOrder.KUEUE:
            loss = self.losses.of(held, self.queue)
        if self.order is CandidateOrder.LOSS_PER_AMOUNT:
            loss /= max(1, sum(held.usage.get(pair, 0) for pair in self.pairs))
        # The lowest comes first: least priority, least loss, and of those the one that started
        # last, which has done least.
        return held.workload.priority, loss, -held.reserved_at, held.workload.uid

    def spares(self, held: HeldWorkload, queue: QueueState) -> bool:
        """Return whether the policy of the Workload's own `queue` keeps it from being evicted for this."""
        if self.within is not None and held.key not in self.within:
            return True
        until = self.losses.spared_until(held, queue, self.pending.workload.priority)
        if until is None:
            return False
        self.losses.note_spared(self.queue.name, until)
        self.losses.note_spared_from(self.pending.key, held, until)
        # The head may ask again then, and nothing else would wake it: the end of a minimum run
        # time is no event.
        return True


def rank_within(need: PreemptionRequest, queue: QueueState) -> Callable[[HeldWorkload], tuple[float, Rank]]:
    """Return the order among candidates of one ClusterQueue.

    With admission fair sharing those of the LocalQueue that has used most come first. Kueue compares usage
    wherever two candidates share a ClusterQueue, in lists of several ClusterQueues too; that is no order (a
    before b before c before a), and what comes of it depends on the order of arrival. Here it counts within
    the preemptor's own ClusterQueue, and with fair sharing within each.
    Source: Kueue, pkg/scheduler/preemption/common, CandidatesOrdering.
    """
    usage_of = queue.usage_of

    def rank(held: HeldWorkload) -> tuple[float, Rank]:
        return (-usage_of(held.local_queue) if usage_of is not None else 0.0), need.rank(held)

    return rank


def candidate_order(need: PreemptionRequest) -> Callable[[HeldWorkload], tuple[bool, bool, Rank]]:
    """Return the sort key of candidates: those that are on their way out, those of other queues, the least
    in priority, then as `PreemptionRequest.rank` says.
    """

    def key(held: HeldWorkload) -> tuple[bool, bool, Rank]:
        return not held.is_evicted, held.admission.cluster_queue == need.queue.name, need.rank(held)

    return key


def satisfies(policy: PreemptionPolicy, need: PreemptionRequest, held: HeldWorkload) -> bool:
    """Return whether the policy lets the incoming Workload take this one's place."""
    # Asked of everybody who runs, search by search: by identity, since `match` would compare strings.
    if policy is PreemptionPolicy.ANY or policy is PreemptionPolicy.NEVER:
        return policy is PreemptionPolicy.ANY
    incoming, present = need.pending.workload.priority, held.workload.priority
    if incoming != present or policy is PreemptionPolicy.LOWER_PRIORITY:
        return incoming > present
    # LowerOrNewerEqualPriority.
    return need.pending.queued_at < held.queued_at


def highest_evicted(policy: PreemptionPolicy, pending: Pending) -> float:
    """Return up to which priority the policy lets the Workload evict; an equal only where it is newer."""
    match policy:
        case PreemptionPolicy.ANY:
            return inf
        case PreemptionPolicy.LOWER_PRIORITY:
            return pending.workload.priority - 1
        case _:
            return pending.workload.priority


def may_evict_of_its_own(queue: QueueState, pending: Pending) -> bool:
    """Return False only where the queue certainly holds nobody of its own to evict for the Workload."""
    policy = queue.spec.preemption.within_cluster_queue
    return policy is not PreemptionPolicy.NEVER and queue.eviction_order.lowest <= highest_evicted(
        policy, pending
    )


def satisfies_any(need: PreemptionRequest, held: HeldWorkload, queue: QueueState) -> bool:
    """Return whether the preemptor's ClusterQueue has any right to a Workload of `queue`."""
    preemption = need.queue.spec.preemption
    is_own = queue is need.queue
    policy = preemption.within_cluster_queue if is_own else preemption.reclaim_within_cohort
    return satisfies(policy, need, held)


def uses(held: HeldWorkload, need: PreemptionRequest) -> bool:
    """Return whether the Workload holds anything that is needed."""
    return not need.pairs.isdisjoint(held.pairs)
