"""Who may be evicted for a Workload, by which right, and who first.

A ClusterQueue may take from itself (withinClusterQueue) and from others that use more than their own quota
(reclaimWithinCohort). In a tree of cohorts the right depends on the nearest common ancestor:

        root            x needs quota that its cohort a can cover out of its own:
        ├── a           x has the hierarchical advantage over what z borrows from the root's side,
        │   ├── x  ◀    whatever the priorities; over y only with an equal claim inside a.
        │   └── y
        └── z

Subtrees that keep within their own quota lend, they do not borrow: nothing below them is touched.
Source: Kueue, pkg/scheduler/preemption/classical.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from heapq import merge
from math import inf
from typing import NamedTuple

import msgspec

from admission.placement.request import PlacementRequest
from admission.preemption.loss import Losses
from admission.preemption.turns import GivingWay
from admission.snapshot import Held, QueueState, Snapshot
from api.queueing import PreemptionPolicy
from api.reasons import PreemptionReason
from api.workload import WorkloadKey
from queues.pending import Pending
from queues.quota import QuotaNode
from queues.resources import FlavorResource, Quantities

Rank = tuple[int, float, float, str]


class Order(Enum):
    """Who goes first of equal priority."""

    KUEUE = "the last to start"
    LOSS = "who loses least"
    LOSS_PER_AMOUNT = "who loses least for what it gives"


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What a Workload needs: `usage` in all, of which `pairs` are to come from evictions, and places.

    `within`: only these may be evicted; None: anybody. `most_taken`: after so many a search gives up.
    """

    queue: QueueState
    pending: Pending
    usage: Quantities
    pairs: frozenset[FlavorResource]
    losses: Losses
    order: Order
    placing: tuple[PlacementRequest, ...] = ()
    within: frozenset[WorkloadKey] | None = None
    most_taken: int | None = None

    def rank(self, held: Held) -> Rank:
        """Return the order among candidates of equal standing: lowest priority, then what `order` says, then
        the last to start.
        """
        loss = 0.0
        # Worked out only where it decides: with Kueue's order nobody's checkpoints are read.
        if self.order is not Order.KUEUE:
            loss = self.losses.of(held, self.queue)
        if self.order is Order.LOSS_PER_AMOUNT:
            loss /= max(1, sum(held.usage.get(pair, 0) for pair in self.pairs))
        # The lowest comes first: least priority, least loss, and of those the one that started
        # last, which has done least.
        return held.workload.priority, loss, -held.reserved_at, held.workload.uid

    def spares(self, held: Held, queue: QueueState) -> bool:
        """Return whether the policy of the Workload's own `queue` keeps it from being evicted for this."""
        if self.within is not None and held.key not in self.within:
            return True
        until = self.losses.spared_until(held, queue, self.pending.workload.priority)
        if until is None:
            return False
        self.losses.note_spared(self.queue.name, until)
        # The head may ask again then, and nothing else would wake it: the end of a minimum run time
        # is no event.
        return True


