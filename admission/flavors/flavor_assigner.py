"""Which flavors a Workload would get: Fit, Preempt or NoFit for each pod set, and why.

Theory of operation. Pod sets are served in order, each on top of what those before it took. The resources of
one resource group share their flavor, and the pod sets of one topology group share all their flavors. For
each group the flavors are scanned in the ClusterQueue's order:

    1 refuse   taints, labels, topology, hardware and pins rule a flavor out, whatever is used
    2 weigh    every requested resource gets a grade (`admission.decisions.flavor_mode`): does it fit, would
               evictions help, how far up the tree does it borrow; the worst grade counts for the flavor
    3 stop     at the first flavor that `flavorFungibility` accepts; if it accepts none, the best one counts

With a `ranking` (`admission.flavors.flavor_ranking`) all flavors that fit now are compared first, and the one
with the best score is taken. Only where none fits, the scan decides which is waited or preempted for.

The index where the scan stopped is kept (`FlavorScan`): the next attempt continues after it, so a Workload
does not try its first flavor for ever. Each flavor is looked at once and no choice is taken back, so a search
costs at most pod sets × flavors × resources weighings and always ends.

Invariant: a search changes neither the snapshot nor the queue. Whether evictions would help is answered by
the `Oracle`, which lives in `admission.preemption`. Places in a topology are assigned afterwards, for all pod
sets together (`admission.flavors.topology_assigner`), because pod sets may share nodes.
Source: Kueue, pkg/scheduler/flavorassigner/flavorassigner.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from admission.decisions.assignment import Assignment, Attempt, FlavorChoice, Mode, PodSetChoice, more_severe
from admission.decisions.assignment_memo import QuotaAnswer
from admission.decisions.flavor_mode import BEST, MODES, WORST, Grade, Granular, is_preferred, should_try_next
from admission.flavors.flavor_ranking import Asked, FlavorRanking
from admission.flavors.flavor_refusal import FlavorRefusal, flavor_refusal, other_flavor_refusal
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueGroup, QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import PODS, QuotaCheckStrategy, gpus_of
from api.keys import ADDRESS, GPU_MILLI
from api.parsing.quantities import CPU, to_text
from api.parsing.times import to_rfc3339
from api.queueing import FungibilityPolicy, PreemptionPolicy
from api.reasons import PendingReason
from api.workload import PodSet
from queues.pending.pending_queue import FlavorScan, Pending
from queues.quota.quota_tree import QuotaCell
from queues.quota.resources import FlavorResource
from queues.quota.window_timeline import QuotaStep


class Oracle(Protocol):
    """Grades what evictions could do for one flavor and resource, without the others of the request."""

    def grade(
        self, queue: QueueState, pending: Pending, pair: FlavorResource, amount: int, height: int
    ) -> Grade:
        """Return what evictions could do for `amount` of `pair`; `height` is the height without any."""
        ...


# The flavor that each pod set must use for each resource: a second search must keep what was nominated.
Pins = Sequence[Mapping[str, str]]


@dataclass(slots=True, kw_only=True)
class FlavorSearch:
    """The search for one Workload in one ClusterQueue. `assign` may be called for several pod counts."""

    snapshot: Snapshot
    queue: QueueState
    pending: Pending
    oracle: Oracle
    is_fair_sharing: bool = False
    quota_check: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    pins: Pins | None = None
    ranking: FlavorRanking | None = None
    # The slice that the Workload replaces, whose flavors are the pins.
    replaced: HeldWorkload | None = None
    # Every quota question asked so far, with its answer, for `admission.flavors.assignment_cache`.
    weighed: list[QuotaAnswer] = field(default_factory=list)

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Return the best flavors for `counts` pods of each pod set (all of them by default), without places.

        Pod sets are served in order, each on top of what those before it took. The first that gets no flavor
        ends the search, because the Workload runs as a whole or not at all.
        """
        served: list[PodSetChoice] = []
        usage: dict[FlavorResource, int] = {}
        # Groups in the order of their first member; without groups this is the order of the pod sets.
        for members in self._members(counts):
            choices = self._assign_group(members, usage)
            served += choices
            # All choices of a group are charged before the search ends, so that its messages are complete.
            is_unserved = False
            for choice in choices:
                _charge(usage, choice)
                is_unserved |= choice.has_no_flavor
            if is_unserved:
                break
        # The caller asks for places, once for all pod sets together, because pod sets may share nodes.
        return self._to_assignment(tuple(served), usage)

    def _to_assignment(
        self, served: tuple[PodSetChoice, ...], usage: dict[FlavorResource, int]
    ) -> Assignment:
        """Return the assignment of the served pod sets, with the scan from which the next attempt continues.

        Its mode is the worst of the pod sets' modes, its `borrowing` the greatest height of any resource.
        """
        tried: list[dict[str, int]] = []
        borrowing, mode = 0, Mode.FIT if served else Mode.NO_FIT
        for choice in served:
            tried.append({resource: chosen.tried for resource, chosen in choice.choices.items()})
            mode = min(mode, choice.mode)
            for chosen in choice.choices.values():
                borrowing = max(borrowing, chosen.height)
        return Assignment(
            pod_sets=served,
            usage=usage,
            borrowing=borrowing,
            mode=mode,
            scan=FlavorScan(
                tried=tuple(tried),
                generation=self.queue.tree.generation,
                # A scan of the cycle just before is continued even where capacity has been
                # freed since (see `admission.nomination.nominate`).
                cycle=self.queue.pending.pop_cycle,
                shape=self.pending.shape,
            ),
        )

    def _members(self, counts: Sequence[int] | None) -> list[list[_Member]]:
        """Return the pod sets that share their flavors: those of one topology group, else each alone."""
        has_pods = PODS in self.queue.groups
        groups: dict[object, list[_Member]] = {}
        for index, pod_set in enumerate(self.pending.workload.pod_sets):
            asked = self.pending.requests[index]
            count = asked.count if counts is None else counts[index]
            total = {resource: amount * count for resource, amount in asked.per_pod.items()}
            # `pods` is not a resource of the pod template. It counts only where a quota covers it.
            if has_pods:
                total[PODS] = count
            topology = pod_set.topology_request
            group = topology.pod_set_group if topology is not None else None
            member = _Member(index, pod_set, count, total)
            # Without a topology group the index is the key, so the pod set shares with no other.
            groups.setdefault(index if group is None else group, []).append(member)
        return list(groups.values())

    def _assign_group(
        self, members: list[_Member], assumed: Mapping[FlavorResource, int]
    ) -> list[PodSetChoice]:
        """Return what each of the pod sets gets; they share the flavor of every resource."""
        requests = members[0].requests if len(members) == 1 else _sum(members)
        chosen: dict[str, FlavorChoice] = {}
        reasons: list[str] = []
        attempts: list[Attempt] = []
        no_fit_reason = None
        # The flavor of a resource group is chosen with the group's first resource, and is then in `chosen`
        # for its other resources as well.
        for resource in requests if len(requests) == 1 else sorted(requests, key=_search_order):
            if resource in chosen or self._is_ignored(resource, requests[resource]):
                continue
            scan = self._best_fitting(members, requests, resource, assumed)
            if scan is None:
                scan = self._scan_flavors(members, requests, resource, assumed)
            attempts += scan.attempts
            if not scan.choices:
                # The whole pod set gets nothing: the resources found so far would be of no use to it.
                chosen, reasons, no_fit_reason = {}, scan.reasons, scan.no_fit_reason
                break
            chosen.update(scan.choices)
            reasons += scan.reasons
        report = _SearchReport(tuple(reasons), tuple(attempts), no_fit_reason)
        return [_to_choice(member, chosen, report) for member in members]

    def _is_ignored(self, resource: str, amount: int) -> bool:
        """Return whether the resource needs no quota although no resource group covers it."""
        if resource in self.queue.groups:
            return False
        # Shares of GPUs and static addresses count where a group covers them; elsewhere nodes limit them.
        if resource in (GPU_MILLI, ADDRESS):
            return True
        # A request of zero needs no quota, not even for a resource that no group covers.
        return amount == 0 or self.quota_check is QuotaCheckStrategy.IGNORE_UNDECLARED

    def _best_fitting(
        self,
        members: list[_Member],
        requests: Mapping[str, int],
        resource: str,
        assumed: Mapping[FlavorResource, int],
    ) -> _Scan | None:
        """Return the scan that chose the best flavor that fits; None without a ranking or if none fits."""
        group = self.queue.groups.get(resource)
        if self.ranking is None or group is None:
            return None
        usable = [
            index
            for index, flavor in enumerate(group.flavors)
            if self._refusal(flavor, members, resource) is None
        ]
        wanted = [(name, requests[name]) for name in group.resources if name in requests]
        fitting = [index for index in usable if self._fits_now(group, index, wanted, assumed)]
        if not fitting:
            return None
        # All usable ones are compared: what is far from the best does not depend on what is full now.
        asked = Asked(totals=requests, pods=tuple(self._gpus(member) for member in members))
        scores = dict(zip(usable, self.ranking.scores(group, usable, asked), strict=True))
        scan = _Scan()
        grades = {index: self._weigh(group, index, wanted, assumed, scan) for index in fitting}
        avoids_borrowing = self.queue.spec.fungibility.when_can_borrow is FungibilityPolicy.TRY_NEXT_FLAVOR

        def order(index: int) -> tuple[int, float, int]:
            # Flavors of equal score in Kueue's order.
            return grades[index][0].height if avoids_borrowing else 0, -scores[index].score, index

        best = min(fitting, key=order)
        # All flavors were looked at, so the next attempt begins at the first.
        scan.choose(group.flavors[best], grades[best][1], tried=-1)
        return scan

    def _gpus(self, member: _Member) -> tuple[int, int]:
        """Return the number of pods and the GPUs of each."""
        return member.pods, gpus_of(self.pending.requests[member.position].on_node)

    def _fits_now(
        self,
        group: QueueGroup,
        index: int,
        wanted: list[tuple[str, int]],
        assumed: Mapping[FlavorResource, int],
    ) -> bool:
        """Return whether the flavor has the quota now and, as far as was tried, a place."""
        if self.ranking is not None and group.flavors[index] in self.ranking.passed_over:
            return False
        for resource, amount in wanted:
            pair, cell = group.cells[index][resource]
            total = assumed.get(pair, 0) + amount
            if total > cell.potential or total > max(0, cell.available):
                return False
        return True

    def _scan_flavors(
        self,
        members: list[_Member],
        requests: Mapping[str, int],
        resource: str,
        assumed: Mapping[FlavorResource, int],
    ) -> _Scan:
        """Grade the flavors of the resource's group, beginning after the one where the last scan stopped."""
        scan = _Scan()
        group = self.queue.groups.get(resource)
        if group is None:
            scan.reasons.append(f"resource {resource} unavailable in ClusterQueue")
            scan.no_fit_reason = PendingReason.NO_MATCHING_FLAVOR
            return scan
        fungibility = self.queue.spec.fungibility
        wanted = [(name, requests[name]) for name in group.resources if name in requests]
        # A scan that reaches the last flavor is recorded as -1, so that the next attempt begins at the first.
        best, best_grade, last = None, WORST, len(group.flavors) - 1
        tried = self._last_tried(members[0].position, resource)
        while tried < last:
            tried += 1
            flavor = group.flavors[tried]
            refusal = self._refusal(flavor, members, resource)
            # Labels, taints and topology do not depend on usage, so they are checked before any arithmetic.
            if refusal is not None:
                scan.note(Attempt(group=group.index, flavor=flavor, reason=refusal.reason), refusal.message)
                continue
            grade, grades = self._weigh(group, tried, wanted, assumed, scan)
            # The fungibility policy stops here, whatever the later flavors offer.
            if not should_try_next(grade, fungibility):
                best, best_grade = (flavor, grades), grade
                break
            if is_preferred(grade, best_grade, fungibility.preference):
                best, best_grade = (flavor, grades), grade
        if best is not None:
            # The index where the scan stopped, not that of the best flavor: the next attempt continues with
            # the flavors that have not been tried.
            scan.choose(best[0], best[1], tried=-1 if tried == last else tried)
            # Why other flavors did not fit does not matter once one fits.
            if best_grade.mode is Granular.FIT:
                scan.reasons.clear()
        return scan

    def _last_tried(self, pod_set: int, resource: str) -> int:
        """Return the index of the flavor at which the last scan stopped, -1 to begin at the first."""
        scan = self.pending.scan
        # The last scan may have covered fewer pod sets: it ended at the first that got no flavor.
        if scan is None or pod_set >= len(scan.tried):
            return -1
        return scan.tried[pod_set].get(resource, -1)

    def _refusal(self, name: str, members: list[_Member], resource: str) -> FlavorRefusal | None:
        """Return why these pods cannot use the flavor whatever its quota, None where they can."""
        # The members share one flavor, so a pin of any member that names it is enough.
        if self.pins is not None and all(self.pins[m.position].get(resource) != name for m in members):
            return FlavorRefusal(self._pinned_message(name, resource, members))
        for member in members:
            asked = self.pending.requests[member.position]
            refusal = flavor_refusal(
                self.snapshot, self.queue, name, self.pending.workload, member.pod_set, asked
            )
            if refusal is not None:
                return refusal
        return None

    def _pinned_message(self, name: str, resource: str, members: list[_Member]) -> str:
        """Return why the flavor is not the one that the pods must use: Kueue's words for a slice."""
        if self.pins is None or self.replaced is None:
            return f"flavor {name} is not the one nominated for {resource}"
        return other_flavor_refusal(name, self.pins[members[0].position].get(resource, ""))

    def _weigh(
        self,
        group: QueueGroup,
        index: int,
        wanted: list[tuple[str, int]],
        assumed: Mapping[FlavorResource, int],
        scan: _Scan,
    ) -> tuple[Grade, list[tuple[str, Grade]]]:
        """Return the worst grade of the flavor over all wanted resources, and the grade of each.

        A resource that cannot fit does not end the loop: the gravest reason of all is reported.
        """
        worst = BEST
        grades = []
        reason: PendingReason | None = None
        for resource, amount in wanted:
            pair, cell = group.cells[index][resource]
            verdict = self._fits(pair, cell, assumed.get(pair, 0), amount)
            # Kept for `admission.flavors.assignment_cache`: equal answers to equal questions
            # make an equal result.
            self.weighed.append(verdict)
            if verdict.message:
                scan.reasons.append(verdict.message)
                reason = more_severe(reason, verdict.reason)
            # The worst grade decides for the flavor, and which is worse depends on the queue's preference.
            if is_preferred(worst, verdict.grade, self.queue.spec.fungibility.preference):
                worst = verdict.grade
            grades.append((resource, verdict.grade))
        if worst.mode is Granular.NO_FIT:
            reason = reason or PendingReason.NO_MATCHING_FLAVOR
            scan.attempts.append(Attempt(group=group.index, flavor=group.flavors[index], reason=reason))
        return worst, grades

    def _fits(self, pair: FlavorResource, cell: QuotaCell, assumed: int, amount: int) -> QuotaAnswer:
        """Return whether `amount` more of `pair` fits, on top of what earlier pod sets take."""
        total = assumed + amount
        # More than the queue could have on an empty cluster: neither evictions nor waiting will help.
        if total > cell.potential:
            message = _above_capacity(pair, assumed, amount, cell.potential)
            for step in self.queue.rises(pair):
                # The queue's maximum rises by the same amount as its nominal quota.
                if total <= cell.potential + step.amount - cell.nominal:
                    message += _until_then(pair, step)
                    break
            return QuotaAnswer(pair, cell, total, None, WORST, message, PendingReason.EXCEEDS_MAX_QUOTA)
        reach = cell.borrow_height(total)
        # Usage may exceed quota. Then the whole request is missing, but not the excess as well.
        lack = total - max(0, cell.available)
        if lack <= 0:
            return QuotaAnswer(pair, cell, total, reach, Grade(Granular.FIT, reach.height))
        message = lack_message(pair, lack)
        # Evictions can help within the nominal quota, where lent quota can be reclaimed, or where the queue
        # may preempt while it borrows. Otherwise the Workload can only wait.
        if cell.nominal >= total or reach.can_reclaim or self._can_preempt_while_borrowing():
            grade = self.oracle.grade(self.queue, self.pending, pair, total, reach.height)
            return QuotaAnswer(pair, cell, total, reach, grade, message)
        return QuotaAnswer(pair, cell, total, reach, WORST, message, PendingReason.WAITING_FOR_QUOTA)

    def _can_preempt_while_borrowing(self) -> bool:
        """Return whether the ClusterQueue may evict other queues' Workloads while it borrows."""
        preemption = self.queue.spec.preemption
        return preemption.borrow_within_cohort is not PreemptionPolicy.NEVER or (
            # Under fair sharing a queue may take from queues with a greater share, borrowing or not.
            self.is_fair_sharing and preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER
        )


