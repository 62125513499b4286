"""The step after the flavors: a place in the topology for every pod set whose flavor has one.

    all fits            place the pods on what is free; a pod set that finds no place needs evictions
    needs evictions     place the pods on the empty cluster; what has no place even there never fits

Pods whose nodes are yet to be provisioned, or that run in another cluster, are placed later: their pod sets
are admitted with `delayedTopologyRequest: Pending` and get quota only. Those that wait for nodes are placed
in the second pass, once their admission checks are ready.

Pod sets without a topology request are placed too where every flavor of their ClusterQueue has a topology:
otherwise topology-aware placement would not account for them.
Source: Kueue, pkg/scheduler/flavorassigner/tas_flavorassigner.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from operator import is_

import msgspec
from msgspec.structs import replace

from admission.decisions.assignment import Assignment, Attempt, Mode, PodSetChoice
from admission.flavors.placement_hints import with_hints
from admission.placement.replacement import RemainingPlace
from admission.placement.topology.flavor_topology import Amounts
from admission.placement.topology.place import Place, place_of, taken_per_pod
from admission.placement.topology.request import NodeRules, PlacementRequest
from admission.placement.topology_cache import Unplaced
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import PodSetRequests
from api.keys import ADDRESS
from api.objects.common import WireToleration
from api.objects.templates import WirePodSpec
from api.objects.workloads import WirePodSetUpdate
from api.policy import PlacementRules
from api.queueing import ResourceFlavor
from api.reasons import PendingReason
from api.workload import (
    DELAYED_PENDING,
    Admission,
    CheckState,
    DomainCount,
    PodSet,
    PodSetAssignment,
    TopologyAssignment,
    TopologyRequest,
    Workload,
)
from queues.pending.pending_queue import Pending
from queues.steps import Steps

_NO_SPEC = WirePodSpec()
_NO_REQUESTS = PodSetRequests(name="", count=0, per_pod={})


def _placement_requests(
    snapshot: Snapshot, queue: QueueState, pending: Pending, assignment: Assignment
) -> tuple[PlacementRequest, ...]:
    """Return the placement requests of the pod sets whose assigned flavor has a topology."""
    if not snapshot.topology_cache.has_flavors:
        return ()
    workload = pending.workload
    found = (
        (pod_set, _request(snapshot, queue, pod_set, asked, choice))
        for pod_set, asked, choice in zip(
            workload.pod_sets, pending.requests, assignment.pod_sets, strict=False
        )
    )
    return tuple(
        with_hints(snapshot, request, queue, workload, pod_set)
        for pod_set, request in found
        if request is not None
    )


def _request(
    snapshot: Snapshot, queue: QueueState, pod_set: PodSet, asked: PodSetRequests, choice: PodSetChoice
) -> PlacementRequest | None:
    """Return the placement request of one pod set, None where it needs no place now."""
    flavors = {chosen.flavor for chosen in choice.choices.values()}
    # Flavors of one pod set with different topologies contradict each other. The first by name counts,
    # here and everywhere else.
    name = next((one for one in sorted(flavors) if snapshot.topology_cache.has_topology(one)), None)
    if name is None or choice.count == 0 or choice.delayed is not None:
        return None
    flavor = snapshot.objects.flavors[name]
    return placement_request(pod_set, asked, flavor, count=choice.count, rules=queue.policy.placement)


def placement_request(
    pod_set: PodSet,
    asked: PodSetRequests,
    flavor: ResourceFlavor,
    *,
    count: int,
    rules: PlacementRules | None = None,
) -> PlacementRequest:
    """Return what `count` pods of the pod set ask of the flavor's topology; `rules` come from the policy.

    Amounts are those of one pod on its node, in canonical units, with one unit of the resource `pods`.
    Without `rules` domains may be broken up freely.
    """
    return PlacementRequest(
        pod_set=pod_set.name,
        flavor=flavor.name,
        count=_placed(count, pod_set.topology_request),
        # The pod's requests on its node, without the configuration's resource transformations: nodes
        # know nothing of those.
        per_pod=taken_per_pod(asked.on_node),
        topology=pod_set.topology_request,
        rules=_rules(pod_set, flavor),
        keeps_domains_whole=rules is not None and rules.avoids_fragmentation,
    )


def _placed(count: int, topology: TopologyRequest | None) -> int:
    """Return how many of `count` pods get a place: as many as make whole slices.

    The others get quota and stay gated. Fewer pods than one slice are left as they are: they have no place.
    Source: Kueue, tas_flavor_snapshot.go, findLevelWithFitDomains, which counts in slices.
    """
    size = topology.slices[0].size if topology is not None and topology.slices else 1
    return count - count % size if 0 < size <= count else count


def _rules(pod_set: PodSet, flavor: ResourceFlavor, checks: Collection[CheckState] = ()) -> NodeRules:
    """Return which nodes the pods may use. `checks` are those that have reported additions to the pods."""
    spec = pod_set.template.spec or _NO_SPEC
    # The flavor's tolerations are added to the pods at the start, so nodes are judged as if they had them.
    selector, tolerations = dict(spec.node_selector or {}), [*(spec.tolerations or ()), *flavor.tolerations]
    for added in _updates(checks, pod_set.name):
        selector.update(added.node_selector or {})
        tolerations += added.tolerations or ()
    return NodeRules(
        node_selector=tuple(sorted(selector.items())),
        affinity=spec.affinity,
        tolerations=tuple(tolerations),
    )


def check_tolerations(workload: Workload, assignment: PodSetAssignment) -> tuple[WireToleration, ...]:
    """Return the tolerations that admission checks add to the pods of a pod set.

    Only the updates for the pod set of that name count. An update that cannot be read adds nothing; the start
    of the Job reports it.
    """
    updates = _updates(workload.checks, assignment.name)
    return tuple(one for added in updates for one in added.tolerations or ())


def _updates(checks: Collection[CheckState], pod_set: str) -> list[WirePodSetUpdate]:
    """Return what the checks change in the pods of one pod set, in the order of the checks."""
    found = [_read_update(update) for check in checks for update in check.pod_set_updates]
    return [update for update in found if update.name == pod_set]


def _read_update(update: Mapping[str, object]) -> WirePodSetUpdate:
    """Return what a check adds. An unreadable update adds nothing; the Job's start reports it."""
    try:
        # This comes from the status that another program writes, which may not have validated it.
        return msgspec.convert(update, WirePodSetUpdate)
    except msgspec.ValidationError:
        return WirePodSetUpdate()


