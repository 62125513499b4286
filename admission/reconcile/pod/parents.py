"""Defaults for objects whose pods serve in a queue, so that their pods wait for that queue.

    Deployment         each replica is a pod by itself, created, deleted and evicted alone
    StatefulSet        all replicas are one group, admitted as a whole, also before any exists
    LeaderWorkerSet    each leader and its workers are a group, admitted as a whole once all pods exist

The owner's labels are copied to its template when it is created or changed, and its pods are then gated like
any others. Annotations that affect the placement of a Workload are copied too, because an author who sets
them on a Deployment means its pods.
Source: Kueue, pkg/controller/jobs/deployment, statefulset and leaderworkerset, the webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api import keys
from api.jobs.job import MAIN_POD_SET
from api.jobs.job_workload import workload_name
from api.jobs.placement_annotations import gpu_count_fault
from api.jobs.pod import Pod
from api.jobs.resource_requests import gpus_of
from api.jobs.stateful_set import (
    GROUP_ANNOTATIONS,
    STATEFUL_SET_NAME,
    group_labels_of,
    older_group_name,
)
from api.parsing.decimals import whole_number

Changes = dict[tuple[str, ...], object]
_NOTHING: Mapping[str, Any] = {}

# The API group of each kind. `_NAMES` has its name in annotations.
SERVING_GROUPS = {
    "Deployment": "apps",
    "StatefulSet": "apps",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io",
}
_NAMES = {
    "Deployment": "deployment",
    "StatefulSet": STATEFUL_SET_NAME,
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/leaderworkerset",
}
_TEMPLATE = ("spec", "template")
_TEMPLATES = {
    "LeaderWorkerSet": (
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    )
}

_PASSED_ON = (keys.QUEUE_NAME, keys.PRIORITY_CLASS)
# A count for the object as a whole is not copied to each pod.
_OF_THE_WHOLE = frozenset({keys.GPU_COUNT, keys.ALIASES[keys.GPU_COUNT]})
_TEMPLATE_KEYS = (keys.BERTH_TEMPLATE_KEYS | frozenset(keys.ALIASES.values())) - _OF_THE_WHOLE


def template_changes(kind: str, body: Mapping[str, Any], before: Mapping[str, Any] = _NOTHING) -> Changes:
    """Return the fields that the object's templates lack, as whole values by path.

    `before` is the object before it is changed, {} for a new one. {} for an object without a queue name: its
    pods may have one of their own.
    """
    if not ((body.get("metadata") or {}).get("labels") or {}).get(keys.QUEUE_NAME):
        return {}
    changes: Changes = {}
    for path in _TEMPLATES.get(kind, (_TEMPLATE,)):
        template = _at(body, path)
        # A LeaderWorkerSet without a leader template creates its leaders from the worker template.
        if template:
            changes |= _changes(kind, body, path, _labels_at(before, path))
    return changes


def _changes(
    kind: str, body: Mapping[str, Any], path: tuple[str, ...], labels_before: Mapping[str, str]
) -> Changes:
    metadata, template = body.get("metadata") or {}, _at(body, path).get("metadata") or {}
    labels = metadata.get("labels") or {}
    of_owner = {**labels, **(metadata.get("annotations") or {})}
    given_labels = {key: labels[key] for key in _PASSED_ON if labels.get(key)}
    # The owner's placement keys, annotations and labels alike. The template's
    # own annotations take precedence.
    annotations = {
        **{key: value for key, value in of_owner.items() if key in _TEMPLATE_KEYS},
        **(template.get("annotations") or {}),
        keys.POD_SUSPENDING_PARENT: _NAMES[kind],
    }
    if kind == "StatefulSet":
        # An older template names the group, and its pods would restart if it did not any more. Others get
        # the name at their creation: that of a set which is only being created has no uid yet.
        older = older_group_name(metadata.get("name", ""))
        if labels_before.get(keys.POD_GROUP_NAME) == older:
            given_labels[keys.POD_GROUP_NAME] = older
        # Set only once: the present number of replicas is read from the StatefulSet itself, and changing it
        # here would restart all pods with every step of scaling.
        annotations.setdefault(keys.POD_GROUP_TOTAL_COUNT, str(max(1, replicas(body))))
        annotations |= GROUP_ANNOTATIONS
    merged = {"labels": {**(template.get("labels") or {}), **given_labels}, "annotations": annotations}
    if "metadata" not in (_at(body, path) or {}):
        # The template of a custom resource need not have metadata, and a patch cannot reach
        # below a missing field.
        return {(*path, "metadata"): merged}
    return {(*path, "metadata", name): value for name, value in merged.items()}


def group_of_stateful_set(pod: Pod, group: str, count: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations that make a pod of a StatefulSet a member of its group.

    `group` is the set's group, "" for a pod of none, and `count` its number of pods. Empty for a pod whose
    template does not say that it belongs to a StatefulSet.
    """
    if not group or pod.annotations.get(keys.POD_SUSPENDING_PARENT) != STATEFUL_SET_NAME:
        return {}, {}
    if pod.owner is not None and pod.group == older_group_name(pod.owner.name):
        # Its template names it, which the watch may not have shown yet.
        group = pod.group
    labels, annotations = group_labels_of(group)
    total = pod.annotations.get(keys.POD_GROUP_TOTAL_COUNT, str(max(1, count)))
    return labels, {
        **annotations,
        **GROUP_ANNOTATIONS,
        keys.POD_GROUP_TOTAL_COUNT: total,
        keys.ROLE_HASH: MAIN_POD_SET,
    }