class Right(Enum):
    """By which right a candidate may be evicted."""

    # Words where the reason depends on more than the right: several rights are told as the same
    # reclamation.
    WITHIN_QUEUE = PreemptionReason.IN_CLUSTER_QUEUE
    HIERARCHICAL = "the preemptor's part of the tree has quota of its own for this"
    WITHOUT_BORROWING = "only if the preemptor's ClusterQueue does not borrow"
    WHILE_BORROWING = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING

    @property
    def reason(self) -> PreemptionReason:
        """The word for the Preempted condition."""
        if isinstance(self.value, PreemptionReason):
            return self.value
        return PreemptionReason.IN_COHORT_RECLAMATION


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A Workload that may be evicted."""

    held: Held
    queue: QueueState
    right: Right


class _Member(NamedTuple):
    """A Workload in a pool."""

    rank: Rank
    held: Held
    queue: QueueState


class _Leading:
    """Members of several queues, each in order, as one order that is worked out only as far as it is read."""

    __slots__ = ("_rest", "_seen")

    def __init__(self, queues: list[list[_Member]]) -> None:
        self._seen: list[_Member] = queues[0] if len(queues) == 1 else []
        # Merged lazily: a search reads a few dozen of the many thousands that a large cohort has.
        self._rest = merge(*queues, key=_rank) if len(queues) > 1 else iter(())

    def __bool__(self) -> bool:
        # Asking reads one member at most, which is kept for whoever iterates next.
        return next(iter(self), None) is not None

    def __iter__(self) -> Iterator[_Member]:
        # By index, since others may read on meanwhile.
        index = 0
        while True:
            if index == len(self._seen):
                following = next(self._rest, None)
                if following is None:
                    return
                self._seen.append(following)
            yield self._seen[index]
            index += 1


class _OfQueue(NamedTuple):
    """Who of one queue holds something needed, in order, whoever of them is taken away meanwhile."""

    evicted: list[_Member]
    live: list[_Member]


class _Pool(NamedTuple):
    """Who in the overusing queues below a cohort holds something needed, in order; the leaving ones apart.

    `sides` are the children of the cohort that the queues stand below, by the queue's name. It holds for the
    picture as it was after so many decisions of the cycle.
    """

    evicted: _Leading
    live: _Leading
    sides: Mapping[str, QuotaNode]
    decided: int


@dataclass(slots=True)
class Pools:
    """The pools of one snapshot, each put together once for all heads that look at the same picture.

    With a thousand queues in one tree, looking through all of them for every head would take seconds. Two
    things are kept apart, because they last differently. Who runs in a queue, and in which order, is the same
    for the whole cycle. Which queues overuse changes with every decision, and is asked anew then; the lists
    of those that do are merged as far as a search reads, which is seldom further than its first few.

    Members may overuse no longer, or be gone, once others are taken away: that is asked at their turn.
    """

    snapshot: Snapshot
    _known: dict[tuple[int, frozenset[FlavorResource], Order, str], _Pool] = field(default_factory=dict)
    _queues: dict[tuple[str, frozenset[FlavorResource], Order, str], _OfQueue] = field(default_factory=dict)
    # By cohort and pair the children that overuse, as the picture was after so many decisions.
    _overusers: dict[tuple[int, FlavorResource], tuple[int, list[QuotaNode]]] = field(default_factory=dict)

    def of(self, cohort: QuotaNode, need: Need) -> _Pool:
        """Return the pool of the queues below `cohort` for what is needed."""
        # By identity, as cohorts are rebuilt with their tree and never change in place; losses
        # depend on the policy that counts them.
        question = (id(cohort), need.pairs, need.order, _policy_that_counts(need))
        pool = self._known.get(question)
        # What was decided since may have changed which queues overuse. Trials need not be heeded:
        # they are asked for member by member (`_is_takeable`).
        if pool is None or pool.decided != self.snapshot.decided:
            pool = self._known[question] = self._gather(cohort, need)
        return pool

    def has_overuser(self, cohort: QuotaNode, pair: FlavorResource, *, but: QuotaNode) -> bool:
        """Return whether a child of `cohort` other than `but` uses more of `pair` than it has of its own.

        Where none does, nothing below the cohort is borrowed that could be taken back.
        """
        question = (id(cohort), pair)
        known = self._overusers.get(question)
        if known is None or known[0] != self.snapshot.decided:
            overusing = [
                child for child in cohort.children if (cell := child.cell(pair)).usage > cell.subtree
            ]
            known = self._overusers[question] = (self.snapshot.decided, overusing)
        return any(child is not but for child in known[1])

    def _gather(self, cohort: QuotaNode, need: Need) -> _Pool:
        sides: dict[str, QuotaNode] = {}
        found: list[_OfQueue] = []
        for side in cohort.children:
            for queue in self._overusing(side, need):
                sides[queue.name] = side
                found.append(self._of_queue(queue, need))
        return _Pool(
            evicted=_Leading([one.evicted for one in found if one.evicted]),
            live=_Leading([one.live for one in found if one.live]),
            sides=sides,
            decided=self.snapshot.decided,
        )

    def _of_queue(self, queue: QueueState, need: Need) -> _OfQueue:
        question = (queue.name, need.pairs, need.order, _policy_that_counts(need))
        # For the whole cycle: who runs in a queue, and in which order, does not change with
        # decisions.
        known = self._queues.get(question)
        if known is None:
            members = [
                _Member(need.rank(held), held, queue) for held in queue.held.values() if uses(held, need)
            ]
            members.sort(key=_rank)
            known = self._queues[question] = _OfQueue(
                evicted=[one for one in members if one.held.is_evicted],
                live=[one for one in members if not one.held.is_evicted],
            )
        return known

    def _overusing(self, node: QuotaNode, need: Need) -> Iterator[QueueState]:
        """Return the active queues of this subtree that, like all cohorts on the way, overuse."""
        # A subtree within its own quota lends and does not borrow; whoever is below it owes nobody
        # anything.
        if node.is_within_nominal(need.pairs):
            return
        if node.is_queue:
            queue = self.snapshot.queues[node.name]
            # A stopped queue's Workloads are not touched by others: it drains by its own rules, or
            # not at all.
            if not queue.inactive:
                yield queue
        for child in node.children:
            yield from self._overusing(child, need)


def _policy_that_counts(need: Need) -> str:
    """Return by whose policy losses are counted: that of who needs the place. Empty where none are."""
    return need.queue.policy.name if need.order is not Order.KUEUE else ""


class _Level(NamedTuple):
    """One common ancestor on the way up: its pool, less what stands on our own side of it."""

    ancestor: QuotaNode
    own_side: QuotaNode
    pool: _Pool
    has_advantage: bool


class Candidates(msgspec.Struct, frozen=True, kw_only=True):
    """Who may be evicted for a need: of the own queue, and of others by the level of the common ancestor."""

    snapshot: Snapshot
    need: Need
    same_queue: tuple[Held, ...]
    giving_way: GivingWay
    levels: tuple[_Level, ...]

    @property
    def is_empty(self) -> bool:
        # Asked before a search begins. Pools hold those of our own side as well, so "not empty" may
        # still mean nobody; "empty" is certain.
        """Whether there is nobody to choose from. Most who wait find it so, whenever quota comes free."""
        if self.same_queue or not self.giving_way.is_nobody:
            return False
        return not any(level.pool.evicted or level.pool.live for level in self.levels)

    def in_order(self, *, is_borrowing: bool) -> Iterator[Candidate]:
        """Return those that may be taken, in order: on their way out first, then the strongest claim.

        With `is_borrowing` the preemptor's queue would borrow. Whether a candidate's queue still overuses is
        asked when it is its turn, since taking the ones before it may have changed that.
        """
        # Whoever is leaving already costs nothing more, so they come first whatever their standing.
        for is_evicted in (True, False):
            for has_advantage in (True, False):
                yield from self._foreign(has_advantage, is_evicted, is_borrowing=is_borrowing)
            for held in self.same_queue:
                if held.is_evicted is is_evicted:
                    yield Candidate(held=held, queue=self.need.queue, right=Right.WITHIN_QUEUE)
            yield from self._by_turn(is_evicted=is_evicted)

    def _by_turn(self, *, is_evicted: bool) -> Iterator[Candidate]:
        """Yield who gives way because it has received more, after those whom the field's own rules name."""
        # A Workload may be both named by the field's rules and due to give way; it must not be
        # taken twice.
        named = {held.key for held in self.same_queue}
        for held in self.giving_way.in_order(is_evicted=is_evicted):
            if held.key not in named and not self.need.spares(held, self.need.queue):
                yield Candidate(held=held, queue=self.need.queue, right=Right.WITHIN_QUEUE)

    def has_foreign(self, *, has_advantage: bool) -> bool:
        """Return whether there are candidates of other queues with, or without, the tree's advantage."""
        return any(
            next(self._foreign(has_advantage, is_evicted, is_borrowing=False), None) is not None
            for is_evicted in (True, False)
        )

    def _foreign(self, has_advantage: bool, is_evicted: bool, *, is_borrowing: bool) -> Iterator[Candidate]:
        preemption = self.need.queue.spec.preemption
        is_forbidden = preemption.borrow_within_cohort is PreemptionPolicy.NEVER
        # Without the policy nobody is evicted for a borrower, except where the tree itself gives
        # the advantage.
        if is_borrowing and not has_advantage and is_forbidden:
            return
        streams = [
            self._of_pool(level, level.pool.evicted if is_evicted else level.pool.live)
            for level in self.levels
            if level.has_advantage is has_advantage
        ]
        # Several levels are merged as one order, as if all their members were in one list.
        for member, ancestor in streams[0] if len(streams) == 1 else merge(*streams, key=_rank_of_pair):
            right = _right(self.need, member.held, has_advantage=has_advantage)
            # Skipped one by one: whether a candidate may be taken while borrowing depends on its
            # own priority.
            if is_borrowing and right is Right.WITHOUT_BORROWING:
                continue
            if self._is_takeable(member, ancestor):
                yield Candidate(held=member.held, queue=member.queue, right=right)

    def _of_pool(self, level: _Level, members: _Leading) -> Iterator[tuple[_Member, QuotaNode]]:
        policy, sides = self.need.queue.spec.preemption.reclaim_within_cohort, level.pool.sides
        for member in members:
            # Our own side was looked at on the level below, where the right to it is another.
            if sides[member.queue.name] is level.own_side:
                continue
            if satisfies(policy, self.need, member.held):
                if not self.need.spares(member.held, member.queue):
                    yield member, level.ancestor
            elif policy is PreemptionPolicy.LOWER_PRIORITY:
                return  # they come by priority: none of the rest is lower

    def _is_takeable(self, member: _Member, ancestor: QuotaNode) -> bool:
        """Return whether it is still there and its queue, with all cohorts up to the common one, overuses."""
        if self.snapshot.is_gone(member.held):
            return False
        node: QuotaNode | None = member.queue.node
        while node is not None and node is not ancestor:
            if node.is_within_nominal(self.need.pairs):
                return False
            node = node.parent
        return True


