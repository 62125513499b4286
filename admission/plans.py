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
"""

from __future__ import annotations

from admission.assignment import Assignment, Mode, Plan, PodSetChoice, Step
from admission.snapshot import QueueGroup, QueueState
from api.reasons import PendingReason
from queues.pending import FlavorScan, Pending
from queues.resources import FlavorResource

# Caps the plans of one ClusterQueue, for users who never ask for the same twice.
_MOST_PLANS = 1024
# What rules a flavor out however empty the cluster is.
_FOR_GOOD = frozenset({PendingReason.NO_MATCHING_FLAVOR, PendingReason.EXCEEDS_MAX_QUOTA})


def recall(queue: QueueState, pending: Pending) -> Assignment | None:
    """Return what a search would find for all pods of the Workload, None where it has to be made."""
    plan = queue.plans.get(pending.shape)
    if plan is None or not plan.holds():
        return None
    scan = pending.scan
    if scan is not None and scan.has_flavors_left:
        return None
    found = plan.found
    return Assignment(
        pod_sets=found.pod_sets,
        usage=found.usage,
        borrowing=found.borrowing,
        mode=Mode.FIT,
        scan=FlavorScan(
            tried=found.scan.tried,
            generation=queue.tree.generation,
            cycle=queue.pending.pop_cycle,
            shape=pending.shape,
        ),
        admission=plan.admission,
    )


def learn(queue: QueueState, pending: Pending, found: Assignment) -> None:
    """Keep what a search from the first flavor found for all pods, where equal Workloads may share it."""
    if found.mode is not Mode.FIT or found.places:
        return
    steps = _steps(queue, found)
    if steps is None:
        return
    if len(queue.plans) >= _MOST_PLANS:
        queue.plans.clear()
    queue.plans[pending.shape] = Plan(steps=steps, found=found, admission=found.to_admission(queue.name))


def _steps(queue: QueueState, found: Assignment) -> tuple[Step, ...] | None:
    steps = []
    total: dict[FlavorResource, int] = {}
    for choice in found.pod_sets:
        for resource, chosen in choice.choices.items():
            group = queue.groups.get(resource)
            if group is None or not _is_first(group, choice, resource):
                return None
            pair = FlavorResource(chosen.flavor, resource)
            total[pair] = total.get(pair, 0) + choice.requests.get(resource, 0)
            steps.append(Step(queue.node.cell(pair), total[pair], chosen.height))
    return tuple(steps)


def _is_first(group: QueueGroup, choice: PodSetChoice, resource: str) -> bool:
    """Return whether the chosen flavor is the first that could ever do, and none was tried after it."""
    chosen = choice.choices[resource]
    index = group.flavors.index(chosen.flavor)
    last = len(group.flavors) - 1
    if chosen.tried != (-1 if index == last else index):
        return False
    out = {one.flavor for one in choice.attempts if one.group == group.index and one.reason in _FOR_GOOD}
    return out.issuperset(group.flavors[:index])
