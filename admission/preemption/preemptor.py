"""The preemptor: which Workloads would be evicted for another, and what evictions could do for a flavor.

The flavor search calls `grade` for one flavor and resource, the cycle calls `targets` once for all
chosen flavors. The searches themselves are in `targets`, `least_loss`, `fair_sharing` and
`consolidation` beside this module.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from admission.decisions.assignment import Assignment
from admission.decisions.flavor_mode import Grade, Granular
from admission.flavors.feasibility import moves_others
from admission.preemption.candidate_pools import Pools
from admission.preemption.consolidation import consolidating_targets
from admission.preemption.fair_sharing import FairPreemption, fair_targets
from admission.preemption.least_loss import least_loss_targets
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemption_request import CandidateOrder, PreemptionRequest, may_evict_of_its_own
from admission.preemption.targets import Target, classical_targets
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.queueing import PreemptionPolicy
from api.reasons import PreemptionReason
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.quota.resources import FlavorResource
from queues.steps import Steps, finish

_RIGHTS = {
    PreemptionReason.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    PreemptionReason.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    PreemptionReason.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
    PreemptionReason.CONSOLIDATION: "consolidation of placements; there is another place for this workload",
}

# What an answer depends on besides the snapshot: `decided`, the preemptor, the order, what is needed, and
# whether places are needed too.
_Question = tuple[
    int, WorkloadKey, CandidateOrder, frozenset[FlavorResource], frozenset[tuple[FlavorResource, int]], bool
]


@dataclass(slots=True, kw_only=True)
class Preemptor:
    """Finds victims on a snapshot, which it leaves as it was. `fair_sharing` None: by priority alone.

    One for each cycle. Answers are kept by request and number of decisions, because several heads ask for the
    same and the search is the most expensive part of a cycle.
    """

    snapshot: Snapshot
    losses: EvictionLosses
    fair_sharing: FairPreemption | None = None
    _pools: Pools = field(init=False)
    # Cached answers, each for the value of `decided` in its key. A Workload of one resource in one flavor
    # asks the same twice: when its flavors are searched, and when its targets are determined.
    _known: dict[_Question, tuple[Target, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pools = Pools(self.snapshot)

    def targets(
        self, queue: QueueState, pending: Pending, assignment: Assignment
    ) -> Steps[tuple[Target, ...]]:
        """Return the Workloads to evict so that the whole assignment fits, () where evictions do not help.

        Where a policy allows it, Workloads are moved to another place rather than evicted without one.

        Only pairs of the assignment with mode PREEMPT count as short. The result is in the order in which the
        evictions are sent. One step for each candidate that is tried; the snapshot must not change between
        the steps.
        Source: Kueue, pkg/scheduler/preemption/preemption.go, GetTargets.
        """
        pairs = assignment.preempting()
        # Most heads of a full cluster: all their queue runs is as important, and no other queue borrows.
        if not moves_others(queue) and self.finds_no_victim(queue, pending, pairs):
            return ()
        need = PreemptionRequest(
            queue=queue,
            pending=pending,
            usage=assignment.usage,
            pairs=pairs,
            losses=self.losses,
            order=_order_of(queue),
            placing=assignment.placing,
        )
        # Moves come first, because a moved Workload runs on elsewhere. Only where no move helps are Workloads
        # evicted without another place.
        moved = yield from consolidating_targets(self.snapshot, need)
        return moved or (yield from self._targets(need))

    def grade(
        self, queue: QueueState, pending: Pending, pair: FlavorResource, amount: int, height: int
    ) -> Grade:
        """Return what evictions could do for `amount` of `pair` alone, and the borrow height after them.

        RECLAIM, taking back what other queues borrow, is better than PREEMPT, evicting the queue's own work.

        NO_CANDIDATES where evictions do not help. `amount` is in the resource's unit. Nodes are ignored here,
        and so is everything else that the Workload requests.
        Source: Kueue, pkg/scheduler/preemption/preemption_oracle.go, SimulatePreemption.
        """
        need = PreemptionRequest(
            queue=queue,
            pending=pending,
            usage={pair: amount},
            pairs=frozenset((pair,)),
            losses=self.losses,
            # Only whether there are victims matters here, which Kueue's order answers fastest.
            order=CandidateOrder.KUEUE,
        )
        # Quota alone, without places, is quick: this search does not pause.
        targets = finish(self._targets(need))
        if not targets:
            # Nothing changes, so the height is the one without evictions.
            return Grade(Granular.NO_CANDIDATES, height)
        # With the victims gone the request may borrow from a lower height, which matters for fungibility.
        mark = self.snapshot.trial.mark()
        for target in targets:
            self.snapshot.trial.remove(target.queue, target.held.usage)
        after = queue.node.cell(pair).borrow_height(amount).height
        self.snapshot.trial.rollback(mark)
        # One victim of its own queue is enough to make it a preemption and not a reclaim.
        is_own = any(target.queue is queue for target in targets)
        return Grade(Granular.PREEMPT if is_own else Granular.RECLAIM, after)

    def finds_no_victim(self, queue: QueueState, pending: Pending, pairs: Collection[FlavorResource]) -> bool:
        """Return whether there is certainly no victim for any of `pairs`; True without pairs.

        False proves nothing. Checks the priorities of its own queue and the usage of subtrees on the way up.
        No candidate is read.
        """
        if not pairs:
            return True
        # Under fair sharing or least attained service, or during a trial, these checks prove nothing.
        if self.fair_sharing is not None or queue.turns is not None or self.snapshot.trial.is_open:
            return False
        if may_evict_of_its_own(queue, pending):
            return False
        if queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.NEVER:
            # Other queues' Workloads must not be evicted, and its own queue has no candidate.
            return True
        below = queue.node
        for cohort in queue.node.ancestors():
            if any(self._pools.has_overuser(cohort, pair, but=below) for pair in pairs):
                # Perhaps: whether that subtree has a candidate is left to the search.
                return False
            below = cohort
        return True

    def _targets(self, need: PreemptionRequest) -> Steps[tuple[Target, ...]]:
        """Return the answer to a request, searched once for each state of decisions."""
        if self.finds_no_victim(need.queue, need.pending, need.pairs):
            return ()
        # The state of a trial does not come again, so its answer is not cached.
        if self.snapshot.trial.is_open:
            return (yield from self._search(need))
        question = (
            self.snapshot.trial.decided,
            need.pending.key,
            need.order,
            need.pairs,
            frozenset(need.usage.items()),
            bool(need.placing),
        )
        if question not in self._known:
            self._known[question] = yield from self._search(need)
        return self._known[question]

    def _search(self, need: PreemptionRequest) -> Steps[tuple[Target, ...]]:
        """Choose the search: by shares, by losses, or Kueue's classical one."""
        if self.fair_sharing is not None:
            return fair_targets(self.snapshot, need, self.fair_sharing)
        if need.order is not CandidateOrder.KUEUE:
            return least_loss_targets(self.snapshot, need, self._pools)
        return classical_targets(self.snapshot, need, self._pools)


def _order_of(queue: QueueState) -> CandidateOrder:
    """Return the order of victims that the policy of the preemptor's queue asks for."""
    # Under least attained service victims are ordered by received service and node by node, see
    # `admission.preemption.least_attained_victims`. Losses matter there only within a level.
    is_by_loss = queue.policy.preemption is not None and queue.turns is None
    return CandidateOrder.LOSS if is_by_loss else CandidateOrder.KUEUE


def eviction_message(target: Target, queue: QueueState, pending: Pending, job_uid: str) -> str:
    """Return Kueue's message for the victim: the preemptor, the reason, and both paths in the quota tree.

    `job_uid` is empty where the preemptor has no owner. Tools that parse Kueue's message read this one too.
    """
    return (
        f"Preempted to accommodate a workload (UID: {pending.workload.uid}, JobUID: {job_uid or 'UNKNOWN'}) "
        f"due to {_RIGHTS[target.reason]}; preemptor path: {queue.node.path()}; "
        f"preemptee path: {target.queue.node.path()}"
    )
