"""Pools of preemption candidates: the Workloads in a cohort that hold something needed, in order of eviction.

With a thousand queues in one tree, a look at all of them for every head would take seconds. So pools are
built once for all heads of a cycle, in two parts that stay valid for different lengths of time. Which
Workloads run in a queue, and in which order, is the same for the whole cycle. Which queues overuse changes
with every decision and is then determined again. The lists of the overusing queues are merged lazily, only as
far as a search reads them, which is seldom further than the first few.

By which right a candidate may be evicted is decided in `admission.preemption.candidates`.

Cost. The first request with given pairs and order reads each Workload of each overusing queue once and sorts
them by queue: O(w log w) for w Workloads. A later request of the same cycle merges k lists lazily: O(log k)
for each candidate that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import NamedTuple

from admission.preemption.preemption_request import (
    CandidateOrder,
    PreemptionRequest,
    Rank,
    highest_evicted,
    may_evict_of_its_own,
    rank_within,
    uses,
)
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource


class PoolMember(NamedTuple):
    """A candidate in a pool: a Workload, its ClusterQueue, and its rank in the order of eviction.

    A tuple, so that members are compared by rank when lists are merged. The rank contains the uid, so no two
    are equal.
    """

    rank: Rank
    held: HeldWorkload
    queue: QueueState


class MergedOrder:
    """The members of several queues, each list in order, merged into one order as far as it is read."""

    __slots__ = ("_rest", "_seen")

    def __init__(self, queues: list[list[PoolMember]]) -> None:
        self._seen: list[PoolMember] = queues[0] if len(queues) == 1 else []
        # Merged lazily: a search reads a few dozen of the many thousands of members of a large cohort.
        self._rest = merge(*queues, key=_rank) if len(queues) > 1 else iter(())

    def __bool__(self) -> bool:
        # Reads at most one member, which is kept for the next iteration.
        return next(iter(self), None) is not None

    def __iter__(self) -> Iterator[PoolMember]:
        # By index, since other iterations may read on meanwhile.
        index = 0
        while True:
            if index == len(self._seen):
                following = next(self._rest, None)
                if following is None:
                    return
                self._seen.append(following)
            yield self._seen[index]
            index += 1


class OrderedCandidates(NamedTuple):
    """Candidates in order of eviction, with those that are leaving already in a separate tuple."""

    evicted: tuple[HeldWorkload, ...]
    live: tuple[HeldWorkload, ...]

    @classmethod
    def of(cls, in_order: Sequence[HeldWorkload]) -> OrderedCandidates:
        """Return the Workloads split into the two tuples, each in the given order.

        A Workload that is evicted already frees its quota without another eviction, so searches take these
        first.
        """
        return cls(
            tuple(held for held in in_order if held.is_evicted),
            tuple(held for held in in_order if not held.is_evicted),
        )

    def only(self, is_meant: Callable[[HeldWorkload], bool]) -> OrderedCandidates:
        """Return the members for which `is_meant` is true."""
        return OrderedCandidates(tuple(filter(is_meant, self.evicted)), tuple(filter(is_meant, self.live)))


_NO_CANDIDATES = OrderedCandidates((), ())
# The queue's name, the flavors and resources needed, and the highest priority that may be evicted.
_OfOwn = tuple[str, frozenset[FlavorResource], float]


class _OfQueue(NamedTuple):
    """The Workloads of one queue that hold something needed, in order; valid for the whole cycle."""

    evicted: list[PoolMember]
    live: list[PoolMember]


class Pool(NamedTuple):
    """The members of the overusing queues below a cohort that hold something needed, in order.

    Members that are leaving already are in `evicted`, the others in `live`. `sides` maps each queue's name to
    the child of the cohort that the queue is below. No overusing queue is missing while the snapshot's
    `decided` is equal to `decided`; some that overused earlier in the cycle may be included.
    """

    evicted: MergedOrder
    live: MergedOrder
    sides: Mapping[str, QuotaNode]
    decided: int


@dataclass(slots=True)
class Pools:
    """The pools of one snapshot, each built once for all heads that see the same state.

    A member may have gone, or its queue may no longer overuse, once other Workloads are removed in a trial.
    The search checks that when the member's turn comes.
    """

    snapshot: Snapshot
    _known: dict[tuple[int, frozenset[FlavorResource], CandidateOrder, str], Pool] = field(
        default_factory=dict
    )
    _queues: dict[tuple[str, frozenset[FlavorResource], CandidateOrder, str], _OfQueue] = field(
        default_factory=dict
    )
    # The Workloads of a preemptor's own queue that hold something needed, up to a priority: in Kueue's order,
    # and in the requested order with those that are leaving separated.
    _own: dict[_OfOwn, list[HeldWorkload]] = field(default_factory=dict)
    _own_in_order: dict[tuple[_OfOwn, CandidateOrder], OrderedCandidates] = field(default_factory=dict)
    # The overusing children by cohort and pair, with the value of `decided` at which they were determined.
    _overusers: dict[tuple[int, FlavorResource], tuple[int, list[QuotaNode]]] = field(default_factory=dict)

    def of(self, cohort: QuotaNode, need: PreemptionRequest) -> Pool:
        """Return the pool of the queues below `cohort` for this request.

        Valid until the next decision of the cycle; trials in between do not change it. The pool includes
        queues on the preemptor's own side of the cohort, which the caller leaves out.
        """
        # By identity: cohorts are rebuilt with their tree and never change in place. The policy is part of
        # the key because losses depend on it.
        question = (id(cohort), need.pairs, need.order, _policy_that_counts(need))
        pool, decided = self._known.get(question), self.snapshot.trial.decided
        if pool is not None and pool.decided == decided:
            return pool
        # A decision since may have changed which queues overuse. Those that no longer do may stay in the
        # pool, like those on which a trial has that effect: it is checked member by member
        # (`Candidates._is_takeable`). Merging a thousand queues again would cost more.
        if pool is not None and all(
            queue.name in pool.sides for side in cohort.children for queue in self._overusing(side, need)
        ):
            pool = pool._replace(decided=decided)
        else:
            pool = self._gather(cohort, need)
        self._known[question] = pool
        return pool

    def of_own(self, need: PreemptionRequest) -> list[HeldWorkload]:
        """Return the Workloads of the preemptor's own queue that `withinClusterQueue` may let it evict.

        These hold something needed, in Kueue's order. Workloads of equal priority are included where the
        policy may allow them; whether each is newer is not checked here.
        """
        queue, pending = need.queue, need.pending
        if not may_evict_of_its_own(queue, pending):
            return []
        question = self._question_of_own(need)
        known = self._own.get(question)
        if known is None:
            highest = question[2]
            known = self._own[question] = [held for held in queue.holders_up_to(highest) if uses(held, need)]
        return known

    def of_own_in_order(self, need: PreemptionRequest) -> OrderedCandidates:
        """Return the same Workloads in the order in which the request evicts them.

        Kept for the whole cycle: heads of one queue and equal priority share the list.
        """
        members = self.of_own(need)
        if not members:
            return _NO_CANDIDATES
        question = self._question_of_own(need), need.order
        known = self._own_in_order.get(question)
        if known is None:
            is_in_order = need.order is CandidateOrder.KUEUE and need.queue.usage_of is None
            in_order = members if is_in_order else sorted(members, key=rank_within(need, need.queue))
            known = self._own_in_order[question] = OrderedCandidates.of(in_order)
        return known

    def _question_of_own(self, need: PreemptionRequest) -> _OfOwn:
        """Return the key of a list of own candidates: queue, pairs, and the highest priority in it."""
        policy = need.queue.spec.preemption.within_cluster_queue
        return need.queue.name, need.pairs, highest_evicted(policy, need.pending)

    def has_overuser(self, cohort: QuotaNode, pair: FlavorResource, *, but: QuotaNode) -> bool:
        """Return whether a child of `cohort` other than `but` uses more of `pair` than its subtree quota.

        Where none does, no queue below the cohort borrows anything that could be reclaimed.

        A necessary condition for reclaiming, and one look-up for most requests.
        """
        question = (id(cohort), pair)
        known = self._overusers.get(question)
        if known is None or known[0] != self.snapshot.trial.decided:
            overusing = [
                child for child in cohort.children if (cell := child.cell(pair)).usage > cell.subtree
            ]
            known = self._overusers[question] = (self.snapshot.trial.decided, overusing)
        return any(child is not but for child in known[1])

    def _gather(self, cohort: QuotaNode, need: PreemptionRequest) -> Pool:
        """Build the pool of a cohort from the lists of the queues that overuse now."""
        sides: dict[str, QuotaNode] = {}
        found: list[_OfQueue] = []
        for side in cohort.children:
            for queue in self._overusing(side, need):
                sides[queue.name] = side
                found.append(self._of_queue(queue, need))
        return Pool(
            evicted=MergedOrder([one.evicted for one in found if one.evicted]),
            live=MergedOrder([one.live for one in found if one.live]),
            sides=sides,
            decided=self.snapshot.trial.decided,
        )

    def _of_queue(self, queue: QueueState, need: PreemptionRequest) -> _OfQueue:
        """Return the Workloads of a queue that hold something needed, in order of eviction."""
        question = (queue.name, need.pairs, need.order, _policy_that_counts(need))
        # For the whole cycle: decisions do not change which Workloads run in a queue, or their order.
        known = self._queues.get(question)
        if known is None:
            members = [
                PoolMember(need.rank(held), held, queue) for held in queue.held.values() if uses(held, need)
            ]
            members.sort(key=_rank)
            known = self._queues[question] = _OfQueue(
                evicted=[one for one in members if one.held.is_evicted],
                live=[one for one in members if not one.held.is_evicted],
            )
        return known

    def _overusing(self, node: QuotaNode, need: PreemptionRequest) -> Iterator[QueueState]:
        """Yield the active queues of this subtree that overuse, as do all cohorts on the way to them."""
        # A loop, because a chain of Cohorts may be longer than Python's stack.
        waiting = [node]
        while waiting:
            node = waiting.pop()
            # A subtree within its own quota lends and does not borrow, so nothing below it can be reclaimed.
            if node.is_within_nominal(need.pairs):
                continue
            if node.is_queue:
                queue = self.snapshot.queues[node.name]
                # The Workloads of a stopped queue are not evicted for others: it drains by its own rules
                # or not at all.
                if not queue.inactive:
                    yield queue
            waiting.extend(reversed(node.children))


def _policy_that_counts(need: PreemptionRequest) -> str:
    """Return the name of the policy that losses are counted by: the preemptor's. Empty where none count."""
    return need.queue.policy.name if need.order is not CandidateOrder.KUEUE else ""


def _rank(member: PoolMember) -> Rank:
    return member.rank
