"""Pods that cannot end because nothing reaches their node: failed, then deleted by force.

The API server keeps a deleted pod until the kubelet has confirmed its end. On a node that is cut off or dead
it cannot, so the pod keeps its quota, and its Job waits for it. Only the pod's owner knows whether a second
one may run beside it: such a pod is given up if its annotation says so, a minute after it should have ended.

    deleted ─▶ (grace period) ─▶ (a minute) ─▶ node unreachable? ─▶ Failed, with a condition ─▶ gone

As for pods that are stopped, the condition is written first, for those who read the dead pod.
Source: Kueue, pkg/controller/failurerecovery; KEP 6757.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.decisions.api_writes import Event, ObjectVersion, Purpose, Write, pod_ref
from api import keys
from api.jobs.pod import POD_KIND
from api.node import is_finished
from api.object_events import EventType
from api.objects.cluster import PodObject
from api.objects.common import WireTaint
from api.parsing.times import to_rfc3339, to_seconds

UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
# After the time by which the pod should have ended.
DELAY_SECONDS = 60.0
_CONDITION = "KueueFailureRecovery"
_REASON = "KueueForcefullyDeleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingPod:
    """A pod that is being deleted and may be given up.

    `due_at` (Unix seconds) is when, if its node cannot be reached; `grace_seconds` is how long it has to end.
    `is_given_up`: it has the condition that says so.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    due_at: float
    grace_seconds: float
    is_finished: bool
    is_given_up: bool


def to_ending(wire: PodObject, *, delay_seconds: float) -> EndingPod | None:
    """Return the pod if it is to end on its node, and says that it may be given up; else None."""
    meta, node = wire.metadata, wire.spec.node_name
    allows = (meta.annotations or {}).get(keys.SAFE_TO_DELETE_BY_FORCE) == "true"
    if not allows or meta.deletion_timestamp is None or not node:
        return None
    # Deleted by force already: only a finalizer keeps it.
    if meta.deletion_grace_period_seconds == 0:
        return None
    # The API server sets it to the end of the grace period.
    ends_at = to_seconds(meta.deletion_timestamp)
    return EndingPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        node=node,
        due_at=ends_at + delay_seconds,
        grace_seconds=(meta.deletion_grace_period_seconds or 0) + delay_seconds,
        is_finished=is_finished(wire),
        is_given_up=any(one.type == _CONDITION for one in wire.status.conditions or ()),
    )


def is_unreachable(taints: tuple[WireTaint, ...]) -> bool:
    """Return whether Kubernetes has found that nothing reaches the node with these taints."""
    return any(taint.key == UNREACHABLE_TAINT for taint in taints)


def give_up(pod: EndingPod, *, now: float) -> Write:
    """Return the next write that ends a pod that is due, on a node that cannot be reached."""
    version = ObjectVersion.of(POD_KIND, pod)
    if pod.is_given_up:
        return version.in_any_version.deletion(Purpose.GIVE_UP_POD, grace_seconds=0)
    note = (
        f"Pod forcefully terminated after {pod.grace_seconds:g}s grace period due to unreachable node"
        f" `{pod.node}` (triggered by `{keys.SAFE_TO_DELETE_BY_FORCE}` annotation)"
    )
    condition = {
        "type": _CONDITION,
        "status": "True",
        "reason": _REASON,
        "message": note,
        "lastTransitionTime": to_rfc3339(now),
    }
    # A pod that has ended keeps how it did.
    phase = {} if pod.is_finished else {"phase": "Failed"}
    event = Event(
        regarding=pod_ref(pod.namespace, pod.name, pod.uid),
        type=EventType.WARNING,
        reason=_REASON,
        note=note,
        action="ForcefulTermination",
    )
    # Of this version: its kubelet may have come back, and said that it has succeeded.
    return version.status_patch({**phase, "conditions": [condition]}, Purpose.GIVE_UP_POD, event)
