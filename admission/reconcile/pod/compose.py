"""Building the Workload of a unit, and keeping it up to date while its pods change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from admission.decisions.api_writes import Action, Event, Purpose
from admission.reconcile.checkpoints import newest
from admission.reconcile.copied_metadata import changed_metadata
from admission.reconcile.job import priorities
from admission.reconcile.pod.view import PodView
from admission.reconcile.pod.writes import reference, warning
from admission.reconcile.workload_writes import workload_creation, workload_patch
from api.jobs.checkpoint_annotations import checkpoint_faults
from api.jobs.job import ComposeError
from api.jobs.job_workload import (
    Priority,
    maximum_execution_time_seconds,
    unknown_keys,
)
from api.jobs.owners.table import kind_of
from api.jobs.placement_annotations import annotation_faults, domain_fault
from api.jobs.pod import Pod, claims_daemon_set, claims_job
from api.jobs.pod_workload import (
    group_total,
    pod_sets_of_group,
    pod_sets_of_pod,
    pod_workload_body,
)
from queues.estimates.estimator import length_problems


def create(view: PodView) -> tuple[Action, ...]:
    """Return the creation of the unit's Workload, or the Event that reports why it cannot be created.

    () while members of the group are missing.
    """
    try:
        pod_sets = wanted_pod_sets(view)
        if not pod_sets:
            return ()
        # Resolved first: an unknown class must not leave a Workload with the wrong priority behind.
        priority = _resolved_priority(view)
        if isinstance(priority, Event):
            return (priority,)
        copied, keeper = view.context.settings.copied, view.owner
        body = pod_workload_body(
            view.kept, pod_sets, priority, group=view.group, keeper=keeper, copied=copied
        )
    # No Workload can be built from these pods: report it, and look again when they change.
    except ComposeError as error:
        return (refusal(view, error),)
    # Notices are reported with the creation, so that they are sent once and not at every look.
    return (workload_creation(body, reference(view.first)), *_notices(view))


def wanted_pod_sets(view: PodView) -> list[dict[str, Any]]:
    """Return the pod sets of the unit's pods; [] while some are missing. Raises ComposeError."""
    if not view.alive:
        return []
    if not view.group:
        return pod_sets_of_pod(view.alive[0])
    # While a StatefulSet is being changed, its pods disagree about its size. It is counted itself.
    total = group_total(view.alive) if view.facts.replicas is None else view.facts.replicas
    # A group scaled to zero, or of unreadable size, makes no unit.
    if not total or not view.kept:
        return []
    # Until all pods exist the roles are unknown. Fast admission takes them from the first pod.
    if len(view.kept) < total and not view.is_fast:
        return []
    return pod_sets_of_group(view.kept, total)


def refusal(view: PodView, error: ComposeError) -> Event:
    """Return the Event that reports why the unit cannot be queued."""
    what = f"Pod group {view.first.namespace}/{view.group}" if view.group else f"Pod {view.first}"
    return warning(view.first, "ErrWorkloadCompose", f"{what}: {error}")


def outdated_pod_sets(view: PodView) -> list[dict[str, Any]] | None:
    """Return the pod sets that a waiting Workload should have; None if it has them.

    Only the roles and the number of pods of each are compared, and what the pods of a StatefulSet request.
    """
    # A Workload that holds quota keeps its pod sets, because it was admitted with those.
    if view.workload.admission is not None or not view.group or view.missing:
        return None
    try:
        wanted = wanted_pod_sets(view)
    except ComposeError:
        # Faults are reported when a Workload is created; one that waits keeps its pod sets.
        return None
    have = {one.name: one.count for one in view.workload.pod_sets}
    if wanted and {one["name"]: one["count"] for one in wanted} != have:
        return wanted
    # Other templates are not compared: a webhook or a default may change one without making it another unit.
    return wanted if wanted and _outgrows(view) else None


def _outgrows(view: PodView) -> bool:
    """Return whether the pods of a StatefulSet request more than was known before they existed.

    The template of a set lacks what a LimitRange, a RuntimeClass or a webhook adds to each of its pods.
    """
    if view.facts.replicas is None or view.held is None:
        return False
    member = view.kept[0]
    name = view.pod_set_of(member)
    template = next((one.get("template") for one in view.held.pod_sets if one.get("name") == name), None)
    return template is not None and bool(member.excess_over(template))


def update(view: PodView) -> tuple[Action, ...] | None:
    """Return the patch for all fields in which the Workload differs from its pods; None if there is none."""
    spec = _changed_spec(view)
    if (pod_sets := outdated_pod_sets(view)) is not None:
        spec["podSets"] = pod_sets
    metadata = changed_metadata(
        _source(view),
        view.workload,
        progress=_progress(view),
        now=view.now,
    )
    patch = {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}
    return (workload_patch(view.workload, patch, Purpose.UPDATE_WORKLOAD),) if patch else None


def _changed_spec(view: PodView) -> dict[str, Any]:
    """Return the changed fields of spec, except for those that the API has frozen.

    The queue is frozen while quota is held, the maximum execution time while the Workload is admitted.
    """
    pod, workload = _source(view), view.workload
    spec = priorities.changed_priority(pod.labels, workload, view.context)
    if not workload.has_quota_reservation and pod.queue_name != workload.queue_name:
        # Only while it waits: with quota the queue is frozen, and the patch would be refused each time.
        spec["queueName"] = pod.queue_name or None
    limit = maximum_execution_time_seconds(pod)
    if not workload.is_admitted and limit != workload.maximum_execution_time_seconds:
        spec["maximumExecutionTimeSeconds"] = limit
    return spec


def _source(view: PodView) -> Pod:
    """Return the pod that the Workload's fields are taken from: the oldest living one, else the oldest."""
    return view.alive[0].pod if view.alive else view.first


def _progress(view: PodView) -> Mapping[str, str]:
    """Return the annotations with the unit's newest checkpoint: in a group any pod may report it."""
    if not view.group:
        return view.first.annotations
    # The members save together, so the newest checkpoint of all counts.
    return newest((member.pod.annotations for member in view.members), now=view.now)


def _notices(view: PodView) -> Iterator[Event]:
    """Yield the faults of the pods' own keys that do not prevent queueing."""
    pod = view.first
    sources = (pod.annotations, pod.labels)
    domain = domain_fault(sources, view.context.is_domain)
    found = (
        ("UnknownKey", unknown_keys(pod, {})),
        (
            "InvalidAnnotation",
            (*annotation_faults(sources), *checkpoint_faults(sources), *([domain] if domain else [])),
        ),
        ("InvalidExpectedRuntime", length_problems(sources, now=view.now)),
        ("OwnerNotCounted", _owner_notes(pod)),
    )
    return (warning(pod, reason, "; ".join(said)) for reason, said in found if said)


def _owner_notes(pod: Pod) -> tuple[str, ...]:
    owner = pod.owner
    if owner is None:
        return ()
    is_known = claims_job(owner) or claims_daemon_set(owner) or kind_of(owner.api_version, owner.kind)
    if not is_known:
        return ()
    return (
        f"Pod {pod} is queued by itself, although {owner.kind} {owner.name} is its controller:"
        f" the {owner.kind} did not create it, or has finished",
    )


def _resolved_priority(view: PodView) -> Priority | Event:
    pod = view.first
    spec = view.members[0].body.get("spec") or {}
    found = priorities.resolved_priority(pod, spec, view.context, where="spec")
    if isinstance(found, Priority):
        return found
    return warning(pod, found.reason, found.note(f"Pod {pod}"))