def placed_pod_sets(
    snapshot: Snapshot, held: HeldWorkload, requests: Collection[PodSetRequests]
) -> tuple[RemainingPlace, ...]:
    """Return the placed pod sets of a Workload that holds quota, with their present assignments.

    Pod sets whose flavor no longer has a topology are left out, since they cannot be placed elsewhere.

    `requests` are the Workload's requests by pod set as they are now, which may differ from what was
    admitted. The order is that of the pod sets.
    """
    return tuple(
        RemainingPlace(request=request, assignment=one.topology)
        for one, request in _requests_of(snapshot, held, _taken_per_pod(requests))
        if one.topology is not None
    )


def delayed_requests(
    snapshot: Snapshot, held: HeldWorkload, requests: Collection[PodSetRequests]
) -> tuple[PlacementRequest, ...]:
    """Return the placement requests of the pod sets that hold quota and have no place yet.

    Such pod sets wait for admission checks before nodes are chosen; the second pass places them then.
    """
    return tuple(
        request
        for one, request in _requests_of(snapshot, held, _taken_per_pod(requests))
        if one.topology is None and one.delayed_topology_request == DELAYED_PENDING
    )


def requests_again(snapshot: Snapshot, held: HeldWorkload) -> tuple[PlacementRequest, ...]:
    """Return what the placed pod sets of a Workload would request if they were placed again elsewhere.

    With the amounts that they occupy now, so that a move never takes more than it frees.
    """
    placed = [one.name for one in held.admission.pod_sets if one.topology is not None]
    # In the order of the pod sets, in which `places_of` made the places.
    per_pod = {name: place.per_pod for name, place in zip(placed, held.places, strict=False)}
    return tuple(
        request for one, request in _requests_of(snapshot, held, per_pod) if one.topology is not None
    )


