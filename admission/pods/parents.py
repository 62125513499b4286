"""What a Deployment or a StatefulSet in a queue gives its pods, so that they wait for that queue.

    Deployment     each replica is a pod by itself: it comes and goes, and is evicted, alone
    StatefulSet    all replicas are one group, admitted as a whole with the first pod that is made

The labels of the owner reach the template when it is created and when it changes; the pods are then held
like any others. Annotations by which a Workload is placed are passed on too, because whoever writes them on
the Deployment means its pods.
Source: Kueue, pkg/controller/jobs/deployment and statefulset, the webhooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api import keys
from api.jobworkload import workload_name
from api.requests import gpus_of
from api.wishes import gpu_count_fault

Changes = dict[tuple[str, ...], object]

SERVING_GROUP = "apps"
_PASSED_ON = (keys.QUEUE_NAME, keys.PRIORITY_CLASS)
_TEMPLATE = ("spec", "template", "metadata")
# What counts for the whole and not for each pod.
_OF_THE_WHOLE = frozenset({keys.GPU_COUNT, keys.ALIASES[keys.GPU_COUNT]})
_WISHES = (keys.BERTH_TEMPLATE_KEYS | frozenset(keys.ALIASES.values())) - _OF_THE_WHOLE


def template_changes(kind: str, body: Mapping[str, Any]) -> Changes:
    """Return what the template of a Deployment or StatefulSet lacks, as whole values by path.

    {} for one that names no queue: its pods may name one by themselves.
    """
    metadata, template = body.get("metadata") or {}, _template_metadata(body)
    labels = metadata.get("labels") or {}
    if not labels.get(keys.QUEUE_NAME):
        return {}
    of_owner = {**labels, **(metadata.get("annotations") or {})}
    given_labels = {key: labels[key] for key in _PASSED_ON if labels.get(key)}
    wishes = {key: value for key, value in of_owner.items() if key in _WISHES}
    annotations = {
        **wishes,
        **(template.get("annotations") or {}),
        keys.POD_SUSPENDING_PARENT: kind.lower(),
    }
    if kind == "StatefulSet":
        given_labels[keys.POD_GROUP_NAME] = group_name(kind, metadata.get("name", ""))
        # Said once: how many there are to be by now is read from the StatefulSet itself, and to say it anew
        # would restart all pods for every step of scaling.
        annotations.setdefault(keys.POD_GROUP_TOTAL_COUNT, str(replicas(body)))
        annotations |= {
            keys.POD_GROUP_FAST_ADMISSION: "true",
            keys.POD_GROUP_SERVING: "true",
            # The StatefulSet controller itself numbers its pods.
            keys.POD_GROUP_INDEX_LABEL: "apps.kubernetes.io/pod-index",
        }
    changes: Changes = {
        (*_TEMPLATE, "labels"): {**(template.get("labels") or {}), **given_labels},
        (*_TEMPLATE, "annotations"): annotations,
    }
    return changes


def group_name(kind: str, name: str) -> str:
    """Return the name of the group, and so of its Workload. A new object has no uid yet to make it from."""
    return workload_name(kind, SERVING_GROUP, name, "")


def replicas(body: Mapping[str, Any]) -> int:
    """Return how many pods there are to be; 1 where nothing is said."""
    found = (body.get("spec") or {}).get("replicas")
    return found if isinstance(found, int) else 1


def parent_warnings(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the author should know though nothing is wrong: a GPU count that the pods contradict."""
    metadata, template = body.get("metadata") or {}, _template_metadata(body)
    containers = ((body.get("spec") or {}).get("template") or {}).get("spec", {}).get("containers") or ()
    gpus = replicas(body) * sum(_gpus(container.get("resources") or {}) for container in containers)
    sources = (metadata.get("annotations"), metadata.get("labels"), template.get("annotations"))
    fault = gpu_count_fault(sources, gpus)
    return () if fault is None else (fault,)


def _gpus(resources: Mapping[str, Any]) -> int:
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return gpus_of({name: int(text) for name, text in asked.items() if str(text).isdecimal()})


def _template_metadata(body: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = ((body.get("spec") or {}).get("template") or {}).get("metadata")
    return found or {}
