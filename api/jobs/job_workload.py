"""The Workload of a Job: its name, its whole object for creation, and whether one still matches its Job.

What Kueue's webhooks would refuse is refused here too, because a cluster may run without webhooks: a Job that
cannot be queued gives a ComposeError, whose message becomes a Warning event on the Job.
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
from api.jobs.job import JOB_GROUP, JOB_KIND, MAIN_POD_SET, ComposeError, Job
from api.jobs.placement_annotations import domain_fault, gpu_count_fault, wish_faults
from api.jobs.pod_template import (
    Template,
    has_same_containers,
    has_same_directives,
    has_same_tolerations,
    resource_faults,
    sanitised,
)
from api.jobs.queued_object import Queued
from api.jobs.resource_requests import gpus_of
from api.jobs.topology_request import topology_request_body
from api.parsing.decimals import whole_number
from api.validation.jobs import job_errors

_MAX_NAME = 253
_HASH_LENGTH = 5
_MAX_LABEL_VALUE = 63
# How alike an unknown key must be to a known one to be named as what was probably meant.
_SIMILARITY = 0.6

_PROVISIONING_PREFIX = "provreq.kueue.x-k8s.io/"
_ALIASES = frozenset(keys.ALIASES.values())
# These change while the Job runs and are taken over by a rule of their own: admission.reconcile.checkpoints.
_NOT_COPIED = frozenset(keys.BERTH_PREFIX + name for name in ("checkpoint-time", "checkpoint-step"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A Workload's priority and the class that it comes from (`group`, `kind`, `name` of its reference)."""

    value: int = 0
    class_group: str = ""
    class_kind: str = ""
    class_name: str = ""

    def reference(self) -> dict[str, str] | None:
        """Return spec.priorityClassRef, None without a class."""
        if not self.class_name:
            return None
        return {"group": self.class_group, "kind": self.class_kind, "name": self.class_name}


