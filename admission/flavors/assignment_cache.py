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
Neither does a place in a topology. Plans belong to a `QueueState`, which every change of specs replaces. A
search that depends on more than shape, specs and usage (a policy, a forecast) must not use this cache.

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

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from admission.decisions.assignment import Assignment, Mode, PodSetChoice
from admission.decisions.assignment_memo import Impasse, QuotaAnswer, RememberedAssignment, RememberedStep
from admission.decisions.flavor_mode import Granular
from admission.snapshot.queue_state import QueueGroup, QueueState
from api.reasons import PendingReason
from queues.pending.pending_queue import FlavorScan, Pending
from queues.quota.resources import FlavorResource

# Caps the plans of one ClusterQueue, for users whose requests are all different.
_MOST_PLANS = 1024
# Reasons that rule a flavor out however empty the cluster is.
_FOR_GOOD = frozenset({PendingReason.NO_MATCHING_FLAVOR, PendingReason.EXCEEDS_MAX_QUOTA})


class Recalled(NamedTuple):
    """A known result of a search. It applies only if no Workload can be evicted for any of `pairs`."""

    assignment: Assignment
    pairs: frozenset[FlavorResource] = frozenset()


def recall(queue: QueueState, pending: Pending) -> Recalled | None:
    """Return what a search from the first flavor would find for all pods, None where a search is needed."""
    plan = queue.plans.get(pending.shape)
    # Asked again on every use: an admission since then may have changed room and heights.
    if plan is not None and plan.holds():
        found = plan.found
        return Recalled(
            Assignment(
                pod_sets=found.pod_sets,
                usage=found.usage,
                borrowing=found.borrowing,
                mode=Mode.FIT,
                scan=_scan_of(found, queue, pending),
                admission=plan.admission,
            )
        )
    impasse = queue.impasses.get(pending.shape)
    # None where a question now has another answer; the messages take the present numbers.
    renamed = impasse.renamed() if impasse is not None else None
    if impasse is None or renamed is None:
        return None
    found, scan = impasse.found, _scan_of(impasse.found, queue, pending)
    if renamed:
        choices = tuple(_with_reasons(choice, renamed) for choice in found.pod_sets)
        return Recalled(replace(found, pod_sets=choices, scan=scan), impasse.pairs)
    return Recalled(replace(found, scan=scan), impasse.pairs)


def learn(queue: QueueState, pending: Pending, found: Assignment, weighed: Sequence[QuotaAnswer]) -> None:
    """Keep what a search from the first flavor found for all pods, where equal Workloads may share it.

    `found` has no victims, and `weighed` are the questions of the search. Nothing is kept of a result that
    has places, or that depends on flavors that are only full now.
    """
    # Places depend on nodes, and no question of a plan is about nodes.
    if found.places:
        return
    if found.mode is Mode.FIT:
        _learn_plan(queue, pending, found)
    else:
        _learn_impasse(queue, pending, found, weighed)


def _learn_plan(queue: QueueState, pending: Pending, found: Assignment) -> None:
    steps = _steps(queue, found)
    if steps is None:
        return
    # Clears all plans at once: the shapes in use return at their next search, and no order has to be kept.
    if len(queue.plans) >= _MOST_PLANS:
        queue.plans.clear()
    queue.plans[pending.shape] = RememberedAssignment(
        steps=steps, found=found, admission=found.to_admission(queue.name)
    )


def _learn_impasse(
    queue: QueueState, pending: Pending, found: Assignment, weighed: Sequence[QuotaAnswer]
) -> None:
    # With flavors left to try, the next search continues there and has another result.
    if found.mode not in (Mode.PREEMPT, Mode.NO_FIT) or found.scan.has_flavors_left:
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
    return FlavorScan(
        # A scan of the present generation: it must not appear older than the tree it is used in.
        tried=found.scan.tried,
        generation=queue.tree.generation,
        cycle=queue.pending.pop_cycle,
        shape=pending.shape,
    )


def _with_reasons(choice: PodSetChoice, renamed: Mapping[str, str]) -> PodSetChoice:
    return replace(choice, reasons=tuple(renamed.get(reason, reason) for reason in choice.reasons))


def _steps(queue: QueueState, found: Assignment) -> tuple[RememberedStep, ...] | None:
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
