"""What a Workload needs from evictions, and what decides about a single candidate.

That is whether the preemption policy of the ClusterQueue allows the eviction, and the order of candidates.
Which candidates a search considers, and by which right, is decided in `admission.preemption.candidates`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf

import msgspec

from admission.placement.topology.request import PlacementRequest
from admission.preemption.lost_work import EvictionLosses
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from api.queueing import PreemptionPolicy
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.quota.resources import FlavorResource, Quantities

Rank = tuple[int, float, float, str]


class CandidateOrder(Enum):
    """The order among candidates of equal priority."""

    KUEUE = "the latest start first"
    LOSS = "the least loss first"
    LOSS_PER_AMOUNT = "the least loss for the amount that it frees first"


class PreemptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a Workload needs: `usage` in all, of which `pairs` have to come from evictions, and places.

    `within`: only these Workloads may be evicted; None: any. `most_taken`: after so many victims a search
    gives up; None: never.
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
        """Return the rank among candidates of equal right, lowest first.

        By priority, then by `order`, then the latest start, then the uid.

        Losses are in device-seconds, and for LOSS_PER_AMOUNT divided by the amount of the needed pairs that
        the Workload holds. `reserved_at` is in Unix seconds.
        """
        loss = 0.0
        # Computed only where it decides: Kueue's order needs no checkpoints to be read.
        if self.order is not CandidateOrder.KUEUE:
            loss = self.losses.of(held, self.queue)
        if self.order is CandidateOrder.LOSS_PER_AMOUNT:
            loss /= max(1, sum(held.usage.get(pair, 0) for pair in self.pairs))
        # The lowest rank goes first: least priority, least loss, and the latest start, which has done least.
        return held.workload.priority, loss, -held.reserved_at, held.workload.uid

    def spares(self, held: HeldWorkload, queue: QueueState) -> bool:
        """Return whether the policy of the Workload's own `queue` spares it from this request.

        Notes until when it is spared, so that the preemptor can try again then.

        Also True for Workloads outside of `within`, where the search is restricted to some. The note costs
        nothing where the Workload is not spared.
        """
        if self.within is not None and held.key not in self.within:
            return True
        until = self.losses.spared_until(held, queue, self.pending.workload.priority)
        if until is None:
            return False
        # Without these notes nothing would wake the head: the end of a minimum run time is no event.
        self.losses.note_spared(self.queue.name, until)
        self.losses.note_spared_from(self.pending.key, held, until)
        return True


def rank_within(need: PreemptionRequest, queue: QueueState) -> Callable[[HeldWorkload], tuple[float, Rank]]:
    """Return the sort key of candidates of one ClusterQueue.

    With admission fair sharing, Workloads of the LocalQueue that has used most come first. Kueue compares
    usage wherever two candidates share a ClusterQueue, in lists of several ClusterQueues too. That comparison
    is not transitive (a before b before c before a), so its result depends on the order of arrival. Here
    usage counts within the preemptor's own ClusterQueue, and with fair sharing within each.
    Source: Kueue, pkg/scheduler/preemption/common, CandidatesOrdering.
    """
    usage_of = queue.usage_of

    def rank(held: HeldWorkload) -> tuple[float, Rank]:
        return (-usage_of(held.local_queue) if usage_of is not None else 0.0), need.rank(held)

    return rank


def candidate_order(need: PreemptionRequest) -> Callable[[HeldWorkload], tuple[bool, bool, Rank]]:
    """Return the sort key of candidates of several ClusterQueues.

    Those that are leaving already come first, then those of other queues, then `PreemptionRequest.rank`
    counts.
    """

    def key(held: HeldWorkload) -> tuple[bool, bool, Rank]:
        return not held.is_evicted, held.admission.cluster_queue == need.queue.name, need.rank(held)

    return key


def satisfies(policy: PreemptionPolicy, need: PreemptionRequest, held: HeldWorkload) -> bool:
    """Return whether the preemption policy allows the eviction of `held` for the preemptor.

    LowerPriority: of lower priority only. LowerOrNewerEqualPriority: also of equal priority, if it was queued
    later than the preemptor. Any: always. Never: not at all.
    Source: Kueue, pkg/scheduler/preemption/common, SatisfiesPreemptionPolicy.
    """
    # Called for every candidate of every search: compared by identity, since `match` would compare strings.
    if policy is PreemptionPolicy.ANY or policy is PreemptionPolicy.NEVER:
        return policy is PreemptionPolicy.ANY
    incoming, present = need.pending.workload.priority, held.workload.priority
    if incoming != present or policy is PreemptionPolicy.LOWER_PRIORITY:
        return incoming > present
    # LowerOrNewerEqualPriority.
    return need.pending.queued_at < held.queued_at


def highest_evicted(policy: PreemptionPolicy, pending: Pending) -> float:
    """Return the highest priority that the policy may let the Workload evict; an equal one must be newer.

    Infinity for Any. Not meant for Never, which the caller has ruled out.
    """
    match policy:
        case PreemptionPolicy.ANY:
            return inf
        case PreemptionPolicy.LOWER_PRIORITY:
            return pending.workload.priority - 1
        case _:
            return pending.workload.priority


def may_evict_of_its_own(queue: QueueState, pending: Pending) -> bool:
    """Return False only where the queue certainly has no Workload of its own to evict for this one.

    One comparison with the lowest priority in the queue, so it is asked before any list is built.
    """
    policy = queue.spec.preemption.within_cluster_queue
    return policy is not PreemptionPolicy.NEVER and queue.eviction_order.lowest <= highest_evicted(
        policy, pending
    )


def may_evict_from(need: PreemptionRequest, queue: QueueState) -> bool:
    """Return whether Workloads of the queue may be evicted: its own, and those of queues that borrow.

    Workloads of a queue that lends are not evicted, however small the preemptor's share is.

    An inactive queue is left alone: its Workloads are stopped for another reason, if at all.
    """
    return queue is need.queue or not (queue.inactive or queue.node.is_within_nominal(need.pairs))


def satisfies_any(need: PreemptionRequest, held: HeldWorkload, queue: QueueState) -> bool:
    """Return whether the preemptor's ClusterQueue has any right to evict this Workload of `queue`.

    Whether the quota rules allow it as well, such as that the queue borrows, is not asked here.
    """
    preemption = need.queue.spec.preemption
    is_own = queue is need.queue
    policy = preemption.within_cluster_queue if is_own else preemption.reclaim_within_cohort
    return satisfies(policy, need, held)


def uses(held: HeldWorkload, need: PreemptionRequest) -> bool:
    """Return whether the Workload holds any of the flavors and resources that are needed."""
    return not need.pairs.isdisjoint(held.pairs)
