"""The candidates for preemption: which Workloads may be evicted for another, by which right, in which order.

A ClusterQueue may evict its own Workloads (withinClusterQueue), and those of queues that use more than their
own quota (reclaimWithinCohort). In a tree of cohorts the right depends on the nearest common ancestor:

        root            x needs quota that its cohort a can cover out of its own:
        ├── a           x has the hierarchical advantage over what z borrows from the root's side,
        │   ├── x  ◀    whatever the priorities; over y it has only an equal claim inside a.
        │   └── y
        └── z

Subtrees that stay within their own quota lend and do not borrow: no Workload below them is a candidate.
Source: Kueue, pkg/scheduler/preemption/classical.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from heapq import merge
from itertools import chain
from typing import NamedTuple

import msgspec

from admission.preemption.candidate_pools import MergedOrder, OrderedCandidates, Pool, PoolMember, Pools
from admission.preemption.least_attained_victims import LeastAttainedVictims
from admission.preemption.preemption_request import PreemptionRequest, Rank, rank_within, satisfies, uses
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.queueing import PreemptionPolicy
from api.reasons import PreemptionReason
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource, Quantities


class EvictionRight(Enum):
    """By which right a candidate may be evicted."""

    # The reason where the right alone decides it; a description where several rights have the same reason.
    WITHIN_QUEUE = PreemptionReason.IN_CLUSTER_QUEUE
    HIERARCHICAL = "the preemptor's part of the tree has quota of its own for this"
    WITHOUT_BORROWING = "only if the preemptor's ClusterQueue does not borrow"
    WHILE_BORROWING = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING

    @property
    def reason(self) -> PreemptionReason:
        """The reason of the Preempted condition."""
        if isinstance(self.value, PreemptionReason):
            return self.value
        return PreemptionReason.IN_COHORT_RECLAMATION


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A Workload that may be evicted, its ClusterQueue, and the right to evict it.

    Frozen: whether the right still applies after other evictions is decided when the candidate is read.
    """

    held: HeldWorkload
    queue: QueueState
    right: EvictionRight


class _Level(NamedTuple):
    """One common ancestor on the way up: its pool, and the side of it that was covered by the level below."""

    ancestor: QuotaNode
    own_side: QuotaNode
    pool: Pool
    has_advantage: bool


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates for one request: of its own queue, and of others by level of the common ancestor."""

    snapshot: Snapshot
    need: PreemptionRequest
    same_queue: OrderedCandidates
    giving_way: LeastAttainedVictims
    levels: tuple[_Level, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is certainly no candidate, as for most pending Workloads when quota comes free."""
        # Checked before a search begins. Pools contain the members of our own side as well, so False may
        # still mean that there is none.
        own = self.same_queue
        if own.evicted or own.live or not self.giving_way.is_empty:
            return False
        return not any(level.pool.evicted or level.pool.live for level in self.levels)

    def all_candidates(self) -> Iterator[HeldWorkload] | None:
        """Yield every Workload that `in_order` could yield; None where that is not known in advance.

        The caller may then count what all of them together would free, before it tries one after the other.
        """
        if self.levels or not self.giving_way.is_empty:
            return None
        return chain(self.same_queue.evicted, self.same_queue.live)

    def in_order(self, *, is_borrowing: bool) -> Iterator[Candidate]:
        """Yield the candidates in order: those already leaving first, then the strongest right first.

        With `is_borrowing` the preemptor's queue would borrow. Whether a candidate's queue still overuses is
        checked at its turn, since taking the candidates before it may have changed that.
        """
        # Taking a Workload that is leaving already costs nothing more, so these come
        # first whatever the right.
        for is_evicted in (True, False):
            for has_advantage in (True, False):
                yield from self._foreign(has_advantage, is_evicted, is_borrowing=is_borrowing)
            for held in self.same_queue.evicted if is_evicted else self.same_queue.live:
                yield Candidate(held=held, queue=self.need.queue, right=EvictionRight.WITHIN_QUEUE)
            yield from self._by_turn(is_evicted=is_evicted)

    def _by_turn(self, *, is_evicted: bool) -> Iterator[Candidate]:
        """Yield the candidates by attained service, without those that Kueue's own rules name already."""
        if self.giving_way.is_empty:
            return
        # A Workload may be a candidate by both rules, and must not be taken twice.
        named = {held.key for members in self.same_queue for held in members}
        for held in self.giving_way.in_order(is_evicted=is_evicted):
            if held.key not in named and not self.need.spares(held, self.need.queue):
                yield Candidate(held=held, queue=self.need.queue, right=EvictionRight.WITHIN_QUEUE)

    def has_foreign(self, *, has_advantage: bool) -> bool:
        """Return whether there are candidates of other queues with, or without, hierarchical advantage.

        Hierarchical advantage: the preemptor's subtree covers the request from its own quota, and the
        candidate's queue is outside of it. Reads one candidate at most of each list.
        """
        return any(
            next(self._foreign(has_advantage, is_evicted, is_borrowing=False), None) is not None
            for is_evicted in (True, False)
        )

    def _foreign(self, has_advantage: bool, is_evicted: bool, *, is_borrowing: bool) -> Iterator[Candidate]:
        """Yield the candidates of other queues, in order, as far as the right allows."""
        preemption = self.need.queue.spec.preemption
        is_forbidden = preemption.borrow_within_cohort is PreemptionPolicy.NEVER
        # Without borrowWithinCohort no Workload is evicted for a borrower, except where the
        # hierarchy gives the advantage.
        if is_borrowing and not has_advantage and is_forbidden:
            return
        streams = [
            self._of_pool(level, level.pool.evicted if is_evicted else level.pool.live)
            for level in self.levels
            if level.has_advantage is has_advantage
        ]
        # Several levels are merged into one order, as if all their members were in one list.
        for member, ancestor in streams[0] if len(streams) == 1 else merge(*streams, key=_rank_of_pair):
            right = _right(self.need, member.held, has_advantage=has_advantage)
            # Checked member by member: the right to evict while borrowing depends on the member's priority.
            if is_borrowing and right is EvictionRight.WITHOUT_BORROWING:
                continue
            if self._is_takeable(member, ancestor):
                yield Candidate(held=member.held, queue=member.queue, right=right)

    def _of_pool(self, level: _Level, members: MergedOrder) -> Iterator[tuple[PoolMember, QuotaNode]]:
        """Yield the members of a level's pool, beyond its own side, that the policy allows to evict."""
        policy, sides = self.need.queue.spec.preemption.reclaim_within_cohort, level.pool.sides
        for member in members:
            # Our own side was covered on the level below, where the right is another.
            if sides[member.queue.name] is level.own_side:
                continue
            if satisfies(policy, self.need, member.held):
                if not self.need.spares(member.held, member.queue):
                    yield member, level.ancestor
            elif policy is PreemptionPolicy.LOWER_PRIORITY:
                return  # Members come by priority, so all the rest are too high as well.

    def _is_takeable(self, member: PoolMember, ancestor: QuotaNode) -> bool:
        """Return whether it is still there, and its queue and the cohorts below `ancestor` still overuse."""
        if self.snapshot.evictions.is_gone(member.held):
            return False
        node: QuotaNode | None = member.queue.node
        while node is not None and node is not ancestor:
            if node.is_within_nominal(self.need.pairs):
                return False
            node = node.parent
        return True


