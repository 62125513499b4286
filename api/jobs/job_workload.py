"""The Workload of a Job: its name, its object for creation, and whether it still matches the Job.

A cluster may run without webhooks, so everything that Kueue's webhooks would reject is rejected here too: a
Job that cannot be queued raises ComposeError, whose message becomes a Warning event on the Job.
Source: Kueue, pkg/controller/jobframework (NewWorkload, workload names, EquivalentToWorkload).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from api import keys
from api.jobs.checkpoint_annotations import checkpoint_faults
from api.jobs.gpu_share import gpu_share_fault
from api.jobs.job import JOB_GROUP, JOB_KIND, MAIN_POD_SET, ComposeError, Job
from api.jobs.placement_annotations import annotation_faults, domain_fault, gpu_count_fault
from api.jobs.pod_template import (
    Template,
    has_same_containers,
    has_same_directives,
    has_same_tolerations,
    resource_faults,
    sanitised,
    without_identity,
)
from api.jobs.queued_object import Queued, QueuedJob
from api.jobs.resource_requests import gpus_of
from api.jobs.topology_request import topology_request_body
from api.parsing.decimals import whole_number
from api.validation.jobs import job_errors

_MAX_NAME = 253
_HASH_LENGTH = 5
_MAX_LABEL_VALUE = 63
# How similar an unknown key must be to a known one to be suggested as the intended one.
_SIMILARITY = 0.6
# A Job has room for 15,000 keys, and looking for similar ones takes 80 us for each of them.
MOST_UNKNOWN_KEYS = 10

# These change while the Job runs; admission.reconcile.checkpoints copies them by a rule of its own.
_NOT_COPIED = frozenset(keys.BERTH_PREFIX + name for name in ("checkpoint-time", "checkpoint-step"))
_COPIED = (keys.BERTH_TEMPLATE_KEYS | keys.HARDWARE_KEYS | frozenset(keys.ALIASES.values())) - _NOT_COPIED


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedKeys:
    """The labels and annotations that a Workload copies from its Job or pod, beside those of Kueue's API."""

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()


NO_KEYS = CopiedKeys()


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A Workload's priority and the class that defines it (`group`, `kind`, `name` of the reference)."""

    value: int = 0
    class_group: str = ""
    class_kind: str = ""
    class_name: str = ""

    def reference(self) -> dict[str, str] | None:
        """Return spec.priorityClassRef, or None without a class."""
        if not self.class_name:
            return None
        return {"group": self.class_group, "kind": self.class_kind, "name": self.class_name}


