"""What a unit of pods and its Workload need next, as one pure function.

Theory of operation. As for Jobs (`admission.reconcile.job.reconcile`), it is level-triggered: the steps are
tried in order, the first with an answer ends the look, and an empty answer waits for the cluster. The
differences follow from one fact: a pod that was ungated cannot be gated again.

    pods gated ─▶ Workload created ─▶ (queue) ─▶ admitted ─▶ gates removed ─▶ ended ─▶ Workload finished
                         ▲                            │
                         │                         evicted ─▶ pods marked, deleted ─▶ ended
              their owner creates others ◀──────────────────────────────────────────┘

So quota is released when the pods have ended, and not when they are marked. The Workload of a single pod
ends with it, however the pod ended; the next pod gets another Workload. That of a group stays and waits for
the pods that replace the deleted ones. Pods that were never gated are not touched.
Source: Kueue, pkg/controller/jobs/pod and pkg/controller/jobframework/reconciler.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from admission.decisions.api_writes import Action, Event, Purpose
from admission.reconcile import checkpoints
from admission.reconcile.job.context import JobContext
from admission.reconcile.job.held_job import HeldJob
from admission.reconcile.pod import groups, whole
from admission.reconcile.pod.compose import create, update
from admission.reconcile.pod.prebuilt import answer_prebuilt
from admission.reconcile.pod.start import start
from admission.reconcile.pod.stateful_set import about_set, answer_hold, answer_outgrown
from admission.reconcile.pod.view import NOTHING_ELSE, PodView, UnitFacts
from admission.reconcile.pod.writes import finish, release_finalizer, stop_active, warning
from admission.reconcile.workload_writes import (
    OWNER_GONE,
    finalizer_off,
    workload_deletion,
    workload_status,
)
from api import keys
from api.jobs.pod import POD_KIND, Pod
from api.objects.common import OwnerReference
from api.reasons import ConditionType, FinishedReason
from api.workload import Workload
from api.workload_status import WorkloadStatusEdit

Answer = tuple[Action, ...] | None


def reconcile_pods(
    pods: Sequence[tuple[Pod, bytes]],
    workload: tuple[Workload, bytes] | None,
    context: JobContext,
    *,
    now: float,
    facts: UnitFacts = NOTHING_ELSE,
) -> tuple[Action, ...]:
    """Return what the unit of these pods needs next; () if nothing.

    `pods` are those of one group, or a single one, in any order, each with the bytes in which it was last
    seen; there is at least one. `workload` is the one that the pod owns, or that has the group's name.
    Idempotent: once the writes are seen, the same call returns no more writes. An Event may be returned as
    long as its cause persists. Raises msgspec.DecodeError if the bytes of an object are not a JSON object.
    """
    view = PodView(pods, workload, context=context, now=now, facts=facts)
    if not _is_managed(view):
        return ()
    # In addition to the steps: a checkpoint that is ignored stops nothing else.
    notes = tuple(_disbelieved(view))
    for step in _STEPS:
        answer = step(view)
        if answer is not None:
            return (*notes, *answer)
    return notes


def reconcile_stateful_set(
    template: tuple[Pod, bytes],
    workload: tuple[Workload, bytes] | None,
    context: JobContext,
    *,
    owner: OwnerReference,
    now: float,
    facts: UnitFacts,
) -> tuple[Action, ...]:
    """Return what the Workload of a StatefulSet without pods needs; () if nothing.

    `template` is the pod that stands for those of the set, with its bytes, and `owner` refers to the set.
    """
    view = PodView([template], workload, context=context, now=now, facts=facts)
    if not _is_managed(view):
        return ()
    answers = (step(view) for step in _STEPS_WITHOUT_PODS)
    return about_set(next((one for one in answers if one is not None), ()), owner, view.first.namespace)


def reconcile_empty_group(workload: Workload, raw: bytes, *, replicas: int | None) -> tuple[Action, ...]:
    """Return what the Workload of a group without pods needs, whose owner should have `replicas` pods.

    `raw` is the Workload's bytes as last seen. While its pods are being created again it keeps its quota.
    With 0 replicas (a group that a LeaderWorkerSet was scaled down by, or that a StatefulSet has left) the
    group is over. `replicas` None: the group has no such owner. If its pods were the only owners, the garbage
    collector deletes the Workload once its finalizer is gone.
    """
    if keys.IS_GROUP_WORKLOAD not in workload.annotations:
        return ()
    owners = HeldJob(workload, raw).body.get("metadata", {}).get("ownerReferences") or ()
    is_orphan = replicas is None and all(one.get("kind") == POD_KIND for one in owners)
    if workload.deleted_at is not None or is_orphan:
        # Their end does not trigger another look, also where it was marked for deletion before.
        return (finalizer_off(workload, raw),) if workload.has_finalizer else ()
    return (workload_deletion(workload),) if replicas == 0 else ()


def _is_managed(view: PodView) -> bool:
    # Units with a Workload stay managed even if pods lose their labels, because the Workload may hold quota.
    if view.held is not None:
        return True
    if all(member.pod.is_deleted or member.pod.is_finished for member in view.members):
        # No Workload is created for them, but their finalizer is ours to remove.
        return True
    pod, context = view.first, view.context
    # No pod is gated in a namespace that is not managed: it would wait there forever.
    if not context.is_namespace_managed(pod.namespace):
        return False
    if not context.is_pod_selected(pod.namespace, pod.labels):
        return False
    # A pod needs a queue name, unless the configuration manages all pods.
    return bool(pod.queue_name) or context.settings.manages_without_queue_name


def _disbelieved(view: PodView) -> Iterator[Event]:
    """Report each checkpoint that is older than the last one or in the future. It stops nothing else.

    In a group a pod may report an older checkpoint than another, so only the future counts there.
    """
    if view.held is None:
        return
    for member in view.alive:
        own, known = member.pod.annotations, view.workload.annotations
        said = (
            checkpoints.rejection_reason(own, now=view.now)
            if view.group
            else checkpoints.refusal(own, known, now=view.now)
        )
        if said is not None:
            yield warning(member.pod, "CheckpointRefused", f"Pod {member.pod}: {said}")


# --- which Workload is the unit's own ------------------------------------------------------------


def _answer_foreign(view: PodView) -> Answer:
    """Report a Workload with the group's name that was not created for a group, and leave it alone."""
    # Only the annotation proves that it was created for a group: the name may be a coincidence.
    if view.held is None or not view.group or keys.IS_GROUP_WORKLOAD in view.workload.annotations:
        return None
    # Kueue's sentence, to the letter: tools match the notes of Events.
    note = (
        f'A Workload named "{view.group}" already exists but is not a pod group workload;'
        " this pod group cannot be admitted"
    )
    return (warning(view.first, "WorkloadNameConflict", note),)


