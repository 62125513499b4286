"""Requests and Events about a Job. Each write carries the version that was seen."""

from __future__ import annotations

from typing import Any

from admission.decisions.api_writes import Event, Purpose, Write
from admission.reconcile.job.held_job import HeldJob
from admission.reconcile.job.view import View
from admission.reconcile.workload_writes import finish_write, workload_deletion, workload_patch
from api import keys
from api.jobs.job import ComposeError
from api.object_events import EventType
from api.reasons import FinishedReason
from api.workload_status import WorkloadStatusEdit


def normal(view: View, reason: str, note: str, action: str) -> Event:
    """Return a Normal Event about the Job."""
    return _event(view, EventType.NORMAL, reason, note, action)


def warning(view: View, reason: str, note: str) -> Event:
    """Return a Warning Event about the Job."""
    return _event(view, EventType.WARNING, reason, note, "Reconcile")


def refusal(view: View, error: ComposeError) -> Event:
    """Return the Event that reports why the Job cannot be queued."""
    return warning(view, "ErrWorkloadCompose", f"{view.title}: {error}")


def job_patch(
    view: View, patch: dict[str, Any], purpose: Purpose, *events: Event, subresource: str = ""
) -> Write:
    """Return a merge patch of the Job."""
    return view.version.patch(patch, purpose, *events, subresource=subresource)


def suspend(view: View, reason: str, note: str, *, source: HeldJob | None = None) -> Write:
    """Return the first step of a stop. The template is to be restored from `source` if there is one."""
    event = normal(view, reason, note, "Stop")
    return job_patch(view, view.suspension(source), Purpose.STOP_JOB, event)


def adopt(view: View, held: HeldJob) -> Write:
    """Return the patch that makes the Job the owner of a prebuilt Workload, and adds the label of its uid."""
    # Appended: a Workload may have owners that are not its controller.
    references = held.body.get("metadata", {}).get("ownerReferences") or ()
    metadata = {
        "ownerReferences": [*references, view.owner_reference],
        # Kueue's tools find the Workload of a Job by this label.
        "labels": {keys.JOB_UID: view.job.uid},
    }
    patch = {"metadata": metadata}
    return workload_patch(held.workload, patch, Purpose.ADOPT_WORKLOAD)


def delete(view: View, held: HeldJob) -> Write:
    """Return the deletion of a Workload that does not match its Job."""
    note = f"Deleted not matching Workload: {held.workload.key}"
    return workload_deletion(held.workload, normal(view, "DeletedWorkload", note, "Delete"))


def finish(view: View, held: HeldJob, reason: FinishedReason, message: str) -> Write:
    """Return the write that finishes the Workload with its Job."""
    edit = WorkloadStatusEdit(held.raw, now=view.now)
    return finish_write(edit, reason, message, view.ref)


def _event(view: View, type_: EventType, reason: str, note: str, action: str) -> Event:
    return Event(regarding=view.ref, type=type_, reason=reason, note=note, action=action)
