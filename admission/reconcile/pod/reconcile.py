"""What a unit of pods and its Workload need next, as one pure function.

Theory of operation. As for Jobs (`admission.reconcile.job.reconcile`): level-triggered, the steps are tried
in order, the first that has an answer ends the look, and an empty answer waits for the cluster. What differs
follows from one fact: a pod that was let go cannot be held again.

    pods at the gate ─▶ Workload created ─▶ (queue) ─▶ admitted ─▶ gates off ─▶ ended ─▶ Workload finished
                              ▲                            │
                              │                         evicted ─▶ pods told, deleted ─▶ ended
                 whoever made them makes others ◀──────────────────────────────────────────┘

So quota comes free when the pods have ended, and not when they were told to. The Workload of a pod by itself
ends with it, whatever ended it: the next pod has another one. That of a group stays and waits for the pods
that take the places of those that were deleted. Pods that nobody held at the gate are never touched.
Source: Kueue, pkg/controller/jobs/pod and pkg/controller/jobframework/reconciler.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from admission.decisions.api_writes import Action, Event, Purpose
from admission.reconcile import checkpoints, status_bodies
from admission.reconcile.job.context import JobContext
from admission.reconcile.pod import groups, whole
from admission.reconcile.pod.compose import create, update
from admission.reconcile.pod.start import start
from admission.reconcile.pod.view import NOTHING_ELSE, PodView, UnitFacts
from admission.reconcile.pod.writes import finish, let_go, stop_active, warning
from admission.reconcile.workload_writes import finalizer_off, workload_deletion, workload_status
from api import keys
from api.jobs.pod import Pod
from api.reasons import ConditionType, FinishedReason
from api.status_bodies import StatusEdit
from api.workload import Workload

Answer = tuple[Action, ...] | None


def reconcile_pods(
    pods: Sequence[tuple[Pod, bytes]],
    workload: tuple[Workload, bytes] | None,
    context: JobContext,
    *,
    now: float,
    facts: UnitFacts = NOTHING_ELSE,
) -> tuple[Action, ...]:
    """Return what the unit of these pods needs next; () where all is as it should be.

    `pods` are those of one group, or one by itself, in any order and at least one, each with the bytes in
    which it was last seen; `workload` is the one that the pod owns, or that has the group's name.
    Idempotent: once the writes are seen, the same call asks for nothing. Events may repeat as long as their
    cause stands. Raises msgspec.DecodeError where bytes are no JSON object.
    """
    view = PodView(pods, workload, context=context, now=now, facts=facts)
    if not _is_managed(view):
        return ()
    # Events beside the steps: what is not believed keeps nothing from going on.
    notes = tuple(_disbelieved(view))
    for step in _STEPS:
        answer = step(view)
        if answer is not None:
            return (*notes, *answer)
    return notes


def reconcile_empty_group(workload: Workload, raw: bytes, *, replicas: int | None) -> tuple[Action, ...]:
    """Return what the Workload needs of a group without any pod, whose keeper is to have `replicas` of them.

    `raw` are the bytes in which the Workload was last seen.

    While its pods are made anew it keeps its quota. One that is to have none is over (a StatefulSet of 0, a
    group that a LeaderWorkerSet was scaled down by): with the first pod another one begins. Of a group that
    nobody keeps up the garbage collector takes the Workload.
    """
    if keys.IS_GROUP_WORKLOAD not in workload.annotations:
        return ()
    if workload.deleted_at is not None:
        # Looked at when it was deleted it had pods still, and it hears nothing of their end.
        return (finalizer_off(workload, raw),) if workload.has_finalizer else ()
    return (workload_deletion(workload),) if replicas == 0 else ()


def _is_managed(view: PodView) -> bool:
    # What has a Workload stays ours until that is gone, whatever was taken off the pods: it may hold quota.
    if view.held is not None:
        return True
    if all(member.pod.is_deleted or member.pod.is_finished for member in view.members):
        # Nothing is made of the dead, but the finalizer on them is ours to take off.
        return True
    pod, context = view.first, view.context
    # Nothing is held in namespaces that are not managed, or it would wait there for ever.
    if not context.is_namespace_managed(pod.namespace):
        return False
    if not context.is_pod_selected(pod.namespace, pod.labels):
        return False
    # A queue is what asks for us, unless the configuration holds everything.
    return bool(pod.queue_name) or context.settings.manages_without_queue_name


def _disbelieved(view: PodView) -> Iterator[Event]:
    """Yield an Event for each checkpoint that goes back or lies in the future. It stops nothing else.

    In a group a pod may well know of an older one than another does.
    """
    if view.held is None:
        return
    for member in view.alive:
        told, known = member.pod.annotations, view.workload.annotations
        said = (
            checkpoints.disbelief(told, now=view.now)
            if view.group
            else checkpoints.refusal(told, known, now=view.now)
        )
        if said is not None:
            yield warning(member.pod, "CheckpointRefused", f"Pod {member.pod}: {said}")


# --- whose Workload it is ------------------------------------------------------------------------


def _answer_foreign(view: PodView) -> Answer:
    """A Workload of the group's name that was not made for a group is left to its owner."""
    # The annotation says that it was made for a group; the name alone could be chance.
    if view.held is None or not view.group or keys.IS_GROUP_WORKLOAD in view.workload.annotations:
        return None
    note = (
        f"Workload {view.workload.key} has the name of this pod group and is not its own;"
        f" give the group another name in {keys.POD_GROUP_NAME}"
    )
    return (warning(view.first, "WorkloadNameConflict", note),)


