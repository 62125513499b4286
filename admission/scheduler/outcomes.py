"""Outcomes of heads: admitted, requeued, or waiting for preempted Workloads; each with its message.

`admission.scheduler.scheduler` decides. This module builds the outcome from the entry as it was nominated and
adds what is needed to carry it out: why it waits, which Workloads leave for it, and what it will be charged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from admission.decisions.assignment import Mode
from admission.decisions.decision import Admit, Evict, Wait
from admission.nomination.nominate import Entry
from admission.nomination.rejection import Rejection
from admission.placement.topology.place import Place
from admission.preemption.checkpoint_before_eviction import asked_first, leaving_seconds
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemptor import eviction_message
from admission.preemption.targets import Target
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from api.keys import JOB_UID
from api.queueing import CheckRule
from api.reasons import EvictionReason, PendingReason
from api.workload import Admission, WorkloadKey, to_rfc3339
from queues.estimates.estimator import eviction_seconds
from queues.pending.pending_queue import FlavorScan, Pending, RequeueCause
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.quota.resources import Quantities

_STILL_TAKEN = "Workload fits only where preempted workloads are still running"
_FITS_AFTER_OTHERS = "Workload fits once the workloads that another preempts have stopped"


class Recomputation(StrEnum):
    """What a second search for targets gave, after another head took one. The values are metric labels."""

    NEW_TARGETS = "new_targets"
    DEFERRED_FIT = "deferred_fit"
    SKIPPED = "skipped"


class HeadOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided for one head: admitted (`requeue` is None), or back to its queue for a cause.

    `evictions` make room for it in a later cycle. `scan` is where its next search of flavors begins.
    `is_preemption_skipped`: it had targets, but another head of this cycle prevented their preemption.
    """

    queue: QueueState
    pending: Pending
    decision: Admit | Wait
    requeue: RequeueCause | None = None
    scan: FlavorScan | None = None
    evictions: tuple[Evict, ...] = ()
    # The Workloads it waits for: those in `evictions`, and those already being evicted, for it or others.
    awaits: tuple[WorkloadKey, ...] = ()
    # Evictions of Workloads that already save a checkpoint for another preemptor. They go on for this one if
    # that other preemptor no longer needs them.
    joins: tuple[Evict, ...] = ()
    is_preemption_skipped: bool = False
    # Its places were taken only by heads of other trees, which reserve them for this cycle but do not start.
    is_displaced: bool = False
    # When a Workload that a policy spares for now may be evicted for it; infinity: time alone does not help.
    spared_until: float | None = None
    recomputation: Recomputation | None = None
    # What an admission charges, with pairs of zero amount. For a preemption: what it will charge, where, and
    # how its admission will be recorded in its status.
    usage: Quantities = msgspec.field(default_factory=dict)
    places: tuple[Place, ...] = ()
    admission: Admission | None = None
    lease: BackfillLease | None = None
    # How many seconds it would conflict with promises. Work of equal requests as long as this
    # need not be tried.
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
    """Return the outcome of an entry that starts, or that holds its quota until its checks are ready."""
    queue, workload = entry.queue, entry.pending.workload
    admission = entry.assignment.to_admission(queue.name)
    checks = required_checks(queue.spec.checks, admission)
    # A check that is ready from an earlier admission is not run again.
    ready = {check.name for check in workload.checks if check.state == "Ready"} if checks else checks
    decision = Admit(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        admission=admission,
        # Pods that have no place yet are not started, even if all checks are ready from before.
        is_admitted=all(check in ready for check in checks) and not admission.is_delayed,
        checks=checks,
        waited_seconds=max(0.0, now - entry.pending.queued_at),
        borrows=entry.assignment.borrowing > 0,
        strategy=entry.assignment.strategy,
    )
    usage = entry.assignment.usage
    return HeadOutcome(queue=queue, pending=entry.pending, decision=decision, usage=usage)


