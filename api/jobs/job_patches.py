"""The merge patches that start a Job and stop it.

A template may change only while its Job is suspended, has no status.startTime and no active pod. So a start
is one patch (the template and `suspend: false` together), and a stop is three steps, each its own write:

    running ──▶ suspend: true          ──▶ status.startTime: null     ──▶ template restored ──▶ suspended,
                annotation `stopping`       (servers from 1.36 on          `stopping` removed     as created
                                            do it themselves)

The annotation tells whoever looks next, also after a crash, that the template is still to be restored.
Source: Kueue, pkg/controller/jobs/job and pkg/podset; Kubernetes, batch/v1 validation of a suspended Job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api import keys
from api.jobs.job import Job
from api.jobs.job_workload import is_label_value
from api.jobs.pod_template import Injection, Template, injection_patch, merged_injection, restore_patch
from api.objects import WireToleration
from api.workload import PodSetAssignment, TopologyAssignment, Workload


def start_injection(
    workload: Workload,
    assignment: PodSetAssignment,
    node_labels: Mapping[str, str],
    tolerations: Sequence[WireToleration],
) -> Injection:
    """Return what an admission adds to the pods of one pod set. Raises StartConflict.

    `node_labels` and `tolerations` are those of all flavors assigned to the pod set. The podSetUpdates of
    the admission checks are merged in; two of them may not contradict each other.

    Where the topology ends above the hosts, the domains that were chosen are told as well: one by the node
    selector, several by the values that are allowed. Of hosts each pod is told its own at the gate; named in
    the template they would keep a pod from the node that replaces a failed one.
    """
    selector, one_of = _chosen_domains(assignment.topology)
    injection = Injection(
        labels=_labels(workload, assignment),
        annotations={keys.WORKLOAD: workload.key.name, **_topology_annotations(workload, assignment)},
        node_selector={**selector, **node_labels},
        tolerations=tuple(toleration_body(toleration) for toleration in tolerations),
        # The gate holds each pod until it is told its own domain: without it the scheduler would be
        # free to put a pod of one domain into another.
        gates=(keys.TOPOLOGY_GATE,) if _is_placed(assignment) else (),
        one_of=one_of,
    )
    # After the flavors: a check may add to what a flavor says and not contradict it.
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
        # Kubernetes lets completions change only together with parallelism and equal to
        # it (elastic Indexed Jobs).
        if has_equal_completions(job):
            spec["completions"] = count
    if changes := injection_patch(template, injection):
        spec["template"] = changes
    return {"spec": spec}


def suspend_patch(*, is_restored: bool) -> dict[str, Any]:
    """Return the merge patch that begins to stop a Job.

    `is_restored`: mark it, so that its template is restored afterwards. Without a Workload there is nothing
    to restore from.
    """
    # One write: a Job that is marked and not suspended would be restored while it runs, and one
    # that is suspended and not marked would keep the flavor's node selector for ever.
    spec = {"spec": {"suspend": True}}
    return {"metadata": {"annotations": {keys.STOPPING: "true"}}, **spec} if is_restored else {**spec}


def clear_start_time_patch() -> dict[str, Any]:
    """Return the merge patch of the status subresource without which older servers freeze the template."""
    return {"status": {"startTime": None}}


def restored_patch(job: Job, template: Template, pod_set: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the merge patch that ends a stop: template and counts as the Workload's pod set has them.

    None, where the Workload is lost, only ends the stop: what the template was before cannot be known.
    """
    # Whatever else is lost, the mark goes: with it the Job would count as stopping for ever.
    patch: dict[str, Any] = {"metadata": {"annotations": {keys.STOPPING: None}}}
    spec: dict[str, Any] = {}
    if pod_set is not None:
        spec = _counts(job, int(pod_set.get("count", 1)))
        if changes := restore_patch(template, pod_set.get("template") or {}):
            spec["template"] = changes
    return {**patch, **({"spec": spec} if spec else {})}


def has_equal_completions(job: Job) -> bool:
    """Return whether the Job asks to be completed by as many pods as run at once."""
    return job.annotations.get(keys.JOB_COMPLETIONS_EQUAL_PARALLELISM) == "true"


def toleration_body(toleration: WireToleration) -> dict[str, Any]:
    """Return a toleration as it stands in a pod; what is empty or the default is left out."""
    body: dict[str, Any] = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    if toleration.toleration_seconds is not None:
        body["tolerationSeconds"] = toleration.toleration_seconds
    # Only text is left out when empty: tolerationSeconds 0 means at once, and absent means for ever.
    return {name: value for name, value in body.items() if value != ""}


def _chosen_domains(
    topology: TopologyAssignment | None,
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the level labels that all domains share, and of the others the values that occur."""
    # The host is not told here: see `start_injection`.
    if topology is None or not topology.domains or topology.levels[-1] == keys.HOSTNAME:
        return {}, {}
    # By level, in the order of their names: the same places give the same patch, whatever order the
    # search found them in.
    columns = [sorted(set(column)) for column in zip(*(one.values for one in topology.domains), strict=True)]
    pairs = list(zip(topology.levels, columns, strict=True))
    return (
        # A level that all share is a plain selector; only values that differ need an affinity.
        {level: values[0] for level, values in pairs if len(values) == 1},
        {level: tuple(values) for level, values in pairs if len(values) > 1},
    )


def _labels(workload: Workload, assignment: PodSetAssignment) -> dict[str, str]:
    labels = {keys.POD_SET: assignment.name, keys.MANAGED: "true"}
    queues = {keys.LOCAL_QUEUE_NAME: workload.queue_name}
    if workload.admission is not None:
        queues[keys.CLUSTER_QUEUE_NAME] = workload.admission.cluster_queue
    # A name may be longer than a label's value; these two are for observers only.
    return {**labels, **{key: name for key, name in queues.items() if name and is_label_value(name)}}


def _topology_annotations(workload: Workload, assignment: PodSetAssignment) -> dict[str, str]:
    asked = any(ps.name == assignment.name and ps.topology_request is not None for ps in workload.pod_sets)
    # A placement that nobody asked for comes from a ClusterQueue whose flavors all have a topology.
    return {keys.UNCONSTRAINED_TOPOLOGY: "true"} if _is_placed(assignment) and not asked else {}


def _is_placed(assignment: PodSetAssignment) -> bool:
    return assignment.topology is not None or assignment.delayed_topology_request is not None


def _counts(job: Job, count: int) -> dict[str, Any]:
    # Only partial admission takes pods away from a Job; any other difference is an edit of its owner.
    if count == job.pod_count or keys.JOB_MIN_PARALLELISM not in job.annotations:
        return {}
    return {"parallelism": count, **({"completions": count} if has_equal_completions(job) else {})}