def _answer_deletion(view: PodView) -> Answer:
    """Stop the pods of a deleted Workload, then remove its finalizer. Gated pods get another Workload."""
    if view.held is None or view.workload.deleted_at is None:
        return None
    # Before the finalizer is removed: otherwise the quota would be free while pods run.
    stopped = stop_active(view, "WorkloadDeleted", "Workload is deleted")
    if stopped is not None:
        return stopped
    off = (finalizer_off(view.workload, view.raw),) if view.workload.has_finalizer else ()
    dead = (one for one in view.members if one.pod.is_deleted or one.pod.is_finished)
    return (*(write for one in dead for write in release_finalizer(one)), *off)


# --- the end -------------------------------------------------------------------------------------


def _answer_end(view: PodView) -> Answer:
    """Finish the Workload of pods that have ended, and then remove the pods' finalizers."""
    outcome = _outcome(view)
    if outcome is None:
        return None
    # The Workload is finished before its owners, the pods, are released.
    if view.held is not None and not view.workload.is_finished:
        is_success, message = outcome
        return (finish(view, FinishedReason.SUCCEEDED if is_success else FinishedReason.FAILED, message),)
    released = groups.release_finalizers(view)
    if released or view.held is None or not view.workload.has_finalizer:
        return released
    return (finalizer_off(view.workload, view.raw),)


def _outcome(view: PodView) -> tuple[bool, str] | None:
    if view.group:
        # Without a known size it cannot be said whether all have ended.
        return groups.ended_message(view.members, view.wanted) if view.wanted else None
    pod = view.first
    if not pod.is_finished:
        return None
    said = "succeeded" if pod.is_succeeded else "failed"
    return pod.is_succeeded, pod.message or f"Pod {said}"


def _answer_withdrawn(view: PodView) -> Answer:
    """Finish the Workload of a pod that was deleted before it ran, and let both go.

    The garbage collector deletes the Workload with the pod, which others may hold by finalizers of their own.
    """
    pod = view.first
    # An active pod is terminating because of its deletion, and is released when it has ended.
    if view.group or not pod.is_deleted or pod.is_active:
        return None
    if view.held is None:
        return release_finalizer(view.members[0])
    if view.workload.is_evicted and view.workload.admission is not None:
        # The eviction comes first, so that the Workload says what became of its quota.
        return None
    if not view.workload.is_finished:
        return (finish(view, FinishedReason.OWNER_NOT_FOUND, OWNER_GONE),)
    off = (finalizer_off(view.workload, view.raw),) if view.workload.has_finalizer else ()
    return (*release_finalizer(view.members[0]), *off)


def _answer_finished_workload(view: PodView) -> Answer:
    """Stop the pods of a Workload that finished before them (because they could not start, say)."""
    if view.held is None or not view.workload.is_finished:
        return None
    stopped = stop_active(view, "NotAdmitted", view.workload.conditions[ConditionType.FINISHED].message)
    if stopped is not None:
        return stopped
    dead = (one for one in view.members if one.pod.is_deleted or one.pod.is_finished)
    off = (finalizer_off(view.workload, view.raw),) if view.workload.has_finalizer else ()
    return (*(write for one in dead for write in release_finalizer(one)), *off)


# --- the Workload and its pods -------------------------------------------------------------------