def workload_name(kind: str, group: str, owner_name: str, owner_uid: str, *, extra: str = "") -> str:
    """Return the name of an object's Workload, which depends only on the identity of the object, and `extra`.

    The name is `<kind>-<owner>`, cut to the maximum length of a name, and five digits of
    a hash of the owner's identity, so that long names with a common beginning stay
    distinct. Source: Kueue, pkg/controller/jobframework/workload_names.go.
    """
    parts = (kind, group, owner_name, owner_uid, *([extra] if extra else ()))
    identity = "\n".join(parts).encode()
    # The hash is not for security. It is SHA-1 because names must agree with those that Kueue has generated.
    digest = hashlib.sha1(identity, usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    # Cut before the hash is appended, because the hash keeps names distinct.
    readable = f"{kind.lower()}-{owner_name}"[: _MAX_NAME - _HASH_LENGTH - 1]
    return f"{readable}-{digest}"


def name_of_workload(job: Job) -> str:
    """Return the name of the Workload of this Job."""
    return workload_name(JOB_KIND, JOB_GROUP, job.name, job.uid)


def name_of_slice(kind: str, group: str, job: QueuedJob, *suffixes: str) -> str:
    """Return the name of the slice of an elastic Job that its present generation would get.

    `suffixes` are what else changes with its number of pods.
    Source: Kueue, pkg/controller/jobframework/reconciler.go, newWorkloadName.
    """
    extra = "_".join((str(job.generation), *suffixes))
    return workload_name(kind, group, job.name, job.uid, extra=extra)


def check_job(job: Job, body: Mapping[str, Any]) -> None:
    """Raise ComposeError with all faults of a Job that cannot be queued; do nothing for a valid one.

    `body` is the Job's object.
    """
    faults = [str(error) for error in job_errors(body)]
    for field, count in (("parallelism", job.parallelism), ("completions", job.completions)):
        if count is not None and count < 1:
            faults.append(f"spec.{field} is {count}: it asks for no pods; set it to 1 or more")
    # Reported together with the other faults, so that the author can correct all of them at once.
    faults += resource_faults(job_template(body))
    if faults:
        raise ComposeError("; ".join(faults))


def workload_body(
    job: Job, body: Mapping[str, Any], priority: Priority, *, copied: CopiedKeys = NO_KEYS
) -> dict[str, Any]:
    """Return the complete Workload object for a Job, ready for creation. Raises ComposeError."""
    workload = workload_of_owner(
        job,
        owner_reference(job),
        pod_sets_body(job, body),
        priority,
        copied=copied,
        name=name_of_workload(job),
    )
    if job.is_dispatched:
        workload["metadata"]["annotations"][keys.MANAGED_BY] = keys.MULTIKUEUE_CONTROLLER
    return workload


def workload_of_owner(
    owner: QueuedJob,
    reference: dict[str, Any],
    pod_sets: list[dict[str, Any]],
    priority: Priority,
    *,
    name: str,
    copied: CopiedKeys,
) -> dict[str, Any]:
    """Return the Workload of a Job or another owner, ready for creation. `reference` names the owner."""
    return {
        "apiVersion": keys.KUEUE_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            # Kueue's tools find the Workload of a Job by this label.
            "labels": {**copied_labels(owner, copied), keys.JOB_UID: owner.uid},
            "annotations": {**copied_annotations(owner, copied), **_submitter(owner)},
            # Set at creation: if the Workload were deleted before its Job has stopped, its quota would be
            # released while pods are running.
            "finalizers": [keys.RESOURCE_IN_USE],
            "ownerReferences": [reference],
        },
        "spec": workload_spec(owner, owner.queue_name, pod_sets, priority),
    }


def workload_spec(
    owner: Queued, queue_name: str, pod_sets: list[dict[str, Any]], priority: Priority
) -> dict[str, Any]:
    """Return the spec of the Workload of a Job or pod in this LocalQueue; "" for none."""
    spec: dict[str, Any] = {"active": True, "podSets": pod_sets, "priority": priority.value}
    if queue_name:
        spec["queueName"] = queue_name
    if reference := priority.reference():
        spec["priorityClassRef"] = reference
    if limit := maximum_execution_time_seconds(owner):
        spec["maximumExecutionTimeSeconds"] = limit
    return spec


def owner_reference(job: Job) -> dict[str, Any]:
    """Return the owner reference by which the garbage collector deletes the Workload with its Job."""
    return controller_reference(keys.BATCH_VERSION, JOB_KIND, job)


def controller_reference(api_version: str, kind: str, owner: Queued) -> dict[str, Any]:
    """Return the reference to the owner that manages an object, which is deleted with it."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        # `controller` marks the managing owner; with `blockOwnerDeletion`, a foreground deletion of the Job
        # waits for the Workload.
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_sets_body(job: Job, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return spec.podSets: one pod set, `main`, with as many pods as run concurrently.

    Raises ComposeError.
    """
    # The following steps assume a template that the API server would accept.
    check_job(job, body)
    template = job_template(body)
    stored = sanitised(without_identity(template))
    pod_set: dict[str, Any] = {"name": MAIN_POD_SET, "count": job.pod_count, "template": stored}
    minimum = min_count(job)
    if minimum is not None:
        pod_set["minCount"] = minimum
    request = topology_request_body((template.get("metadata") or {}).get("annotations") or {})
    if request is not None:
        pod_set["topologyRequest"] = request
    return [pod_set]


