"""The victims that lose least among all that Kueue's rules allow: several searches, and the cheapest answer.

Theory of operation. The smallest sum of losses that makes room is a covering knapsack, which is NP-hard.
Kueue's search (`admission.preemption.targets`) takes candidates in one order until the preemptor fits, then
puts back those that are not needed. Which order is best depends on the case, so several are tried:

    order                      good where
    least loss first           many small victims make the room, and any of them will do
    least loss per amount      one large victim is cheaper than the small ones that came before it
    the cheapest nodes alone   a pod needs its amount on one node: evicting a bit everywhere frees none
    Kueue's own                always: no answer is worse than this one

Each order is tried on the snapshot and undone. The first two are tried only where the choice of nodes
(`admission.preemption.node_cover`) gave no answer: without a topology, or where quota is short and not nodes.

Answers are compared as Kueue ranks victims: first the loss of the preemptor's own queue at the highest
priority, then at the next lower one, then that of other queues likewise. So no loss, however small, is
avoided by evicting a more important Workload. Of equal answers the first counts, which makes the choice
repeatable. A gang is one Workload and is evicted as a whole.

Invariant: the answer is never worse than Kueue's, and the snapshot is left as it was. Cost: at most
_MOST_COVERS + 3 searches, each after Kueue's ended early once it takes far more victims than that.
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

# Caps the node covers that are tried; each costs a search of its own. The second one helps where the first
# fails for a reason that covers do not know: a slice that must be in one domain, a budget, quota.
_MOST_COVERS = 2
# Cap the victims of a search. Where a whole rack is needed, an order by loss alone takes nearly all
# candidates before one rack is empty, with a search for places after each. A search gives up after this
# multiple of the number of victims in Kueue's order, plus the second constant.
_MOST_TAKEN = 3
_TAKEN_BESIDES = 16

_Cost = list[tuple[bool, int, float]]


def least_loss_targets(
    snapshot: Snapshot, need: PreemptionRequest, pools: Pools
) -> Steps[tuple[Target, ...]]:
    """Return the Workloads to evict so that `need` fits with the least loss; () where evictions do not help.

    The snapshot is left as it was.

    `need.order` is ignored, since all orders are tried. Every answer respects the preemption policies,
    because each search is Kueue's.
    """
    # Kueue's order first: it shows whether there is room at all, and how many victims that takes at most.
    plain = yield from classical_targets(snapshot, replace(need, order=CandidateOrder.KUEUE), pools)
    if not plain:
        return ()  # Kueue's order takes every candidate in the end; where it fails, all orders fail.
    if all(target.held.is_evicted for target in plain):
        # For example while victims of an earlier decision are stopping. No answer costs less than that.
        return plain
    answers = [plain]

    def look(**terms: Any) -> Steps[None]:
        found = yield from classical_targets(snapshot, replace(bounded, **terms), pools)
        if found:
            answers.append(found)

    # An answer that takes far more victims than Kueue's will not be cheaper, so the search for it is cut off.
    bounded = replace(need, most_taken=_MOST_TAKEN * len(plain) + _TAKEN_BESIDES)
    covers = yield from cheapest_covers(snapshot, need, pools, most=_MOST_COVERS)
    for keys in covers:
        yield from look(within=keys)
    # Where nodes were chosen, the two orders by loss are hardly ever better, and each costs a search.
    if len(answers) == 1:
        for order in (CandidateOrder.LOSS, CandidateOrder.LOSS_PER_AMOUNT):
            yield from look(order=order)
    # `min` returns the first of equal answers, which is Kueue's own.
    return min(answers, key=lambda targets: cost_of(need, targets))


def cost_of(need: PreemptionRequest, targets: tuple[Target, ...]) -> _Cost:
    """Return the cost of the answer in device-seconds by severity, the highest first. Lower is better.

    The severity is whether the victims are of the preemptor's own queue, and then their priority. Victims
    that are leaving already cost nothing.
    """
    costs: dict[tuple[bool, int], float] = {}
    for target in targets:
        if not target.held.is_evicted:
            severity = (target.queue is need.queue, target.held.workload.priority)
            # By the preemptor's policy: all victims of one decision are measured alike.
            costs[severity] = costs.get(severity, 0.0) + need.losses.of(target.held, need.queue)
    # Gravest first, so that comparing two lists compares what matters most first.
    return [(*severity, costs[severity]) for severity in sorted(costs, reverse=True)]