def collect(pools: Pools, need: Need) -> Candidates:
    """Return who may be evicted for `need`."""
    preemption = need.queue.spec.preemption
    levels = []
    if preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER:
        own_side = need.queue.node
        # Advantage grows on the way up: once a subtree covers the need of its own, everybody beyond
        # it is a borrower of what is ours.
        has_advantage, remaining = _fits_own_quota(own_side, need.usage)
        for ancestor in need.queue.node.ancestors():
            levels.append(_Level(ancestor, own_side, pools.of(ancestor, need), has_advantage))
            fits, remaining = _fits_own_quota(ancestor, remaining)
            has_advantage |= fits
            own_side = ancestor
    return Candidates(
        snapshot=pools.snapshot,
        need=need,
        same_queue=tuple(_of_own_queue(pools.snapshot, need)),
        giving_way=GivingWay(pools.snapshot, need.queue, need.pending, need.pairs, need.placing),
        levels=tuple(levels),
    )


def rank_within(need: Need, queue: QueueState) -> Callable[[Held], tuple[float, Rank]]:
    """Return the order among candidates of one ClusterQueue.

    With admission fair sharing those of the LocalQueue that has used most come first. Kueue compares usage
    wherever two candidates share a ClusterQueue, in lists of several ClusterQueues too; that is no order (a
    before b before c before a), and what comes of it depends on the order of arrival. Here it counts within
    the preemptor's own ClusterQueue, and with fair sharing within each.
    Source: Kueue, pkg/scheduler/preemption/common, CandidatesOrdering.
    """
    usage_of = queue.usage_of

    def rank(held: Held) -> tuple[float, Rank]:
        return (-usage_of(held.local_queue) if usage_of is not None else 0.0), need.rank(held)

    return rank