def job_template(body: Mapping[str, Any]) -> Template:
    """Return the pod template of a Job's object; empty if it has none."""
    found: Template | None = (body.get("spec") or {}).get("template")
    return found or {}


def maximum_execution_time_seconds(job: Queued) -> int | None:
    """Return the Job's limit on admitted time in seconds.

    None if it has none or the value is not a number.
    """
    return whole_number(job.labels.get(keys.MAX_EXEC_TIME_SECONDS))


def min_count(job: Job) -> int | None:
    """Return the minimum for partial admission; None if there is none or the value is not a number."""
    return whole_number(job.annotations.get(keys.JOB_MIN_PARALLELISM))


def copied_labels(job: Queued, wanted: CopiedKeys) -> dict[str, str]:
    """Return the labels that a Workload copies from its Job, as configured by `wanted`."""
    # An absent label must not become an empty one, which selectors could match.
    return {key: job.labels[key] for key in wanted.labels if key in job.labels}


def copied_annotations(job: Queued, wanted: CopiedKeys) -> dict[str, str]:
    """Return the annotations that a Workload copies.

    Those that are configured by `wanted`, gates, provisioning parameters, and Berth's own.
    """
    ours = {
        key: value
        for source in (job.labels, job.annotations)
        for key, value in source.items()
        # The keys without a berth.dev/ prefix are copied whether or not a policy reads them: policies may
        # change while the Workload exists.
        if key in _COPIED
    }
    if job.active_deadline_seconds is not None:
        # Decisions on the Workload do not read its Job.
        ours[keys.JOB_DEADLINE_SECONDS] = str(job.active_deadline_seconds)
    theirs = {
        key: value
        for key, value in job.annotations.items()
        if key == keys.ADMISSION_GATED_BY
        or key.startswith(keys.PROVISIONING_PARAMETER_PREFIX)
        or key in wanted.annotations
    }
    return {**ours, **theirs}


def _submitter(job: QueuedJob) -> dict[str, str]:
    """Return the annotation of who created the Job. The Workload keeps it, whatever becomes of the Job's."""
    submitter = job.annotations.get(keys.SUBMITTER)
    return {keys.SUBMITTER: submitter} if submitter else {}


def unknown_keys(job: Queued, template: Template) -> tuple[str, ...]:
    """Return a sentence for each unknown berth.dev key of the Job or its template, up to MOST_UNKNOWN_KEYS.

    It names the most similar known key.

    Without it, a misspelt key would have no effect and no message.
    """
    metadata = template.get("metadata") or {}
    sources: tuple[tuple[str, Mapping[str, str]], ...] = (
        ("label", job.labels),
        ("annotation", job.annotations),
        ("pod template's label", metadata.get("labels") or {}),
        ("pod template's annotation", metadata.get("annotations") or {}),
    )
    found = [(kind, key) for kind, source in sources for key in source if _is_unknown(key)]
    shown = tuple(_unknown(kind, key) for kind, key in found[:MOST_UNKNOWN_KEYS])
    more = len(found) - len(shown)
    return shown if not more else (*shown, f"{more} more keys of {keys.BERTH_PREFIX} are unknown")


