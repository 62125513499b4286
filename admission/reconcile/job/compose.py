"""Building a Workload from its Job, and keeping it up to date while the Job changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from admission.decisions.api_writes import Action, Event, Purpose
from admission.reconcile.copied_metadata import changed_metadata
from admission.reconcile.job import priorities
from admission.reconcile.job.held_job import HeldJob
from admission.reconcile.job.view import View
from admission.reconcile.job.writes import normal, refusal, warning
from admission.reconcile.workload_writes import workload_creation, workload_patch
from api import keys
from api.jobs.checkpoint_annotations import parse_instant
from api.jobs.job import ComposeError
from api.jobs.job_workload import (
    MOST_UNKNOWN_KEYS,
    Priority,
    maximum_execution_time_seconds,
    unknown_keys,
)
from api.parsing.times import to_rfc3339
from queues.estimates.estimator import length_problems


def create(view: View, *, replaced: HeldJob | None = None) -> tuple[Action, ...]:
    """Return the creation of the Job's Workload, or the Event that reports why it cannot be created.

    `replaced` is the slice of an elastic Job that the new one replaces.

    Unknown keys under berth.dev/ and placement annotations that cannot be read are reported here, once. They
    do not prevent the creation.
    """
    # No Workload is created for an unknown class: one with the wrong priority would be worse than none.
    priority = resolved_priority(view)
    if isinstance(priority, Event):
        return (priority, *_notices(view))
    try:
        body = view.workload_body(priority)
        if view.is_elastic:
            body = _slice_body(view, body, replaced)
    except ComposeError as error:
        # The notices are reported with the error, so that the owner sees all faults at once.
        return (refusal(view, error), *_notices(view))
    return (workload_creation(body, view.ref), *_notices(view))


def _slice_body(view: View, body: dict[str, Any], replaced: HeldJob | None) -> dict[str, Any]:
    """Return the Workload as a slice. One that replaces another has its pod sets, with other counts.

    The templates of a Job that runs contain what its start has added.
    """
    name, metadata, spec = view.workload_name, body["metadata"], body["spec"]
    marks = {keys.ELASTIC_JOB: "true", keys.SLICE_NAME: name}
    if replaced is not None:
        marks |= {
            keys.SLICE_NAME: replaced.workload.chain.name,
            keys.SLICE_REPLACEMENT_FOR: str(replaced.workload.key),
        }
        spec = {**spec, "podSets": with_counts(replaced.pod_sets, view.counts)}
    annotations = {**metadata["annotations"], **marks}
    return {**body, "metadata": {**metadata, "name": name, "annotations": annotations}, "spec": spec}


def with_counts(pod_sets: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the pod sets of a slice with these numbers of pods."""
    return [{**one, "count": counts[one["name"]]} for one in pod_sets]


def _notices(view: View) -> Iterator[Event]:
    """Yield the faults of a Job that do not prevent queueing, each kind in one Event.

    They are also reported along with a refusal, so that the owner can fix everything at once.
    """
    found = (
        ("UnknownKey", _unknown_keys(view)),
        *view.faults(),
        ("InvalidExpectedRuntime", _length_problems(view)),
    )
    return (warning(view, reason, "; ".join(said)) for reason, said in found if said)


def _unknown_keys(view: View) -> tuple[str, ...]:
    # Those of the object itself are found with each of its templates.
    said = dict.fromkeys(one for template in view.templates() for one in unknown_keys(view.job, template))
    return tuple(said)[: MOST_UNKNOWN_KEYS + 1]


def _length_problems(view: View) -> tuple[str, ...]:
    of_pods = ((one.get("metadata") or {}).get("annotations") or {} for one in view.templates())
    sources = (view.job.labels, view.job.annotations, *of_pods)
    return length_problems(sources, now=view.now)


def rewrite(view: View, held: HeldJob) -> tuple[Action, ...]:
    """Return the update that gives a waiting Workload the pod sets of its changed Job."""
    try:
        pod_sets = view.pod_sets()
    except ComposeError as error:
        return (refusal(view, error),)
    note = f"Updated not matching Workload for suspended job: {held.workload.key}"
    event = normal(view, "UpdatedWorkload", note, "Update")
    return (workload_patch(held.workload, {"spec": {"podSets": pod_sets}}, Purpose.UPDATE_WORKLOAD, event),)


def changed_fields(view: View, held: HeldJob) -> dict[str, Any]:
    """Return the merge patch for all fields in which the Workload differs from its Job; {} if none does.

    The API freezes the queue and the kind of the priority class while quota is held, and the maximum
    execution time while the Workload is admitted. They then stay as they are. Raises ComposeError if the
    changed Job could not be queued.
    """
    job, workload = view.job, held.workload
    spec: dict[str, Any] = {}
    # Frozen while quota is held, because the quota belongs to the present queue.
    if not workload.has_quota_reservation and job.queue_name != workload.queue_name:
        spec["queueName"] = job.queue_name or None
    # The limit of a prebuilt Workload is set by its author.
    if not workload.is_admitted and not job.prebuilt_workload:
        limit = maximum_execution_time_seconds(job)
        if limit != workload.maximum_execution_time_seconds:
            spec["maximumExecutionTimeSeconds"] = limit
    spec.update(priorities.changed_priority(job.labels, workload, view.context))
    metadata = changed_metadata(
        job,
        workload,
        progress=_progress(view),
        now=view.now,
    )
    if (spec or metadata) and not workload.is_admitted:
        # Checked only if something changed: an unedited Job is not checked again at every look.
        view.check()
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}


def resolved_priority(view: View) -> Priority | Event:
    """Return the Job's priority, or the Event that reports which class is missing."""
    spec, where = view.prioritised()
    found = priorities.resolved_priority(view.job, spec, view.context, where=where)
    if isinstance(found, Priority):
        return found
    return warning(view, found.reason, found.note(view.title))


def _progress(view: View) -> Mapping[str, str]:
    """Return the Job's annotations, with a pod's checkpoint in place of the Job's own if it is newer.

    The pod does not report the step of its checkpoint.
    """
    # A pod's report reaches Berth directly and may be newer than the Job's.
    saved_at, annotations = view.context.saved_at(view.job), view.job.annotations
    own = parse_instant(annotations.get(keys.CHECKPOINT_TIME, "")) or 0.0
    if saved_at is None or saved_at <= own:
        return annotations
    # The Job's step belongs to the older checkpoint, and would be wrong with the newer time.
    others = {key: value for key, value in annotations.items() if key != keys.CHECKPOINT_STEP}
    return {**others, keys.CHECKPOINT_TIME: to_rfc3339(saved_at)}
