"""What becomes of a head: admitted, back to its queue, or waiting for whom it evicts; and in which words.

`admission.scheduler.scheduler` decides; here each of its answers is put together from the entry as it
was nominated, with what whoever carries it out has to know: why it waits, who is to leave for it, what
will be charged then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from admission.decisions.assignment import Mode
from admission.decisions.decision import Admit, Evict, Wait
from admission.nomination.nominate import Entry
from admission.placement.topology.place import Place
from admission.preemption.checkpoint_before_eviction import asked_first, leaving_seconds
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemptor import eviction_message
from admission.preemption.targets import Target
from admission.snapshot.snapshot import HeldWorkload, QueueState
from api.keys import JOB_UID
from api.queueing import CheckRule
from api.reasons import EvictionReason, PendingReason
from api.workload import Admission, WorkloadKey, to_rfc3339
from queues.estimates.estimator import eviction_seconds
from queues.pending.pending_queue import FlavorScan, Pending, RequeueCause
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.quota.resources import Quantities

_STILL_TAKEN = "Workload fits only where preempted workloads are still running"


class Recomputation(StrEnum):
    """What a second search for victims gave, after another head had taken one. The words of metrics."""

    NEW_TARGETS = "new_targets"
    DEFERRED_FIT = "deferred_fit"
    SKIPPED = "skipped"


class HeadOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one head: admitted (`requeue` is None), or back to its queue for a reason.

    `evictions` make room for it in a later cycle. `scan` is where its next search through the flavors begins.
    `is_preemption_skipped`: it had victims, but another head of this cycle was in the way.
    """

    queue: QueueState
    pending: Pending
    decision: Admit | Wait
    requeue: RequeueCause | None = None
    scan: FlavorScan | None = None
    evictions: tuple[Evict, ...] = ()
    # Whose end it waits for: those of `evictions`, and those who had been told before, for it or for others.
    awaits: tuple[WorkloadKey, ...] = ()
    # Evictions of those who save for somebody else already: they go on for this one if that one goes away.
    joins: tuple[Evict, ...] = ()
    is_preemption_skipped: bool = False
    # Only heads of other trees, which get nothing of it, have kept its places from it in this cycle.
    is_displaced: bool = False
    # When somebody that a policy spares for now may be evicted for it; infinity: not by time alone.
    spared_until: float | None = None
    recomputation: Recomputation | None = None
    # What an admission charges, pairs of zero amount included; of a preemption what it will, and where, and
    # how that will stand in its status.
    usage: Quantities = msgspec.field(default_factory=dict)
    places: tuple[Place, ...] = ()
    admission: Admission | None = None
    lease: BackfillLease | None = None
    # For how long it would be in the way of promises, where others as long need not be tried.
    seconds: float | None = None


def required_checks(rules: Sequence[CheckRule], admission: Admission) -> tuple[str, ...]:
    """Return the admission checks that the assigned flavors require, in order of name.

    A Workload without any flavor needs none. Source: Kueue, pkg/workload/admissionchecks.go.
    """
    if not rules:
        return ()
    assigned = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    applying = [rule.name for rule in rules if not rule.on_flavors or rule.on_flavors & assigned]
    return tuple(sorted(applying)) if assigned else ()


def admitted(entry: Entry, *, now: float) -> HeadOutcome:
    """It starts, or holds its quota until the checks are ready that its flavors ask for."""
    queue, workload = entry.queue, entry.pending.workload
    admission = entry.assignment.to_admission(queue.name)
    checks = required_checks(queue.spec.checks, admission)
    # Ready from an earlier admission: a check need not be made twice.
    ready = {check.name for check in workload.checks if check.state == "Ready"} if checks else checks
    decision = Admit(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        admission=admission,
        # Pods that have no place yet are not started, though their checks may be ready from before.
        is_admitted=all(check in ready for check in checks) and not admission.is_delayed,
        checks=checks,
        waited_seconds=max(0.0, now - entry.pending.queued_at),
        borrows=entry.assignment.borrowing > 0,
        strategy=entry.assignment.strategy,
    )
    usage = entry.assignment.usage
    return HeadOutcome(queue=queue, pending=entry.pending, decision=decision, usage=usage)


def preempting(entry: Entry, others: Iterable[HeldWorkload], *, now: float) -> HeadOutcome:
    """Evict the targets; the Workload itself comes back until their quota is free, its scan begun anew.

    `others` have been told to leave for somebody else, and what they leave over is needed as well.
    """
    count = len(entry.targets)
    message = f"{entry.assignment.message()}. Pending the preemption of {count} workload(s)"
    outcome = lost(
        entry.queue,
        entry.pending,
        PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS,
        message,
        RequeueCause.PENDING_PREEMPTION,
    )
    # Some may be on their way out already, evicted for somebody else; they are not told again.
    fresh = [target for target in entry.targets if not target.held.is_evicted]
    # The preemptor starts when the slowest is gone, so that the others may take as long.
    slowest = max((leaving_seconds(one.held.workload, one.queue.policy) for one in fresh), default=0.0)
    evictions = tuple(
        asked_first(
            _evict(entry, target),
            target.held.workload,
            target.queue.policy,
            now=now,
            slack_seconds=slowest - eviction_seconds(target.held.workload),
        )
        for target in fresh
    )
    assignment = entry.assignment
    return replace(
        outcome,
        evictions=evictions,
        awaits=tuple(held.key for held in (*(target.held for target in entry.targets), *others)),
        joins=tuple(_evict(entry, target) for target in entry.targets if target.held.is_saving),
        usage=assignment.usage,
        places=assignment.places,
        admission=assignment.to_admission(entry.queue.name),
    )