def _taken_per_pod(requests: Collection[PodSetRequests]) -> dict[str, Amounts]:
    """Return what one pod takes of its node, by pod set."""
    return {one.name: taken_per_pod(one.on_node) for one in requests}


def _requests_of(
    snapshot: Snapshot, held: HeldWorkload, per_pod: Mapping[str, Amounts]
) -> Iterator[tuple[PodSetAssignment, PlacementRequest]]:
    """Yield each admitted pod set whose flavor has a topology, with its placement request."""
    pod_sets = {one.name: one for one in held.workload.pod_sets}
    for one in held.admission.pod_sets:
        pod_set = pod_sets.get(one.name)
        name = next(
            (flavor for flavor in flavors_of(one) if snapshot.topology_cache.has_topology(flavor)), None
        )
        if name is None or pod_set is None:
            continue
        request = PlacementRequest(
            pod_set=one.name,
            flavor=name,
            count=_placed(one.count, pod_set.topology_request),
            per_pod=per_pod.get(one.name, taken_per_pod({})),
            topology=pod_set.topology_request,
            rules=_rules(pod_set, snapshot.objects.flavors[name], held.workload.checks),
        )
        queue = snapshot.queues.get(held.admission.cluster_queue)
        if queue is not None:
            request = with_hints(snapshot, request, queue, held.workload, pod_set)
        yield one, request


def flavors_of(assignment: PodSetAssignment) -> list[str]:
    """Return the flavors of a pod set by name; its pods are placed on the first that has a topology."""
    return sorted(set(assignment.flavors.values()))


def with_requests(
    snapshot: Snapshot, queue: QueueState, pending: Pending, assignment: Assignment
) -> Assignment:
    """Return the assignment with what its pods request of the topologies.

    Pod sets that are placed later are marked, and request no place now.
    """
    assignment = _with_delays(snapshot, queue, assignment)
    requests = _placement_requests(snapshot, queue, pending, assignment)
    if not requests:
        return assignment
    return replace(assignment, placing=requests, strategy=requests[0].strategy)


def beyond(assignment: Assignment, replaced: HeldWorkload) -> Assignment:
    """Return the assignment of a slice that asks for places only of the pods that it adds to another one."""
    placed = {one.name: one.topology for one in replaced.admission.pod_sets}
    added = (replace(one, count=one.count - _count(placed.get(one.pod_set))) for one in assignment.placing)
    return replace(assignment, placing=tuple(one for one in added if one.count > 0))


def joined(
    assignment: Assignment, replaced: HeldWorkload, requests: Collection[PodSetRequests]
) -> Assignment:
    """Return the assignment of a slice with the places of the one that it replaces: its pods stay there.

    Where a pod set counts fewer pods than before, its last places are given up.
    """
    placed = {one.name: one.topology for one in replaced.admission.pod_sets}
    pod_sets = tuple(
        replace(choice, topology=_joined(placed.get(choice.name), choice.topology, choice.count))
        for choice in assignment.pod_sets
    )
    if not any(one.topology for one in pod_sets):
        return assignment
    whole = replace(assignment, pod_sets=pod_sets)
    # Which ClusterQueue it is does not matter for places.
    return replace(whole, places=places_of(whole.to_admission(""), requests))


def _count(topology: TopologyAssignment | None) -> int:
    return sum(domain.count for domain in topology.domains) if topology is not None else 0


