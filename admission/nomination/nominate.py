"""Nomination: the best assignment that a head could have if it were alone in the cycle, and its victims.

Theory of operation. For each head these attempts are made in order, and the first promising one counts:

    1 all pods, without evictions
    2 all pods, with evictions
    3 fewer pods, where the pod set allows it: a binary search for the largest number

An attempt is a flavor search, then places in the topology, then a search for victims where either needs them.
Where flavors are chosen by score and the best has no place, the search is repeated without that flavor.
The flavor search continues after the flavor where the last one stopped (`FlavorScan`). A search that begins
in the middle and finds nothing is repeated once from the first flavor. So at most two whole searches and a
binary search of attempts are made for a head, and the nomination always ends. A result is shared by Workloads
of the same shape where it follows from quota alone (`admission.flavors.assignment_cache`).

Invariant: the snapshot is left as it was. Each head is nominated as if no other head wanted the
same capacity; their competition is resolved by the order (`admission.nomination.entry_ordering`) and by the
scheduler, which tries them one after another.

A slice of an elastic Job is nominated as if the slice that it replaces had gone, and on the flavors of that
slice: what the two have in common counts as free for it.

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
from admission.flavors.assignment_cache import learn, recall, recall_fitting
from admission.flavors.flavor_assigner import FlavorSearch, Pins
from admission.flavors.flavor_ranking import FlavorRanking, ranking_of, ranks_flavors
from admission.flavors.hardware_needs import needs_hardware
from admission.flavors.topology_assigner import beyond, joined, place, with_later_places, with_requests
from admission.preemption.fair_sharing import FairPreemption
from admission.preemption.preemptor import Preemptor
from admission.preemption.targets import Target
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import QuotaCheckStrategy
from api.workload import Workload
from queues.pending.pending_queue import FlavorScan, Pending
from queues.steps import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePolicy:
    """What the configuration sets for every cycle; `fair_sharing` None: fair sharing is off.

    `heeds_gates`: spec.preemptionGates of a Workload hold its evictions of others back.
    """

    quota_check: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    fair_sharing: FairPreemption | None = None
    heeds_gates: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A nominated head: its flavors, and the Workloads to evict for them.

    `lacks_only_quota`: it does not fit, and places on nodes had no part in that. `replaced` is the slice that
    it takes over from, whose usage counts as free for it.
    """

    queue: QueueState
    pending: Pending
    assignment: Assignment
    targets: tuple[Target, ...] = ()
    lacks_only_quota: bool = False
    replaced: HeldWorkload | None = None

    @property
    def is_preemptor(self) -> bool:
        """Whether others were evicted for it, and no attempt since has found it inadmissible."""
        return self.queue.pending.precedence.is_preemptor(self.pending)

    @property
    def will_fit(self) -> bool:
        """Whether it fits, or will fit once its targets are gone."""
        return self.assignment.mode is Mode.FIT or bool(self.targets)

    @property
    def next_scan(self) -> FlavorScan | None:
        """Where the next search goes on; None if at the first flavor, where it has begun twice."""
        scan = self.assignment.scan
        return None if scan.is_second else scan


