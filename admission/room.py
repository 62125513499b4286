"""Is there room at all? Conditions that are necessary for a start, and cheap.

A search for flavors and nodes costs a tenth of a millisecond and more, and in a full cluster most searches
come to nothing: thousands wait, of a few shapes, and what has just come free is too little for nearly all.
What is asked here is much less than whether a Workload fits, pod set by pod set:

    some flavor has the quota for it   and   on that flavor's nodes its pods have room, each by itself

Limits of domains, of other pod sets beside it and of several flavors together are left out. So "no" is
certain, and "yes" means no more than that it is worth a search. What is looked at of a shape is worked out
once (`QueueState.needs`, which goes with every change of specs).
"""

from __future__ import annotations

from collections.abc import Iterator

from admission.answers import Option
from admission.snapshot import QueueState, Snapshot
from admission.topology import placement_request
from admission.wishes import with_wishes
from api.queueing import PreemptionPolicy
from api.requests import PODS
from queues.pending import Pending
from queues.profile import Spots

_NO_CHANGES: Spots = {}
# Caps the shapes that one ClusterQueue keeps needs of, as plans are.
_MOST_SHAPES = 1024


def may_have_room(
    snapshot: Snapshot, queue: QueueState, pending: Pending, *, changes: Spots = _NO_CHANGES
) -> bool:
    """Return False only where the Workload could not start if so much more of the spots was taken.

    With the fewest pods that it may run with. The quota is looked at as it is.
    """
    if queue.reservations:
        # What is kept for some of its Workloads is free for them alone.
        return True
    needs = queue.needs.get(pending.shape)
    if needs is None:
        if len(queue.needs) >= _MOST_SHAPES:
            queue.needs.clear()
        needs = queue.needs[pending.shape] = tuple(_needs(snapshot, queue, pending))
    return all(any(_is_open(snapshot, option, changes) for option in options) for options in needs)


def never_evicts(queue: QueueState) -> bool:
    """Return whether nobody is ever evicted for a Workload of this queue."""
    preemption = queue.spec.preemption
    policies = (
        preemption.within_cluster_queue,
        preemption.reclaim_within_cohort,
        preemption.borrow_within_cohort,
    )
    return queue.turns is None and all(policy is PreemptionPolicy.NEVER for policy in policies)


def _is_open(snapshot: Snapshot, option: Option, changes: Spots) -> bool:
    for cell, amount in option.amounts:
        if amount > 0 and amount > cell.available:
            return False
    request = option.request
    if request is None:
        return True
    return snapshot.fleet.room_after(option.flavor, request, changes, enough=request.count) >= request.count


def _needs(snapshot: Snapshot, queue: QueueState, pending: Pending) -> Iterator[tuple[Option, ...]]:
    for pod_set, asked in zip(pending.workload.pod_sets, pending.requests, strict=True):
        count = asked.count if pod_set.min_count is None else min(asked.count, pod_set.min_count)
        if count == 0:
            continue
        amounts = {resource: amount * count for resource, amount in asked.per_pod.items()}
        if PODS in queue.groups:
            amounts[PODS] = count
        groups = {group.index: group for resource in amounts if (group := queue.groups.get(resource))}
        for group in groups.values():
            options = []
            for flavor, cells in zip(group.flavors, group.cells, strict=True):
                is_placed = snapshot.fleet.has_topology(flavor) and flavor not in queue.delayed_flavors
                request = None
                if is_placed and flavor in snapshot.flavors:
                    rules = queue.policy.placement
                    request = placement_request(
                        pod_set, asked, snapshot.flavors[flavor], count=count, rules=rules
                    )
                    request = with_wishes(request, queue, pending.workload, pod_set)
                taken = ((cells[name][1], amounts[name]) for name in group.resources if name in amounts)
                options.append(Option(flavor=flavor, amounts=tuple(taken), request=request))
            yield tuple(options)