def _joined(
    former: TopologyAssignment | None, added: TopologyAssignment | None, count: int
) -> TopologyAssignment | None:
    if former is None or count == 0 or (added is not None and added.levels != former.levels):
        return added
    counts: dict[tuple[str, ...], int] = {}
    left = count
    for domain in (*former.domains, *(added.domains if added is not None else ())):
        taken = min(domain.count, left)
        if taken:
            counts[domain.values] = counts.get(domain.values, 0) + taken
            left -= taken
    domains = tuple(DomainCount(values=values, count=number) for values, number in sorted(counts.items()))
    return TopologyAssignment(levels=former.levels, domains=domains)


def place(snapshot: Snapshot, assignment: Assignment) -> Steps[Assignment]:
    """Return the assignment with a place for everything in `placing`, or with a lower mode.

    A generator: it pauses between steps.

    The mode is lowered to PREEMPT where the pods would fit if others left, and to NO_FIT where they do not
    fit on the empty cluster either; the message of the search becomes a reason of the pod set. The snapshot
    is not changed: the caller applies the places when it admits.
    """
    requests = assignment.placing
    if not requests:
        return assignment
    if assignment.mode is Mode.FIT:
        found = snapshot.topology_cache.known(requests)
        if found is None:
            yield from snapshot.topology_cache.preparing(requests)
            found = snapshot.topology_cache.find(requests)
        if not isinstance(found, Unplaced):
            return _with_places(assignment, found.assignments, found.places)
        # There may be a place once other Workloads are evicted, so a search for victims is worthwhile.
        assignment = _lowered(assignment, {found.pod_set}, Mode.PREEMPT, found.message)
    if assignment.mode is Mode.PREEMPT:
        # On the empty cluster, which is cheap: pods that do not fit even there need no search for victims.
        found = snapshot.topology_cache.find(requests, is_empty=True)
        if isinstance(found, Unplaced):
            return _lowered(assignment, {found.pod_set}, Mode.NO_FIT, found.message)
        # They fit on the empty cluster, so the search for victims decides about all of them.
        return _lowered(assignment, {request.pod_set for request in requests}, Mode.PREEMPT)
    return assignment


def _with_delays(snapshot: Snapshot, queue: QueueState, assignment: Assignment) -> Assignment:
    """Return the assignment with a mark on each pod set whose flavor is placed later.

    Source: Kueue, pkg/scheduler/flavorassigner/tas_flavorassigner.go, podSetTopologyRequest.
    """
    if not queue.delayed_flavors:
        return assignment
    flavors = {name for name in queue.delayed_flavors if snapshot.topology_cache.has_topology(name)}
    return replace(
        assignment,
        pod_sets=tuple(
            replace(choice, delayed=DELAYED_PENDING)
            if any(chosen.flavor in flavors for chosen in choice.choices.values())
            else choice
            for choice in assignment.pod_sets
        ),
    )


def with_later_places(snapshot: Snapshot, assignment: Assignment, *, is_empty: bool) -> Assignment:
    """Return the assignment with the places that it will have, kept from others for the rest of the cycle.

    Those are the places that are free on the snapshot, or with `is_empty` those of the empty cluster.

    The same assignment where there are no such places. Only for a Workload that waits for evictions: the
    places are a reservation for this cycle and may differ from those of its admission.
    """
    found = snapshot.topology_cache.find(assignment.placing, is_empty=is_empty)
    if isinstance(found, Unplaced):
        return assignment
    return _with_places(assignment, found.assignments, found.places)