@dataclass(slots=True, kw_only=True)
class Nominator:
    """Nominates the heads of one cycle on its snapshot, which is left as it was."""

    snapshot: Snapshot
    preemptor: Preemptor
    policy: CyclePolicy

    def nominate(self, queue: QueueState, pending: Pending) -> Steps[Entry]:
        """Return the best assignment that the head could have now, with its targets.

        A search that continues where the last one stopped, and finds nothing, is repeated once from the first
        flavor: the head may have fitted there and only lost to another head of that cycle.
        """
        refusals = self.snapshot.topology_cache.refusals
        replaced = replaced_slice(self.snapshot, queue, pending.workload)
        if replaced is None:
            entry = yield from self._nominate(queue, pending)
        else:
            entry = yield from self._nominate_slice(queue, pending, replaced)
        if entry.will_fit or self.snapshot.topology_cache.refusals != refusals:
            return entry
        return structs.replace(entry, lacks_only_quota=True)

    def _nominate_slice(self, queue: QueueState, pending: Pending, replaced: HeldWorkload) -> Steps[Entry]:
        """Return the best assignment on the flavors of the slice that the head replaces, as if that had gone.

        Source: Kueue, flavorassigner.go, findFlavorForPodSets.
        """
        # Only one flavor may be taken, so there is no scan to go on with.
        pending.scan = None
        pins = _flavors_held(replaced, pending)
        search = self._search_of(queue, pending, pins, replaced)
        return (yield from self._find_beyond(search, replaced))

    def _find_beyond(self, search: FlavorSearch, replaced: HeldWorkload) -> Steps[Entry]:
        """Return the entry of a slice: flavors for all of its pods, and places for those that it adds."""
        with self.snapshot.evictions.handed_over(search.queue, replaced, with_places=False):
            entry = yield from self._find(search)
        assignment = joined(entry.assignment, replaced, search.pending.requests)
        return structs.replace(entry, assignment=assignment, replaced=replaced)

    def _nominate(self, queue: QueueState, pending: Pending) -> Steps[Entry]:
        if pending.scan is not None and _is_outdated(pending.scan, queue, pending):
            pending.scan = None
        if pending.scan is None or not pending.scan.has_flavors_left:
            return (yield from self._search(queue, pending))
        found = yield from self._find(self._search_of(queue, pending))
        if found.will_fit or found.assignment.scan.has_flavors_left:
            return found
        pending.scan = None
        again = yield from self._search(queue, pending)
        # Only once, or it would be tried for ever while the other head competes with it.
        return _as_second_look(again) if again.will_fit else found

    def nominate_again(self, entry: Entry) -> Steps[Entry]:
        """Nominate on the snapshot as it is now, restricted to the flavors of the entry.

        Otherwise one head could search all flavors twice in a cycle.
        """
        # Continuing a scan could skip the pinned flavors.
        entry.pending.scan = None
        pins = _flavors_of(entry.assignment)
        search = self._search_of(entry.queue, entry.pending, pins, entry.replaced)
        if entry.replaced is not None:
            return (yield from self._find_beyond(search, entry.replaced))
        again = yield from self._find(search, self._fitting(entry.queue, entry.pending, pins))
        # The pinned search knows nothing of those before it. Taken for a first look, it would go on
        # to the next flavor, and each cycle would end where it began.
        return _as_second_look(again) if entry.assignment.scan.is_second else again

    def nominate_fewer(self, entry: Entry, accepts: Callable[[Entry], bool]) -> Steps[Entry | None]:
        """Return the entry with the most pods that `accepts` allows; None where there is none.

        For a head that fits as it was nominated and may not start. None also where it needs all its pods. The
        binary search assumes that fewer pods are accepted wherever more are.
        """
        return (yield from self._fewer_pods(self._search_of(entry.queue, entry.pending), accepts))

    def nominate_ranked(self, queue: QueueState, pending: Pending, ranking: FlavorRanking) -> Steps[Entry]:
        """Return the entry on the best flavors by this ranking, with all pods and without evictions.

        For a Workload that holds quota, and counts as gone meanwhile. Not a Fit where none has room.
        """
        search = self._search_of(queue, pending)
        search.ranking = ranking
        assignment = yield from self._assign(search, None)
        return Entry(queue=queue, pending=pending, assignment=assignment)

    def _search(self, queue: QueueState, pending: Pending) -> Steps[Entry]:
        """Search from the first flavor, unless the flavors are known from an equal Workload."""
        is_shared = self._follows_from_quota(queue, pending)
        known = recall(queue, pending, self.preemptor.finds_no_victim) if is_shared else None
        if known is not None and not known.placing:
            return Entry(queue=queue, pending=pending, assignment=known)
        search = self._search_of(queue, pending)
        if not is_shared:
            return (yield from self._find(search))
        flavors = known or self._flavors(search, None)
        whole = yield from self._complete(queue, pending, flavors)
        if known is None:
            self._learn(search, flavors, whole)
        return whole if whole.will_fit else (yield from self._or_fewer_pods(search, whole))

    def _follows_from_quota(self, queue: QueueState, pending: Pending) -> bool:
        """Return whether equal Workloads of the queue find the same flavors in the same quota."""
        # Which domain is reserved for a Workload depends on its LocalQueue, which is no part of its shape.
        # Which nodes have the hardware that it needs, and which flavor is the best, is no question of quota.
        has_own_domain = queue.reservations and self.snapshot.topology_cache.has_flavors
        return not (has_own_domain or ranks_flavors(queue) or needs_hardware(self.snapshot, queue, pending))

    def _fitting(self, queue: QueueState, pending: Pending, pins: Pins) -> Assignment | None:
        """Return these flavors for all pods if equal Workloads have found them free, and they still are.

        As a rule a head is nominated again because another of its cycle has taken its places, and its quota
        is as it was.
        """
        known = recall_fitting(queue, pending) if self._follows_from_quota(queue, pending) else None
        if known is None or _flavors_of(known) != pins:
            return None
        # A search that is restricted to these flavors refuses others for another reason.
        return None if any(choice.attempts for choice in known.pod_sets) else known

    def _learn(self, search: FlavorSearch, flavors: Assignment, whole: Entry) -> None:
        """Keep the flavors for equal Workloads, unless they depend on the Workloads that would be evicted.

        Places are not kept: which nodes are free changes with every start and end.
        """
        has_room = flavors.mode is Mode.FIT
        if has_room or not (whole.targets or _spare_pods(search.pending)):
            learn(search, flavors)

    def _find(self, search: FlavorSearch, flavors: Assignment | None = None) -> Steps[Entry]:
        """Return the entry with all pods where that is promising, else with as many as can be.

        `flavors`: those that the search would find for all pods, where they are known.
        """
        if flavors is not None:
            whole = yield from self._complete(search.queue, search.pending, flavors)
        else:
            whole = yield from self._attempt(search, None)
        return whole if whole.will_fit else (yield from self._or_fewer_pods(search, whole))

    def _search_of(
        self,
        queue: QueueState,
        pending: Pending,
        pins: Pins | None = None,
        replaced: HeldWorkload | None = None,
    ) -> FlavorSearch:
        return FlavorSearch(
            snapshot=self.snapshot,
            queue=queue,
            pending=pending,
            oracle=self.preemptor,
            is_fair_sharing=self.policy.fair_sharing is not None,
            quota_check=self.policy.quota_check,
            pins=pins,
            replaced=replaced,
            ranking=ranking_of(self.snapshot, queue, pending.workload, self.preemptor.losses.estimator),
        )

    def _attempt(self, search: FlavorSearch, counts: tuple[int, ...] | None) -> Steps[Entry]:
        """Return the entry for these numbers of pods: flavors first, then places, then victims."""
        assignment = yield from self._assign(search, counts)
        return (yield from self._with_victims(search.queue, search.pending, assignment))

    def _assign(self, search: FlavorSearch, counts: tuple[int, ...] | None) -> Steps[Assignment]:
        """Return flavors and places. The best flavor by score may have no place where the next one has.

        Each further search leaves out at least one more flavor, so there are at most as many as flavors.
        """
        ranking = search.ranking
        if ranking is not None:
            ranking.passed_over.clear()
        while True:
            flavors = self._flavors(search, counts)
            assignment = yield from place(self.snapshot, flavors)
            is_unplaced = flavors.mode is Mode.FIT and assignment.mode is not Mode.FIT
            if ranking is None or not is_unplaced or not ranking.pass_over(assignment):
                return assignment

    def _flavors(self, search: FlavorSearch, counts: tuple[int, ...] | None) -> Assignment:
        """Return the flavors for these numbers of pods, with what the pods request of the topologies."""
        flavors = with_requests(self.snapshot, search.queue, search.pending, search.assign(counts))
        return flavors if search.replaced is None else beyond(flavors, search.replaced)

    def _complete(self, queue: QueueState, pending: Pending, flavors: Assignment) -> Steps[Entry]:
        """Return the entry for these flavors, with places and victims."""
        assignment = yield from place(self.snapshot, flavors)
        return (yield from self._with_victims(queue, pending, assignment))

    def _with_victims(self, queue: QueueState, pending: Pending, assignment: Assignment) -> Steps[Entry]:
        """Return the entry for these flavors and places, with victims where it needs some."""
        targets: tuple[Target, ...] = ()
        if assignment.mode is Mode.PREEMPT:
            # Only this mode needs victims. They are searched for once, for the whole Workload.
            targets = yield from self.preemptor.targets(queue, pending, assignment)
            if assignment.placing and targets:
                # The victims are removed for these places alone: whether they are evicted is decided later.
                with self.snapshot.trial.without((target.queue, target.held) for target in targets):
                    assignment = with_later_places(self.snapshot, assignment, is_empty=False)
            elif assignment.placing:
                assignment = with_later_places(self.snapshot, assignment, is_empty=True)
        return Entry(queue=queue, pending=pending, assignment=assignment, targets=targets)

    def _or_fewer_pods(self, search: FlavorSearch, whole: Entry) -> Steps[Entry]:
        """Return the entry with the most pods that is promising; `whole` where there is none."""
        # Fewer pods are tried only where all pods do not fit and evictions would not help.
        return (yield from self._fewer_pods(search, lambda entry: entry.will_fit)) or whole

    def _fewer_pods(self, search: FlavorSearch, accepts: Callable[[Entry], bool]) -> Steps[Entry | None]:
        """Return the entry with the most pods that `accepts` allows; None where there is none.

        A binary search over the number of pods given up, which assumes that fewer pods never fit worse. It
        makes about log2 of the spare pods attempts. None also where the head needs all its pods.
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
            # Each pod set gives up the same share of its spare pods: workers and helpers shrink together.
            counts = tuple(
                one.count - spare * cut // total for one, spare in zip(pod_sets, slack, strict=True)
            )
            entry = yield from self._attempt(search, counts)
            if accepts(entry):
                # This number of pods is accepted; try to give up fewer. `best` keeps the entry
                # with the most pods.
                best, high = entry, cut
            else:
                low = cut + 1
        return best


def replaced_slice(snapshot: Snapshot, queue: QueueState, workload: Workload) -> HeldWorkload | None:
    """Return the slice that a pending one takes over from, None where there is none or it is evicted."""
    held = _predecessor(queue, workload)
    return None if held is None or _is_leaving(snapshot, held) else held


def leaving_slice(snapshot: Snapshot, queue: QueueState, workload: Workload) -> HeldWorkload | None:
    """Return the slice that a pending one replaces if that is evicted and still holds quota; else None.

    Its pods run until its Job has stopped, and so the other is not admitted before.
    """
    held = _predecessor(queue, workload)
    return held if held is not None and _is_leaving(snapshot, held) else None


def _predecessor(queue: QueueState, workload: Workload) -> HeldWorkload | None:
    """Return the slice with quota in the queue that the Workload replaces."""
    key = workload.replaces
    held = queue.held.get(key) if key is not None else None
    return held if held is not None and workload.takes_over(held.workload) else None


def _is_leaving(snapshot: Snapshot, held: HeldWorkload) -> bool:
    return held.is_evicted or snapshot.evictions.is_gone(held)


def _as_second_look(entry: Entry) -> Entry:
    """Return the entry marked as searched from the first flavor twice, so that its scan does not go on."""
    scan = structs.replace(entry.assignment.scan, is_second=True)
    return structs.replace(entry, assignment=structs.replace(entry.assignment, scan=scan))


def _flavors_of(assignment: Assignment) -> Pins:
    """Return the flavor of each resource, for each pod set."""
    return tuple(
        {resource: chosen.flavor for resource, chosen in choice.choices.items()}
        for choice in assignment.pod_sets
    )


def _flavors_held(held: HeldWorkload, pending: Pending) -> Pins:
    """Return the flavors that a slice has, for each pod set of the one that replaces it."""
    flavors = {one.name: one.flavors for one in held.admission.pod_sets}
    return tuple(flavors.get(one.name, {}) for one in pending.workload.pod_sets)


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
