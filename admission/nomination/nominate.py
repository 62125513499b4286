"""Nomination: the best assignment that a head could have if it were alone in the cycle, and its victims.

Theory of operation. For each head these attempts are made in order, and the first promising one counts:

    1 all pods, without evictions
    2 all pods, with evictions
    3 fewer pods, where the pod set allows it: a binary search for the largest number

An attempt is a flavor search, then places in the topology, then a search for victims where either needs them.
The flavor search continues after the flavor where the last one stopped (`FlavorScan`). A search that begins
in the middle and finds nothing is repeated once from the first flavor. So at most two whole searches and a
binary search of attempts are made for a head, and the nomination always ends. A result is shared by Workloads
of the same shape where it follows from quota alone (`admission.flavors.assignment_cache`).

Invariant: the snapshot is left as it was. Each head is nominated as if no other head wanted the
same capacity; their competition is resolved by the order (`admission.nomination.entry_ordering`) and by the
scheduler, which tries them one after another.

Under backfill a head that could have all its pods but is held back by a promise is tried with fewer pods as
well (`nominate_fewer`): Kueue's rule, as many pods as can start now, knows nothing of what is promised.
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
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import QuotaCheckStrategy
from api.reasons import PendingReason
from api.selectors import matches_selector
from api.workload import Workload
from queues.pending.pending_queue import FlavorScan, Pending, RequeueCause
from queues.steps import Steps

_CHECK_STATES_THAT_WAIT = frozenset({"Retry", "Rejected"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePolicy:
    """What the configuration sets for every cycle; `fair_sharing` None: fair sharing is off."""

    quota_check: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    fair_sharing: FairPreemption | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a head may not be admitted whatever the quota, and how it is requeued."""

    reason: PendingReason
    message: str
    requeue: RequeueCause = RequeueCause.GENERIC


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A nominated head: its flavors, and the Workloads to evict for them."""

    queue: QueueState
    pending: Pending
    assignment: Assignment
    targets: tuple[Target, ...] = ()

    @property
    def is_preemptor(self) -> bool:
        """Whether others were evicted for it, and no attempt since has found it inadmissible."""
        return self.queue.pending.precedence.is_preemptor(self.pending)

    @property
    def is_promising(self) -> bool:
        """Whether it fits, or will fit once its targets are gone."""
        return self.assignment.mode is Mode.FIT or bool(self.targets)


def find_rejection(snapshot: Snapshot, queue: QueueState, pending: Pending) -> Rejection | None:
    """Return why the head may not be admitted whatever the quota, None where it may."""
    workload = pending.workload
    if workload.checks and (waiting := _failed_checks(workload)):
        message = f"The workload has failed admission checks: {', '.join(waiting)}"
        return Rejection(reason=PendingReason.PENDING_EVALUATION, message=message)
    # A namespace that is not known has no labels, and matches only an empty selector.
    labels = snapshot.objects.namespaces.get(workload.key.namespace)
    if not matches_selector(queue.spec.namespace_selector, labels):
        return Rejection(
            reason=PendingReason.MISCONFIGURED,
            message=namespace_mismatch(workload, queue.name),
            requeue=RequeueCause.NAMESPACE_MISMATCH,
        )
    # Last, because only an edit of the Workload resolves it; the two above may pass without one.
    if pending.problem is not None:
        return Rejection(reason=PendingReason.MISCONFIGURED, message=pending.problem)
    return None


def _failed_checks(workload: Workload) -> list[str]:
    return [check.name for check in workload.checks if check.state in _CHECK_STATES_THAT_WAIT]


def namespace_mismatch(workload: Workload, cluster_queue: str) -> str:
    """Return the message for a namespace that the ClusterQueue does not select."""
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
    """Return the best assignment that the head could have now, with its targets.

    With `pins` only the pinned flavors are considered, from the first. A search that continues where the last
    one stopped, and finds nothing, is repeated once from the first flavor: the head may have fitted there and
    only lost to another head of that cycle.
    """
    # Pins name the flavors of an earlier nomination; continuing a scan could skip them.
    is_outdated = pending.scan is not None and _is_outdated(pending.scan, queue, pending)
    if is_outdated or pins is not None:
        pending.scan = None
    # With a topology, equal requests may have different answers: which nodes are free is
    # no question of quota.
    is_whole_search = pins is None and not snapshot.topology_cache.has_flavors
    if is_whole_search and (known := _recall(queue, pending, preemptor)) is not None:
        return Entry(queue=queue, pending=pending, assignment=known)
    # A search that begins at a later flavor has no answer for searches that begin at the first.
    starts_at_first_flavor = pending.scan is None or not pending.scan.has_flavors_left
    found = yield from _search(snapshot, queue, pending, preemptor=preemptor, policy=policy, pins=pins)
    if starts_at_first_flavor or found.is_promising or found.assignment.scan.has_flavors_left:
        return found
    pending.scan = None
    again = yield from _search(snapshot, queue, pending, preemptor=preemptor, policy=policy, pins=pins)
    if not again.is_promising:
        return found
    # Only once, or it would be tried for ever while the other head competes with it.
    return as_second_look(again)


def as_second_look(entry: Entry) -> Entry:
    """Return the entry marked as searched from the first flavor twice, so that its scan does not go on."""
    scan = structs.replace(entry.assignment.scan, is_second=True)
    return structs.replace(entry, assignment=structs.replace(entry.assignment, scan=scan))


def _search(
    snapshot: Snapshot,
    queue: QueueState,
    pending: Pending,
    *,
    preemptor: Preemptor,
    policy: CyclePolicy,
    pins: Pins | None,
) -> Steps[Entry]:
    """Return the best entry of a search from where the last one stopped; the result is kept for its shape."""
    is_whole_search = pins is None and not snapshot.topology_cache.has_flavors
    starts_at_first_flavor = pending.scan is None or not pending.scan.has_flavors_left
    search = _search_of(snapshot, queue, pending, preemptor=preemptor, policy=policy, pins=pins)
    whole = yield from _attempt(search, preemptor, None)
    if is_whole_search and starts_at_first_flavor:
        learn(queue, pending, whole.assignment)
    if whole.is_promising:
        return whole
    if is_whole_search and starts_at_first_flavor and not _spare_pods(pending):
        learn_in_vain(queue, pending, whole.assignment, search.weighed)
    # Fewer pods are tried only where all pods do not fit and evictions would not help.
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
    """Return the entry with the most pods that `accepts` allows; None where there is none.

    For a head that fits as it was nominated and may not start. None also where it needs all its pods. The
    binary search assumes that fewer pods are accepted wherever more are.
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
    """Return the result of a search, known from an equal Workload; None where a search is needed."""
    found = recall(queue, pending)
    if found is not None:
        return found
    return recall_in_vain(queue, pending, lambda pairs: preemptor.finds_nobody(queue, pending, pairs))


