"""Evictions that wait for their victim's checkpoint: who is asked, for how long, and what becomes of it.

    decided ─▶ Deferred ─▶ Requested ─┬▶ Saved  ─▶ Evicted ─▶ Stopped ─▶ Released
                  │            │      └▶ Missed ─▶ Evicted ─▶ …
                  └────────────┴──────▶ Cancelled            the Workload runs on

Deferred    the victim saves by itself within the time that there is, so nobody asks it
Requested   its pods carry `berth.dev/checkpoint-requested-at`, and `-deadline`
Saved       a checkpoint is complete that is no older than the request
Missed      the deadline has come without one
Cancelled   whoever it was to make room for is gone, or has found room elsewhere

From the decision on the victim counts as leaving: searches for room take it before anybody else, so that one
need never takes two victims. It keeps its quota until it has stopped. The state is the annotation on the
Workload (`api.eviction`) and what is true of the cluster; the stage is worked out anew at each look
(`stage_of`), so there is no transition that a crash could leave half done.

When it pays to ask. Pods learn of an annotation at the kubelet's next sync, up to a minute and a half later
(NOTICE_SECONDS). With less grace than that SIGTERM is the request, and comes at once.

SIGTERM is the better request where pods save on it and have the time to: it is heard at once, so whoever
needs the room waits for a save and not for the news of it as well. Who says so
(`berth.dev/checkpoint-on-sigterm`), and whose saves, as told or measured, fit its pods' grace
(`terminationGracePeriodSeconds`), is evicted without another word; what it saves on the way out is heard of
like any checkpoint (`outcome_of_stop`).

Nor is anybody asked who

  - runs by somebody else's hand (a RayJob, say): its pods are not known here;
  - takes no part: nothing on its Job or its pods tells of checkpoints, so nobody would answer and all would
    wait in vain;
  - could not be done in time: a save takes longer than the grace;
  - has saved, or started, just now: stopping it loses less work than another save would cost;
  - serves: inference keeps no progress.

A checkpoint in the same second as the request counts: instants are whole seconds, and to wait out a grace in
vain costs more than a second of work. A victim may tell a lie and call itself saved: then it leaves at once,
without its work.

Deferring. A victim whose next checkpoint (its last one and its declared interval) comes within the grace, or
before the slowest of those who leave for the same Workload is gone, is left to it: it loses nothing and saves
once instead of twice. One that does not keep to its interval is asked with what is left of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from admission.decisions.decision import Evict
from admission.preemption.eviction_cost import restart_seconds_of, save_seconds_of
from api.eviction import EvictionRequest, has_request, standing_request
from api.jobs.checkpoint_annotations import (
    CLOCK_SKEW_SECONDS,
    CheckpointFacts,
    checkpoint_facts,
    tells_of_checkpoints,
)
from api.jobs.pod_owner_key import has_crew
from api.policy import AdmissionPolicy, PreemptionRules
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload
from queues.estimates.estimator import eviction_seconds, shortest_grace_seconds

# How long the kubelet takes to bring an annotation into a pod's files: its sync period of a minute, and the
# time that it keeps what it has read. Source: Kubernetes, kubelet --sync-frequency and its caching managers.
NOTICE_SECONDS = 90.0
# Evictions that make way for others: where the Workload's own faults or lost nodes end it,
# nobody expects a checkpoint.
_GIVES_WAY = frozenset(
    reason.value
    for reason in (
        EvictionReason.PREEMPTED,
        EvictionReason.BACKFILL_LEASE_EXPIRED,
        EvictionReason.RESERVATION_DUE,
        EvictionReason.CLUSTER_QUEUE_STOPPED,
        EvictionReason.LOCAL_QUEUE_STOPPED,
    )
)


class SaveStage(StrEnum):
    """How far an eviction has come that waits for a checkpoint."""

    DEFERRED = "Deferred"
    REQUESTED = "Requested"
    SAVED = "Saved"
    MISSED = "Missed"
    CANCELLED = "Cancelled"


class SaveOutcome(StrEnum):
    """What has come of an eviction that waits for a checkpoint. The words of metrics."""

    REQUESTED = "requested"
    KEPT = "kept"
    MISSED = "missed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePlan:
    """Until when a victim is waited for, and from when on its pods are asked (Unix seconds)."""

    deadline: float
    ask_at: float


def stage_of(request: EvictionRequest, *, saved_at: float | None, is_wanted: bool, now: float) -> SaveStage:
    """Return where a request stands that has not been carried out.

    `saved_at` is when the victim's last checkpoint was complete, None where it has none. `is_wanted`: whoever
    is to get the quota still waits for it. A checkpoint saves the work even of a victim that is wanted no
    more, but that one runs on.
    """
    if not is_wanted:
        return SaveStage.CANCELLED
    # No older than the request: what it saved before is not what it was asked for.
    if saved_at is not None and saved_at >= request.requested_at:
        return SaveStage.SAVED
    # After Saved: a checkpoint that came just in time counts, though nobody looked before the deadline.
    if now >= request.deadline:
        return SaveStage.MISSED
    return SaveStage.DEFERRED if now < request.ask_at else SaveStage.REQUESTED


def outcome_of(before: Workload, after: Workload, *, saved_at: float | None) -> SaveOutcome | None:
    """Return what has come about between two versions of a Workload, None for nothing.

    Kept and missed are told apart by the last checkpoint, as `stage_of` does. A Workload that ends while it
    is waited for, or is evicted for something else, counts as cancelled: this eviction did not come about.
    """
    request, standing = standing_request(before), standing_request(after)
    if request is None:
        return SaveOutcome.REQUESTED if standing is not None else None
    if standing is not None:
        return None
    evicted = after.eviction
    # For another reason, or by its own end: what was waited for did not come about.
    if evicted is None or after.is_finished or evicted.reason != request.reason:
        return SaveOutcome.CANCELLED
    return (
        SaveOutcome.KEPT if saved_at is not None and saved_at >= request.requested_at else SaveOutcome.MISSED
    )


def next_stage_at(request: EvictionRequest, *, now: float) -> float | None:
    """Return when time alone changes the stage; None where it has done so."""
    instants = (at for at in (request.ask_at, request.deadline) if at > now)
    return min(instants, default=None)


def saves_at_sigterm(workload: Workload, facts: CheckpointFacts) -> bool:
    """Return whether SIGTERM is all that a Workload needs to save: by its word, and by the grace of its pods.

    Of several the shortest grace counts.
    """
    told = facts.save_seconds
    if not facts.saves_on_sigterm or facts.is_inference or told is None:
        return False
    return told <= shortest_grace_seconds(workload)


def outcome_of_stop(before: Workload, after: Workload, *, saved_at: float | None) -> SaveOutcome | None:
    """Return what has come of SIGTERM as the request once the pods of an evicted Workload have ended.

    Kept or missed; None for what is no such end.
    """
    has_ended = before.has_quota_reservation and not after.has_quota_reservation
    if not has_ended or not is_saving_at_sigterm(before):
        return None
    # No older than the eviction: what it saved before it would have kept anyway.
    is_kept = saved_at is not None and saved_at >= before.conditions[ConditionType.EVICTED].at
    return SaveOutcome.KEPT if is_kept else SaveOutcome.MISSED


def is_saving_at_sigterm(workload: Workload) -> bool:
    """Return whether the Workload has been evicted, still runs, and saves because of that alone."""
    evicted = workload.eviction
    if evicted is None or not workload.has_quota_reservation or workload.is_finished:
        return False
    if evicted.reason not in _GIVES_WAY or has_request(workload):
        # Its pods may have been lost, or it was asked before, and that has been counted.
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
    """Return how the eviction of a running Workload waits for its checkpoint, None where it is not to wait.

    `slack_seconds`: for so long those who are evicted with it take anyway. `facts`: what it says of itself,
    by Berth's own names; None: they are read.
    """
    rules = policy.preemption
    if rules is None or rules.grace_seconds == 0:
        return None
    # Somebody else's pods are not known here, and cannot be asked.
    if not workload.is_admitted or not has_crew(workload):
        return None
    facts = checkpoint_facts(workload) if facts is None else facts
    if not facts.takes_part or facts.is_inference or saves_at_sigterm(workload, facts):
        return None
    started_at, save_seconds = workload.conditions[ConditionType.ADMITTED].at, save_seconds_of(facts, rules)
    saved_at = believed_checkpoint(facts, now=now, started_at=started_at)
    # Younger than a save takes: stopping it now loses less work than saving it once more would cost.
    if now - max(started_at, saved_at or 0.0) <= save_seconds:
        return None
    # Its own next checkpoint, if it keeps to its interval.
    works_from = started_at + restart_seconds_of(facts, rules)
    deferred = _next_checkpoint(facts, saved_at, save_seconds, works_from=works_from)
    window = max(float(rules.grace_seconds), slack_seconds)
    if deferred is not None and now < deferred <= now + window:
        deadline = now + window
        # Asked later than this, it would not hear of it in time.
        ask_at = deferred if deadline - deferred >= NOTICE_SECONDS else deadline
        return SavePlan(deadline=deadline, ask_at=ask_at)
    # The grace is too short to be heard in, or to save in: SIGTERM is the request then.
    if not may_ask(rules, save_seconds):
        return None
    return SavePlan(deadline=now + rules.grace_seconds, ask_at=now)


def asked_first(
    decision: Evict, workload: Workload, policy: AdmissionPolicy, *, now: float, slack_seconds: float = 0.0
) -> Evict:
    """Return the eviction, such that it waits for a checkpoint where the policy of the victim's ClusterQueue
    wants it, and tells of one that SIGTERM is enough for.
    """
    if workload.is_admitted and saves_at_sigterm(workload, checkpoint_facts(workload)):
        return replace(decision, grace_seconds=shortest_grace_seconds(workload))
    plan = plan_save(workload, policy, now=now, slack_seconds=slack_seconds)
    if plan is None:
        return decision
    return replace(decision, save_by=plan.deadline, ask_at=plan.ask_at)


def leaving_seconds(workload: Workload, policy: AdmissionPolicy) -> float:
    """Return how long an eviction takes at most, from the decision until the quota is free: the wait for a
    checkpoint, where the Workload takes part in that, and the end of its pods.
    """
    rules = policy.preemption
    waits = 0.0
    may_wait = rules is not None and rules.grace_seconds > 0 and tells_of_checkpoints(workload)
    if rules is not None and may_wait and has_crew(workload):
        facts = checkpoint_facts(workload)
        # Who takes no part, or saves on the way out, is stopped at once, so nothing is waited for.
        if facts.takes_part and not facts.is_inference and not saves_at_sigterm(workload, facts):
            waits = float(rules.grace_seconds)
    return waits + eviction_seconds(workload)


def may_ask(rules: PreemptionRules, save_seconds: float) -> bool:
    """Return whether the grace is long enough to be heard of and to save in."""
    return rules.grace_seconds >= max(NOTICE_SECONDS, save_seconds)


def believed_checkpoint(facts: CheckpointFacts, *, now: float, started_at: float = 0.0) -> float | None:
    """Return when the last checkpoint was saved; None where there is none, or they have stopped.

    `started_at`: since when the Workload could save again; while it waited it saved nothing.
    """
    saved_at, interval = facts.saved_at, facts.interval_seconds
    # A little ahead is another clock; far ahead is a mistake or a lie, and counts as none.
    if saved_at is None or saved_at > now + CLOCK_SKEW_SECONDS:
        return None
    # Twice late: by its own word it should have saved twice since. It has stopped, whatever the reason.
    if interval is not None and now - max(saved_at, started_at) > 2 * interval:
        return None
    return min(saved_at, now)


def has_given_way(workload: Workload, rules: PreemptionRules, *, with_aliases: bool) -> bool:
    """Return whether it was preempted, tells of its checkpoints, and has not run again since.

    By what it told at its eviction, since it saves nothing while it waits; a checkpoint told of afterwards is
    the one that it saved on its way out, if it took no longer than a save may.
    """
    evicted = workload.preemption
    if evicted is None:
        return False
    facts = checkpoint_facts(workload, with_aliases=with_aliases)
    saved_at, left_by = facts.saved_at, evicted.at + rules.max_declared_seconds
    now = evicted.at if saved_at is None else max(evicted.at, min(saved_at, left_by))
    return believed_checkpoint(facts, now=now) is not None


def _next_checkpoint(
    facts: CheckpointFacts, saved_at: float | None, save_seconds: float, *, works_from: float
) -> float | None:
    """Return when the checkpoint after the last one should be complete, None where nobody says."""
    if saved_at is None or facts.interval_seconds is None:
        return None
    # What an earlier attempt saved is long ago: this one counts its interval from when it worked again.
    return max(saved_at, works_from) + facts.interval_seconds + save_seconds
