"""Cheap necessary conditions for a start, checked before the search for flavors and nodes.

A search costs a tenth of a millisecond and more, and in a full cluster most searches find nothing: thousands
of Workloads of a few shapes wait, and the capacity that was just freed is too little for nearly all of them.
These conditions are much weaker than whether a Workload fits. They are checked pod set by pod set:

    some flavor has the quota for it   and   that flavor's nodes have room for its pods, each pod by itself

Limits of domains, other pod sets of the Workload and combinations of flavors are ignored. So "no" is certain,
and "yes" only means that a search is worth its cost. What a shape needs is computed once (`QueueState.needs`,
which every change of specs discards).
"""

from __future__ import annotations

from collections.abc import Iterator

from admission.decisions.assignment_memo import Option
from admission.flavors.placement_hints import with_hints
from admission.flavors.topology_assigner import placement_request
from admission.placement.topology.pod_room import PodRoom
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import PODS
from api.queueing import PreemptionPolicy
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import Rooms

# Caps the shapes whose needs one ClusterQueue keeps.
_MOST_SHAPES = 1024


def may_have_room(snapshot: Snapshot, queue: QueueState, pending: Pending) -> bool:
    """Return False only where the Workload could not start now even with its minimum pod counts.

    Checks quota and nodes of the present snapshot, trials included. O(options of the shape), a few dictionary
    look-ups and one count of free pods each; the counts are kept by `TopologyCache` until nodes change.
    """
    if queue.reservations:
        # Capacity reserved for some of its Workloads is free for those alone, so nothing is certain here.
        return True
    needs = needs_of(snapshot, queue, pending)
    return all(any(_is_open(snapshot, option) for option in options) for options in needs)


def may_have_quota(snapshot: Snapshot, queue: QueueState, pending: Pending) -> bool:
    """Return False only where the Workload lacks the quota to start now even with its minimum counts.

    Nodes are not looked at. Used where the stage shows another instant, whose nodes are checked separately
    (`queues.profile.node_windows`).
    """
    if queue.reservations:
        return True
    needs = needs_of(snapshot, queue, pending)
    return all(any(_has_quota(option) for option in options) for options in needs)


def rooms_of(snapshot: Snapshot, queue: QueueState, pending: Pending) -> Rooms:
    """Return the possible rooms for each pod set that is placed on nodes, one for each flavor it could use.

    Pod sets with a flavor whose nodes are not checked are left out.

    The pod set finds room if one of its rooms has it. An empty result means that nodes are no condition.
    """
    rooms = []
    for options in needs_of(snapshot, queue, pending):
        found = [_room(snapshot, option) for option in options]
        if all(found):
            rooms.append([room for room in found if room is not None])
    return rooms


def needs_of(snapshot: Snapshot, queue: QueueState, pending: Pending) -> tuple[tuple[Option, ...], ...]:
    """Return what the Workload needs: from each of the tuples, one option.

    One tuple for each pod set and resource group, with an option for each flavor of the group. Workloads of
    one shape share the result, which holds for the minimum counts where partial admission is allowed. At most
    `_MOST_SHAPES` shapes are kept.
    """
    needs = queue.needs.get(pending.shape)
    if needs is None:
        if len(queue.needs) >= _MOST_SHAPES:
            queue.needs.clear()
        needs = queue.needs[pending.shape] = tuple(_needs(snapshot, queue, pending))
    return needs


def never_evicts(queue: QueueState) -> bool:
    """Return whether no Workload is ever evicted, or moved elsewhere, for one of this queue."""
    return never_preempts(queue) and not moves_others(queue)


def moves_others(queue: QueueState) -> bool:
    """Return whether others may be moved for a Workload of this queue. That frees nodes, never quota."""
    placement = queue.policy.placement
    return placement is not None and placement.consolidation is not None


def never_preempts(queue: QueueState) -> bool:
    """Return whether no Workload is ever preempted for one of this queue; moves do not count."""
    # Short, because it is called for every pending Workload whenever capacity is freed.
    preemption, never = queue.spec.preemption, PreemptionPolicy.NEVER
    return (
        queue.turns is None
        and preemption.within_cluster_queue is never
        and preemption.reclaim_within_cohort is never
        and preemption.borrow_within_cohort is never
    )


def _is_open(snapshot: Snapshot, option: Option) -> bool:
    """Return whether quota and nodes of this option suffice for the pods, each pod by itself."""
    if not _has_quota(option):
        return False
    room = _room(snapshot, option)
    return room is None or room.total() >= room.needed


def _has_quota(option: Option) -> bool:
    """Return whether every amount of the option is available now, borrowing included."""
    return all(amount <= cell.available for cell, amount in option.amounts if amount > 0)


def _room(snapshot: Snapshot, option: Option) -> PodRoom | None:
    """Return the room for the option's pods, None where it is not checked on nodes."""
    if option.request is None:
        return None
    return snapshot.topology_cache.search(option.flavor).room(option.request)


def _needs(snapshot: Snapshot, queue: QueueState, pending: Pending) -> Iterator[tuple[Option, ...]]:
    """Yield for each pod set and resource group the flavors that could serve it."""
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
                is_placed = (
                    snapshot.topology_cache.has_topology(flavor) and flavor not in queue.delayed_flavors
                )
                request = None
                if is_placed and flavor in snapshot.objects.flavors:
                    rules = queue.policy.placement
                    request = placement_request(
                        pod_set, asked, snapshot.objects.flavors[flavor], count=count, rules=rules
                    )
                    request = with_hints(snapshot, request, queue, pending.workload, pod_set)
                taken = ((cells[name][1], amounts[name]) for name in group.resources if name in amounts)
                options.append(Option(flavor=flavor, amounts=tuple(taken), request=request))
            yield tuple(options)
