"""A cache of flavor search results that equal Workloads share.

Thousands of queued Workloads have only a few shapes. For Workloads of one shape in one ClusterQueue, a search
has the same result as long as nothing that it read has changed. Where the first usable flavor has room, the
search reads very little: does each amount fit, and how far up the tree would it borrow? A plan keeps these
questions with their answers, and the assignment that follows from them:

    search finds FIT in the first usable flavor       ──▶ plan: cell, amount, height  ×  resources
    next Workload of the shape, same room and height  ──▶ the same assignment, no search
    anything else                                     ──▶ search

Flavors before the chosen one must be permanently unusable: by taints, labels, or an amount above what the
tree could ever give. A flavor that is only full now may have room next time, so such a result makes no plan.
Plans belong to a `QueueState`, which every change of specs replaces. A search that depends on more than
shape, specs and usage (a policy, a forecast) must not use this cache. A plan has what the pods request of a
topology, but no place: the topology keeps those for as long as no node changes.

A search that finds neither room nor victims is kept as well, as an impasse. Every end of a small Workload
wakes the large ones that wait for much more. Without the impasse all of these are searched for again, only
to report another number:

    search ends without room, without victims         ──▶ impasse: all questions that were asked
    same shape, same shortages, no possible victim    ──▶ the same assignment, with current numbers
    anything else                                     ──▶ search

Whether a possible victim exists is checked by a cheap test with a one-sided error: it may report a possible
victim where the search would find none, but never the reverse. Where it reports one, the search is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from admission.decisions.assignment import Assignment, Mode, PodSetChoice
from admission.decisions.assignment_memo import Impasse, QuotaAnswer, RememberedAssignment, RememberedStep
from admission.decisions.flavor_mode import Granular
from admission.flavors.flavor_assigner import FlavorSearch, lack_message
from admission.snapshot.queue_state import QueueGroup, QueueState
from api.reasons import PendingReason
from queues.pending.pending_queue import FlavorScan, Pending
from queues.quota.resources import FlavorResource

# Whether there is certainly no victim for any of these pairs. False proves nothing.
FindsNoVictim = Callable[[QueueState, Pending, frozenset[FlavorResource]], bool]

# Caps the plans of one ClusterQueue, for users whose requests are all different.
_MOST_PLANS = 1024
# Reasons that rule a flavor out however empty the cluster is.
_FOR_GOOD = frozenset({PendingReason.NO_MATCHING_FLAVOR, PendingReason.EXCEEDS_MAX_QUOTA})


def recall(queue: QueueState, pending: Pending, finds_no_victim: FindsNoVictim) -> Assignment | None:
    """Return what a search from the first flavor would find for all pods, None where it has to be made.

    An answer is exactly what the search would return now: every question that it asked of the quota tree is
    asked again, which costs a comparison for each, and one different answer discards the result. Only for all
    pods; partial admission always searches. `finds_no_victim` says whether still no Workload can be evicted
    for the pairs that evictions were considered for.
    """
    if (fitting := recall_fitting(queue, pending)) is not None:
        return fitting
    impasse = queue.impasses.get(pending.shape)
    # None where a question now has another answer; the messages take the present numbers.
    renamed = _renamed(impasse.weighed) if impasse is not None else None
    # A possible victim may have appeared since.
    if impasse is None or renamed is None or not finds_no_victim(queue, pending, impasse.pairs):
        return None
    found, scan = impasse.found, _scan_of(impasse.found, queue, pending)
    if not renamed:
        return replace(found, scan=scan)
    return replace(found, pod_sets=tuple(_with_reasons(one, renamed) for one in found.pod_sets), scan=scan)


def recall_fitting(queue: QueueState, pending: Pending) -> Assignment | None:
    """Return what a search from the first flavor would find if all of it has room, None where it has not.

    None also where no search of an equal Workload is kept.
    """
    plan = queue.plans.get(pending.shape)
    # Asked again on every use: an admission since then may have changed room and heights.
    if plan is None or not _still_fits(plan.steps):
        return None
    return replace(plan.found, scan=_scan_of(plan.found, queue, pending))


def _still_fits(steps: Sequence[RememberedStep]) -> bool:
    """Return whether every amount still fits its cell, and borrows from the same height."""
    for cell, amount, height in steps:
        if amount > 0 and amount > cell.available:
            return False
        if cell.borrow_height(amount).height != height:
            return False
    return True


def _renamed(weighed: Sequence[QuotaAnswer]) -> dict[str, str] | None:
    """Return the messages that have changed, old to new, or None where another answer has changed.

    The missing amount is part of the message and moves with every admission; only whether it is missing
    decides.
    """
    changed: dict[str, str] = {}
    for pair, cell, total, reach, grade, message, _ in weighed:
        if reach is None:
            continue
        lack = total - max(0, cell.available)
        if (lack <= 0) is not (grade.mode is Granular.FIT) or cell.borrow_height(total) != reach:
            return None
        if lack > 0 and (now := lack_message(pair, lack)) != message:
            changed[message] = now
    return changed


def learn(search: FlavorSearch, found: Assignment) -> None:
    """Keep what the search found from the first flavor for all pods, where equal Workloads may share it.

    `found` has no victims and no places. Nothing is kept of a result that depends on flavors that are only
    full now.
    """
    if found.mode is not Mode.FIT:
        _learn_impasse(search.queue, search.pending, found, search.weighed)
    else:
        _learn_plan(search.queue, search.pending, found)


def _learn_plan(queue: QueueState, pending: Pending, found: Assignment) -> None:
    """Remember an assignment that fits, unless the search passed over a flavor on the way to it."""
    steps = _steps(queue, found)
    if steps is None:
        return
    # Clears all plans at once: the shapes in use return at their next search, and no order has to be kept.
    if len(queue.plans) >= _MOST_PLANS:
        queue.plans.clear()
    # With a topology the admission names the nodes, which are found for each Workload.
    if not found.placing:
        found = replace(found, admission=found.to_admission(queue.name))
    queue.plans[pending.shape] = RememberedAssignment(steps=steps, found=found)


def _learn_impasse(
    queue: QueueState, pending: Pending, found: Assignment, weighed: Sequence[QuotaAnswer]
) -> None:
    """Remember that a shape does not fit, with all answers that led to this result."""
    # With flavors left to try, the next search continues there and has another result.
    if found.scan.has_flavors_left:
        return
    # A refusal that may pass by itself, by time or by a policy, must not be kept.
    if not all(one.is_lasting for one in weighed):
        return
    if len(queue.impasses) >= _MOST_PLANS:
        queue.impasses.clear()
    queue.impasses[pending.shape] = Impasse(
        weighed=tuple(weighed),
        found=found,
        # Only pairs for which the search looked for victims: the others need no test for victims.
        pairs=frozenset(one.pair for one in weighed if one.grade.mode is Granular.NO_CANDIDATES),
    )


def _scan_of(found: Assignment, queue: QueueState, pending: Pending) -> FlavorScan:
    """Return the scan of a remembered result, as if a search of the present cycle had made it."""
    return FlavorScan(
        # A scan of the present generation: it must not appear older than the tree it is used in.
        tried=found.scan.tried,
        generation=queue.tree.generation,
        cycle=queue.pending.pop_cycle,
        shape=pending.shape,
    )


def _with_reasons(choice: PodSetChoice, renamed: Mapping[str, str]) -> PodSetChoice:
    """Return the choice with its messages in the present numbers."""
    return replace(choice, reasons=tuple(renamed.get(reason, reason) for reason in choice.reasons))


def _steps(queue: QueueState, found: Assignment) -> tuple[RememberedStep, ...] | None:
    """Return the questions a search asks for this assignment, None where it skipped a flavor."""
    steps = []
    total: dict[FlavorResource, int] = {}
    for choice in found.pod_sets:
        for resource, chosen in choice.choices.items():
            group = queue.groups.get(resource)
            if group is None or not _is_first(group, choice, resource):
                return None
            pair = FlavorResource(chosen.flavor, resource)
            # The pod sets of one Workload add up in a cell, as the search counts them.
            total[pair] = total.get(pair, 0) + choice.requests.get(resource, 0)
            steps.append(RememberedStep(queue.node.cell(pair), total[pair], chosen.height))
    return tuple(steps)


def _is_first(group: QueueGroup, choice: PodSetChoice, resource: str) -> bool:
    """Return whether the chosen flavor is the first usable one, and no flavor was tried after it."""
    chosen = choice.choices[resource]
    index = group.flavors.index(chosen.flavor)
    last = len(group.flavors) - 1
    # The search went past the chosen flavor: it weighed flavors that the questions here do not cover.
    if chosen.tried != (-1 if index == last else index):
        return False
    out = {one.flavor for one in choice.attempts if one.group == group.index and one.reason in _FOR_GOOD}
    return out.issuperset(group.flavors[:index])