def _answer_deletion(view: PodView) -> Answer:
    """A deleted Workload takes its pods with it, and goes when they have stopped. Who waits gets another."""
    if view.held is None or view.workload.deleted_at is None:
        return None
    # Before the finalizer goes, or quota would come free under pods that run.
    stopped = stop_active(view, "Workload is deleted")
    if stopped is not None:
        return stopped
    off = (finalizer_off(view.workload, view.raw),) if view.workload.has_finalizer else ()
    dead = (one for one in view.members if one.pod.is_deleted or one.pod.is_finished)
    return (*(write for one in dead for write in let_go(one)), *off)


# --- the end -------------------------------------------------------------------------------------


def _answer_end(view: PodView) -> Answer:
    """Pods that have ended finish their Workload, and are then let go."""
    outcome = _outcome(view)
    if outcome is None:
        return None
    # The Workload is told the end before the pods are let go, since its owner goes with them.
    if view.held is not None and not view.workload.is_finished:
        is_success, message = outcome
        return (finish(view, FinishedReason.SUCCEEDED if is_success else FinishedReason.FAILED, message),)
    released = groups.all_let_go(view)
    if released or view.held is None or not view.workload.has_finalizer:
        return released
    return (finalizer_off(view.workload, view.raw),)


def _outcome(view: PodView) -> tuple[bool, str] | None:
    if view.group:
        # Nobody knows how many there are to be, so nobody can say that all have ended.
        return groups.ended_message(view.members, view.wanted) if view.wanted else None
    pod = view.first
    if not pod.is_finished:
        return None
    said = "succeeded" if pod.is_succeeded else "failed"
    return pod.is_succeeded, pod.message or f"Pod {said}"


def _answer_withdrawn(view: PodView) -> Answer:
    """A pod that was deleted before it ran is let go; the garbage collector takes its Workload."""
    pod = view.first
    # An active one is asked to stop by its deletion already; it ends, and is let go then.
    if view.group or not pod.is_deleted or pod.is_active:
        return None
    return let_go(view.members[0])


def _answer_finished_workload(view: PodView) -> Answer:
    """A Workload that ended before its pods (they could not start, say) leaves them stopped."""
    if view.held is None or not view.workload.is_finished:
        return None
    stopped = stop_active(view, view.workload.conditions[ConditionType.FINISHED].message)
    if stopped is not None:
        return stopped
    dead = (one for one in view.members if one.pod.is_deleted or one.pod.is_finished)
    off = (finalizer_off(view.workload, view.raw),) if view.workload.has_finalizer else ()
    return (*(write for one in dead for write in let_go(one)), *off)


