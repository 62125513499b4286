"""Writes to the API server and Kubernetes Events, as values: what decisions and reconcilers ask of the shell.

A reconciler reads the present state and answers with actions; it never acts. One call asks for at most one
write per object, because a second write would conflict with the version that the first one made. The next
call, on the state that the watch then shows, asks for the rest. So a crash between two writes loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from admission.decisions.decision import Evict
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
    REQUEST_CHECKPOINT = "request-checkpoint"
    RELEASE = "release"
    REQUEUE = "requeue"
    DEACTIVATE = "deactivate"
    SYNC_CHECKS = "sync-checks"
    CREATE_POD_TEMPLATE = "create-pod-template"
    ADOPT_POD_TEMPLATE = "adopt-pod-template"
    REQUEST_NODES = "request-nodes"
    DELETE_REQUEST = "delete-provisioning-request"
    SYNC_PODS = "sync-pods"
    SYNC_NODES = "sync-nodes"
    RESERVE_ADDRESSES = "reserve-addresses"
    REASSIGN = "reassign"
    REPORT_PODS = "report-pods"
    FAIL_POD = "fail-pod"
    MOVE_POD = "move-pod"
    FINISH = "finish"
    UNGATE_POD = "ungate-pod"
    START_POD = "start-pod"
    SET_POD_CONDITION = "set-pod-condition"
    STOP_POD = "stop-pod"
    EVICT_POD = "evict-pod"
    GIVE_UP_POD = "give-up-pod"
    ALLOW_EVICTION = "allow-eviction"
    RELEASE_POD = "release-pod"
    QUEUE_STATUS = "queue-status"
    FENCE = "fence"
    PLAN = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A Kubernetes Event: `reason` for machines, `note` for people (cut at 1024 bytes when sent).

    `is_folded`: all of this reason about the object are one, with the first note and a count.
    """

    regarding: ObjectRef
    type: EventType
    reason: str
    note: str
    action: str
    is_folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One request to the API server.

    `body` carries `uid` and `resource_version` where it changes an object, so a stale view gets 409; with
    DELETE it is the DeleteOptions with the same preconditions. `events` are sent after the write has
    succeeded, never before: they report what happened. `eviction` is what a reconciler decided by this write,
    for the log; None for what a cycle decided, which is logged with the cycle.
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
    eviction: Evict | None = None


Action = Write | Event


class Versioned(Protocol):
    """What identifies one version of an object: its metadata, or a value with the same fields."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVersion:
    """One version of an object, as last seen: what writes on the object name and are guarded by.

    With `resource_version` "" a write applies to any version of the object that has this uid.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""

    @classmethod
    def of(cls, kind: str, seen: Versioned) -> ObjectVersion:
        """Return the version of the object that was seen. `namespace` is "" for kinds without one."""
        return cls(
            kind=kind,
            namespace=seen.namespace,
            name=seen.name,
            uid=seen.uid,
            resource_version=seen.resource_version,
        )

    @property
    def in_any_version(self) -> ObjectVersion:
        """Return the same object in whatever version it has by then: only its uid is guarded."""
        return replace(self, resource_version="")

    def status_update(self, body: bytes, purpose: Purpose, *events: Event) -> Write:
        """Return the PUT .../status of `body`, the whole object as edited from this version."""
        return self._write(Verb.REPLACE, body, purpose, events, subresource="status")

    def patch(self, patch: dict[str, Any], purpose: Purpose, *events: Event, subresource: str = "") -> Write:
        """Return a merge patch, which the server refuses with 409 on any other version."""
        return self._write(Verb.MERGE_PATCH, self._guarded(patch), purpose, events, subresource)

    def status_patch(self, status: dict[str, Any], purpose: Purpose, *events: Event) -> Write:
        """Return a strategic merge patch of the status, which merges conditions by type.

        A PUT would have to include the conditions of other writers, which change all the time.
        """
        body = self._guarded({"status": status})
        return self._write(Verb.STRATEGIC_PATCH, body, purpose, events, subresource="status")

    def deletion(self, purpose: Purpose, *events: Event, grace_seconds: int | None = None) -> Write:
        """Return the deletion of the object, which the server refuses on any other version.

        `grace_seconds` replaces the time that the object has to end; with 0 a pod is gone at once.
        """
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": self._preconditions(),
        }
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        return self._write(Verb.DELETE, msgspec.json.encode(body), purpose, events)

    def eviction(self, purpose: Purpose, *events: Event) -> Write:
        """Return the eviction of a pod, which the server refuses while a PodDisruptionBudget forbids it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "deleteOptions": {"preconditions": self._preconditions()},
        }
        return self._write(Verb.EVICT, msgspec.json.encode(body), purpose, events)

    def _write(
        self, verb: Verb, body: bytes, purpose: Purpose, events: tuple[Event, ...], subresource: str = ""
    ) -> Write:
        return Write(
            verb=verb,
            kind=self.kind,
            namespace=self.namespace,
            name=self.name,
            subresource=subresource,
            body=body,
            uid=self.uid,
            resource_version=self.resource_version,
            purpose=purpose,
            events=events,
        )

    def _guarded(self, patch: dict[str, Any]) -> bytes:
        return guarded_patch(patch, uid=self.uid, resource_version=self.resource_version)

    def _preconditions(self) -> dict[str, str]:
        return _preconditions(self.uid, self.resource_version)


def guarded_patch(patch: dict[str, Any], *, uid: str, resource_version: str = "") -> bytes:
    """Return a merge patch that the server refuses with 409 unless the object is at the version seen.

    The uid is included because an object may have been deleted and created again under the same name. An
    empty version matches any.
    """
    metadata = patch.get("metadata", {})
    return msgspec.json.encode({**patch, "metadata": {**metadata, **_preconditions(uid, resource_version)}})


def job_ref(namespace: str, name: str, uid: str) -> ObjectRef:
    """Return the reference to a batch/v1 Job."""
    return ObjectRef(kind="Job", api_version=BATCH_VERSION, namespace=namespace, name=name, uid=uid)


def pod_ref(namespace: str, name: str, uid: str) -> ObjectRef:
    """Return the reference to a pod."""
    return ObjectRef(kind="Pod", api_version="v1", namespace=namespace, name=name, uid=uid)


def workload_ref(namespace: str, name: str, uid: str) -> ObjectRef:
    """Return the reference to a Workload."""
    return ObjectRef(kind="Workload", api_version=KUEUE_VERSION, namespace=namespace, name=name, uid=uid)


def queue_ref(name: str, uid: str) -> ObjectRef:
    """Return the reference to a ClusterQueue."""
    return ObjectRef(kind="ClusterQueue", api_version=KUEUE_VERSION, namespace="", name=name, uid=uid)


def policy_ref(name: str, uid: str) -> ObjectRef:
    """Return the reference to an AdmissionPolicy."""
    return ObjectRef(kind="AdmissionPolicy", api_version=BERTH_VERSION, namespace="", name=name, uid=uid)


def _preconditions(uid: str, resource_version: str) -> dict[str, str]:
    return {"uid": uid, **({"resourceVersion": resource_version} if resource_version else {})}