def _evict(entry: Entry, target: Target) -> Evict:
    preemptor, victim = entry.pending.workload, target.held.workload
    return Evict(
        key=victim.key,
        uid=victim.uid,
        resource_version=victim.resource_version,
        reason=EvictionReason.PREEMPTED,
        message=eviction_message(target, entry.queue, entry.pending, preemptor.labels.get(JOB_UID, "")),
        preemption_reason=target.reason,
        preemptor=preemptor.key,
        preemptor_uid=preemptor.uid,
        preempting_cluster_queue=entry.queue.name,
        cluster_queue=target.queue.name,
    )


def waiting(entry: Entry, reason: PendingReason, requeue: RequeueCause) -> HeadOutcome:
    """It does not fit as it was nominated; its next search goes on where this one ended."""
    message = entry.assignment.message()
    outcome = lost(entry.queue, entry.pending, reason, message, requeue, scan=entry.assignment.scan)
    if reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED and isinstance(outcome.decision, Wait):
        return replace(outcome, decision=replace(outcome.decision, strategy=entry.assignment.strategy))
    return outcome


def in_vain(entry: Entry) -> HeadOutcome:
    """It neither fits nor would by evictions that it may ask for, and no start is promised to it."""
    if entry.assignment.mode is Mode.NO_FIT:
        return waiting(entry, entry.assignment.no_fit_reason(), RequeueCause.NO_FIT)
    return waiting(entry, PendingReason.WAITING_FOR_QUOTA, RequeueCause.PREEMPTION_NO_CANDIDATES)


def with_kept(outcome: HeadOutcome, entry: Entry, losses: EvictionLosses) -> HeadOutcome:
    """Return the outcome; one that nobody gives way for is told whom floors and budgets keep."""
    decision = outcome.decision
    if entry.is_promising or not isinstance(decision, Wait):
        return outcome
    words = losses.kept_from(entry.pending.key)
    return (
        replace(outcome, decision=replace(decision, message=f"{decision.message}. {words}"))
        if words
        else outcome
    )


def skipped(entry: Entry, message: str) -> HeadOutcome:
    """It would fit, but another head of this cycle was in the way: it is tried again in the next, or as soon
    as something changes where it has been looked at from the first flavor twice.
    """
    scan = entry.assignment.scan
    outcome = lost(
        entry.queue,
        entry.pending,
        PendingReason.WAITING_FOR_QUOTA,
        message,
        RequeueCause.GENERIC if scan.is_second else RequeueCause.FAILED_AFTER_NOMINATION,
        scan=None if scan.is_second else scan,
    )
    return replace(outcome, is_preemption_skipped=bool(entry.targets))


def still_taken(entry: Entry, others: Iterable[HeldWorkload]) -> HeadOutcome:
    """It needs no more than what `others` leave over who give way for somebody else."""
    outcome = replace(skipped(entry, _STILL_TAKEN), requeue=RequeueCause.STILL_TAKEN)
    return after_others(entry, outcome, others)


def after_others(entry: Entry, outcome: HeadOutcome, others: Iterable[HeldWorkload]) -> HeadOutcome:
    """Return the outcome with what the entry will have once `others` have gone who give way for others."""
    assignment = entry.assignment
    return replace(
        outcome,
        usage=assignment.usage,
        places=assignment.places,
        admission=assignment.to_admission(entry.queue.name),
        awaits=tuple(held.key for held in others),
    )


def recomputation(entry: Entry, outcome: HeadOutcome) -> Recomputation:
    """Return what the second search for victims gave, by how the entry stands after it."""
    if outcome.evictions:
        return Recomputation.NEW_TARGETS
    is_deferred = entry.assignment.mode is Mode.DEFERRED_FIT
    return Recomputation.DEFERRED_FIT if is_deferred else Recomputation.SKIPPED


def held_back(entry: Entry, behind: PlannedStart, too_long: float | None) -> HeadOutcome:
    """It fits, but starting it now would move a promised start."""
    message = (
        f"fits now, but would delay {behind.key}, which is promised to start at {to_rfc3339(behind.start_at)}"
    )
    requeue = RequeueCause.HELD_BACK if too_long is None else RequeueCause.TOO_LONG
    outcome = lost(entry.queue, entry.pending, PendingReason.WAITING_FOR_QUOTA, message, requeue)
    return replace(outcome, seconds=too_long)


def kept_back(entry: Entry, words: str) -> HeadOutcome:
    """It fits, but not for as long as it will run, by the calendar."""
    message = f"fits now, but may still run when {words}"
    return lost(entry.queue, entry.pending, PendingReason.WAITING_FOR_QUOTA, message, RequeueCause.HELD_BACK)


def lost(
    queue: QueueState,
    pending: Pending,
    reason: PendingReason,
    message: str,
    requeue: RequeueCause,
    *,
    scan: FlavorScan | None = None,
) -> HeadOutcome:
    """It goes back to its queue for a reason, and is told so in these words."""
    workload = pending.workload
    decision = Wait(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        reason=reason,
        message=message,
        requests=_requests(pending),
    )
    return HeadOutcome(queue=queue, pending=pending, decision=decision, requeue=requeue, scan=scan)


def _requests(pending: Pending) -> Mapping[str, Mapping[str, int]]:
    return {requests.name: requests.total() for requests in pending.requests}
