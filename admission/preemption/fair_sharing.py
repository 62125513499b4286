"""Victims under fair sharing: the queue with the largest share is preempted, where that makes shares fairer.

The preemptor's usage counts as added while shares are compared. From the root down, the child with the
largest share is followed to a ClusterQueue. One of its Workloads is taken if a rule allows it, and the walk
starts again from the root, since every step changes the shares.

    rule 1 (LessThanOrEqualToFinalShare)   the preemptor's new share ≤ the victim's share without it
    rule 2 (LessThanInitialShare)          the preemptor's new share < the victim's share as it is

Shares are compared between the two children of the nearest common ancestor. Candidates that rule 1 refused
are tried once more under rule 2, one from each queue.
Source: Kueue, pkg/scheduler/preemption/fair_strategy.go and fairsharing/; KEP 1714.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from admission.preemption.preemption_request import (
    PreemptionRequest,
    candidate_order,
    may_evict_from,
    rank_within,
    satisfies_any,
    uses,
)
from admission.preemption.replicas import Floors
from admission.preemption.targets import Target, fill_back, fits
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.reasons import PreemptionReason
from queues.quota.fair_sharing import DominantShare, dominant_resource_share
from queues.quota.quota_tree import QuotaNode
from queues.steps import Steps


class FairRule(StrEnum):
    """When a Workload of another queue may be evicted under fair sharing."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


@dataclass(frozen=True, slots=True, kw_only=True)
class FairPreemption:
    """`fairSharing` of the configuration: the rules, in the order in which they are tried."""

    rules: tuple[FairRule, ...] = (
        FairRule.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
        FairRule.LESS_THAN_INITIAL_SHARE,
    )


def fair_targets(
    snapshot: Snapshot, need: PreemptionRequest, settings: FairPreemption
) -> Steps[tuple[Target, ...]]:
    """Return the Workloads to evict so that `need` fits, () where no allowed set would do.

    The snapshot is left as it was.

    Priorities decide within a queue only; between queues the shares decide. One step for each candidate that
    is tried.
    Source: Kueue, pkg/scheduler/preemption/preemption.go, fairPreemptions; KEP 1714.
    """
    # One list for each queue, in the queue's own order; the search orders the queues by their shares.
    candidates = _collect(snapshot, need)
    if not any(candidates.values()):
        return ()
    mark = snapshot.trial.mark()
    search = _FairSearch(snapshot=snapshot, need=need, floors=Floors(snapshot))
    # Fill back with borrowing allowed, as in the search itself: shares decide, not which queue borrows.
    if (yield from search.run(candidates, settings.rules)):
        targets = yield from fill_back(snapshot, need, search.targets, is_borrowing=True)
    else:
        targets = []
    snapshot.trial.rollback(mark)
    return tuple(targets)


_Candidates = dict[str, list[HeldWorkload]]


def _collect(snapshot: Snapshot, need: PreemptionRequest) -> _Candidates:
    """Return the candidates by ClusterQueue: of its own, and of those that borrow something needed."""
    found: _Candidates = {}
    for queue in need.queue.tree.queues:
        if not may_evict_from(need, queue):
            continue
        held = [
            one
            for one in queue.held.values()
            if uses(one, need)
            and satisfies_any(need, one, queue)
            and not snapshot.evictions.is_gone(one)
            and not need.spares(one, queue)
        ]
        if held:
            rank = rank_within(need, queue)
            # Those that are leaving already come first: they free their quota whatever is decided here.
            found[queue.name] = sorted(held, key=lambda one: (not one.is_evicted, rank(one)))
    return found


