"""Victims that lose least, of all whom Kueue's rules allow: several searches, and the cheapest answer.

The smallest sum of losses that makes room is a covering knapsack, and NP-hard. Kueue's search (`targets`)
takes candidates in one order until it fits, then puts back who need not go; which order is best depends on
the case:

    order                      good where
    least loss first           many small ones make the room, and any of them will do
    least loss per amount      one large victim is cheaper than the small ones that came before it
    the cheapest nodes alone   a pod needs its amount on one node: evicting a bit everywhere frees none
    Kueue's own                never beaten by it, whatever the case

Each is tried on the snapshot and taken back, the first two where no choice of nodes (`admission.preemption
.cover`) gave an answer: without a topology, or where quota is short and not places. Answers are
compared as Kueue ranks victims: first what is lost of the preemptor's own queue, then of the highest
priority, then of the next. So no loss, however small, is spared by evicting somebody more important. Of equal
answers the first counts, which makes the choice repeatable. A gang is one Workload and goes as a whole.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from admission.preemption.candidate_pools import Pools
from admission.preemption.node_cover import cheapest_covers
from admission.preemption.preemption_request import CandidateOrder, PreemptionRequest
from admission.preemption.targets import Target, classical_targets
from admission.snapshot.snapshot import Snapshot
from queues.steps import Steps

# Each costs a search of its own. The second stands in where the first fails for a reason that covers do not
# know: a slice that must lie together, a budget, quota.
_MOST_COVERS = 2
# Where a whole rack is needed, an order by loss alone takes nearly everybody before one is empty, at a search
# for places each. It gives up after so many times the victims of the plain order, and some.
_MOST_TAKEN = 3
_TAKEN_BESIDES = 16

_Cost = list[tuple[bool, int, float]]


def least_loss_targets(
    snapshot: Snapshot, need: PreemptionRequest, pools: Pools
) -> Steps[tuple[Target, ...]]:
    """Return whom to evict so that `need` fits and least is lost, () where nobody may be or it does not help.

    The snapshot is left as it was found.
    """
    # Kueue's order first: it alone says whether there is room at all, and how many it takes at most.
    plain = yield from classical_targets(snapshot, replace(need, order=CandidateOrder.KUEUE), pools)
    if not plain:
        return ()  # No order finds room where this one, which takes everybody in the end, does not.
    if all(target.held.is_evicted for target in plain):
        # As while those leave whom it has evicted already. Nothing costs less than nothing.
        return plain
    answers = [plain]

    def look(**terms: Any) -> Steps[None]:
        found = yield from classical_targets(snapshot, replace(bounded, **terms), pools)
        if found:
            answers.append(found)

    # An answer that takes far more than Kueue's will not be cheaper; the search for it is cut off.
    bounded = replace(need, most_taken=_MOST_TAKEN * len(plain) + _TAKEN_BESIDES)
    covers = yield from cheapest_covers(snapshot, need, pools, most=_MOST_COVERS)
    for keys in covers:
        yield from look(within=keys)
    # Where nodes were chosen the two orders by loss are hardly ever better, and each costs a search.
    if len(answers) == 1:
        for order in (CandidateOrder.LOSS, CandidateOrder.LOSS_PER_AMOUNT):
            yield from look(order=order)
    # `min` takes the first of equals: Kueue's own.
    return min(answers, key=lambda targets: cost_of(need, targets))


def cost_of(need: PreemptionRequest, targets: tuple[Target, ...]) -> _Cost:
    """Return what the answer costs, by standing and priority, the gravest first. Who is leaving costs
    nothing.

    In device-seconds. Lower is better.
    """
    costs: dict[tuple[bool, int], float] = {}
    for target in targets:
        if not target.held.is_evicted:
            standing = (target.queue is need.queue, target.held.workload.priority)
            # By the policy of who needs the place: the victims of one decision are weighed with one measure.
            costs[standing] = costs.get(standing, 0.0) + need.losses.of(target.held, need.queue)
    # Gravest first, so that comparing two lists compares what matters most.
    return [(*standing, costs[standing]) for standing in sorted(costs, reverse=True)]