def _of_own_queue(snapshot: Snapshot, need: Need) -> list[Held]:
    policy = need.queue.spec.preemption.within_cluster_queue
    if policy is PreemptionPolicy.NEVER:
        return []
    # Priority first: it rules out most, and costs least to ask.
    highest = inf if policy is PreemptionPolicy.ANY else need.pending.workload.priority
    of_queue = need.queue.held
    named = (
        # By name where only some may be taken: a domain's few out of a queue's thousands.
        of_queue.values() if need.within is None else [of_queue[key] for key in need.within & of_queue.keys()]
    )
    found = [
        held
        for held in named
        # Its order is that of cost: number, set, policy, journal, facts.
        if held.workload.priority <= highest
        and uses(held, need)
        and satisfies(policy, need, held)
        and not snapshot.is_gone(held)
        and not need.spares(held, need.queue)
    ]
    found.sort(key=rank_within(need, need.queue))
    return found


def _rank(member: _Member) -> Rank:
    return member.rank


def _rank_of_pair(pair: tuple[_Member, QuotaNode]) -> Rank:
    return pair[0].rank


def candidate_order(need: Need) -> Callable[[Held], tuple[bool, bool, Rank]]:
    """Return the sort key of candidates: those that are on their way out, those of other queues, the least
    in priority, then as `Need.rank` says.
    """

    def key(held: Held) -> tuple[bool, bool, Rank]:
        return not held.is_evicted, held.admission.cluster_queue == need.queue.name, need.rank(held)

    return key


