"""Decisions as writes: what each changes on its Workload, and the Events that report it once it is written.

Each function takes a decision and the Workload's bytes as last seen, and returns one write, which is guarded
by the version of these bytes. A `Plan` has no write: its annotations follow from a comparison with the
object (`admission.reconcile.workload.promised`). The shell makes the log lines and metrics of a decision
from the decision. Source: Kueue's Events of a Workload.
"""

from __future__ import annotations

from dataclasses import replace

from admission.decisions.api_writes import Event, Purpose, Write, workload_ref
from admission.decisions.decision import Admit, Decision, Evict, Reassign, Unreplaced, Wait
from admission.reconcile.decision_texts import reassign_text, request_text, stop_text
from admission.reconcile.workload_writes import admitted_event, edited_version, workload_status
from api import keys
from api.eviction import EvictionRequest, render_request
from api.object_events import EventType, ObjectRef
from api.parsing.times import to_seconds
from api.quota_check import QuotaCheck
from api.reasons import ConditionType
from api.status_edit import StatusEdit
from api.workload_status import LEASE_WORDS, WorkloadStatusEdit


def admit_write(
    decision: Admit, raw: bytes, *, now: float, fence: int = 0, awaits_pods: bool = False
) -> Write:
    """Return the write that gives the Workload its quota, and admits it if no admission check is pending.

    `fence` is that of the leader, 0 where there is none. `awaits_pods`: waitForPodsReady is on.
    """
    edit = WorkloadStatusEdit(raw, now=now)
    edit.reserve_quota(decision.admission, checks=decision.checks, on_lease=decision.on_lease)
    # The decision knows the quota: it may have changed since.
    if decision.quota and fence:
        edit.record_quota_check(QuotaCheck(quota=decision.quota, fence=fence))
    if decision.is_admitted:
        edit.admit(awaits_pods=awaits_pods)
    else:
        edit.await_admission(awaits_place=not decision.checks)
    return workload_status(edit, Purpose.ADMIT, *_admit_events(decision))


def _admit_events(decision: Admit) -> tuple[Event, ...]:
    """Return QuotaReserved and, if no admission check is pending, Admitted."""
    cluster_queue = decision.admission.cluster_queue
    waited = f"wait time since queued was {decision.waited_seconds:.0f}s"
    leased = LEASE_WORDS if decision.on_lease else ""
    note = f"Quota reserved in ClusterQueue {cluster_queue}, {waited}{leased}"
    reserved = _event(decision, EventType.NORMAL, "QuotaReserved", note)
    # Admitted follows the admission checks.
    if not decision.is_admitted:
        return (reserved,)
    return (reserved, admitted_event(reserved.regarding, cluster_queue, 0.0))


def wait_write(
    decision: Wait,
    raw: bytes,
    *,
    now: float,
    word: str | None = None,
    awaits_pods: bool = False,
    refuses_requests: bool = False,
) -> Write | None:
    """Return the write that reports why the Workload waits; None if it reports the same already.

    `word` is what the condition calls the reason, by default as the decision does. `awaits_pods`:
    waitForPodsReady is on. `refuses_requests`: it is in no queue until its requests can be counted.
    """
    word = decision.reason.value if word is None else word
    edit = WorkloadStatusEdit(raw, now=now)
    edit.wait(word, decision.message, decision.requests, awaits_pods=awaits_pods)
    if refuses_requests and edit.is_changed:
        edit.refuse_requests(decision.message)
    if decision.is_preemption_gated:
        edit.block_on_gates(decision.message)
    if not edit.is_changed:
        return None
    event = _event(decision, EventType.WARNING, word, decision.message)
    return workload_status(edit, Purpose.WAIT, event)


def reassign_write(decision: Reassign, raw: bytes, *, now: float) -> Write:
    """Return the write that gives pods other nodes, or their first ones."""
    edit = WorkloadStatusEdit(raw, now=now)
    edit.reassign(decision.assignments)
    # A first placement is reported by the Event of the admission.
    if not decision.lost:
        return workload_status(edit, Purpose.REASSIGN)
    event = _event(decision, EventType.NORMAL, "NodesReplaced", reassign_text(decision))
    return workload_status(edit, Purpose.REASSIGN, event)


def unreplaced_event(decision: Unreplaced) -> Event:
    """Return the Warning that there is no room for pods of lost nodes, or for pods without a node yet."""
    return _event(decision, EventType.WARNING, "SecondPassFailed", f"There is {decision.message}")


# --- evictions -----------------------------------------------------------------------------------