def workload_name(kind: str, group: str, owner_name: str, owner_uid: str) -> str:
    """Return the name of an object's Workload: readable, and the same whoever computes it.

    `<kind>-<owner>` cut to what a name holds, and five digits of a hash over the owner's identity, so that
    long names that begin alike stay apart. Source: Kueue, pkg/controller/jobframework/workload_names.go.
    """
    identity = "\n".join((kind, group, owner_name, owner_uid)).encode()
    # Not for secrecy; SHA-1 is what Kueue hashes with, and names must agree with those that it has given.
    digest = hashlib.sha1(identity, usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    # Cut before the hash is put behind it, never after: the hash is what keeps names apart.
    readable = f"{kind.lower()}-{owner_name}"[: _MAX_NAME - _HASH_LENGTH - 1]
    return f"{readable}-{digest}"


def name_of_workload(job: Job) -> str:
    """Return the name of this Job's Workload."""
    return workload_name(JOB_KIND, JOB_GROUP, job.name, job.uid)


def check_job(job: Job, body: Mapping[str, Any]) -> None:
    """Raise ComposeError for a Job that cannot be queued as it is, with all that is wrong with it.

    `body` is the Job's object.
    """
    faults = [str(error) for error in job_errors(body)]
    for field, count in (("parallelism", job.parallelism), ("completions", job.completions)):
        if count is not None and count < 1:
            faults.append(f"spec.{field} is {count}: it asks for no pods; set it to 1 or more")
    # Told together with the rest: an author mends all of it in one edit.
    faults += resource_faults(job_template(body))
    if faults:
        raise ComposeError("; ".join(faults))


def workload_body(
    job: Job, body: Mapping[str, Any], priority: Priority, *, label_keys_to_copy: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the whole Workload object for a Job, ready to be created. Raises ComposeError."""
    spec: dict[str, Any] = {
        "active": True,
        "podSets": pod_sets_body(job, body),
        "priority": priority.value,
    }
    if job.queue_name:
        spec["queueName"] = job.queue_name
    if reference := priority.reference():
        spec["priorityClassRef"] = reference
    if limit := maximum_execution_time_seconds(job):
        spec["maximumExecutionTimeSeconds"] = limit
    return {
        "apiVersion": keys.KUEUE_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name_of_workload(job),
            "namespace": job.namespace,
            # The uid finds the Workload of a Job by label selector, as Kueue's tools do.
            "labels": {**copied_labels(job, label_keys_to_copy), keys.JOB_UID: job.uid},
            "annotations": {
                **copied_annotations(job),
                keys.JOB_OWNER_KIND: f"{keys.BATCH_VERSION}, Kind={JOB_KIND}",
                keys.JOB_OWNER_NAME: job.name,
                **({keys.MANAGED_BY: keys.MULTIKUEUE_CONTROLLER} if job.is_dispatched else {}),
            },
            # From the first moment on: were the Workload deleted before its Job has stopped, its
            # quota would be free while pods run.
            "finalizers": [keys.RESOURCE_IN_USE],
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def owner_reference(job: Job) -> dict[str, Any]:
    """Return the owner reference that makes the garbage collector take the Workload with its Job."""
    return {
        "apiVersion": keys.BATCH_VERSION,
        "kind": JOB_KIND,
        "name": job.name,
        "uid": job.uid,
        # `controller` marks who manages it; with `blockOwnerDeletion` a foreground deletion of the
        # Job waits for the Workload.
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_sets_body(job: Job, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return spec.podSets: one pod set, `main`, of as many pods as run at once. Raises ComposeError."""
    # Before anything is composed: what follows takes a template for granted that the API server would accept.
    check_job(job, body)
    template = job_template(body)
    pod_set: dict[str, Any] = {"name": MAIN_POD_SET, "count": job.pod_count, "template": sanitised(template)}
    minimum = min_count(job)
    if minimum is not None:
        pod_set["minCount"] = minimum
    request = topology_request_body((template.get("metadata") or {}).get("annotations") or {})
    if request is not None:
        pod_set["topologyRequest"] = request
    return [pod_set]


def job_template(body: Mapping[str, Any]) -> Template:
    """Return the pod template of a Job's object."""
    found: Template | None = (body.get("spec") or {}).get("template")
    return found or {}


def maximum_execution_time_seconds(job: Queued) -> int | None:
    """Return the Job's limit on admitted time, None for none (and for what is no number)."""
    return whole_number(job.labels.get(keys.MAX_EXEC_TIME_SECONDS))


def min_count(job: Job) -> int | None:
    """Return the floor of partial admission, None for all or nothing (and for what is no number)."""
    return whole_number(job.annotations.get(keys.JOB_MIN_PARALLELISM))


def copied_labels(job: Queued, wanted: Iterable[str]) -> dict[str, str]:
    """Return the labels that the configuration lets a Workload take over from its Job."""
    # Only labels that are there: an absent one must not become an empty one, which selectors match.
    return {key: job.labels[key] for key in wanted if key in job.labels}


def copied_annotations(job: Queued) -> dict[str, str]:
    """Return the annotations that a Workload takes over: gates, provisioning parameters, Berth's own."""
    ours = {
        key: value
        for source in (job.labels, job.annotations)
        for key, value in source.items()
        # The articles' keys are copied whether or not a policy reads them: policies come and go
        # while the Workload stays.
        if (key in keys.BERTH_TEMPLATE_KEYS or key in _ALIASES) and key not in _NOT_COPIED
    }
    if job.active_deadline_seconds is not None:
        # When the Workload is decided on, its Job is not looked at.
        ours[keys.JOB_DEADLINE_SECONDS] = str(job.active_deadline_seconds)
    theirs = {
        key: value
        for key, value in job.annotations.items()
        if key == keys.ADMISSION_GATED_BY or key.startswith(_PROVISIONING_PREFIX)
    }
    return {**ours, **theirs}


def unknown_keys(job: Queued, template: Template) -> tuple[str, ...]:
    """Return a sentence for each berth.dev key of the Job or its template that nobody reads.

    A misspelt key would change nothing and say nothing; the nearest known one is named.
    """
    metadata = template.get("metadata") or {}
    sources: tuple[tuple[str, Mapping[str, str]], ...] = (
        ("label", job.labels),
        ("annotation", job.annotations),
        ("pod template's label", metadata.get("labels") or {}),
        ("pod template's annotation", metadata.get("annotations") or {}),
    )
    return tuple(_unknown(kind, key) for kind, source in sources for key in source if _is_unknown(key))


def wish_problems(job: Job, template: Template, is_domain: Callable[[str], bool]) -> tuple[str, ...]:
    """Return a sentence for each of the Job's wishes and claims that cannot be read, or contradicts it.

    `is_domain` tells whether a value is that of a domain of any topology.
    """
    metadata = template.get("metadata") or {}
    sources = (job.annotations, job.labels, metadata.get("annotations"), metadata.get("labels"))
    containers = (template.get("spec") or {}).get("containers") or ()
    gpus = job.pod_count * sum(_gpus_of(container.get("resources") or {}) for container in containers)
    others = (gpu_count_fault(sources, gpus), domain_fault(sources, is_domain))
    return (*wish_faults(sources), *checkpoint_faults(sources), *(said for said in others if said))


def _gpus_of(resources: Mapping[str, Any]) -> int:
    """Return a container's GPUs. The API server takes a limit for the request where that is missing."""
    # Requests win where both are given; that is what the scheduler reserves.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    # Whole numbers in a Job that was taken: the API server refuses others for extended resources.
    return gpus_of({name: int(text) for name, text in asked.items() if str(text).isdecimal()})


def is_equivalent(
    job: Job, template: Template, pod_set: Mapping[str, Any], *, admitted_count: int | None
) -> bool:
    """Return whether a Workload's pod set (as in spec.podSets) still describes the Job.

    `admitted_count` is the pods it was admitted with, None while it is not admitted. A running Job runs as
    many pods as were admitted; a suspended one shows either that or what it asks for. Tolerations are not
    compared once admitted, because the start adds the flavors'.
    """
    counts = {int(pod_set.get("count", 1))}
    if admitted_count is not None:
        # A suspended Job was perhaps never started: it still shows what it asks for. One that runs
        # shows what it was given.
        counts = {admitted_count} | (counts if job.is_suspended else set())
    other = pod_set.get("template") or {}
    return (
        job.pod_count in counts
        and has_same_containers(template, other)
        # A start adds the flavors' tolerations to the Job, so after it they differ by right.
        and (admitted_count is not None or has_same_tolerations(template, other))
        # Once it is admitted, a changed floor is without effect on what runs.
        and (admitted_count is not None or pod_set.get("minCount") == min_count(job))
    )


def is_up_to_date(job: Job, body: Mapping[str, Any], pod_set: Mapping[str, Any]) -> bool:
    """Return whether a Workload that waits also has the Job's labels, node selector and topology request.

    Beyond Kueue, which compares containers alone: a Job edited while it waits is queued as it then is.
    """
    try:
        (wanted,) = pod_sets_body(job, body)
    except ComposeError:
        # The edit cannot be queued; the Workload stays as it was.
        return True
    return wanted.get("topologyRequest") == pod_set.get("topologyRequest") and has_same_directives(
        wanted["template"], pod_set.get("template") or {}
    )


def is_label_value(text: str) -> bool:
    """Return whether a name may stand as the value of a label."""
    return len(text) <= _MAX_LABEL_VALUE


def _is_unknown(key: str) -> bool:
    # A simulated object carries keys of the simulation, which are no wishes.
    if not key.startswith(keys.BERTH_PREFIX) or key.startswith(keys.BERTH_SIMULATION_PREFIX):
        return False
    # What Berth itself writes must not be taken for a misspelt wish when an author copies a whole object.
    return key not in keys.BERTH_TEMPLATE_KEYS and key not in keys.BERTH_WRITTEN_KEYS


def _unknown(kind: str, key: str) -> str:
    # Without the prefix that all share, or everything would be alike.
    names = [known.removeprefix(keys.BERTH_PREFIX) for known in sorted(keys.BERTH_TEMPLATE_KEYS)]
    # Similar enough only: a hint at something far-fetched would send the author the wrong way.
    near = get_close_matches(key.removeprefix(keys.BERTH_PREFIX), names, n=1, cutoff=_SIMILARITY)
    hint = (
        f"did you mean '{keys.BERTH_PREFIX}{near[0]}'?"
        if near
        else "see the documentation for the known ones"
    )
    return f"The {kind} {key!r} is unknown and changes nothing; {hint}"
