"""Requests and Events about pods. Each write carries the uid of the pod, and its version if that matters.

As in Kueue, a pod is stopped in two steps: first the condition TerminationTarget, which tells readers of the
dead pod why it ended, then the deletion.
"""

from __future__ import annotations

from typing import Any

from admission.decisions.api_writes import Action, Event, ObjectVersion, Purpose, Write, pod_ref
from admission.reconcile.pod import whole
from admission.reconcile.pod.view import PodView
from admission.reconcile.workload_writes import finish_write
from api import keys
from api.jobs.pod import POD_KIND, Pod
from api.jobs.pod_workload import GroupMember
from api.object_events import EventType, ObjectRef
from api.parsing.times import to_rfc3339
from api.reasons import FinishedReason
from api.workload_status import WorkloadStatusEdit


def normal(pod: Pod, reason: str, note: str, action: str) -> Event:
    """Return a Normal Event about a pod."""
    return _event(pod, EventType.NORMAL, reason, note, action)


def warning(pod: Pod, reason: str, note: str) -> Event:
    """Return a Warning Event about a pod."""
    return _event(pod, EventType.WARNING, reason, note, "Reconcile")


def reference(pod: Pod) -> ObjectRef:
    """Return the reference to a pod, for Events."""
    return pod_ref(pod.namespace, pod.name, pod.uid)


def pod_patch(pod: Pod, patch: dict[str, Any], purpose: Purpose, *events: Event) -> Write:
    """Return a merge patch of a pod."""
    return _version(pod).patch(patch, purpose, *events)


def release_finalizer(member: GroupMember) -> tuple[Write, ...]:
    """Return the patch that removes our finalizer from a pod; () if the pod does not have it."""
    if not member.pod.has_finalizer:
        return ()
    finalizers = member.body.get("metadata", {}).get("finalizers") or ()
    kept = [name for name in finalizers if name != keys.POD_FINALIZER]
    return (pod_patch(member.pod, {"metadata": {"finalizers": kept or None}}, Purpose.RELEASE_POD),)


def stop_active(view: PodView, reason: str, note: str) -> tuple[Action, ...] | None:
    """Return the next step of stopping all pods that use quota; None once they have stopped.

    `reason` is that of the condition TerminationTarget, in Kueue's words. An empty answer waits for pods that
    are terminating or held back.
    """
    if view.is_stopped:
        return None
    staying = whole.staying(view)
    if (report := whole.eviction_report(view)) is not None:
        return (report,)
    if whole.held_back(view) is not None:
        return ()
    is_broken = whole.is_broken(view)
    if view.facts.by_eviction and not is_broken:
        # No condition is written first: a budget may protect the pod, which then keeps serving.
        return tuple(_evict(pod, note) for pod in staying)
    if is_broken:
        note += "; other pods of its group are gone, and the group does not serve without them"
    return tuple(
        delete(pod, "Stopped", note)
        if pod.has_termination_condition
        else _set_condition(pod, reason, note, now=view.now)
        for pod in staying
    )


def delete(pod: Pod, reason: str, note: str) -> Write:
    """Return the deletion of a pod in any version: no change of the pod can prevent it."""
    return _version(pod).in_any_version.deletion(Purpose.STOP_POD, normal(pod, reason, note, "Stop"))


def _evict(pod: Pod, note: str) -> Write:
    return _version(pod).in_any_version.eviction(Purpose.EVICT_POD, normal(pod, "Stopped", note, "Stop"))


def finish(view: PodView, reason: FinishedReason, message: str) -> Write:
    """Return the write that finishes the Workload with its pods."""
    edit = WorkloadStatusEdit(view.raw, now=view.now)
    return finish_write(edit, reason, message, reference(view.first))


def _set_condition(pod: Pod, reason: str, note: str, *, now: float) -> Write:
    at = to_rfc3339(now)
    condition = {
        "type": "TerminationTarget",
        "status": "True",
        "reason": reason,
        "message": note,
        "lastProbeTime": None,
        "lastTransitionTime": at,
    }
    # A status that the kubelet writes meanwhile does not matter.
    return _version(pod).in_any_version.status_patch({"conditions": [condition]}, Purpose.SET_POD_CONDITION)


def _event(pod: Pod, type_: EventType, reason: str, note: str, action: str) -> Event:
    return Event(regarding=reference(pod), type=type_, reason=reason, note=note, action=action)


def _version(pod: Pod) -> ObjectVersion:
    return ObjectVersion.of(POD_KIND, pod)