# --- the search's working values -------------------------------------------------------------------------


class _Member(NamedTuple):
    """A pod set in a group that shares flavors, with its pod count and its total requests."""

    position: int
    pod_set: PodSet
    pods: int
    requests: dict[str, int]


class _SearchReport(NamedTuple):
    """What the scans of a group of pod sets report: the same for all of its members."""

    reasons: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    no_fit_reason: PendingReason | None


@dataclass(slots=True)
class _Scan:
    """What one scan through the flavors of a group has found."""

    choices: dict[str, FlavorChoice] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    no_fit_reason: PendingReason | None = None

    def note(self, attempt: Attempt, message: str) -> None:
        """Record a flavor that cannot be used, with its message."""
        self.attempts.append(attempt)
        self.reasons.append(message)

    def choose(self, flavor: str, grades: list[tuple[str, Grade]], *, tried: int) -> None:
        """Set the flavor for each of the graded resources; `tried` is the index where the scan stopped."""
        for resource, (mode, height) in grades:
            self.choices[resource] = FlavorChoice(flavor=flavor, mode=MODES[mode], height=height, tried=tried)


def _search_order(resource: str) -> tuple[bool, str]:
    """Return the sort key of resources in a search: by name, but cpu last.

    It only decides which group's reason is reported where several groups fail. This is Kueue's order, as
    observed.
    """
    return resource == CPU, resource


