"""Answers of the flavor search that equal Workloads share.

Fifteen thousand queued Workloads are of a few shapes. For those of one shape in one ClusterQueue a search
ends alike as long as nothing that it looked at has changed, and where the first flavor that will do at all
has room, it looks at very little: is there room for each amount, and how far up the tree would it borrow? A
plan keeps these questions with their answers, and the assignment that follows:

    search finds FIT in the first flavor that will do ──▶ plan: cell, amount, height  ×  resources
    next Workload of the shape, same room and height  ──▶ the same assignment, no search
    anything else                                     ──▶ search

Flavors before that one must be out for good: taints, labels, or an amount beyond what the tree could ever
give. A flavor that merely is full now may have room next time, so such an answer makes no plan; nor does a
place in a topology. Plans belong to a `QueueState`, which any change of specs replaces. Whoever lets a search
depend on more than shape, specs and usage (a policy, a forecast) must not ask here.

A search in vain is kept likewise, as an impasse. Every end of a small Workload wakes the large ones that wait
for much more, and all of them are searched for again only to be told a new number:

    search ends without room, without victims         ──▶ impasse: all questions that were asked
    next of the shape, the same lacks, nobody to evict ──▶ the same assignment, the numbers put right
    anything else                                     ──▶ search

That nobody can be evicted is asked in a way that costs little and errs on one side: it may say "perhaps"
where a search would find nobody, never "nobody" where a search would find one. Then the search is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from admission.decisions.assignment import Assignment, Mode, PodSetChoice
from admission.decisions.assignment_memo import Impasse, RememberedAssignment, RememberedStep, Weighed
from admission.decisions.flavor_mode import Granular
from admission.snapshot.snapshot import QueueGroup, QueueState
from api.reasons import PendingReason
from queues.pending.pending_queue import FlavorScan, Pending
from queues.quota.resources import FlavorResource

# Caps the plans of one ClusterQueue, for users who never ask for the same twice.
_MOST_PLANS = 1024
# What rules a flavor out however empty the cluster is.
_FOR_GOOD = frozenset({PendingReason.NO_MATCHING_FLAVOR, PendingReason.EXCEEDS_MAX_QUOTA})


def recall(queue: QueueState, pending: Pending) -> Assignment | None:
    """Return what a search would find for all pods of the Workload, None where it has to be made."""
    plan = queue.plans.get(pending.shape)
    # Everything asked again: room and heights are what another's start may have changed since.
    if plan is None or not plan.holds():
        return None
    # A plan answers for a search from the first flavor; this one would begin further on.
    if _goes_on(pending):
        return None
    found = plan.found
    return Assignment(
        pod_sets=found.pod_sets,
        usage=found.usage,
        borrowing=found.borrowing,
        mode=Mode.FIT,
        scan=_scan_of(found, queue, pending),
        admission=plan.admission,
    )


def learn(queue: QueueState, pending: Pending, found: Assignment) -> None:
    """Keep what a search from the first flavor found for all pods, where equal Workloads may share it."""
    # Places depend on nodes, which no plan asks about.
    if found.mode is not Mode.FIT or found.places:
        return
    steps = _steps(queue, found)
    if steps is None:
        return
    # All at once: the shapes in use come back at their next search, and no order has to be kept.
    if len(queue.plans) >= _MOST_PLANS:
        queue.plans.clear()
    queue.plans[pending.shape] = RememberedAssignment(
        steps=steps, found=found, admission=found.to_admission(queue.name)
    )


def recall_in_vain(
    queue: QueueState, pending: Pending, finds_nobody: Callable[[frozenset[FlavorResource]], bool]
) -> Assignment | None:
    """Return what a search in vain would find for all pods of the Workload, None where it has to be made.

    `finds_nobody` says whether there is certainly nobody to evict for any of some flavors and resources.
    """
    impasse = queue.impasses.get(pending.shape)
    if impasse is None or _goes_on(pending):
        return None
    # The numbers in the reasons are of now; where something else was found, the search is made.
    renamed = impasse.renamed()
    # Somebody may have come who can be evicted; "perhaps" is enough to search.
    if renamed is None or (impasse.pairs and not finds_nobody(impasse.pairs)):
        return None
    found = impasse.found
    return replace(
        found,
        pod_sets=tuple(_with_reasons(choice, renamed) for choice in found.pod_sets)
        if renamed
        else found.pod_sets,
        scan=_scan_of(found, queue, pending),
    )


def learn_in_vain(queue: QueueState, pending: Pending, found: Assignment, weighed: Sequence[Weighed]) -> None:
    """Keep what a search from the first flavor found for all pods that found neither room nor victims."""
    # With flavors left to try the next search goes on there, and finds something else.
    if found.mode not in (Mode.PREEMPT, Mode.NO_FIT) or found.places or found.scan.has_flavors_left:
        return
    # A refusal that may pass by itself, by time or a policy, is none to keep.
    if not all(one.is_lasting for one in weighed):
        return
    if len(queue.impasses) >= _MOST_PLANS:
        queue.impasses.clear()
    queue.impasses[pending.shape] = Impasse(
        weighed=tuple(weighed),
        found=found,
        # Only where the search looked for victims and found none: elsewhere nobody need be asked about.
        pairs=frozenset(one.pair for one in weighed if one.grade.mode is Granular.NO_CANDIDATES),
    )


def _goes_on(pending: Pending) -> bool:
    """Return whether the search would begin behind flavors that an earlier cycle looked at."""
    return pending.scan is not None and pending.scan.has_flavors_left


def _scan_of(found: Assignment, queue: QueueState, pending: Pending) -> FlavorScan:
    return FlavorScan(
        # A scan of this instant: it must not seem older than the tree that it was recalled in.
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
            # Pod sets of one Workload add up in a cell, as the search counted them.
            total[pair] = total.get(pair, 0) + choice.requests.get(resource, 0)
            steps.append(RememberedStep(queue.node.cell(pair), total[pair], chosen.height))
    return tuple(steps)


def _is_first(group: QueueGroup, choice: PodSetChoice, resource: str) -> bool:
    """Return whether the chosen flavor is the first that could ever do, and none was tried after it."""
    chosen = choice.choices[resource]
    index = group.flavors.index(chosen.flavor)
    last = len(group.flavors) - 1
    # Tried further than the chosen one: it weighed flavors that the questions here do not cover.
    if chosen.tried != (-1 if index == last else index):
        return False
    out = {one.flavor for one in choice.attempts if one.group == group.index and one.reason in _FOR_GOOD}
    return out.issuperset(group.flavors[:index])