def _answer_missing(view: PodView) -> Answer:
    """Create the Workload of pods that have none, once all of them exist. They do not run before."""
    if view.held is not None:
        return None
    # A pod that runs without a Workload was not admitted, so it is stopped first.
    return stop_active(view, "NoMatchingWorkload", "Not admitted by cluster queue") or create(view)


def _answer_eviction(view: PodView) -> Answer:
    """Stop the pods of an evicted Workload as far as their budgets allow, then release the quota."""
    evicted = view.workload.eviction
    if evicted is None:
        return None
    if whole.held_back(view) is not None:
        # While it is held back it serves as before: new pods are ungated, and changes are copied.
        report = whole.eviction_report(view)
        return None if report is None else (report,)
    stopped = stop_active(view, f"WorkloadEvictedDueTo{evicted.reason}", evicted.message)
    if stopped is not None:
        return stopped
    # The quota has been released already.
    if view.workload.admission is None:
        return None
    edit = WorkloadStatusEdit(view.raw, now=view.now)
    # A single pod that ran has ended with its eviction, so that its Workload has nothing to queue for.
    is_waiting = bool(view.group) or view.first.is_gated
    settings = view.context.settings
    edit.release(settings.words.released, requeues=is_waiting or settings.requeues_single_pods)
    if view.group and view.first.is_serving:
        # What was scaled away is no part of what it asks for next.
        edit.put("reclaimablePods", None)
    if view.group and view.missing:
        # In the same write: between two, a short back-off could end and the group be admitted without pods.
        edit.await_replacements(evicted.reason, evicted.message)
    return (workload_status(edit, Purpose.RELEASE),)


def _answer_pods(view: PodView) -> Answer:
    """Report on the Workload whether pods are ready and how much quota the unit no longer needs."""
    if not view.workload.is_admitted:
        return None
    edit = WorkloadStatusEdit(view.raw, now=view.now)
    # Only if waitForPodsReady is on: without it the condition has no reader.
    if view.context.settings.waits_for_pods:
        edit.report_pods(is_ready=_has_pods_ready(view))
    reclaimable = _reclaimable(view) if view.context.settings.reclaims_pods else []
    if reclaimable:
        # The API requires that it only grows.
        edit.put("reclaimablePods", reclaimable)
    return (workload_status(edit, Purpose.SYNC_PODS),) if edit.is_changed else None


def _has_pods_ready(view: PodView) -> bool:
    ready = sum(one.pod.is_succeeded or (one.pod.is_ready and one.pod.is_active) for one in view.members)
    # A pod that succeeded was ready before.
    return ready >= view.expected


def _reclaimable(view: PodView) -> list[dict[str, object]]:
    """Return status.reclaimablePods: the members that have succeeded, or the pods that were scaled away.

    The former in a group that ends, the latter in one that serves. The numbers may only grow while quota is
    held: quota that was given back may be in use by another Workload.
    """
    if not view.group:
        return []
    succeeded: dict[str, int] = {}
    for member in view.members:
        if member.pod.is_succeeded and not member.pod.is_serving:
            name = view.pod_set_of(member)
            succeeded[name] = succeeded.get(name, 0) + 1
    # Only with one role: with several it is unknown which of them was scaled down.
    if view.first.is_serving and len(view.assignments) == 1:
        # A pod that has yet to end uses its quota, though its owner wants fewer.
        active = sum(one.pod.is_active for one in view.members)
        scaled_away = view.wanted - max(view.expected, active)
        succeeded = dict.fromkeys(view.assignments, max(0, scaled_away))
    known = view.workload.reclaimable
    counts = {
        # Never less than before, even if a pod that succeeded has been deleted since.
        name: min(assignment.count, max(succeeded.get(name, 0), known.get(name, 0)))
        for name, assignment in view.assignments.items()
    }
    return [{"name": name, "count": count} for name, count in counts.items() if count]


def _answer_start(view: PodView) -> Answer:
    """Ungate the pods of an admitted unit, and stop pods that run without admission."""
    if not view.workload.is_admitted:
        return stop_active(view, "NotAdmitted", "Not admitted by cluster queue")
    return start(view) or None


# Of a StatefulSet without pods. The pod that stands for them is never started.
_STEPS_WITHOUT_PODS: tuple[Callable[[PodView], Answer], ...] = (
    _answer_foreign,
    _answer_deletion,
    _answer_finished_workload,
    groups.answer_owners,
    _answer_missing,
    _answer_eviction,
    answer_hold,
    update,
    _answer_pods,
)
_STEPS: tuple[Callable[[PodView], Answer], ...] = (
    _answer_foreign,
    answer_prebuilt,
    _answer_deletion,
    groups.answer_abandoned,
    _answer_end,
    _answer_withdrawn,
    _answer_finished_workload,
    # Before failed pods are released: the garbage collector deletes the Workload with its last owner.
    groups.answer_owners,
    groups.answer_dead,
    _answer_missing,
    _answer_eviction,
    answer_hold,
    answer_outgrown,
    groups.answer_surplus,
    groups.answer_replacements,
    update,
    _answer_pods,
    _answer_start,
    groups.answer_waiting_surplus,
)
