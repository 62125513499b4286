"""Outcomes of heads whose turn has come: admitted, requeued, or waiting for preempted Workloads.

`admission.scheduler.entry_processing` decides. This module builds the outcome from the entry as it was
nominated and adds what is needed to carry it out: why it waits, which Workloads leave for it, and what it
will be charged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from admission.decisions.assignment import Mode
from admission.decisions.decision import Admit, Evict, Wait
from admission.nomination.head_outcome import HeadOutcome, Recomputation, lost
from admission.nomination.nominate import Entry
from admission.preemption.checkpoint_before_eviction import asked_first, leaving_seconds
from admission.preemption.preemptor import eviction_message
from admission.preemption.targets import Target
from admission.snapshot.held_workload import HeldWorkload
from api.keys import JOB_UID
from api.parsing.times import to_rfc3339
from api.queueing import CheckRule
from api.reasons import PREEMPTION_GATED, EvictionReason, PendingReason
from api.workload import Admission, Workload
from queues.estimates.estimator import eviction_seconds
from queues.pending.pending_queue import RequeueCause
from queues.profile.planned_start import PlannedStart
from queues.quota.tree_digest import tree_digest

_STILL_TAKEN = "Workload fits only where preempted workloads are still running"
_KEPT_FOR_OTHERS = "Workload fits only where room is kept for another workload that preempts others"
_LEFT_TO_OWNERS = (
    "Workload fits by borrowing quota that has just come free, and workloads of that quota's own ClusterQueue"
    " are tried first"
)
_AWAITS_PODS = "waiting for all admitted workloads to be in PodsReady condition"
_FITS_AFTER_OTHERS = "Workload fits once the workloads that another preempts have stopped"


def required_checks(rules: Sequence[CheckRule], admission: Admission) -> tuple[str, ...]:
    """Return the admission checks that the assigned flavors require, in order of name.

    A Workload without any flavor needs none. Source: Kueue, pkg/workload/admissionchecks.go.
    """
    if not rules:
        return ()
    assigned = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    applying = [rule.name for rule in rules if not rule.on_flavors or rule.on_flavors & assigned]
    return tuple(sorted(applying)) if assigned else ()


def starts_at_once(workload: Workload, admission: Admission, checks: tuple[str, ...]) -> bool:
    """Return whether the Workload is admitted with its quota: it lacks neither a check nor a place."""
    # A check that is ready from an earlier admission is not run again.
    ready = {check.name for check in workload.checks if check.state == "Ready"} if checks else checks
    # Pods that have no place yet are not started, even if all checks are ready from before.
    return all(check in ready for check in checks) and not admission.is_delayed


def admitted(entry: Entry, *, now: float) -> HeadOutcome:
    """Return the outcome of an entry that starts, or that holds its quota until its checks are ready."""
    queue, workload = entry.queue, entry.pending.workload
    admission = entry.assignment.to_admission(queue.name)
    checks = required_checks(queue.spec.checks, admission)
    decision = Admit(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        admission=admission,
        is_admitted=starts_at_once(workload, admission, checks),
        quota=tree_digest(queue.node),
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
    reason, requeue = PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS, RequeueCause.PENDING_PREEMPTION
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
    awaited = (*(target.held for target in entry.targets), *others)
    return replace(
        after_others(entry, lost(entry, reason, message, requeue), awaited),
        evictions=evictions,
        joins=tuple(_evict(entry, target) for target in entry.targets if target.held.is_saving),
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


def deferred(entry: Entry, others: Iterable[HeldWorkload]) -> HeadOutcome:
    """Return the outcome of an entry that fits once `others` have stopped, which another head preempts.

    Its next search begins at the first flavor. From where this one ended it would pass over the flavor
    that is being freed, and take a less preferred one or try its flavors without end.
    Source: Kueue, scheduler.go, processEntry.
    """
    reason, requeue = PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS, RequeueCause.PENDING_PREEMPTION
    # The assignment is a Fit, which has no message.
    return after_others(entry, lost(entry, reason, _FITS_AFTER_OTHERS, requeue), others)


def skipped(entry: Entry, message: str) -> HeadOutcome:
    """Return the outcome of an entry that would fit if an earlier head of this cycle did not prevent it.

    It is tried again in the next cycle. If it has been searched from the first flavor twice already, it
    waits until something changes.
    """
    scan = entry.next_scan
    requeue = RequeueCause.GENERIC if scan is None else RequeueCause.FAILED_AFTER_NOMINATION
    outcome = lost(entry, PendingReason.WAITING_FOR_QUOTA, message, requeue)
    return replace(outcome, scan=scan, is_preemption_skipped=bool(entry.targets))


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
    delayed = behind.key.as_read_in(entry.pending.key.namespace)
    start_at = to_rfc3339(behind.start_at)
    message = f"fits now, but would delay {delayed}, which is promised to start at {start_at}"
    requeue = RequeueCause.HELD_BACK if too_long is None else RequeueCause.TOO_LONG
    return replace(lost(entry, PendingReason.WAITING_FOR_QUOTA, message, requeue), seconds=too_long)


def awaiting_promise(entry: Entry, planned: PlannedStart) -> HeadOutcome:
    """Return the outcome of an entry that evicts no Workload, because its own promised start is near."""
    count, start_at = len(entry.targets), to_rfc3339(planned.start_at)
    message = (
        f"promised to start at {start_at}; the preemption of {count} workload(s) before that would lose more "
        "than it gains"
    )
    return lost(entry, PendingReason.WAITING_FOR_QUOTA, message, RequeueCause.HELD_BACK)


def blocked_by_calendar(entry: Entry, words: str) -> HeadOutcome:
    """Return the outcome of an entry that fits now, but not for as long as it will run, by the calendar."""
    message = f"fits now, but may still run when {words}"
    return lost(entry, PendingReason.WAITING_FOR_QUOTA, message, RequeueCause.HELD_BACK)


def kept_for_others(entry: Entry) -> HeadOutcome:
    """Return the outcome of an entry that fits only on capacity held for others."""
    return lost(entry, PendingReason.WAITING_FOR_QUOTA, _KEPT_FOR_OTHERS, RequeueCause.NO_FIT)


def left_to_owners(entry: Entry) -> HeadOutcome:
    """Return the outcome of an entry that is tried again once the owners of what it would borrow were."""
    requeue = RequeueCause.FAILED_AFTER_NOMINATION
    return lost(entry, PendingReason.WAITING_FOR_QUOTA, _LEFT_TO_OWNERS, requeue)


def gated(entry: Entry) -> HeadOutcome:
    """Return the outcome of an entry whose gates hold back the evictions that it needs.

    Source: Kueue, pkg/scheduler/scheduler.go, markPreemptionGated.
    """
    outcome = lost(entry, PendingReason.ADMISSION_GATED, PREEMPTION_GATED, RequeueCause.PREEMPTION_GATED)
    assert isinstance(outcome.decision, Wait)
    return replace(outcome, decision=replace(outcome.decision, is_preemption_gated=True))


def awaiting_pods(entry: Entry) -> HeadOutcome:
    """Return the outcome of an entry that waits until the pods of all admitted Workloads are ready."""
    requeue = RequeueCause.FAILED_AFTER_NOMINATION
    return lost(entry, PendingReason.WAITING_FOR_PODS_READY, _AWAITS_PODS, requeue)
