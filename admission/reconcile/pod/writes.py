"""Requests and Events about pods. Each write carries the uid of the pod, and its version if that matters.

As in Kueue, a pod is stopped in two steps: first the condition TerminationTarget, which tells readers of the
dead pod why it ended, then the deletion.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admission.decisions.api_writes import (
    Action,
    Event,
    Purpose,
    Verb,
    Write,
    delete_options,
    guarded_patch,
)
from admission.reconcile import status_bodies
from admission.reconcile.pod import whole
from admission.reconcile.pod.view import PodView
from admission.reconcile.workload_writes import workload_status
from api import keys
from api.jobs.pod import POD_KIND, Pod
from api.jobs.pod_workload import GroupMember
from api.object_events import EventType, ObjectRef
from api.reasons import FinishedReason
from api.workload import to_rfc3339


def normal(pod: Pod, reason: str, note: str, action: str) -> Event:
    """Return a Normal Event about a pod."""
    return _event(pod, EventType.NORMAL, reason, note, action)


def warning(pod: Pod, reason: str, note: str) -> Event:
    """Return a Warning Event about a pod."""
    return _event(pod, EventType.WARNING, reason, note, "Reconcile")


def pod_patch(pod: Pod, patch: dict[str, Any], purpose: Purpose, *events: Event) -> Write:
    """Return a merge patch of a pod."""
    return Write(
        verb=Verb.MERGE_PATCH,
        kind=POD_KIND,
        namespace=pod.namespace,
        name=pod.name,
        body=guarded_patch(patch, uid=pod.uid, resource_version=pod.resource_version),
        uid=pod.uid,
        resource_version=pod.resource_version,
        purpose=purpose,
        events=events,
    )


def let_go(member: GroupMember) -> tuple[Write, ...]:
    """Return the patch that removes our finalizer from a pod; () if the pod does not have it."""
    if not member.pod.has_finalizer:
        return ()
    finalizers = member.body.get("metadata", {}).get("finalizers") or ()
    kept = [name for name in finalizers if name != keys.POD_FINALIZER]
    return (pod_patch(member.pod, {"metadata": {"finalizers": kept or None}}, Purpose.RELEASE_POD),)


def stop_active(view: PodView, note: str) -> tuple[Action, ...] | None:
    """Return the next step of stopping all pods that use quota; None once they have stopped.

    An empty answer waits for pods that are terminating or held back.
    """
    if view.is_stopped:
        return None
    staying = whole.staying(view)
    if (told := whole.tell(view)) is not None:
        return (told,)
    if whole.held_back(view) is not None:
        return ()
    is_broken = whole.is_broken(view)
    if view.facts.by_eviction and not is_broken:
        # No condition is written first: a budget may protect the pod, which then keeps serving.
        return tuple(_evict(pod, note) for pod in staying)
    if is_broken:
        note += "; other pods of its group are gone, and the group does not serve without them"
    return tuple(
        delete(pod, "Stopped", note) if pod.is_told_to_end else _tell(pod, note, now=view.now)
        for pod in staying
    )


def delete(pod: Pod, reason: str, note: str) -> Write:
    """Return the deletion of a pod in any version: no change of the pod can prevent it."""
    return Write(
        verb=Verb.DELETE,
        kind=POD_KIND,
        namespace=pod.namespace,
        name=pod.name,
        body=delete_options(uid=pod.uid),
        uid=pod.uid,
        purpose=Purpose.STOP_POD,
        events=(normal(pod, reason, note, "Stop"),),
    )


def _evict(pod: Pod, note: str) -> Write:
    metadata = {"name": pod.name, "namespace": pod.namespace}
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": metadata,
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    return Write(
        verb=Verb.EVICT,
        kind=POD_KIND,
        namespace=pod.namespace,
        name=pod.name,
        body=msgspec.json.encode(body),
        uid=pod.uid,
        purpose=Purpose.EVICT_POD,
        events=(normal(pod, "Stopped", note, "Stop"),),
    )


def finish(view: PodView, reason: FinishedReason, message: str) -> Write:
    """Return the write that finishes the Workload with its pods."""
    body = status_bodies.finish(view.raw, reason, message, now=view.now)
    if reason is FinishedReason.FAILED_TO_START:
        told = warning(view.first, reason.value, message)
    else:
        note = f"Workload '{view.workload.key}' is declared finished"
        told = normal(view.first, "FinishedWorkload", note, "Finish")
    return workload_status(view.workload, body, Purpose.FINISH, told)


def _tell(pod: Pod, note: str, *, now: float) -> Write:
    at = to_rfc3339(now)
    condition = {
        "type": "TerminationTarget",
        "status": "True",
        "reason": "StoppedByBerth",
        "message": note,
        "lastProbeTime": None,
        "lastTransitionTime": at,
    }
    return Write(
        verb=Verb.STRATEGIC_PATCH,
        kind=POD_KIND,
        namespace=pod.namespace,
        name=pod.name,
        subresource="status",
        # Only the uid is guarded: a status that the kubelet writes meanwhile does not matter.
        body=msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}),
        uid=pod.uid,
        purpose=Purpose.TELL_POD,
    )


def _event(pod: Pod, type_: EventType, reason: str, note: str, action: str) -> Event:
    ref = ObjectRef(kind=POD_KIND, api_version="v1", namespace=pod.namespace, name=pod.name, uid=pod.uid)
    return Event(regarding=ref, type=type_, reason=reason, note=note, action=action)
