"""Writes on a Workload: its status as edited, patches, its end.

A write names the version of the Workload from which it was built, and the API server refuses it with 409 on
any other. It is built the same way for decisions (`admission.reconcile.decision_writes`) and for the
reconcilers of Jobs, pods and Workloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from admission.decisions.api_writes import Event, ObjectVersion, Purpose, Verb, Write, workload_ref
from api import keys
from api.object_events import EventType, ObjectRef
from api.reasons import FinishedReason
from api.status_edit import StatusEdit
from api.workload import Workload
from api.workload_status import WorkloadStatusEdit

# The message of a Workload that finishes because its Job or pod is gone. Source: Kueue, pkg/workload.
OWNER_GONE = "The workload's owner no longer exists"


def workload_status(edit: StatusEdit, purpose: Purpose, *events: Event) -> Write:
    """Return the PUT .../status of an edited Workload."""
    return edited_version(edit).status_update(edit.to_bytes(), purpose, *events)


def workload_patch(workload: Workload, patch: dict[str, Any], purpose: Purpose, *events: Event) -> Write:
    """Return a merge patch of the Workload."""
    return _version(workload).patch(patch, purpose, *events)


def workload_deletion(workload: Workload, *events: Event) -> Write:
    """Return the deletion of the Workload."""
    return _version(workload).deletion(Purpose.DELETE_WORKLOAD, *events)


def workload_creation(body: Mapping[str, Any], owner: ObjectRef) -> Write:
    """Return the creation of a Workload, with an Event about its owner, a Job or pod."""
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    # Sent with the write, so that there is no Event about a Workload whose creation failed.
    event = Event(
        regarding=owner,
        type=EventType.NORMAL,
        reason="CreatedWorkload",
        note=f"Created Workload: {namespace}/{name}",
        action="Create",
    )
    return Write(
        verb=Verb.CREATE,
        kind="Workload",
        namespace=namespace,
        name=name,
        body=msgspec.json.encode(body),
        purpose=Purpose.CREATE_WORKLOAD,
        events=(event,),
    )


def finish_write(edit: WorkloadStatusEdit, reason: FinishedReason, message: str, owner: ObjectRef) -> Write:
    """Return the write that finishes a Workload, with an Event about its owner, a Job or pod."""
    edit.finish(reason, message)
    if reason is FinishedReason.FAILED_TO_START:
        type_, word, note, action = EventType.WARNING, reason.value, message, "Reconcile"
    else:
        version = edited_version(edit)
        note = f"Workload '{version.namespace}/{version.name}' is declared finished"
        type_, word, action = EventType.NORMAL, "FinishedWorkload", "Finish"
    event = Event(regarding=owner, type=type_, reason=word, note=note, action=action)
    return workload_status(edit, Purpose.FINISH, event)


def replaced_write(workload: Workload, raw: bytes, successor: Workload, *, now: float) -> Write:
    """Return the write that finishes a slice whose quota and pods another slice has taken over.

    Source: Kueue, pkg/scheduler/scheduler.go, replaceWorkloadSlice.
    """
    job_uid = successor.labels.get(keys.JOB_UID, "")
    note = (
        f"Replaced to accommodate a workload (UID: {successor.uid}, JobUID: {job_uid}) due to workload slice"
        " aggregation"
    )
    edit = WorkloadStatusEdit(raw, now=now)
    edit.finish(FinishedReason.SLICE_REPLACED, note)
    event = Event(
        regarding=workload_ref(workload.key.namespace, workload.key.name, workload.uid),
        type=EventType.NORMAL,
        reason=FinishedReason.SLICE_REPLACED,
        note=note,
        action="Replaced",
    )
    return workload_status(edit, Purpose.FINISH, event)


def slice_end(raw: bytes, message: str, *, now: float) -> Write:
    """Return the write that finishes a slice which its elastic Job has no use for."""
    edit = WorkloadStatusEdit(raw, now=now)
    edit.finish(FinishedReason.OUT_OF_SYNC, message)
    return workload_status(edit, Purpose.FINISH)


def finalizer_off(workload: Workload, raw: bytes) -> Write:
    """Return the patch that removes our finalizer from the Workload. Finalizers of others stay."""
    metadata = msgspec.json.decode(raw).get("metadata", {})
    # A merge patch replaces the whole list, so it is built from the bytes of the version that it names.
    kept = [name for name in metadata.get("finalizers") or () if name != keys.RESOURCE_IN_USE]
    # None removes the field: an empty list would stay behind.
    return workload_patch(workload, {"metadata": {"finalizers": kept or None}}, Purpose.REMOVE_FINALIZER)


def admitted_event(regarding: ObjectRef, cluster_queue: str, waited_seconds: float) -> Event:
    """Return Admitted. `waited_seconds` is counted from the reservation."""
    note = f"Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {waited_seconds:.0f}s"
    return Event(regarding=regarding, type=EventType.NORMAL, reason="Admitted", note=note, action="Admit")


def edited_version(edit: StatusEdit) -> ObjectVersion:
    """Return the version of the Workload that is edited."""
    metadata = edit.metadata
    return ObjectVersion(
        kind="Workload",
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
    )


def _version(workload: Workload) -> ObjectVersion:
    return ObjectVersion(
        kind="Workload",
        namespace=workload.key.namespace,
        name=workload.key.name,
        uid=workload.uid,
        resource_version=workload.resource_version,
    )