@dataclass(slots=True, kw_only=True)
class _FairSearch:
    """One search. While it runs, the preemptor's usage is added to its queue, except for the test of fit."""

    snapshot: Snapshot
    need: PreemptionRequest
    floors: Floors
    targets: list[Target] = field(default_factory=list)

    def run(self, candidates: _Candidates, rules: tuple[FairRule, ...]) -> Steps[bool]:
        """Take candidates until `need` fits; return whether it does. The usage is removed again then.

        The first rule is tried on all candidates. Those that it refuses are tried again with the second rule,
        where the configuration has one.
        """
        own, usage = self.need.queue, self.need.usage
        # Shares are compared as they would be with the preemptor admitted.
        self.snapshot.trial.add(own, usage)
        refused: _Candidates = {}
        done = yield from self._first_pass(candidates, rules[0], refused)
        if not done and len(rules) > 1:
            done = yield from self._second_pass(refused)
        # Removed again: the caller wants the targets, without the preemptor's usage.
        self.snapshot.trial.remove(own, usage)
        return done

    def _first_pass(self, candidates: _Candidates, rule: FairRule, refused: _Candidates) -> Steps[bool]:
        """Take candidates by the first rule; return whether `need` fits. Fills `refused` with the others.

        Of its own queue, and where the preemptor reclaims its own quota, no rule has to be checked.
        """
        # A queue within its own quota even with the preemptor may reclaim that quota from any other queue.
        is_entitled = self.need.queue.node.is_within_nominal(self.need.pairs)
        # The ordering reads the shares again after each step, because each step changes them.
        for queue in _Ordering(self.snapshot, self.need, candidates):
            yield
            heads = candidates[queue.name]
            if queue is self.need.queue:
                if self._take(queue, heads.pop(0), PreemptionReason.IN_CLUSTER_QUEUE):
                    return True
            elif is_entitled:
                if self._take(queue, heads.pop(0), PreemptionReason.IN_COHORT_RECLAMATION):
                    return True
            elif self._take_fairly(queue, heads, rule, refused.setdefault(queue.name, [])):
                return True
        return False

    def _take_fairly(
        self, queue: QueueState, heads: list[HeldWorkload], rule: FairRule, refused: list[HeldWorkload]
    ) -> bool:
        """Take the first candidate that the rule allows, refuse those before it; return whether it fits."""
        ours, theirs = self._shares(queue)
        # A preemptor of infinite share, that is of weight 0, takes only from queues of infinite share.
        if ours.is_infinite and not theirs.is_infinite:
            refused += heads
            heads.clear()
            return False
        while heads:
            # Each is tried once: what rule 1 refuses is left to the second pass.
            held = heads.pop(0)
            if rule is FairRule.LESS_THAN_INITIAL_SHARE:
                is_allowed = ours.order < theirs.order
            else:
                # Rule 1: after the eviction the victim's share must not be below the preemptor's.
                is_allowed = ours.order <= self._share_without(queue, held).order
            if is_allowed:
                return self._take(queue, held, PreemptionReason.IN_COHORT_FAIR_SHARING)
            refused.append(held)
        return False

    def _second_pass(self, candidates: _Candidates) -> Steps[bool]:
        """Take refused candidates by the second rule; return whether `need` fits."""
        ordering = _Ordering(self.snapshot, self.need, candidates)
        for queue in ordering:
            yield
            ours, theirs = self._shares(queue)
            # Rule 2: strictly less than the victim's present share, whatever the eviction leaves of it.
            if ours.order < theirs.order:
                held = candidates[queue.name][0]
                if self._take(queue, held, PreemptionReason.IN_COHORT_FAIR_SHARING):
                    return True
            # One from each queue, so that this weaker rule cannot empty a queue.
            ordering.drop(queue)
        return False

    def _take(self, queue: QueueState, held: HeldWorkload, reason: PreemptionReason) -> bool:
        """Take the Workload, if its application can spare it; return whether `need` fits then."""
        if (guard := self.floors.take(held, queue)) is not None:
            self.need.losses.note_kept(self.need.pending.key, held, guard)
            return False
        self.snapshot.trial.remove(queue, held.usage, held.places)
        self.targets.append(Target(held=held, queue=queue, reason=reason))
        own, usage = self.need.queue, self.need.usage
        # Without the preemptor's usage, because `fits` adds it itself.
        own.node.remove(usage)
        is_fitting = fits(self.snapshot, self.need, is_borrowing=True)
        own.node.add(usage)
        return is_fitting

    def _shares(self, queue: QueueState) -> tuple[DominantShare, DominantShare]:
        """Return the shares of the preemptor's side and of the queue's, below their common ancestor."""
        ours, theirs = _below_common_ancestor(self.need.queue.node, queue.node)
        return dominant_resource_share(ours), dominant_resource_share(theirs)

    def _share_without(self, queue: QueueState, held: HeldWorkload) -> DominantShare:
        """Return the share of the queue's side with the Workload evicted."""
        # Not recorded in the snapshot's undo log: it is undone two lines below.
        queue.node.remove(held.usage)
        share = self._shares(queue)[1]
        queue.node.add(held.usage)
        return share


