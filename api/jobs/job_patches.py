"""The merge patches that start a Job and stop it.

The template of a Job can change only while the Job is suspended, has no status.startTime and no active
pod. So a start is one patch (the template and `suspend: false` together), and a stop has three steps,
each its own write:

    running ──▶ suspend: true          ──▶ status.startTime: null     ──▶ template restored ──▶ suspended,
                annotation `stopping`       (a Job controller from         `stopping` removed     as created
                                            1.36 on does it itself
                                            if it ends pods)

The annotation records that the template must still be restored, also for a leader that takes over
after a crash. Source: Kueue, pkg/controller/jobs/job and pkg/podset; Kubernetes, batch/v1 validation
of a suspended Job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api import keys
from api.jobs.job import Job
from api.jobs.job_workload import is_label_value
from api.jobs.pod_template import Injection, Template, injection_patch, merged_injection, restore_patch
from api.objects.common import WireToleration
from api.workload import PodSetAssignment, TopologyAssignment, Workload

_ALIASES = frozenset(keys.ALIASES.values())


def start_injection(
    workload: Workload,
    assignment: PodSetAssignment,
    node_labels: Mapping[str, str],
    tolerations: Sequence[WireToleration],
) -> Injection:
    """Return what an admission adds to the pods of one pod set. Raises StartConflict.

    `node_labels` and `tolerations` are those of all flavors assigned to the pod set. The podSetUpdates of the
    admission checks are merged in; they must not contradict each other.

    If the lowest level of the topology is above the host, the injection also names the chosen domains: a
    single one in the node selector, several as allowed values. Hosts are not named, because each pod
    gets its host when its gate is removed; in the template they would keep a pod off the node that
    replaces a failed one.
    """
    selector, one_of = _chosen_domains(assignment.topology)
    injection = Injection(
        labels=_labels(workload, assignment),
        annotations={
            keys.WORKLOAD: workload.key.name,
            **({keys.SLICE_NAME: workload.chain.name} if workload.is_slice else {}),
            **_topology_annotations(workload, assignment),
            **_hardware_annotations(workload, assignment),
        },
        node_selector={**selector, **node_labels},
        tolerations=tuple(toleration_body(toleration) for toleration in tolerations),
        gates=_gates(workload, assignment),
        one_of=one_of,
    )
    # Merged after the flavors: a check may add to the values of a flavor, but not contradict them.
    for check in workload.checks:
        for update in check.pod_set_updates:
            if update.get("name") == assignment.name:
                injection = merged_injection(injection, update)
    return injection


def start_patch(job: Job, template: Template, injection: Injection, count: int) -> dict[str, Any]:
    """Return the merge patch of spec that starts the Job with `count` pods. Raises StartConflict."""
    spec: dict[str, Any] = {"suspend": False}
    if count != job.pod_count:
        spec["parallelism"] = count
        # Kubernetes lets completions change only together with parallelism and only to the same
        # value (elastic Indexed Jobs).
        if has_equal_completions(job):
            spec["completions"] = count
    if changes := injection_patch(template, injection):
        spec["template"] = changes
    return {"spec": spec}


def suspend_patch(*, is_restored: bool) -> dict[str, Any]:
    """Return the merge patch that starts to stop a Job.

    `is_restored`: add the annotation that causes the template to be restored afterwards. Without a Workload
    there is nothing to restore it from.
    """
    # Both in one write: a Job that is marked but not suspended would be restored while it runs, and one that
    # is suspended but not marked would keep the node selector of the flavor permanently.
    spec = {"spec": {"suspend": True}}
    return {"metadata": {"annotations": {keys.STOPPING: "true"}}, **spec} if is_restored else {**spec}


def clear_start_time_patch() -> dict[str, Any]:
    """Return the status patch that older API servers need before the template can change."""
    return {"status": {"startTime": None}}


def restored_patch(job: Job, template: Template, pod_set: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the merge patch that completes a stop by restoring the template and counts of the pod set.

    If `pod_set` is None because the Workload is lost, only the annotation is removed: the
    original template is unknown.
    """
    # The annotation is removed in every case; with it, the Job would count as stopping permanently.
    patch: dict[str, Any] = {"metadata": {"annotations": {keys.STOPPING: None}}}
    spec: dict[str, Any] = {}
    if pod_set is not None:
        spec = _counts(job, int(pod_set.get("count", 1)))
        if changes := restore_patch(template, pod_set.get("template") or {}):
            spec["template"] = changes
    return {**patch, **({"spec": spec} if spec else {})}