def satisfies(policy: PreemptionPolicy, need: Need, held: Held) -> bool:
    """Return whether the policy lets the incoming Workload take this one's place."""
    incoming, present = need.pending.workload.priority, held.workload.priority
    match policy:
        case PreemptionPolicy.ANY:
            return True
        case PreemptionPolicy.LOWER_PRIORITY:
            return incoming > present
        case PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
            is_newer = need.pending.queued_at < held.queued_at
            return incoming > present or (incoming == present and is_newer)
        case PreemptionPolicy.NEVER:
            return False


def satisfies_any(need: Need, held: Held, queue: QueueState) -> bool:
    """Return whether the preemptor's ClusterQueue has any right to a Workload of `queue`."""
    preemption = need.queue.spec.preemption
    is_own = queue is need.queue
    policy = preemption.within_cluster_queue if is_own else preemption.reclaim_within_cohort
    return satisfies(policy, need, held)


def uses(held: Held, need: Need) -> bool:
    """Return whether the Workload holds anything that is needed."""
    return not need.pairs.isdisjoint(held.pairs)


def _right(need: Need, held: Held, *, has_advantage: bool) -> Right:
    if has_advantage:
        return Right.HIERARCHICAL
    preemption = need.queue.spec.preemption
    # Nobody has allowed it to evict while it borrows.
    if preemption.borrow_within_cohort is PreemptionPolicy.NEVER:
        return Right.WITHOUT_BORROWING
    priority, highest = held.workload.priority, preemption.borrow_max_priority
    # Only work of lower priority, and only up to the threshold, gives way to a borrower; else two
    # queues would evict each other for ever.
    is_too_high = priority >= need.pending.workload.priority or (highest is not None and priority > highest)
    return Right.WITHOUT_BORROWING if is_too_high else Right.WHILE_BORROWING


def _fits_own_quota(node: QuotaNode, usage: Quantities) -> tuple[bool, dict[FlavorResource, int]]:
    """Return whether the subtree covers `usage` of its own, and what would have to come from above it."""
    fits, remaining = True, {}
    for pair, amount in usage.items():
        cell = node.cell(pair)
        fits &= not cell.is_borrowing_with(amount)
        # What the subtree keeps to itself serves first, as in `QuotaCell.add`; the rest climbs.
        remaining[pair] = max(0, amount - cell.local_available)
    return fits, remaining
