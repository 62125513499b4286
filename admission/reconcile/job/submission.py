"""The Workload that an object would get if it was submitted: for questions that are asked before.

The object goes through the same checks and the same translation as in a cluster. What it lacks because no API
server has seen it yet, a uid and a time, is filled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from admission.decisions.api_writes import Event, Write
from admission.reconcile.job.compose import create
from admission.reconcile.job.context import JobContext
from admission.reconcile.job.job_view import JobView
from admission.reconcile.job.owner_view import OwnerView
from admission.reconcile.job.view import View
from api.jobs.job import to_job
from api.jobs.owners.owner import to_owner
from api.jobs.owners.table import kind_of
from api.objects.cluster import JobObject, OwnerObject
from api.objects.common import Wire
from api.objects.templates import WirePodTemplate
from api.parsing.times import to_rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The Workload of an object, None if it cannot be queued, and the faults that its owner would be told."""

    workload: bytes | None
    notes: tuple[str, ...] = ()


class _JobSpec(Wire, frozen=True):
    template: WirePodTemplate | None = None


class _OfJob(Wire, frozen=True):
    spec: _JobSpec | None = None


def is_translated(manifest: Mapping[str, Any]) -> bool:
    """Return whether the object is a Job, or of another kind that is started and stopped as a whole."""
    version, kind = str(manifest.get("apiVersion", "")), str(manifest.get("kind", ""))
    return (version, kind) == ("batch/v1", "Job") or kind_of(version, kind) is not None


def submission_of(
    manifest: Mapping[str, Any], context: JobContext, *, namespace: str, now: float
) -> Submission:
    """Return what becomes of a Job, or of an object of another kind of `is_translated`.

    `namespace` is used where the object names none, `now` is in Unix seconds. Raises ValueError where the
    object cannot be read at all.
    """
    # It is asked about as a suspended object: what runs already was not admitted by anyone.
    view = _view(with_metadata(manifest, namespace), context, now)
    if not view.job.queue_name:
        return Submission(workload=None, notes=(f"{view.title} names no queue",))
    actions = create(view)
    notes = tuple(one.note for one in actions if isinstance(one, Event))
    bodies = [one.body for one in actions if isinstance(one, Write)]
    return Submission(workload=seen_workload(bodies[0], now) if bodies else None, notes=notes)


def _view(manifest: dict[str, Any], context: JobContext, now: float) -> View:
    raw = msgspec.json.encode(manifest)
    row = kind_of(manifest["apiVersion"], manifest["kind"])
    try:
        if row is None:
            # An API server has checked the template of a Job that it holds.
            msgspec.json.decode(raw, type=_OfJob)
            return JobView(
                to_job(msgspec.json.decode(raw, type=JobObject)), raw, (), context=context, now=now
            )
        owner = to_owner(row, msgspec.json.decode(raw, type=OwnerObject))
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    return OwnerView(owner, raw, (), context=context, now=now)


def with_metadata(manifest: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Return the object with a name, a namespace and a uid. Raises ValueError for unreadable metadata."""
    given = manifest.get("metadata") or {}
    if not isinstance(given, Mapping):
        raise ValueError(f"metadata is {given!r}, but must be an object")
    meta = dict(given)
    name = str(meta.get("name") or f"{meta.get('generateName', 'unnamed-')}new")
    meta |= {"name": name, "namespace": meta.get("namespace") or namespace}
    meta.setdefault("uid", f"not-submitted-{meta['namespace']}-{name}")
    return {**manifest, "metadata": meta}


def seen_workload(body: bytes, now: float) -> bytes:
    """Return the Workload as the API server would show it."""
    workload = msgspec.json.decode(body)
    meta = workload["metadata"]
    meta.setdefault("uid", f"not-submitted-{meta['namespace']}-{meta['name']}")
    meta.setdefault("creationTimestamp", to_rfc3339(now))
    return msgspec.json.encode(workload)
