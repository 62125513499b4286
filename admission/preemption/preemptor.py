"""The preemptor: whom a Workload would evict, and what evictions could do for one flavor.

The flavor search asks it flavor by flavor (`grade`), the cycle once for the flavors chosen (`targets`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from admission.decisions.assignment import Assignment
from admission.decisions.flavor_mode import Grade, Granular
from admission.flavors.topology_assigner import placement_requests
from admission.preemption.candidate_pools import Pools
from admission.preemption.consolidation import consolidating_targets
from admission.preemption.fair_sharing import FairPreemption, fair_targets
from admission.preemption.least_loss import least_loss_targets
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemption_request import CandidateOrder, PreemptionRequest, may_evict_of_its_own
from admission.preemption.targets import Target, classical_targets
from admission.snapshot.snapshot import QueueState, Snapshot
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

# Whose targets, for how much, with places or without: what an answer depends on besides the picture.
_Question = tuple[
    int, WorkloadKey, CandidateOrder, frozenset[FlavorResource], frozenset[tuple[FlavorResource, int]], bool
]


@dataclass(slots=True, kw_only=True)
class Preemptor:
    """Finds victims on a snapshot, which it leaves as it found it. `fair_sharing` None: by priority alone."""

    snapshot: Snapshot
    losses: EvictionLosses
    fair_sharing: FairPreemption | None = None
    _pools: Pools = field(init=False)
    # Answers, each for the picture after so many decisions. A Workload of one resource in one
    # flavor asks the same twice: when its flavors are searched, and when its targets are named.
    _known: dict[_Question, tuple[Target, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pools = Pools(self.snapshot)

    def targets(
        self, queue: QueueState, pending: Pending, assignment: Assignment
    ) -> Steps[tuple[Target, ...]]:
        """Return whom to evict so that the whole assignment fits, () where nobody may be or it does not
        help.

        Where a policy allows it, others are moved to another place rather than evicted for good.
        """
        need = PreemptionRequest(
            queue=queue,
            pending=pending,
            usage=assignment.usage,
            pairs=assignment.preempting(),
            losses=self.losses,
            order=_order_of(queue),
            placing=placement_requests(self.snapshot, queue, pending, assignment),
        )
        # Moving others first: nobody loses more than the way to another place. Only where that
        # fails somebody goes for good.
        moved = yield from consolidating_targets(self.snapshot, need)
        return moved or (yield from self._targets(need))

    def grade(
        self, queue: QueueState, pending: Pending, pair: FlavorResource, amount: int, height: int
    ) -> Grade:
        """Return what evictions could do for `amount` of `pair` alone, and how far it would borrow then.

        Taking back what others borrow (RECLAIM) is better than evicting the queue's own work (PREEMPT).
        """
        need = PreemptionRequest(
            queue=queue,
            pending=pending,
            usage={pair: amount},
            pairs=frozenset((pair,)),
            losses=self.losses,
            # Whether there is anybody is no matter of who loses least, and this order asks it soonest.
            order=CandidateOrder.KUEUE,
        )
        # Of quota alone, so that it is over soon: it does not pause.
        targets = finish(self._targets(need))
        if not targets:
            # `height` as it is without evictions: nothing changes.
            return Grade(Granular.NO_CANDIDATES, height)
        # With the victims gone the request may borrow less far, which is what fungibility asks about.
        mark = self.snapshot.mark()
        for target in targets:
            self.snapshot.remove(target.queue, target.held.usage)
        after = queue.node.cell(pair).borrow_height(amount).height
        self.snapshot.rollback(mark)
        # One victim of the own queue is enough to make it a preemption and no reclaim.
        is_own = any(target.queue is queue for target in targets)
        return Grade(Granular.PREEMPT if is_own else Granular.RECLAIM, after)

    def finds_nobody(self, queue: QueueState, pending: Pending, pairs: Iterable[FlavorResource]) -> bool:
        """Return whether there is certainly nobody to evict for any of `pairs`. False says nothing.

        A look at the own queue's priorities, and at the nodes beside the way up; no candidate is gathered.
        """
        # With shares, with turns or in the middle of a trial the short look proves nothing.
        if self.fair_sharing is not None or queue.turns is not None or self.snapshot.has_trial:
            return False
        if may_evict_of_its_own(queue, pending):
            return False
        if queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.NEVER:
            # Nothing of others may be taken, and of its own there is nobody.
            return True
        below = queue.node
        for cohort in queue.node.ancestors():
            if any(self._pools.has_overuser(cohort, pair, but=below) for pair in pairs):
                # Perhaps: whether that subtree holds anybody who may go is for the search to find out.
                return False
            below = cohort
        return True

    def _targets(self, need: PreemptionRequest) -> Steps[tuple[Target, ...]]:
        # A trial is no picture that would come again.
        if self.snapshot.has_trial:
            return (yield from self._search(need))
        question = (
            self.snapshot.decided,
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
        if self.fair_sharing is not None:
            return fair_targets(self.snapshot, need, self.fair_sharing)
        if need.order is not CandidateOrder.KUEUE:
            return least_loss_targets(self.snapshot, need, self._pools)
        return classical_targets(self.snapshot, need, self._pools)


def _order_of(queue: QueueState) -> CandidateOrder:
    # Who takes turns goes by what each has received, and node
    # by node (`admission.preemption.least_attained_victims`).
    is_by_loss = queue.policy.preemption is not None and queue.turns is None
    return CandidateOrder.LOSS if is_by_loss else CandidateOrder.KUEUE


def eviction_message(target: Target, queue: QueueState, pending: Pending, job_uid: str) -> str:
    """Return the sentence for the victim: for whom, by which right, and where both stand in the tree."""
    return (
        f"Preempted to accommodate a workload (UID: {pending.workload.uid}, JobUID: {job_uid or 'UNKNOWN'}) "
        f"due to {_RIGHTS[target.reason]}; preemptor path: {queue.node.path()}; "
        f"preemptee path: {target.queue.node.path()}"
    )