def preempting(entry: Entry, others: Iterable[HeldWorkload], *, now: float) -> HeadOutcome:
    """Return the outcome of an entry whose targets are evicted; it is requeued until their quota is free.

    Its next search of flavors begins at the first. `others` are being evicted for other preemptors, and what
    they leave over is needed as well.
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
    # Some may be on their way out already, evicted for another preemptor. They are not evicted twice.
    fresh = [target for target in entry.targets if not target.held.is_evicted]
    # The preemptor starts when the slowest target is gone, so the others may take as long.
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
    """Return the outcome of an entry that does not fit; its next search goes on where this one ended."""
    message = entry.assignment.message()
    outcome = lost(entry.queue, entry.pending, reason, message, requeue, scan=_next_scan(entry))
    if reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED and isinstance(outcome.decision, Wait):
        return replace(outcome, decision=replace(outcome.decision, strategy=entry.assignment.strategy))
    return outcome


def deferred(entry: Entry, others: Iterable[HeldWorkload]) -> HeadOutcome:
    """Return the outcome of an entry that fits once `others` have stopped, which another head preempts.

    Its next search begins at the first flavor. From where this one ended it would pass over the flavor
    that is being freed, and take a less preferred one or try its flavors without end.
    Source: Kueue, scheduler.go, processEntry.
    """
    outcome = lost(
        entry.queue,
        entry.pending,
        PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS,
        # The assignment is a Fit, which has no message.
        _FITS_AFTER_OTHERS,
        RequeueCause.PENDING_PREEMPTION,
    )
    return after_others(entry, outcome, others)


def inadmissible(entry: Entry) -> HeadOutcome:
    """Return the outcome of an entry that fits neither now nor after evictions it may ask for.

    No start is promised to it.
    """
    if entry.assignment.mode is Mode.NO_FIT:
        return waiting(entry, entry.assignment.no_fit_reason(), RequeueCause.NO_FIT)
    return waiting(entry, PendingReason.WAITING_FOR_QUOTA, RequeueCause.PREEMPTION_NO_CANDIDATES)


def with_kept(outcome: HeadOutcome, entry: Entry, losses: EvictionLosses) -> HeadOutcome:
    """Return the outcome, with the Workloads that policies and budgets protect added to its message.

    The outcome is unchanged unless the entry waits and no Workload is evicted for it.
    """
    decision = outcome.decision
    if entry.will_fit or not isinstance(decision, Wait):
        return outcome
    words = losses.protection_message(entry.pending.key)
    return (
        replace(outcome, decision=replace(decision, message=f"{decision.message}. {words}"))
        if words
        else outcome
    )


def skipped(entry: Entry, message: str) -> HeadOutcome:
    """Return the outcome of an entry that would fit if an earlier head of this cycle did not prevent it.

    It is tried again in the next cycle. If it has been searched from the first flavor twice already, it
    waits until something changes.
    """
    scan = _next_scan(entry)
    outcome = lost(
        entry.queue,
        entry.pending,
        PendingReason.WAITING_FOR_QUOTA,
        message,
        RequeueCause.GENERIC if scan is None else RequeueCause.FAILED_AFTER_NOMINATION,
        scan=scan,
    )
    return replace(outcome, is_preemption_skipped=bool(entry.targets))


def _next_scan(entry: Entry) -> FlavorScan | None:
    """Return where the next search goes on; None if at the first flavor, where it has begun twice."""
    scan = entry.assignment.scan
    return None if scan.is_second else scan


def still_taken(entry: Entry, others: Iterable[HeldWorkload]) -> HeadOutcome:
    """Return the outcome of an entry that needs no more than what `others` leave, once they have stopped."""
    outcome = replace(skipped(entry, _STILL_TAKEN), requeue=RequeueCause.STILL_TAKEN)
    return after_others(entry, outcome, others)


def after_others(entry: Entry, outcome: HeadOutcome, others: Iterable[HeldWorkload]) -> HeadOutcome:
    """Return the outcome with what the entry will have once `others`, evicted for other heads, are gone."""
    assignment = entry.assignment
    return replace(
        outcome,
        usage=assignment.usage,
        places=assignment.places,
        admission=assignment.to_admission(entry.queue.name),
        awaits=tuple(held.key for held in others),
    )


def recomputation(entry: Entry, outcome: HeadOutcome) -> Recomputation:
    """Return what the second search for targets gave, by the entry's mode after it."""
    if outcome.evictions:
        return Recomputation.NEW_TARGETS
    is_deferred = entry.assignment.mode is Mode.DEFERRED_FIT
    return Recomputation.DEFERRED_FIT if is_deferred else Recomputation.SKIPPED


def blocked_by_promise(entry: Entry, behind: PlannedStart, too_long: float | None) -> HeadOutcome:
    """Return the outcome of an entry that fits, but whose start now would move a promised start."""
    message = (
        f"fits now, but would delay {behind.key}, which is promised to start at {to_rfc3339(behind.start_at)}"
    )
    requeue = RequeueCause.HELD_BACK if too_long is None else RequeueCause.TOO_LONG
    outcome = lost(entry.queue, entry.pending, PendingReason.WAITING_FOR_QUOTA, message, requeue)
    return replace(outcome, seconds=too_long)


def blocked_by_calendar(entry: Entry, words: str) -> HeadOutcome:
    """Return the outcome of an entry that fits now, but not for as long as it will run, by the calendar."""
    message = f"fits now, but may still run when {words}"
    return lost(entry.queue, entry.pending, PendingReason.WAITING_FOR_QUOTA, message, RequeueCause.HELD_BACK)


def rejected(queue: QueueState, pending: Pending, rejection: Rejection) -> HeadOutcome:
    """Return the outcome of a head that may not be admitted whatever the quota."""
    return lost(queue, pending, rejection.reason, rejection.message, rejection.requeue)


def lost(
    queue: QueueState,
    pending: Pending,
    reason: PendingReason,
    message: str,
    requeue: RequeueCause,
    *,
    scan: FlavorScan | None = None,
) -> HeadOutcome:
    """Return the outcome of an entry that goes back to its queue with this reason and message."""
    workload = pending.workload
    decision = Wait(
        key=workload.key,
        uid=workload.uid,
        reason=reason,
        message=message,
        requests=_requests(pending),
    )
    return HeadOutcome(queue=queue, pending=pending, decision=decision, requeue=requeue, scan=scan)


def _requests(pending: Pending) -> Mapping[str, Mapping[str, int]]:
    """Return the requests by pod set, in total, as Wait reports them."""
    return {requests.name: requests.total() for requests in pending.requests}