def group_of_leader_worker_set(pod: Pod) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations that make a pod of a LeaderWorkerSet a member of its group.

    Empty for other pods. A leader that is just being created may not carry the index of its group yet, but
    its name ends in it.
    """
    owner, index = leader_worker_set_of(pod.labels, pod.name)
    size = pod.annotations.get(keys.LEADER_WORKER_SIZE, "")
    is_ours = pod.annotations.get(keys.POD_SUSPENDING_PARENT) == _NAMES["LeaderWorkerSet"]
    # If one is missing, the pod is not ours or its group is unknown: no group is better than a wrong one.
    if not (is_ours and owner and size and index is not None):
        return {}, {}
    labels = {keys.POD_GROUP_NAME: group_name("LeaderWorkerSet", f"{owner}-{index}")}
    return labels, {keys.POD_GROUP_TOTAL_COUNT: size, keys.POD_GROUP_SERVING: "true"}


def leader_worker_set_of(labels: Mapping[str, str], name: str = "") -> tuple[str, int | None]:
    """Return the LeaderWorkerSet that a pod with these labels belongs to, and the index of its group.

    ("", None) for a pod of no set. The index is None if neither label nor name has it. `name` is the
    pod's, "" if unknown.
    """
    owner = labels.get(keys.LEADER_WORKER_SET, "")
    # A name that does not end in a number has no index.
    index = labels.get(keys.LEADER_WORKER_GROUP) or name.removeprefix(f"{owner}-")
    return owner, whole_number(index) if owner else None


def group_name(kind: str, name: str) -> str:
    """Return the name of a group and of its Workload, which has no uid."""
    return workload_name(kind, SERVING_GROUPS[kind], name, "")


def replicas(body: Mapping[str, Any]) -> int:
    """Return how many pods the object should have; 1 if it does not say."""
    found = (body.get("spec") or {}).get("replicas")
    return found if isinstance(found, int) else 1


def parent_warnings(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return warnings for the author of a valid object: a GPU count that its pods contradict."""
    metadata, template = body.get("metadata") or {}, _at(body, _TEMPLATE)
    if not template:
        return ()
    containers = (template.get("spec") or {}).get("containers") or ()
    gpus = replicas(body) * sum(_gpus(container.get("resources") or {}) for container in containers)
    of_pods = (template.get("metadata") or {}).get("annotations")
    fault = gpu_count_fault((metadata.get("annotations"), metadata.get("labels"), of_pods), gpus)
    return () if fault is None else (fault,)


def _gpus(resources: Mapping[str, Any]) -> int:
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    # Only amounts that are plain numbers can be compared with the annotation.
    amounts = {name: whole_number(str(text)) for name, text in asked.items()}
    return gpus_of({name: amount for name, amount in amounts.items() if amount is not None})


def _labels_at(body: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, str]:
    return _at(body, (*path, "metadata", "labels"))


def _at(body: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    found: Any = body
    for part in path:
        found = (found or {}).get(part)
    return found or {}
