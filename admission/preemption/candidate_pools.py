"""Who in a cohort holds something needed, in order: put together once for all heads of a cycle.

With a thousand queues in one tree, looking through all of them for every head would take seconds. Two things
are kept apart, because they last differently. Who runs in a queue, and in which order, is the same for the
whole cycle. Which queues overuse changes with every decision, and is asked anew then; the lists of those that
do are merged as far as a search reads, which is seldom further than its first few.

By which right one of them may be evicted is `admission.preemption.candidates`.
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
from admission.snapshot.snapshot import HeldWorkload, QueueState, Snapshot
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource


class PoolMember(NamedTuple):
    """A Workload in a pool."""

    rank: Rank
    held: HeldWorkload
    queue: QueueState


class Leading:
    """Members of several queues, each in order, as one order that is worked out only as far as it is read."""

    __slots__ = ("_rest", "_seen")

    def __init__(self, queues: list[list[PoolMember]]) -> None:
        self._seen: list[PoolMember] = queues[0] if len(queues) == 1 else []
        # Merged lazily: a search reads a few dozen of the many thousands that a large cohort has.
        self._rest = merge(*queues, key=_rank) if len(queues) > 1 else iter(())

    def __bool__(self) -> bool:
        # Asking reads one member at most, which is kept for whoever iterates next.
        return next(iter(self), None) is not None

    def __iter__(self) -> Iterator[PoolMember]:
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


class Apart(NamedTuple):
    """Candidates in order, those apart that are leaving already."""

    evicted: tuple[HeldWorkload, ...]
    live: tuple[HeldWorkload, ...]

    @classmethod
    def of(cls, in_order: Sequence[HeldWorkload]) -> Apart:
        """Return them apart, each in the same order."""
        return cls(
            tuple(held for held in in_order if held.is_evicted),
            tuple(held for held in in_order if not held.is_evicted),
        )

    def only(self, is_meant: Callable[[HeldWorkload], bool]) -> Apart:
        """Return those of them that are meant."""
        return Apart(tuple(filter(is_meant, self.evicted)), tuple(filter(is_meant, self.live)))


NOBODY = Apart((), ())
# Of which queue, what of, and up to which priority.
_OfOwn = tuple[str, frozenset[FlavorResource], float]


class _OfQueue(NamedTuple):
    """Who of one queue holds something needed, in order, whoever of them is taken away meanwhile."""

    evicted: list[PoolMember]
    live: list[PoolMember]


class Pool(NamedTuple):
    """Who in the overusing queues below a cohort holds something needed, in order; the leaving ones apart.

    `sides` are the children of the cohort that the queues stand below, by the queue's name. It holds for the
    picture as it was after so many decisions of the cycle.
    """

    evicted: Leading
    live: Leading
    sides: Mapping[str, QuotaNode]
    decided: int


@dataclass(slots=True)
class Pools:
    """The pools of one snapshot, each put together once for all heads that look at the same picture.

    Members may overuse no longer, or be gone, once others are taken away: that is asked at their turn.
    """

    snapshot: Snapshot
    _known: dict[tuple[int, frozenset[FlavorResource], CandidateOrder, str], Pool] = field(
        default_factory=dict
    )
    _queues: dict[tuple[str, frozenset[FlavorResource], CandidateOrder, str], _OfQueue] = field(
        default_factory=dict
    )
    # Who of a preemptor's own queue holds something needed, up to a priority: in Kueue's order, and in one
    # with those apart that are leaving.
    _own: dict[_OfOwn, list[HeldWorkload]] = field(default_factory=dict)
    _own_in_order: dict[tuple[_OfOwn, CandidateOrder], Apart] = field(default_factory=dict)
    # By cohort and pair the children that overuse, as the picture was after so many decisions.
    _overusers: dict[tuple[int, FlavorResource], tuple[int, list[QuotaNode]]] = field(default_factory=dict)

    def of(self, cohort: QuotaNode, need: PreemptionRequest) -> Pool:
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

    def of_own(self, need: PreemptionRequest) -> list[HeldWorkload]:
        """Return who of the own queue holds something needed and is not above what its policy lets evict, in
        Kueue's order.

        Those of equal priority are among them where it may be that they are newer.
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

    def of_own_in_order(self, need: PreemptionRequest) -> Apart:
        """Return the same in the order in which they are to be evicted."""
        members = self.of_own(need)
        if not members:
            return NOBODY
        question = self._question_of_own(need), need.order
        known = self._own_in_order.get(question)
        if known is None:
            is_in_order = need.order is CandidateOrder.KUEUE and need.queue.usage_of is None
            in_order = members if is_in_order else sorted(members, key=rank_within(need, need.queue))
            known = self._own_in_order[question] = Apart.of(in_order)
        return known

    def _question_of_own(self, need: PreemptionRequest) -> _OfOwn:
        policy = need.queue.spec.preemption.within_cluster_queue
        return need.queue.name, need.pairs, highest_evicted(policy, need.pending)

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

    def _gather(self, cohort: QuotaNode, need: PreemptionRequest) -> Pool:
        sides: dict[str, QuotaNode] = {}
        found: list[_OfQueue] = []
        for side in cohort.children:
            for queue in self._overusing(side, need):
                sides[queue.name] = side
                found.append(self._of_queue(queue, need))
        return Pool(
            evicted=Leading([one.evicted for one in found if one.evicted]),
            live=Leading([one.live for one in found if one.live]),
            sides=sides,
            decided=self.snapshot.decided,
        )

    def _of_queue(self, queue: QueueState, need: PreemptionRequest) -> _OfQueue:
        question = (queue.name, need.pairs, need.order, _policy_that_counts(need))
        # For the whole cycle: who runs in a queue, and in which order, does not change with decisions.
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
        """Return the active queues of this subtree that, like all cohorts on the way, overuse."""
        # A subtree within its own quota lends and does not borrow; whoever is below it owes nobody anything.
        if node.is_within_nominal(need.pairs):
            return
        if node.is_queue:
            queue = self.snapshot.queues[node.name]
            # A stopped queue's Workloads are not touched by others: it drains by its own rules,
            # or not at all.
            if not queue.inactive:
                yield queue
        for child in node.children:
            yield from self._overusing(child, need)


def _policy_that_counts(need: PreemptionRequest) -> str:
    """Return by whose policy losses are counted: that of who needs the place. Empty where none are."""
    return need.queue.policy.name if need.order is not CandidateOrder.KUEUE else ""


def _rank(member: PoolMember) -> Rank:
    return member.rank