class _Ordering:
    """Iterates over the ClusterQueues to take from next; the shares may change between two steps.

    A node is pruned for good once nothing below it can be taken: it has no candidates left, or it does not
    borrow (unless it is the preemptor's own queue, or a cohort above that). Each step yields a queue, from
    which the caller takes or refuses a candidate, or prunes a node, so the iteration ends.
    """

    def __init__(self, snapshot: Snapshot, need: PreemptionRequest, candidates: _Candidates) -> None:
        self._snapshot = snapshot
        self._own = need.queue.node
        self._order = candidate_order(need)
        self._candidates = candidates
        self._pruned: set[int] = set()
        # Cohorts above the preemptor are followed even if they do not borrow: its own queue is below them.
        self._path = {id(node) for node in (self._own, *self._own.ancestors())}

    def __iter__(self) -> Iterator[QueueState]:
        root = self._own.root
        # Until no queue is left to take from.
        while id(root) not in self._pruned:
            node = self._next(root)
            if node is not None:
                yield self._snapshot.queues[node.name]

    def drop(self, queue: QueueState) -> None:
        """Yield this queue no more."""
        self._pruned.add(id(queue.node))

    def _next(self, node: QuotaNode) -> QuotaNode | None:
        """Return the queue to take from, None where this step has only pruned a node."""
        # Down in a loop, because a chain of Cohorts may be longer than Python's stack.
        while not node.is_queue:
            best_queue = self._best_queue(node)
            best_cohort = self._best_cohort(node)
            # A cohort wins a tie: within it the child of the largest share can still be chosen.
            if best_cohort is not None and (best_queue is None or best_cohort[0] >= best_queue[0]):
                node = best_cohort[1]
            elif best_queue is not None:
                node = best_queue[1]
            else:
                self._pruned.add(id(node))
                return None
        if not self._candidates.get(node.name):
            self._pruned.add(id(node))
            return None
        return node

    def _best_queue(self, parent: QuotaNode) -> tuple[tuple[float, float], QuotaNode] | None:
        """Return the child queue of the largest share; on a tie the one with the foremost candidate."""
        best: tuple[tuple[float, float], QuotaNode] | None = None
        for node in parent.children:
            if not node.is_queue or id(node) in self._pruned:
                continue
            share = dominant_resource_share(node)
            heads = self._candidates.get(node.name)
            # Its own queue may be preempted whether it borrows or not; others only while they borrow.
            if not heads or not (share.is_borrowing or node is self._own):
                self._pruned.add(id(node))
                continue
            if (
                best is None
                or share.order > best[0]
                or (share.order == best[0] and self._is_before(heads[0], best[1]))
            ):
                best = (share.order, node)
        return best

    def _best_cohort(self, parent: QuotaNode) -> tuple[tuple[float, float], QuotaNode] | None:
        """Return the child cohort of the largest share; on a tie the last one."""
        best: tuple[tuple[float, float], QuotaNode] | None = None
        for node in parent.children:
            if node.is_queue or id(node) in self._pruned:
                continue
            share = dominant_resource_share(node)
            if not share.is_borrowing and id(node) not in self._path:
                self._pruned.add(id(node))
            # On a tie the last one, as in Kueue's loop.
            elif best is None or share.order >= best[0]:
                best = (share.order, node)
        return best

    def _is_before(self, held: HeldWorkload, other: QuotaNode) -> bool:
        """Return whether the Workload comes before the first candidate that is left of the other queue."""
        return self._order(held) < self._order(self._candidates[other.name][0])


def _below_common_ancestor(a: QuotaNode, b: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """Return the two children of the lowest common ancestor, on the way to `a` and to `b`."""
    above_a = [a, *a.ancestors()]
    above_b = [b, *b.ancestors()]
    # Both chains end in the root. Common ancestors are popped; what is left last is where they fork.
    while above_a[-1] is above_b[-1]:
        above_a.pop()
        above_b.pop()
    return above_a[-1], above_b[-1]
