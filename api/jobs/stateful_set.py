"""apps/v1 StatefulSet as a frozen value: how many pods it has in a queue, and the name of their group.

All its pods are one group, whose Workload exists before the pods do. The group is named with the uid of the
set, and so only once the API server has created the set: the webhook of pods writes the name to each of them.
Before, Kueue and Berth wrote a name without the uid to the template of the set; pods of such templates, and
their Workload, keep it.
Source: Kueue, pkg/controller/jobs/statefulset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from api import keys
from api.jobs.job import MAIN_POD_SET
from api.jobs.job_workload import workload_name
from api.jobs.pod import POD_KIND, Pod, to_pod
from api.objects.cluster import PodObject, StatefulSetObject
from api.objects.common import OwnerReference
from api.parsing.decimals import whole_number

STATEFUL_SET_KIND = "StatefulSet"
_GROUP, _VERSION = "apps", "apps/v1"
# What the annotation of the parent says on its pods.
STATEFUL_SET_NAME = "statefulset"
# On the pods of a group that is a service, and admitted as a whole before all of them exist. The controller
# of StatefulSets numbers its pods by a label, so that each has a fixed place in the group.
GROUP_ANNOTATIONS = {
    keys.POD_GROUP_FAST_ADMISSION: "true",
    keys.POD_GROUP_SERVING: "true",
    keys.POD_GROUP_INDEX_LABEL: "apps.kubernetes.io/pod-index",
}
_LONGEST_LABEL = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulSet:
    """One StatefulSet. `is_held`: its pods wait for their queue, as its template says.

    `template_group` is the group that its template names; "" if none.
    """

    namespace: str
    name: str
    uid: str
    replicas: int = 1
    is_held: bool = True
    template_group: str = ""

    @property
    def group(self) -> str:
        """The name of its group, if that has no older one."""
        return workload_name(STATEFUL_SET_KIND, _GROUP, self.name, self.uid)

    @property
    def older_group(self) -> str:
        """The name that its group had before the uid was part of it."""
        return older_group_name(self.name)

    @property
    def reference(self) -> OwnerReference:
        """The reference to it, as owner of its Workload."""
        return OwnerReference(api_version=_VERSION, kind=STATEFUL_SET_KIND, name=self.name, uid=self.uid)

    def is_pod(self, name: str) -> bool:
        """Return whether a pod of this name may be one of its pods, which its controller numbers."""
        prefix, _, number = name.rpartition("-")
        return prefix == self.name and whole_number(number) is not None

    def is_group(self, name: str) -> bool:
        """Return whether a group of this name may be of a StatefulSet of its name, whatever its uid."""
        return name.startswith(f"{STATEFUL_SET_NAME}-{self.name}-")


def older_group_name(name: str) -> str:
    """Return the name, without uid, of the group of a StatefulSet of this name."""
    return workload_name(STATEFUL_SET_KIND, _GROUP, name, "")


def claims_stateful_set(owner: OwnerReference | None) -> bool:
    """Return whether this owner is said to be a StatefulSet."""
    return owner is not None and (owner.api_version, owner.kind) == (_VERSION, STATEFUL_SET_KIND)


def group_labels_of(group: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and the annotations by which a pod names its group."""
    # A label is too short for the longest names.
    named = {keys.POD_GROUP_NAME: group}
    return (named, {}) if len(group) <= _LONGEST_LABEL else ({}, named)


def to_stateful_set(obj: StatefulSetObject) -> StatefulSet:
    """Return the StatefulSet as a value."""
    metadata = obj.metadata
    template = obj.spec.template.metadata if obj.spec.template is not None else None
    annotations = (template.annotations if template is not None else None) or {}
    labels = (template.labels if template is not None else None) or {}
    count = obj.spec.replicas
    return StatefulSet(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        replicas=1 if count is None else count,
        is_held=annotations.get(keys.POD_SUSPENDING_PARENT) == STATEFUL_SET_NAME,
        template_group=labels.get(keys.POD_GROUP_NAME, ""),
    )


def template_pod(raw: bytes, group: str) -> tuple[Pod, bytes]:
    """Return a pod as the StatefulSet in these bytes would create it, and its bytes.

    It has name and uid of the set, waits at the gate of admission, and stands for the pods that the set does
    not have yet. Raises ValueError, or msgspec.ValidationError, if its template cannot be read.
    """
    body = _DECODER.decode(raw)
    metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
    template = spec.get("template") or {}
    of_template, of_set = template.get("metadata") or {}, metadata.get("labels") or {}
    passed_on = {key: of_set[key] for key in (keys.QUEUE_NAME, keys.PRIORITY_CLASS) if of_set.get(key)}
    labels, annotations = group_labels_of(group)
    total = spec.get("replicas")
    made_up: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": POD_KIND,
        "metadata": {
            **{key: metadata[key] for key in _IDENTITY if key in metadata},
            "labels": {**(of_template.get("labels") or {}), **passed_on, **labels},
            "annotations": {
                keys.POD_GROUP_TOTAL_COUNT: str(1 if total is None else total),
                **(of_template.get("annotations") or {}),
                **GROUP_ANNOTATIONS,
                **annotations,
                keys.ROLE_HASH: MAIN_POD_SET,
            },
            "ownerReferences": [
                {
                    "apiVersion": _VERSION,
                    "kind": STATEFUL_SET_KIND,
                    "name": metadata.get("name", ""),
                    "uid": metadata.get("uid", ""),
                    "controller": True,
                }
            ],
        },
        "spec": {**(template.get("spec") or {}), "schedulingGates": [{"name": keys.ADMISSION_GATE}]},
        "status": {"phase": "Pending"},
    }
    return to_pod(msgspec.convert(made_up, PodObject)), msgspec.json.encode(made_up)


_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_DECODER = msgspec.json.Decoder(dict[str, Any])