def _sum(members: list[_Member]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for member in members:
        total.update(member.requests)
    return total


def _to_choice(member: _Member, chosen: Mapping[str, FlavorChoice], report: _SearchReport) -> PodSetChoice:
    choices = {resource: chosen[resource] for resource in member.requests if resource in chosen}
    # It requests something and got no flavor for any of it.
    if member.requests and not choices:
        mode = Mode.NO_FIT
    # No flavor was refused or short on the way.
    elif not report.reasons:
        mode = Mode.FIT
    else:
        mode = min((one.mode for one in choices.values()), default=Mode.NO_FIT)
    return PodSetChoice(
        name=member.pod_set.name,
        count=member.pods,
        requests=member.requests,
        choices=choices,
        mode=mode,
        reasons=report.reasons,
        attempts=report.attempts,
        no_fit_reason=report.no_fit_reason,
    )


def _charge(usage: dict[FlavorResource, int], choice: PodSetChoice) -> None:
    for resource, chosen in choice.choices.items():
        pair = FlavorResource(chosen.flavor, resource)
        usage[pair] = usage.get(pair, 0) + choice.requests.get(resource, 0)


def lack_message(pair: FlavorResource, lack: int) -> str:
    """Return the message for `lack` units (of the resource) of quota that other Workloads use now."""
    return (
        f"insufficient unused quota for {pair.resource} in flavor {pair.flavor}, "
        f"{to_text(pair.resource, lack)} more needed"
    )


def _until_then(pair: FlavorResource, step: QuotaStep) -> str:
    amount, at = to_text(pair.resource, step.amount), to_rfc3339(step.at)
    if step.window is None:
        return f"; waits for {at}, when the nominal quota is {amount} again"
    return f"; waits for {at}, when quota window {step.window.name} makes the nominal quota {amount}"


def _above_capacity(pair: FlavorResource, assumed: int, amount: int, most: int) -> str:
    # Canonical quantities, as in Kueue's message.
    taken, wanted, capacity = (to_text(pair.resource, value) for value in (assumed, amount, most))
    return (
        f"insufficient quota for {pair.resource} in flavor {pair.flavor}, previously considered podsets "
        f"requests ({taken}) + current podset request ({wanted}) > maximum capacity ({capacity})"
    )
