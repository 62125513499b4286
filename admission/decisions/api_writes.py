"""What the reconcilers ask the shell to do: writes to the API server and Kubernetes Events, as values.

A reconciler reads the present state and answers with actions; it never acts. One call asks for at most one
write per object, because a second write would conflict with the version that the first one made. The next
call, on the state that the watch then shows, asks for the rest. So a crash between two writes loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from api.keys import BATCH_VERSION, BERTH_VERSION, KUEUE_VERSION
from api.object_events import EventType, ObjectRef


class Verb(StrEnum):
    """How a write is sent: POST, PUT, PATCH as a merge patch or a strategic merge patch, DELETE, or eviction.

    An eviction deletes the pod unless a PodDisruptionBudget forbids it. A strategic merge patch works for
    Kubernetes' built-in kinds only, and changes one condition without touching the others.
    """

    CREATE = "create"
    REPLACE = "replace"
    MERGE_PATCH = "merge_patch"
    STRATEGIC_PATCH = "strategic_patch"
    DELETE = "delete"
    EVICT = "evict"


class Purpose(StrEnum):
    """Why a write is made: the label of its metrics and the name of its failpoint."""

    CREATE_WORKLOAD = "create-workload"
    UPDATE_WORKLOAD = "update-workload"
    DELETE_WORKLOAD = "delete-workload"
    ADOPT_WORKLOAD = "adopt-workload"
    ADD_FINALIZER = "add-finalizer"
    REMOVE_FINALIZER = "remove-finalizer"
    START_JOB = "start-job"
    STOP_JOB = "stop-job"
    CLEAR_START_TIME = "clear-start-time"
    RESTORE_JOB = "restore-job"
    DELETE_JOB = "delete-job"
    ADMIT = "admit"
    WAIT = "wait"
    EVICT = "evict"
    REQUEST_EVICTION = "request-eviction"
    PASS_ON_EVICTION = "pass-on-eviction"
    CANCEL_EVICTION = "cancel-eviction"
    CLEAR_EVICTION = "clear-eviction"
    ASK_POD = "ask-pod"
    RELEASE = "release"
    REQUEUE = "requeue"
    DEACTIVATE = "deactivate"
    SYNC_CHECKS = "sync-checks"
    SYNC_PODS = "sync-pods"
    SYNC_NODES = "sync-nodes"
    REASSIGN = "reassign"
    REPORT_PODS = "report-pods"
    FAIL_POD = "fail-pod"
    MOVE_POD = "move-pod"
    FINISH = "finish"
    UNGATE_POD = "ungate-pod"
    START_POD = "start-pod"
    TELL_POD = "tell-pod"
    STOP_POD = "stop-pod"
    EVICT_POD = "evict-pod"
    ALLOW_EVICTION = "allow-eviction"
    RELEASE_POD = "release-pod"
    QUEUE_STATUS = "queue-status"
    FENCE = "fence"
    PLAN = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A Kubernetes Event: `reason` for machines, `note` for people (cut at 1024 bytes when sent)."""

    regarding: ObjectRef
    type: EventType
    reason: str
    note: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One request to the API server.

    `body` carries `uid` and `resource_version` where it changes an object, so a stale view gets 409; with
    DELETE it is the DeleteOptions with the same preconditions. `events` are sent after the write has
    succeeded, never before: they report what happened.
    """

    verb: Verb
    kind: str
    namespace: str
    name: str
    body: bytes
    purpose: Purpose
    subresource: str = ""
    uid: str = ""
    resource_version: str = ""
    events: tuple[Event, ...] = ()


Action = Write | Event


def job_ref(namespace: str, name: str, uid: str) -> ObjectRef:
    """Return the reference to a batch/v1 Job."""
    return ObjectRef(kind="Job", api_version=BATCH_VERSION, namespace=namespace, name=name, uid=uid)


def workload_ref(namespace: str, name: str, uid: str) -> ObjectRef:
    """Return the reference to a Workload."""
    return ObjectRef(kind="Workload", api_version=KUEUE_VERSION, namespace=namespace, name=name, uid=uid)


def policy_ref(name: str, uid: str) -> ObjectRef:
    """Return the reference to an AdmissionPolicy."""
    return ObjectRef(kind="AdmissionPolicy", api_version=BERTH_VERSION, namespace="", name=name, uid=uid)


def merge_patch(patch: dict[str, Any], *, uid: str) -> bytes:
    """Return a merge patch that the server refuses with 409 if the object's uid is not `uid`."""
    metadata = patch.get("metadata", {})
    return msgspec.json.encode({**patch, "metadata": {**metadata, "uid": uid}})


def guarded_patch(patch: dict[str, Any], *, uid: str, resource_version: str) -> bytes:
    """Return a merge patch that the server refuses with 409 unless the object is at the version seen.

    The uid is included because an object may have been deleted and created again under the same name.
    """
    metadata = patch.get("metadata", {})
    guard = {"uid": uid, "resourceVersion": resource_version}
    return msgspec.json.encode({**patch, "metadata": {**metadata, **guard}})


def delete_options(*, uid: str, resource_version: str = "", propagation: str = "Background") -> bytes:
    """Return DeleteOptions that delete only the object with this uid; an empty version matches any."""
    preconditions = {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})}
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": preconditions,
        }
    )
