"""Nomination: the best that a head could have if it were alone in the cycle, and whom it would evict for it.

In this order: all pods without evictions, all pods with evictions, fewer pods (where the pod set allows it).
Under backfill a head that could have all its pods and is held back for a promise is tried with fewer as well
(`nominate_fewer`): to Kueue's rule, as many pods as can start now, what others are promised is not there.
Source: Kueue, pkg/scheduler/scheduler.go, nominate and getAssignments; flavorassigner/podset_reducer.go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from msgspec import structs

from admission.decisions.assignment import Assignment, Mode
from admission.flavors.assignment_cache import learn, learn_in_vain, recall, recall_in_vain
from admission.flavors.flavor_assigner import FlavorSearch, Pins
from admission.flavors.topology_assigner import place, placement_requests, with_places
from admission.placement.topology_cache import Unplaced
from admission.preemption.fair_sharing import FairPreemption
from admission.preemption.preemptor import Preemptor
from admission.preemption.targets import Target
from admission.snapshot.snapshot import QueueState, Snapshot
from api.jobs.resource_requests import QuotaCheckStrategy
from api.reasons import PendingReason
from api.selectors import matches_selector
from api.workload import Workload
from queues.pending.pending_queue import FlavorScan, Pending, RequeueCause
from queues.steps import Steps

_CHECK_STATES_THAT_WAIT = frozenset({"Retry", "Rejected"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePolicy:
    """What the configuration says about every cycle; `fair_sharing` None: off."""

    quota_check: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    fair_sharing: FairPreemption | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a head may not be admitted whatever the quota."""

    reason: PendingReason
    message: str
    requeue: RequeueCause = RequeueCause.GENERIC


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A nominated head: its flavors, and whom to evict for them."""

    queue: QueueState
    pending: Pending
    assignment: Assignment
    targets: tuple[Target, ...] = ()

    @property
    def is_preemptor(self) -> bool:
        """Whether others were evicted for it, and it has not been tried in vain since."""
        return self.queue.pending.is_preemptor(self.pending)

    @property
    def is_promising(self) -> bool:
        """Whether it fits, or will once those have gone whom it would evict."""
        return self.assignment.mode is Mode.FIT or bool(self.targets)


def find_rejection(snapshot: Snapshot, queue: QueueState, pending: Pending) -> Rejection | None:
    """Return why the head may not be admitted whatever the quota, None where it may."""
    workload = pending.workload
    if workload.checks and (waiting := _failed_checks(workload)):
        message = f"The workload has failed admission checks: {', '.join(waiting)}"
        return Rejection(reason=PendingReason.PENDING_EVALUATION, message=message)
    # A namespace that is not known has no labels, and is selected by an empty selector alone.
    if not matches_selector(queue.spec.namespace_selector, snapshot.namespaces.get(workload.key.namespace)):
        return Rejection(
            reason=PendingReason.MISCONFIGURED,
            message=namespace_mismatch(workload, queue.name),
            requeue=RequeueCause.NAMESPACE_MISMATCH,
        )
    # Last, as it is the pods' own fault: the two above may pass without an edit of the Workload.
    if pending.problem is not None:
        return Rejection(reason=PendingReason.MISCONFIGURED, message=pending.problem)
    return None


def _failed_checks(workload: Workload) -> list[str]:
    return [check.name for check in workload.checks if check.state in _CHECK_STATES_THAT_WAIT]


def namespace_mismatch(workload: Workload, cluster_queue: str) -> str:
    """Return the sentence for a namespace that the ClusterQueue does not select."""
    return (
        f"ClusterQueue {cluster_queue} does not select namespace {workload.key.namespace}: "
        "its spec.namespaceSelector does not match the namespace's labels"
    )


def nominate(
    snapshot: Snapshot,
    queue: QueueState,
    pending: Pending,
    *,
    preemptor: Preemptor,
    policy: CyclePolicy,
    pins: Pins | None = None,
) -> Steps[Entry]:
    """Return the best the head could have now. With `pins` only the pinned flavors are looked at, from the
    first.

    One that goes on where its last search stopped, and finds nothing, is looked at once more from the first
    flavor: there it may have fitted, and was passed by another head of that cycle alone.
    """
    # Pins name the flavors of an earlier nomination; to go on from where a scan stopped could pass them over.
    is_outdated = pending.scan is not None and _is_outdated(pending.scan, queue, pending)
    if is_outdated or pins is not None:
        pending.scan = None
    # With nodes to place on, equal requests need not have equal answers: what is free where is
    # no question of quota.
    is_whole_search = pins is None and not snapshot.topology_cache.has_flavors
    if is_whole_search and (known := _recall(queue, pending, preemptor)) is not None:
        return Entry(queue=queue, pending=pending, assignment=known)
    # What a search in the middle of the flavors finds is no answer for one that begins at the first.
    starts_anew = pending.scan is None or not pending.scan.has_flavors_left
    found = yield from _search(snapshot, queue, pending, preemptor=preemptor, policy=policy, pins=pins)
    if starts_anew or found.is_promising or found.assignment.scan.has_flavors_left:
        return found
    pending.scan = None
    again = yield from _search(snapshot, queue, pending, preemptor=preemptor, policy=policy, pins=pins)
    if not again.is_promising:
        return found
    # Only once, or it would be tried for ever while the other is in its way.
    scan = structs.replace(again.assignment.scan, is_second=True)
    return structs.replace(again, assignment=structs.replace(again.assignment, scan=scan))


def _search(
    snapshot: Snapshot,
    queue: QueueState,
    pending: Pending,
    *,
    preemptor: Preemptor,
    policy: CyclePolicy,
    pins: Pins | None,
) -> Steps[Entry]:
    """Return the best of the flavors from where the last search stopped; what is found is kept for equals."""
    is_whole_search = pins is None and not snapshot.topology_cache.has_flavors
    starts_anew = pending.scan is None or not pending.scan.has_flavors_left
    search = _search_of(snapshot, queue, pending, preemptor=preemptor, policy=policy, pins=pins)
    whole = yield from _attempt(search, preemptor, None)
    if is_whole_search and starts_anew:
        learn(queue, pending, whole.assignment)
    if whole.is_promising:
        return whole
    if is_whole_search and starts_anew and not _spare_pods(pending):
        learn_in_vain(queue, pending, whole.assignment, search.weighed)
    # Only where all pods neither fit nor could by evictions.
    return (yield from _fewer_pods(search, preemptor, lambda entry: entry.is_promising)) or whole


def nominate_fewer(
    snapshot: Snapshot,
    queue: QueueState,
    pending: Pending,
    *,
    preemptor: Preemptor,
    policy: CyclePolicy,
    accepts: Callable[[Entry], bool],
) -> Steps[Entry | None]:
    """Return the entry with the most pods that is accepted, None where none is, or the head needs all pods.

    For a head that could have what it was nominated for, and may not. Whatever is accepted, fewer pods are
    taken to be accepted, too; of those accepted the last has the most.
    """
    if not _spare_pods(pending):
        return None
    search = _search_of(snapshot, queue, pending, preemptor=preemptor, policy=policy, pins=None)
    return (yield from _fewer_pods(search, preemptor, accepts))


def _search_of(
    snapshot: Snapshot,
    queue: QueueState,
    pending: Pending,
    *,
    preemptor: Preemptor,
    policy: CyclePolicy,
    pins: Pins | None,
) -> FlavorSearch:
    return FlavorSearch(
        snapshot=snapshot,
        queue=queue,
        pending=pending,
        oracle=preemptor,
        is_fair_sharing=policy.fair_sharing is not None,
        quota_check=policy.quota_check,
        pins=pins,
    )


def _recall(queue: QueueState, pending: Pending, preemptor: Preemptor) -> Assignment | None:
    """Return what a search would find, known from an equal Workload; None where it has to be made."""
    found = recall(queue, pending)
    if found is not None:
        return found
    return recall_in_vain(queue, pending, lambda pairs: preemptor.finds_nobody(queue, pending, pairs))


def _attempt(search: FlavorSearch, preemptor: Preemptor, counts: tuple[int, ...] | None) -> Steps[Entry]:
    assignment = yield from place(search.snapshot, search.queue, search.pending, search.assign(counts))
    targets: tuple[Target, ...] = ()
    if assignment.mode is Mode.PREEMPT:
        # Without evictions there is nobody to ask; and whom to evict is asked once, for the whole Workload.
        targets = yield from preemptor.targets(search.queue, search.pending, assignment)
        assignment = _with_places_after(search, assignment, targets)
    return Entry(queue=search.queue, pending=search.pending, assignment=assignment, targets=targets)


def _with_places_after(
    search: FlavorSearch, assignment: Assignment, targets: tuple[Target, ...]
) -> Assignment:
    """Return the assignment with the places that it will have: once the targets are gone, or without any
    those of the empty cluster. They are kept from others for the rest of the cycle.
    """
    snapshot = search.snapshot
    requests = placement_requests(snapshot, search.queue, search.pending, assignment)
    if not requests:
        return assignment
    # The victims are taken off the picture for the search alone: whether they go is decided later.
    with snapshot.without((target.queue, target.held) for target in targets):
        found = snapshot.topology_cache.place(requests, is_empty=not targets)
    return assignment if isinstance(found, Unplaced) else with_places(assignment, requests, found)


def _fewer_pods(
    search: FlavorSearch, preemptor: Preemptor, accepts: Callable[[Entry], bool]
) -> Steps[Entry | None]:
    """Return the entry with the most pods that is accepted, None where no smaller number is allowed or is.

    A binary search: it takes for granted that fewer pods never fit worse.
    """
    pod_sets = search.pending.workload.pod_sets
    slack = _spare_pods(search.pending)
    total = sum(slack)
    if total == 0:
        return None
    best: Entry | None = None
    low, high = 0, total + 1
    while low < high:
        cut = (low + high) // 2
        # The same share is taken from each pod set that has some to spare, so that workers and
        # their helper shrink together.
        counts = tuple(one.count - spare * cut // total for one, spare in zip(pod_sets, slack, strict=True))
        entry = yield from _attempt(search, preemptor, counts)
        if accepts(entry):
            # Fewer pods were enough; try to give up fewer still. `best` keeps the entry that fits
            # with the most pods so far.
            best, high = entry, cut
        else:
            low = cut + 1
    return best


def _spare_pods(pending: Pending) -> list[int]:
    """Return how many pods of each pod set it can do without; empty where it needs all of them."""
    pod_sets = pending.workload.pod_sets
    # The usual case by far, and asked in every nomination.
    if all(one.min_count is None for one in pod_sets):
        return []
    return [one.count - (one.count if one.min_count is None else one.min_count) for one in pod_sets]


def _is_outdated(scan: FlavorScan, queue: QueueState, pending: Pending) -> bool:
    """Return whether the search must begin anew: the Workload changed, or capacity came free since.

    A scan of the cycle just before goes on, so that a Workload gets through its flavors in a busy cluster.
    """
    if scan.shape != pending.shape:
        return True
    # "Since" is not asked of a scan of the last cycle: in a busy cluster something comes free every
    # time, and the Workload would look at its first flavor for ever.
    is_recent = queue.pending.pop_cycle - scan.cycle <= 1
    return not is_recent and queue.tree.generation > scan.generation