def has_equal_completions(job: Job) -> bool:
    """Return whether completions of the Job always equal its parallelism."""
    return job.annotations.get(keys.JOB_COMPLETIONS_EQUAL_PARALLELISM) == "true"


def toleration_body(toleration: WireToleration) -> dict[str, Any]:
    """Return a toleration in the form of a pod spec; empty fields are left out."""
    body: dict[str, Any] = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    if toleration.toleration_seconds is not None:
        body["tolerationSeconds"] = toleration.toleration_seconds
    # Only empty strings are left out: tolerationSeconds 0 means immediately, and absent means without limit.
    return {name: value for name, value in body.items() if value != ""}


def _chosen_domains(
    topology: TopologyAssignment | None,
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the level labels that all domains share, and for each other level the values that occur."""
    # Hosts are not part of the template: see `start_injection`.
    if topology is None or not topology.domains or topology.levels[-1] == keys.HOSTNAME:
        return {}, {}
    # Sorted by value, so that the same domains give the same patch in whatever order the search found them.
    columns = [sorted(set(column)) for column in zip(*(one.values for one in topology.domains), strict=True)]
    pairs = list(zip(topology.levels, columns, strict=True))
    return (
        # A value that all domains share needs only a node selector; different values need an affinity.
        {level: values[0] for level, values in pairs if len(values) == 1},
        {level: tuple(values) for level, values in pairs if len(values) > 1},
    )


def _labels(workload: Workload, assignment: PodSetAssignment) -> dict[str, str]:
    labels = {keys.POD_SET: assignment.name, keys.MANAGED: "true"}
    queues = {keys.LOCAL_QUEUE_NAME: workload.queue_name}
    if workload.admission is not None:
        queues[keys.CLUSTER_QUEUE_NAME] = workload.admission.cluster_queue
    # A queue name may be longer than a label value; these two labels are only informational,
    # so they are omitted.
    return {**labels, **{key: name for key, name in queues.items() if name and is_label_value(name)}}


def _topology_annotations(workload: Workload, assignment: PodSetAssignment) -> dict[str, str]:
    asked = any(ps.name == assignment.name and ps.topology_request is not None for ps in workload.pod_sets)
    # A placement without a request comes from a ClusterQueue in which every flavor has a topology.
    return {keys.UNCONSTRAINED_TOPOLOGY: "true"} if _is_placed(assignment) and not asked else {}


def _hardware_annotations(workload: Workload, assignment: PodSetAssignment) -> dict[str, str]:
    """Return what the Job asks of hardware and its pods do not: the scheduler extender sees only pods."""
    pod_set = next((one for one in workload.pod_sets if one.name == assignment.name), None)
    metadata = pod_set.template.metadata if pod_set is not None else None
    said = {**(metadata.labels or {}), **(metadata.annotations or {})} if metadata is not None else {}
    # An alias on a Job counts by its policy, which the extender does not know.
    asked = (keys.HARDWARE_KEYS - _ALIASES) & workload.annotations.keys()
    return {
        key: workload.annotations[key]
        for key in sorted(asked)
        if key not in said and keys.ALIASES.get(key) not in said
    }


def _gates(workload: Workload, assignment: PodSetAssignment) -> tuple[str, ...]:
    """Return the gates that hold each pod until its domain is written to it, or until a slice counts it.

    Without the first, the scheduler could place a pod in the domain of another one; without the second, pods
    that an elastic Job adds would run beyond the quota.
    """
    placed = (keys.TOPOLOGY_GATE,) if _is_placed(assignment) else ()
    return (*placed, *((keys.ELASTIC_GATE,) if workload.is_slice else ()))


def _is_placed(assignment: PodSetAssignment) -> bool:
    return assignment.topology is not None or assignment.delayed_topology_request is not None


def _counts(job: Job, count: int) -> dict[str, Any]:
    # Only partial admission reduces the pods of a Job; any other difference is an edit of its author.
    if count == job.pod_count or keys.JOB_MIN_PARALLELISM not in job.annotations:
        return {}
    return {"parallelism": count, **({"completions": count} if has_equal_completions(job) else {})}
