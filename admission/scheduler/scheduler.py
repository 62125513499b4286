"""One scheduling cycle: what is decided for the head of each ClusterQueue?

    1 nominate  find the best flavors, places and targets for every head, as if it were alone
    2 order     preemptors first, then by least borrowing, priority and age, or by fair share
    3 process   in that order, on top of what earlier heads took: admit, preempt others for it, or wait

A cycle takes one head of each ClusterQueue and nominates all heads on the same snapshot. Since each is
nominated alone, a later one may no longer fit when its turn comes; it is then skipped and tried again in the
next cycle. All this is tried on the snapshot and rolled back at the end. Nothing is written here: the
outcomes say what to do (`admission.nomination.head_outcome`).

The cost is one nomination per head, which is a search for flavors and, where it needs them, for places and
targets; processing costs little more. The cycle yields after each head so that it may be paused
(`resumable_cycle`). It ends: every head is processed once, and under backfill each head that is passed over
leaves its queue before the next one is taken.

Source: Kueue, pkg/scheduler/scheduler.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from admission.backfill.backfill_cycle import Backfill
from admission.nomination.entry_ordering import classical_order, fair_order
from admission.nomination.head_outcome import HeadOutcome, with_protection
from admission.nomination.nominate import CyclePolicy, Nominator
from admission.nomination.nominate_heads import PassOn, nominate_heads
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemptor import Preemptor
from admission.scheduler.cycle_capacity import CycleCapacity, IsSpent
from admission.scheduler.entry_processing import EntryProcessor
from admission.scheduler.readiness_gate import ReadinessGate
from admission.snapshot.capacity_holds import NO_CLAIMS, HoldClaims
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from queues.estimates.estimator import Estimator
from queues.pending.pending_queue import Pending
from queues.steps import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRules:
    """What a cycle decides by, beside the snapshot.

    `now` is in Unix seconds. With `backfill`, promised starts are respected and new ones are made. Capacity
    in `claims` is kept from all heads, and so is the capacity that a head of this cycle waits for until
    others have left, unless `is_spent`. `estimator` knows the run times of earlier runs; by default there
    were none. `readiness` None: admissions do not wait for the pods of others.
    """

    policy: CyclePolicy
    now: float
    backfill: Backfill | None = None
    estimator: Estimator = field(default_factory=Estimator)
    claims: HoldClaims = NO_CLAIMS
    is_spent: IsSpent | None = None
    readiness: ReadinessGate | None = None


def schedule(
    snapshot: Snapshot,
    heads: Iterable[tuple[QueueState, Pending]],
    rules: CycleRules,
    *,
    pass_on: PassOn | None = None,
) -> Steps[tuple[HeadOutcome, ...]]:
    """Return the outcome for each head, in the order in which to apply them; yield after each look at a head.

    `heads` holds at most one Workload of each ClusterQueue. The snapshot is left as it was found. Under
    backfill a head found inadmissible is replaced: `pass_on` gives the next of its queue.
    """
    policy, backfill = rules.policy, rules.backfill
    # Shared by the whole cycle, so that the loss of evicting a Workload is computed only once.
    losses = EvictionLosses(now=rules.now, estimator=rules.estimator)
    preemptor = Preemptor(snapshot=snapshot, losses=losses, fair_sharing=policy.fair_sharing)
    nominator = Nominator(snapshot=snapshot, preemptor=preemptor, policy=policy)
    capacity = CycleCapacity(snapshot=snapshot, is_spent=rules.is_spent)
    # Held capacity is taken off before the first nomination, so that no head finds room there.
    capacity.keep(rules.claims)
    entries, outcomes = yield from nominate_heads(
        nominator,
        heads,
        promises_nothing=backfill.promises_nothing if backfill is not None else None,
        pass_on=pass_on,
    )
    # Ordering waits until all are nominated, since it depends on what each would borrow.
    is_fair = policy.fair_sharing is not None
    in_order = fair_order(snapshot, entries) if is_fair else classical_order(entries)
    processor = EntryProcessor(
        capacity=capacity, nominator=nominator, now=rules.now, backfill=backfill, readiness=rules.readiness
    )
    for entry in in_order:
        outcome = yield from processor.process(entry)
        # Only for a head that waits it matters which Workloads are protected, and until when.
        if outcome.requeue is not None:
            outcome = with_protection(outcome, entry, losses)
            if spared_until := losses.spared.get(entry.queue.name):
                outcome = replace(outcome, spared_until=spared_until)
        outcomes.append(outcome)
        yield
    # Everything was tried on the snapshot only; the outcomes are applied to the state one by one.
    snapshot.rollback()
    if backfill is not None:
        backfill.finish()
    return tuple(outcomes)