def collect(pools: Pools, need: PreemptionRequest) -> Candidates:
    """Return the candidates for eviction for `need`.

    Cheap, since lists are read lazily: O(depth) look-ups of pools. The result belongs to the present state of
    the snapshot: candidates are checked again when they are read, because an eviction on trial may end the
    overuse of a queue.
    Source: Kueue, pkg/scheduler/preemption/classical/hierarchical_preemption.go.
    """
    preemption = need.queue.spec.preemption
    levels = []
    if preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER:
        own_side = need.queue.node
        # The advantage only grows on the way up: once a subtree covers the need of its own quota, every queue
        # beyond it that overuses borrows from this subtree.
        has_advantage, remaining = _fits_own_quota(own_side, need.usage)
        for ancestor in need.queue.node.ancestors():
            levels.append(_Level(ancestor, own_side, pools.of(ancestor, need), has_advantage))
            fits, remaining = _fits_own_quota(ancestor, remaining)
            has_advantage |= fits
            own_side = ancestor
    return Candidates(
        snapshot=pools.snapshot,
        need=need,
        same_queue=_of_own_queue(pools, need),
        giving_way=LeastAttainedVictims(pools.snapshot, need.queue, need.pending, need.pairs, need.placing),
        levels=tuple(levels),
    )


def _of_own_queue(pools: Pools, need: PreemptionRequest) -> OrderedCandidates:
    """Return the candidates of the preemptor's own queue that its policy allows to evict, in order."""
    evictions, policy = pools.snapshot.evictions, need.queue.spec.preemption.within_cluster_queue
    if need.within is None:
        named = pools.of_own_in_order(need)
        # All of them are of lower priority and none is spared, so they need no check one by one. Such checks
        # would take most of the time of a search that finds its victims soon.
        if policy is PreemptionPolicy.LOWER_PRIORITY and need.losses.protects_none_below(need.queue):
            return named.only(lambda held: not evictions.is_gone(held)) if evictions.has_gone else named
    else:
        # Looked up by key where only some may be taken: a domain's few out of a queue's thousands.
        of_queue = need.queue.held
        chosen = [of_queue[key] for key in need.within & of_queue.keys()]
        in_order = sorted((held for held in chosen if uses(held, need)), key=rank_within(need, need.queue))
        named = OrderedCandidates.of(in_order)
    return named.only(
        lambda held: (
            satisfies(policy, need, held)
            and not evictions.is_gone(held)
            and not need.spares(held, need.queue)
        )
    )


def _rank_of_pair(pair: tuple[PoolMember, QuotaNode]) -> Rank:
    return pair[0].rank


def _right(need: PreemptionRequest, held: HeldWorkload, *, has_advantage: bool) -> EvictionRight:
    """Return by which right `borrowWithinCohort` and the priorities allow the eviction."""
    if has_advantage:
        return EvictionRight.HIERARCHICAL
    preemption = need.queue.spec.preemption
    # Without borrowWithinCohort the preemptor may evict only while it does not borrow.
    if preemption.borrow_within_cohort is PreemptionPolicy.NEVER:
        return EvictionRight.WITHOUT_BORROWING
    priority, highest = held.workload.priority, preemption.borrow_max_priority
    # Only Workloads of lower priority, up to the threshold, are evicted for a borrower. Otherwise two queues
    # would evict each other for ever.
    is_too_high = priority >= need.pending.workload.priority or (highest is not None and priority > highest)
    return EvictionRight.WITHOUT_BORROWING if is_too_high else EvictionRight.WHILE_BORROWING


def _fits_own_quota(node: QuotaNode, usage: Quantities) -> tuple[bool, dict[FlavorResource, int]]:
    """Return whether the subtree's own quota covers `usage`, and what would have to come from above it."""
    fits, remaining = True, {}
    for pair, amount in usage.items():
        cell = node.cell(pair)
        fits &= not cell.is_borrowing_with(amount)
        # The subtree's local quota serves first, as in `QuotaCell.add`; the rest is passed to the parent.
        remaining[pair] = max(0, amount - cell.local_available)
    return fits, remaining