def annotation_problems(
    job: QueuedJob, pods: Iterable[tuple[int, Template]], is_domain: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return a sentence for each placement or checkpoint annotation that is malformed or contradicts the Job.

    `pods` are its templates, each with the number of its pods. `is_domain` returns whether a value names a
    domain of any topology.
    """
    pods = tuple(pods)
    of_pods = [
        texts
        for _, template in pods
        for texts in ((template.get("metadata") or {}).get(name) for name in ("annotations", "labels"))
    ]
    sources = (job.annotations, job.labels, *of_pods)
    gpus = [_gpus_of_pod(template) for _, template in pods]
    others = (
        gpu_count_fault(sources, sum(own * count for own, (count, _) in zip(gpus, pods, strict=True))),
        gpu_share_fault(sources, max(gpus, default=0)),
        domain_fault(sources, is_domain),
    )
    return (*annotation_faults(sources), *checkpoint_faults(sources), *(said for said in others if said))


def _gpus_of_pod(template: Template) -> int:
    containers = (template.get("spec") or {}).get("containers") or ()
    return sum(_gpus_of(container.get("resources") or {}) for container in containers)


def _gpus_of(resources: Mapping[str, Any]) -> int:
    """Return the number of GPUs of a container.

    As in the API server, a missing request defaults to the limit.
    """
    # If both are given the request is used, because that is what the scheduler reserves.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    # Quantities are whole numbers, because the API server rejects others for extended resources.
    return gpus_of({name: whole_number(str(text)) or 0 for name, text in asked.items()})


def is_equivalent(
    job: Job, template: Template, pod_set: Mapping[str, Any], *, admitted_count: int | None
) -> bool:
    """Return whether a Workload's pod set (as in spec.podSets) still describes the Job.

    `admitted_count` is the number of pods it was admitted with, None while it is not admitted. A running Job
    has the admitted number of pods; a suspended one has either that or the number in its own spec.
    Tolerations are not compared after admission, because the start adds those of the flavors.
    """
    counts = {int(pod_set.get("count", 1))}
    if admitted_count is not None:
        # A suspended Job may never have been started, so that it still has the count of its own spec. A
        # running one has the admitted count.
        counts = {admitted_count} | (counts if job.is_suspended else set())
    other = pod_set.get("template") or {}
    return (
        job.pod_count in counts
        and has_same_containers(template, other)
        # The start adds tolerations of the flavors to the Job, so a difference after it is expected.
        and (admitted_count is not None or has_same_tolerations(template, other))
        # After admission, a change of the minimum has no effect on the running pods.
        and (admitted_count is not None or pod_set.get("minCount") == min_count(job))
    )


def is_up_to_date(job: Job, body: Mapping[str, Any], pod_set: Mapping[str, Any]) -> bool:
    """Return whether a pending Workload also has the Job's labels, node selector and topology request.

    Kueue compares containers only. Here a Job that is edited while it waits is queued in its new form.
    """
    try:
        (wanted,) = pod_sets_body(job, body)
    except ComposeError:
        # The edited Job cannot be queued, so the Workload stays as it is.
        return True
    return wanted.get("topologyRequest") == pod_set.get("topologyRequest") and has_same_directives(
        wanted["template"], pod_set.get("template") or {}
    )


def is_label_value(text: str) -> bool:
    """Return whether a name is short enough for the value of a label."""
    return len(text) <= _MAX_LABEL_VALUE


def _is_unknown(key: str) -> bool:
    # Simulated objects carry keys of the simulation, which are not meant for the scheduler.
    if not key.startswith(keys.BERTH_PREFIX) or key.startswith(keys.BERTH_SIMULATION_PREFIX):
        return False
    # An author may copy a whole object, so keys that Berth itself writes must not be reported as misspelt.
    return key not in keys.BERTH_TEMPLATE_KEYS and key not in keys.BERTH_WRITTEN_KEYS


def _unknown(kind: str, key: str) -> str:
    # Compared without the common prefix, which would make all keys similar.
    names = [known.removeprefix(keys.BERTH_PREFIX) for known in sorted(keys.BERTH_TEMPLATE_KEYS)]
    # Only a sufficiently similar key is suggested: an unrelated one would mislead the author.
    near = get_close_matches(key.removeprefix(keys.BERTH_PREFIX), names, n=1, cutoff=_SIMILARITY)
    hint = (
        f"did you mean '{keys.BERTH_PREFIX}{near[0]}'?"
        if near
        else "see the documentation for the known ones"
    )
    return f"The {kind} {key!r} is unknown and has no effect; {hint}"