def place_again(
    snapshot: Snapshot, queue: QueueState, pending: Pending, assignment: Assignment, admission: Admission
) -> Assignment | None:
    """Return the assignment with the places of an admission of the same flavors.

    None where pods have no place there, or nodes are not free, or the pods may no longer use them.
    """
    assignment = with_requests(snapshot, queue, pending, assignment)
    requests = assignment.placing
    placed = {one.name: one.topology for one in admission.pod_sets if one.topology is not None}
    if placed.keys() != {request.pod_set for request in requests}:
        return None
    if not requests:
        return assignment
    places = tuple(place_of(request, placed[request.pod_set]) for request in requests)
    assignment = _with_places(assignment, placed, places)
    topology_cache = snapshot.topology_cache
    for request, taken in zip(requests, assignment.places, strict=True):
        room, spots = topology_cache.search(request.flavor).room(request), topology_cache.usage.spots([taken])
        # A node that the pods may no longer use has room for none. Pod sets may share nodes, so what all of
        # them take is compared below; but for addresses, which nodes share.
        if room is None or any(room.at(spot, {}) < of.get(ADDRESS, 1) for spot, of in spots.items()):
            return None
    return assignment if topology_cache.usage.fits(assignment.places) else None


def _with_places(
    assignment: Assignment, placed: Mapping[str, TopologyAssignment], places: tuple[Place, ...]
) -> Assignment:
    """Return the assignment with the places found, which are those of `placed`."""
    # Pod sets without a topology keep their choice as it is.
    pod_sets = [
        replace(choice, topology=placed[choice.name]) if choice.name in placed else choice
        for choice in assignment.pod_sets
    ]
    return replace(assignment, pod_sets=tuple(pod_sets), places=places)


def places_of(admission: Admission, requests: Collection[PodSetRequests]) -> tuple[Place, ...]:
    """Return the places that an admission occupies; `requests` are those of its Workload's pod sets.

    In the order of the pod sets. A pod set that is missing in `requests` occupies its place with no amounts.
    """
    asked = {one.name: one for one in requests}
    return tuple(
        Place(
            flavor=flavor,
            assignment=one.topology,
            per_pod=taken_per_pod(asked.get(one.name, _NO_REQUESTS).on_node),
            is_linked=asked.get(one.name, _NO_REQUESTS).is_linked,
        )
        for one in admission.pod_sets
        if one.topology is not None
        # Only the first flavor: a pod occupies its place once, whatever the number of its flavors.
        for flavor in flavors_of(one)[:1]
    )


def _lowered(assignment: Assignment, names: Collection[str], mode: Mode, message: str = "") -> Assignment:
    """Return the assignment with these pod sets in no better mode than `mode`."""
    pod_sets = tuple(
        [
            _lowered_choice(choice, mode, message) if choice.name in names else choice
            for choice in assignment.pod_sets
        ]
    )
    worst = min([choice.mode for choice in pod_sets])
    # As a rule the search for flavors has found as much, and nothing changes.
    if worst is assignment.mode and all(map(is_, pod_sets, assignment.pod_sets)):
        return assignment
    return replace(assignment, pod_sets=pod_sets, mode=worst)


def _lowered_choice(choice: PodSetChoice, mode: Mode, message: str) -> PodSetChoice:
    """Return the choice with at most this mode, and the message as one more reason of the pod set."""
    if not message and all(chosen.mode <= mode for chosen in choice.choices.values()):
        return choice if choice.mode <= mode else replace(choice, mode=mode)
    choices = {
        resource: replace(chosen, mode=min(chosen.mode, mode)) for resource, chosen in choice.choices.items()
    }
    lowered = replace(choice, choices=choices, mode=min(choice.mode, mode))
    if not message:
        return lowered
    # Each message once: a second search reports the same again.
    reasons = tuple(dict.fromkeys((*choice.reasons, message)))
    if mode is not Mode.NO_FIT:
        return replace(lowered, reasons=reasons)
    # Any of its flavors will do for the attempt: a place belongs to the pod set, not to one flavor.
    flavor = next(iter(choice.choices.values())).flavor
    failed = Attempt(group=0, flavor=flavor, reason=PendingReason.TOPOLOGY_PLACEMENT_FAILED)
    return replace(lowered, reasons=reasons, attempts=(failed,))