def evict_write(
    decision: Evict,
    raw: bytes,
    *,
    now: float,
    requeue_at: float | None = None,
    requeue_count: int | None = None,
) -> Write:
    """Return the write of an eviction, or of the request for it if it waits for a checkpoint.

    With `requeue_at` the Workload stays out of its queue until then; `requeue_count` is the number of
    requeues so far.
    """
    edit = WorkloadStatusEdit(raw, now=now)
    if decision.save_by is not None:
        return _request_write(decision, edit, decision.save_by, now=now)
    events = evict(edit, decision)
    # One write for both, so that no leader finds an eviction without its back-off.
    if requeue_at is not None:
        edit.put_requeue_at(requeue_at, count=requeue_count)
    return workload_status(edit, Purpose.EVICT, *events)


def evict_by_rule(
    decision: Evict,
    raw: bytes,
    *,
    now: float,
    requeue_at: float | None = None,
    requeue_count: int | None = None,
) -> Write:
    """Return the write of an eviction that no cycle decided: it is logged once it is written."""
    write = evict_write(decision, raw, now=now, requeue_at=requeue_at, requeue_count=requeue_count)
    return replace(write, eviction=decision)


def evict(edit: WorkloadStatusEdit, decision: Evict) -> tuple[Event, ...]:
    """Write an eviction into an edit that may contain other changes, and return the Events about it.

    They are EvictedDueTo<reason>[DueTo<cause>]; for a preemption also Preempted and PreemptedWorkload.
    """
    edit.evict(
        decision.reason,
        decision.message,
        cause=decision.underlying_cause,
        preemption_reason=decision.preemption_reason,
    )
    cause = f"DueTo{decision.underlying_cause}" if decision.underlying_cause else ""
    word = f"EvictedDueTo{decision.reason.value}{cause}"
    events = [_event(decision, EventType.NORMAL, word, decision.message)]
    if decision.grace_seconds is not None:
        note = stop_text(decision.grace_seconds)
        events.append(_event(decision, EventType.NORMAL, "CheckpointExpected", note))
    if decision.preemption_reason is not None:
        events.append(_event(decision, EventType.NORMAL, "Preempted", decision.message))
    if decision.preemptor is not None:
        # The preemptor has an Event too, so that `kubectl describe` of either shows the other.
        key = decision.preemptor
        preemptor = workload_ref(key.namespace, key.name, decision.preemptor_uid)
        victim = decision.key.as_read_in(key.namespace)
        word = "workload " if key.namespace == decision.key.namespace else ""
        note = f"Preempted {word}{victim} (UID: {decision.uid}) in ClusterQueue {decision.cluster_queue}"
        event = _event(decision, EventType.NORMAL, "PreemptedWorkload", note, preemptor)
        # One for all that are preempted for it, as in Kueue. Each victim names it in an Event of its own.
        events.append(replace(event, is_folded=True))
    return tuple(events)


def _request_write(decision: Evict, edit: StatusEdit, save_by: float, *, now: float) -> Write:
    """Return the patch that requests an eviction, which waits for a checkpoint until `save_by`.

    The request is dated when it is written: a checkpoint that was complete before is no answer to it.
    """
    reserved = edit.condition(ConditionType.QUOTA_RESERVED) or {}
    # Whole seconds, as in the annotation, and never after the deadline, which the decision took from a clock
    # that may be ahead.
    requested_at = min(float(int(now)), save_by)
    request = EvictionRequest(
        reason=decision.reason,
        requested_at=requested_at,
        deadline=save_by,
        ask_at=requested_at if decision.ask_at is None else float(int(decision.ask_at)),
        # Which reservation is meant: for a later reservation of the Workload the
        # request is void (`current_request`).
        reserved_at=to_seconds(reserved.get("lastTransitionTime")),
        message=decision.message,
        preemption_reason=decision.preemption_reason,
        preemptor=decision.preemptor,
        preemptor_uid=decision.preemptor_uid,
        preempting_cluster_queue=decision.preempting_cluster_queue,
    )
    namespace = decision.key.namespace
    patch = {"metadata": {"annotations": {keys.EVICTION: render_request(request, namespace=namespace)}}}
    event = _event(
        decision,
        EventType.NORMAL,
        "EvictionRequested",
        request_text(request, sees=namespace.__eq__),
    )
    return edited_version(edit).patch(patch, Purpose.REQUEST_EVICTION, event)


def _event(
    decision: Decision | Reassign | Unreplaced,
    type_: EventType,
    reason: str,
    note: str,
    regarding: ObjectRef | None = None,
) -> Event:
    """Return an Event of a decision, about its Workload unless another object is given."""
    ref = regarding or workload_ref(decision.key.namespace, decision.key.name, decision.uid)
    action = type(decision).__name__
    return Event(regarding=ref, type=type_, reason=reason, note=note, action=action)