def _attempt(search: FlavorSearch, preemptor: Preemptor, counts: tuple[int, ...] | None) -> Steps[Entry]:
    assignment = yield from place(search.snapshot, search.queue, search.pending, search.assign(counts))
    targets: tuple[Target, ...] = ()
    if assignment.mode is Mode.PREEMPT:
        # Only this mode needs victims. They are searched for once, for the whole Workload.
        targets = yield from preemptor.targets(search.queue, search.pending, assignment)
        assignment = _with_places_after(search, assignment, targets)
    return Entry(queue=search.queue, pending=search.pending, assignment=assignment, targets=targets)


def _with_places_after(
    search: FlavorSearch, assignment: Assignment, targets: tuple[Target, ...]
) -> Assignment:
    """Return the assignment with the places that it will have, kept from others for the rest of the cycle.

    These are the places that are free once the targets are gone; without targets, those of the empty cluster.
    """
    snapshot = search.snapshot
    requests = placement_requests(snapshot, search.queue, search.pending, assignment)
    if not requests:
        return assignment
    # The victims are removed for this search alone: whether they are evicted is decided later.
    with snapshot.trial.without((target.queue, target.held) for target in targets):
        found = snapshot.topology_cache.place(requests, is_empty=not targets)
    return assignment if isinstance(found, Unplaced) else with_places(assignment, requests, found)


def _fewer_pods(
    search: FlavorSearch, preemptor: Preemptor, accepts: Callable[[Entry], bool]
) -> Steps[Entry | None]:
    """Return the entry with the most pods that `accepts` allows; None where there is none.

    A binary search over the number of pods given up, which assumes that fewer pods never fit worse. It makes
    about log2 of the spare pods attempts. None also where the head needs all its pods.
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
        # Each pod set gives up the same share of its spare pods, so that workers and helpers shrink together.
        counts = tuple(one.count - spare * cut // total for one, spare in zip(pod_sets, slack, strict=True))
        entry = yield from _attempt(search, preemptor, counts)
        if accepts(entry):
            # This number of pods is accepted; try to give up fewer. `best` keeps the entry
            # with the most pods.
            best, high = entry, cut
        else:
            low = cut + 1
    return best


def _spare_pods(pending: Pending) -> list[int]:
    """Return how many pods of each pod set are not needed; empty where all of them are."""
    pod_sets = pending.workload.pod_sets
    # By far the usual case, and checked in every nomination.
    if all(one.min_count is None for one in pod_sets):
        return []
    return [one.count - (one.count if one.min_count is None else one.min_count) for one in pod_sets]


def _is_outdated(scan: FlavorScan, queue: QueueState, pending: Pending) -> bool:
    """Return whether the search must start over: the Workload has changed, or capacity was freed since.

    A scan of the cycle just before is continued, so that a Workload gets through its flavors
    in a busy cluster.
    """
    if scan.shape != pending.shape:
        return True
    # Freed capacity does not outdate a scan of the last cycle: in a busy cluster some is freed every time,
    # and the Workload would try its first flavor for ever.
    is_recent = queue.pending.pop_cycle - scan.cycle <= 1
    return not is_recent and queue.tree.generation > scan.generation
