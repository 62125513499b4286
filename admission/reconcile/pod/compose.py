"""Making the Workload of a unit, and keeping it in step while its pods change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from admission.decisions.api_writes import Action, Event, Purpose, Verb, Write
from admission.reconcile.checkpoints import newest, taken_over
from admission.reconcile.job import priorities
from admission.reconcile.pod.view import PodView
from admission.reconcile.pod.writes import normal, warning
from admission.reconcile.workload_writes import workload_patch
from api import keys
from api.jobs.checkpoint_annotations import checkpoint_faults
from api.jobs.job import ComposeError
from api.jobs.job_workload import (
    Priority,
    copied_annotations,
    copied_labels,
    maximum_execution_time_seconds,
    unknown_keys,
)
from api.jobs.placement_annotations import domain_fault, wish_faults
from api.jobs.pod_workload import group_total, pod_sets_of_group, pod_sets_of_pod, pod_workload_body
from queues.estimates.estimator import length_problems


def create(view: PodView) -> tuple[Action, ...]:
    """Return the creation of the unit's Workload, or the Event that says what stands in the way.

    () while members of the group are still to come.
    """
    try:
        pod_sets = wanted_pod_sets(view)
    # Nothing can be made of these pods; their author is told, and a change of them is another look.
    except ComposeError as error:
        return (refusal(view, error),)
    if not pod_sets:
        return ()
    # Before the write: a class that does not exist must not leave a Workload of the wrong priority behind.
    priority = _resolved_priority(view)
    if isinstance(priority, Event):
        return (priority,)
    copied = view.context.settings.label_keys_to_copy
    members, name = view.kept, view.workload_name
    body = pod_workload_body(
        members,
        pod_sets,
        priority,
        group=view.group,
        keeper=view.keeper,
        label_keys_to_copy=copied,
    )
    key = f"{view.first.namespace}/{name}"
    write = Write(
        verb=Verb.CREATE,
        kind="Workload",
        namespace=view.first.namespace,
        name=name,
        body=msgspec.json.encode(body),
        purpose=Purpose.CREATE_WORKLOAD,
        events=(normal(view.first, "CreatedWorkload", f"Created Workload: {key}", "Create"),),
    )
    # Told with the creation, so that they come once and not with every look.
    return (write, *_notices(view))


def wanted_pod_sets(view: PodView) -> list[dict[str, Any]]:
    """Return the pod sets that the unit's pods make up, [] while some are missing. Raises ComposeError."""
    if not view.alive:
        return []
    if not view.group:
        return pod_sets_of_pod(view.alive[0])
    # While a StatefulSet is changed its pods differ in what they say of their number; it counts itself.
    total = group_total(view.alive) if view.facts.replicas is None else view.facts.replicas
    # A scale to nothing, or a number that cannot be read: there is no unit to be made.
    if not total or not view.kept:
        return []
    # Until all are there nobody knows which roles the group has; fast admission takes them from the first.
    if len(view.kept) < total and not view.is_fast:
        return []
    return pod_sets_of_group(view.kept, total)


def refusal(view: PodView, error: ComposeError) -> Event:
    """Return the Event that says why the unit cannot be queued."""
    what = f"Pod group {view.first.namespace}/{view.group}" if view.group else f"Pod {view.first}"
    return warning(view.first, "ErrWorkloadCompose", f"{what}: {error}")


def outdated_pod_sets(view: PodView) -> list[dict[str, Any]] | None:
    """Return the pod sets that a waiting Workload should have, None where it has them.

    Only what makes another unit of it counts: which roles there are, and how many pods of each.
    """
    # What holds quota keeps its pod sets: it was admitted with those.
    if view.workload.admission is not None or not view.group or view.missing:
        return None
    try:
        wanted = wanted_pod_sets(view)
    except ComposeError:
        # What is wrong is told where the Workload is made; a waiting one keeps what it has.
        return None
    have = {one.name: one.count for one in view.workload.pod_sets}
    # Names and numbers alone: a webhook or a default may change a template without making another unit of it.
    return wanted if wanted and {one["name"]: one["count"] for one in wanted} != have else None


def update(view: PodView) -> tuple[Action, ...] | None:
    """Return the patch of what the pods say otherwise than their Workload, None for nothing."""
    spec = _changed_spec(view)
    if (pod_sets := outdated_pod_sets(view)) is not None:
        spec["podSets"] = pod_sets
    metadata = _changed_metadata(view)
    patch = {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}
    return (workload_patch(view.workload, patch, Purpose.UPDATE_WORKLOAD),) if patch else None


def _changed_spec(view: PodView) -> dict[str, Any]:
    """The API freezes the queue while quota is held, and the limit on execution time while admitted."""
    pod, workload = view.speaker, view.workload
    spec = priorities.changed_priority(pod.labels, workload, view.context)
    if not workload.has_quota_reservation and pod.queue_name != workload.queue_name:
        # Only while it waits: with quota the queue is frozen, and the patch would be refused each time.
        spec["queueName"] = pod.queue_name or None
    limit = maximum_execution_time_seconds(pod)
    if not workload.is_admitted and limit != workload.maximum_execution_time_seconds:
        spec["maximumExecutionTimeSeconds"] = limit
    return spec


def _changed_metadata(view: PodView) -> dict[str, Any]:
    pod, workload = view.speaker, view.workload
    labels = copied_labels(pod, view.context.settings.label_keys_to_copy)
    told = taken_over(_progress(view), workload.annotations, now=view.now)
    annotations: dict[str, str | None] = {**copied_annotations(pod), **told}
    if keys.ADMISSION_GATED_BY in workload.annotations:
        # A gate is opened by taking it off the pod.
        annotations.setdefault(keys.ADMISSION_GATED_BY, None)
    changed = {
        "labels": {key: value for key, value in labels.items() if workload.labels.get(key) != value},
        "annotations": {
            key: value for key, value in annotations.items() if workload.annotations.get(key) != value
        },
    }
    return {name: values for name, values in changed.items() if values}


def _progress(view: PodView) -> Mapping[str, str]:
    """Return the annotations that tell of the unit's checkpoints: in a group any pod may be the one."""
    if not view.group:
        return view.first.annotations
    # The newest of all members counts, since they save together.
    return newest((member.pod.annotations for member in view.members), now=view.now)


def _notices(view: PodView) -> Iterator[Event]:
    """Yield what is wrong with the pods' own keys that does not keep them from their queue."""
    pod = view.first
    sources = (pod.annotations, pod.labels)
    domain = domain_fault(sources, view.context.is_domain)
    found = (
        ("UnknownKey", unknown_keys(pod, {})),
        ("InvalidWish", (*wish_faults(sources), *checkpoint_faults(sources), *([domain] if domain else []))),
        ("InvalidExpectedRuntime", length_problems(sources, now=view.now)),
    )
    return (warning(pod, reason, "; ".join(said)) for reason, said in found if said)


def _resolved_priority(view: PodView) -> Priority | Event:
    pod = view.first
    spec = view.members[0].body.get("spec") or {}
    found = priorities.resolved_priority(pod.labels, spec, view.context, where="spec")
    if isinstance(found, Priority):
        return found
    note = f"Pod {pod}: {found.field} names {found.what}, which does not exist; create it or name another"
    return warning(pod, found.reason, note)
