"""Evictions that wait for their victim's checkpoint: which victims are asked, and for how long.

    decided ─▶ Deferred ─▶ Requested ─┬▶ Saved  ─▶ Evicted ─▶ Stopped ─▶ Released
                  │            │      └▶ Missed ─▶ Evicted ─▶ …
                  └────────────┴──────▶ Cancelled            the Workload runs on

Deferred    the victim is expected to save by itself in time, so it is not asked
Requested   its pods carry `berth.dev/checkpoint-requested-at`, and `-deadline`
Saved       a checkpoint is complete that is no older than the request
Missed      the deadline has passed without one
Cancelled   the preemptor is gone, or has found room elsewhere

From the decision on the victim counts as leaving: searches take it before other candidates, so that one
preemptor never takes two victims for the same need. It keeps its quota until it has stopped. The state
consists of the annotation on the Workload (`api.eviction`) and of facts in the cluster. The stage is computed
from them at each reconcile (`stage_of`), so there is no transition that a crash could leave half done.

When a request is worthwhile. Pods see an annotation at the kubelet's next sync, up to a minute and a
half later (NOTICE_SECONDS). With a shorter grace than that, the victim is evicted at once and
SIGTERM is the request.

SIGTERM is the better request where pods save on it and have the time to: it arrives at once, so the preemptor
waits for the save only. A Workload that declares so (`berth.dev/checkpoint-on-sigterm`), and whose save time,
declared or measured, fits its pods' grace period (`terminationGracePeriodSeconds`), is evicted without a
request. What it saves during termination is reported like any checkpoint (`outcome_of_stop`).

These Workloads are not asked either:

  - one run by another controller (a RayJob, say): its pods are not known here;
  - one whose Job and pods have no checkpoint annotations: it would not answer, and the wait would be wasted;
  - one that could not save in time, because a save takes longer than the grace;
  - one that has saved or started just now: stopping it loses less work than another save would cost;
  - inference, which keeps no progress.

A checkpoint in the same second as the request counts. Instants are whole seconds, and waiting out a grace for
nothing costs more than a second of work. A victim that falsely reports a checkpoint only harms itself: it is
evicted at once and loses its work.

Deferring. A victim whose next checkpoint (its last one plus its declared interval) comes within the grace, or
before the slowest victim of the same preemptor is gone, is not asked yet: it loses nothing and saves once
instead of twice. If it does not keep to its interval, it is asked with the time that is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from admission.decisions.decision import Evict
from admission.preemption.eviction_cost import restart_seconds_of, save_seconds_of
from api.eviction import EvictionRequest, current_request, has_request
from api.jobs.checkpoint_annotations import (
    CLOCK_SKEW_SECONDS,
    CheckpointFacts,
    checkpoint_facts,
    reports_checkpoints,
)
from api.jobs.pod_owner_key import has_known_pods
from api.policy import AdmissionPolicy, PreemptionRules
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload
from queues.estimates.estimator import eviction_seconds, shortest_grace_seconds

# How long the kubelet takes to write an annotation into a pod's files: its sync period of a minute, and the
# lifetime of its caches. Source: Kubernetes, kubelet --sync-frequency and its caching managers.
NOTICE_SECONDS = 90.0
# Evictions for the sake of other Workloads or of an administrator. Where a Workload's own fault or a lost
# node ends it, no checkpoint is expected.
_REASONS_TO_SAVE = frozenset(
    reason.value
    for reason in (
        EvictionReason.PREEMPTED,
        EvictionReason.BACKFILL_LEASE_EXPIRED,
        EvictionReason.RESERVATION_DUE,
        EvictionReason.FLAVOR_PROMOTION,
        EvictionReason.CLUSTER_QUEUE_STOPPED,
        EvictionReason.LOCAL_QUEUE_STOPPED,
    )
)


class SaveStage(StrEnum):
    """How far an eviction that waits for a checkpoint has come."""

    DEFERRED = "Deferred"
    REQUESTED = "Requested"
    SAVED = "Saved"
    MISSED = "Missed"
    CANCELLED = "Cancelled"


class SaveOutcome(StrEnum):
    """The outcome of an eviction that waits for a checkpoint; the values are labels of metrics."""

    REQUESTED = "requested"
    KEPT = "kept"
    MISSED = "missed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePlan:
    """Until when an eviction waits for its victim, and when the pods are asked (both Unix seconds).

    `ask_at` is later than now where the next checkpoint of the Workload's own interval is due before the
    deadline: it is asked only if that one does not come.
    """

    deadline: float
    ask_at: float


def stage_of(request: EvictionRequest, *, saved_at: float | None, is_wanted: bool, now: float) -> SaveStage:
    """Return the stage of a request whose eviction has not been carried out.

    `saved_at` is when the victim's last checkpoint was complete, None where it has none. `is_wanted`: the
    preemptor still waits for the quota. Otherwise the request is cancelled and the victim runs on, even if it
    has saved a checkpoint meanwhile.
    """
    if not is_wanted:
        return SaveStage.CANCELLED
    # A checkpoint older than the request does not answer it.
    if saved_at is not None and saved_at >= request.requested_at:
        return SaveStage.SAVED
    # After Saved: a checkpoint in time counts, even if it was not noticed before the deadline.
    if now >= request.deadline:
        return SaveStage.MISSED
    return SaveStage.DEFERRED if now < request.ask_at else SaveStage.REQUESTED


def outcome_of(before: Workload, after: Workload, *, saved_at: float | None) -> SaveOutcome | None:
    """Return the outcome that has come about between two versions of a Workload, None for none.

    Kept and missed are distinguished by the last checkpoint, as in `stage_of`. A Workload that finishes
    during the wait, or is evicted for another reason, counts as cancelled: this eviction did not come about.
    """
    request, present = current_request(before), current_request(after)
    if request is None:
        return SaveOutcome.REQUESTED if present is not None else None
    if present is not None:
        return None
    evicted = after.eviction
    # Evicted for another reason, or finished: the eviction that was waited for did not come about.
    if evicted is None or after.is_finished or evicted.reason != request.reason:
        return SaveOutcome.CANCELLED
    return (
        SaveOutcome.KEPT if saved_at is not None and saved_at >= request.requested_at else SaveOutcome.MISSED
    )


def next_stage_at(request: EvictionRequest, *, now: float) -> float | None:
    """Return when time alone next changes the stage (Unix seconds); None where it no longer does.

    The two instants are that at which the pods are asked to save, and the deadline.
    """
    instants = (at for at in (request.ask_at, request.deadline) if at > now)
    return min(instants, default=None)


def saves_at_sigterm(workload: Workload, facts: CheckpointFacts) -> bool:
    """Return whether SIGTERM is all that a Workload needs to save a checkpoint.

    True where it declares so and its save time fits the grace period of its pods, the shortest of several.
    """
    declared = facts.save_seconds
    if not facts.saves_on_sigterm or facts.is_inference or declared is None:
        return False
    return declared <= shortest_grace_seconds(workload)


def outcome_of_stop(before: Workload, after: Workload, *, saved_at: float | None) -> SaveOutcome | None:
    """Return the outcome of SIGTERM as the request, once the pods of an evicted Workload have ended.

    Kept or missed; None where these two versions show no such end.
    """
    has_ended = before.has_quota_reservation and not after.has_quota_reservation
    if not has_ended or not is_saving_at_sigterm(before):
        return None
    # A checkpoint older than the eviction would have been kept anyway.
    is_kept = saved_at is not None and saved_at >= before.conditions[ConditionType.EVICTED].at
    return SaveOutcome.KEPT if is_kept else SaveOutcome.MISSED


def is_saving_at_sigterm(workload: Workload) -> bool:
    """Return whether the Workload has been evicted, still runs, and saves on SIGTERM alone."""
    evicted = workload.eviction
    if evicted is None or not workload.has_quota_reservation or workload.is_finished:
        return False
    if evicted.reason not in _REASONS_TO_SAVE or has_request(workload):
        # Its pods may have been lost, or it was asked before the eviction, which has been counted already.
        return False
    return saves_at_sigterm(workload, checkpoint_facts(workload))


def plan_save(
    workload: Workload,
    policy: AdmissionPolicy,
    *,
    now: float,
    slack_seconds: float = 0.0,
    facts: CheckpointFacts | None = None,
) -> SavePlan | None:
    """Return how the eviction of a running Workload waits for its checkpoint, None where it does not wait.

    `slack_seconds`: how long the slowest victim evicted together with it takes anyway. `facts`: the
    Workload's checkpoint facts by Berth's own annotation names; None: they are read here.
    """
    rules = policy.preemption
    if rules is None or rules.grace_seconds == 0:
        return None
    # The pods of another controller are not known here, and cannot be asked.
    if not workload.is_admitted or not has_known_pods(workload):
        return None
    facts = checkpoint_facts(workload) if facts is None else facts
    if not facts.takes_part or facts.is_inference or saves_at_sigterm(workload, facts):
        return None
    started_at, save_seconds = workload.conditions[ConditionType.ADMITTED].at, save_seconds_of(facts, rules)
    saved_at = credible_checkpoint(facts, now=now, started_at=started_at)
    # Younger than a save takes: stopping it now loses less work than another save would cost.
    if now - max(started_at, saved_at or 0.0) <= save_seconds:
        return None
    # When its own next checkpoint is due, if it keeps to its interval.
    works_from = started_at + restart_seconds_of(facts, rules)
    deferred = _next_checkpoint(facts, saved_at, save_seconds, works_from=works_from)
    window = max(float(rules.grace_seconds), slack_seconds)
    if deferred is not None and now < deferred <= now + window:
        deadline = now + window
        # Asked any later than this, the pods would not see the request in time.
        ask_at = deferred if deadline - deferred >= NOTICE_SECONDS else deadline
        return SavePlan(deadline=deadline, ask_at=ask_at)
    # The grace is too short to be noticed, or to save in: then SIGTERM is the request.
    if not may_ask(rules, save_seconds):
        return None
    return SavePlan(deadline=now + rules.grace_seconds, ask_at=now)


def asked_first(
    decision: Evict, workload: Workload, policy: AdmissionPolicy, *, now: float, slack_seconds: float = 0.0
) -> Evict:
    """Return the eviction, changed to wait for a checkpoint where the policy of the victim's queue says so.

    Where SIGTERM is enough for the victim to save, `grace_seconds` is set instead and nothing is waited for.

    `slack_seconds` is how long the slowest victim that is evicted together with it takes anyway. The reason
    and message of the decision stay as they are.
    """
    if workload.is_admitted and saves_at_sigterm(workload, checkpoint_facts(workload)):
        return replace(decision, grace_seconds=shortest_grace_seconds(workload))
    plan = plan_save(workload, policy, now=now, slack_seconds=slack_seconds)
    if plan is None:
        return decision
    return replace(decision, save_by=plan.deadline, ask_at=plan.ask_at)


def leaving_seconds(workload: Workload, policy: AdmissionPolicy) -> float:
    """Return how many seconds an eviction takes at most, from the decision until the quota is free.

    The sum of the wait for a checkpoint, where the Workload takes part in that, and of the end of its pods.

    Used to plan ahead, so it is an upper bound: where the save is known to be quick the Workload leaves
    sooner.
    """
    rules = policy.preemption
    waits = 0.0
    may_wait = rules is not None and rules.grace_seconds > 0 and reports_checkpoints(workload)
    if rules is not None and may_wait and has_known_pods(workload):
        facts = checkpoint_facts(workload)
        # A Workload that takes no part, or saves on SIGTERM, is evicted at once without a wait.
        if facts.takes_part and not facts.is_inference and not saves_at_sigterm(workload, facts):
            waits = float(rules.grace_seconds)
    return waits + eviction_seconds(workload)


def may_ask(rules: PreemptionRules, save_seconds: float) -> bool:
    """Return whether the grace is long enough for the request to be noticed and for a save."""
    return rules.grace_seconds >= max(NOTICE_SECONDS, save_seconds)


def credible_checkpoint(facts: CheckpointFacts, *, now: float, started_at: float = 0.0) -> float | None:
    """Return when the last checkpoint was saved (Unix seconds); None where there is none, or they stopped.

    `started_at` is since when the Workload could save again: while it was pending it saved nothing.

    `now` and the result are in Unix seconds. The instant comes from an annotation that the Workload itself
    writes, so it is believed only within the clock skew and while checkpoints keep coming. Never later than
    `now`.
    """
    saved_at, interval = facts.saved_at, facts.interval_seconds
    # An instant slightly ahead is clock skew; one far ahead is a mistake or a false claim,
    # and counts as none.
    if saved_at is None or saved_at > now + CLOCK_SKEW_SECONDS:
        return None
    # By its own interval it should have saved twice since, so its checkpoints have stopped.
    if interval is not None and now - max(saved_at, started_at) > 2 * interval:
        return None
    return min(saved_at, now)


def awaits_resume(workload: Workload, rules: PreemptionRules, *, with_aliases: bool) -> bool:
    """Return whether it was preempted, reports checkpoints, and has not run again since.

    Judged as of its eviction, since it saves nothing while it is pending. A checkpoint reported afterwards is
    the one that it saved during termination, if it was complete within the longest save time that counts.
    """
    evicted = workload.preemption
    if evicted is None:
        return False
    facts = checkpoint_facts(workload, with_aliases=with_aliases)
    saved_at, left_by = facts.saved_at, evicted.at + rules.max_declared_seconds
    now = evicted.at if saved_at is None else max(evicted.at, min(saved_at, left_by))
    return credible_checkpoint(facts, now=now) is not None


def _next_checkpoint(
    facts: CheckpointFacts, saved_at: float | None, save_seconds: float, *, works_from: float
) -> float | None:
    """Return when the checkpoint after the last one should be complete, None where that is not known."""
    if saved_at is None or facts.interval_seconds is None:
        return None
    # A checkpoint of an earlier attempt is long past: this attempt's interval counts from its restart.
    return max(saved_at, works_from) + facts.interval_seconds + save_seconds