# --- one Workload --------------------------------------------------------------------------------


def _answer_missing(view: PodView) -> Answer:
    """Pods without a Workload get one, as soon as all of them are there; they do not run before."""
    if view.held is not None:
        return None
    # Running without a Workload: nobody has admitted it, so it stops before one is made.
    return stop_active(view, "Not admitted by cluster queue") or create(view)


def _answer_eviction(view: PodView) -> Answer:
    """The pods of an evicted Workload are stopped, as their budgets let them go; then its quota is free."""
    evicted = view.workload.eviction
    if evicted is None:
        return None
    if whole.held_back(view) is not None:
        # Until then it serves as before: who is made anew meanwhile is let go, what changes is told.
        told = whole.tell(view)
        return None if told is None else (told,)
    stopped = stop_active(view, evicted.message)
    if stopped is not None:
        return stopped
    # The quota has been given back already.
    if view.workload.admission is None:
        return None
    body = status_bodies.release(view.raw, now=view.now)
    return (workload_status(view.workload, body, Purpose.RELEASE),)


def _answer_pods(view: PodView) -> Answer:
    """PodsReady and the quota that the unit will not need again are told to the Workload."""
    if not view.workload.is_admitted:
        return None
    edit = StatusEdit(view.raw, now=view.now)
    # Only where the configuration waits for pods: the condition would be written for nobody.
    if view.context.settings.waits_for_pods:
        status_bodies.report_pods(edit, is_ready=_has_pods_ready(view))
    reclaimable = _reclaimable(view)
    if reclaimable:
        # It only grows, as the API demands.
        edit.put("reclaimablePods", reclaimable)
    return (workload_status(view.workload, edit.to_bytes(), Purpose.SYNC_PODS),) if edit.is_changed else None


def _has_pods_ready(view: PodView) -> bool:
    ready = sum(one.pod.is_succeeded or (one.pod.is_ready and one.pod.is_active) for one in view.members)
    # Who succeeded counts as ready: it has been.
    return ready >= view.expected


def _reclaimable(view: PodView) -> list[dict[str, object]]:
    """Return status.reclaimablePods: of a group that will end the members that have succeeded, of one that
    serves those that it was scaled down by.

    It may only grow while quota is held: what was given back may be somebody else's by now.
    """
    if not view.group:
        return []
    succeeded: dict[str, int] = {}
    for member in view.members:
        if member.pod.is_succeeded and not member.pod.is_serving:
            name = view.pod_set_of(member)
            succeeded[name] = succeeded.get(name, 0) + 1
    # Of one role only: of several nobody can say which was scaled down.
    if view.first.is_serving and len(view.assignments) == 1:
        succeeded = dict.fromkeys(view.assignments, view.wanted - view.expected)
    known = view.workload.reclaimable
    counts = {
        # Never less than is known, even if a pod that succeeded has been deleted since.
        name: min(assignment.count, max(succeeded.get(name, 0), known.get(name, 0)))
        for name, assignment in view.assignments.items()
    }
    return [{"name": name, "count": count} for name, count in counts.items() if count]


def _answer_start(view: PodView) -> Answer:
    """Admitted pods are let go; those that run unadmitted are stopped."""
    if not view.workload.is_admitted:
        return stop_active(view, "Not admitted by cluster queue")
    return start(view) or None


_STEPS: tuple[Callable[[PodView], Answer], ...] = (
    _answer_foreign,
    _answer_deletion,
    groups.answer_abandoned,
    _answer_end,
    _answer_withdrawn,
    _answer_finished_workload,
    # Before the dead go: the garbage collector takes the Workload with the last of its owners.
    groups.answer_owners,
    groups.answer_dead,
    _answer_missing,
    _answer_eviction,
    groups.answer_surplus,
    groups.answer_replacements,
    update,
    _answer_pods,
    _answer_start,
    groups.answer_waiting_surplus,
)
