"""The Workload of a pod or of a pod group: its name, its pod sets, and its object for creation.

    an individual pod    Workload `pod-<name>-<hash>`, one pod set `main`, the pod is its controller
    a pod group          Workload with the name of the group, a pod set per role, all members are owners
    a StatefulSet        the same with one pod set `main`; the set is the owner, and its pods need not exist

A group is defined by its members: each carries the name of the group and the total number of pods.
As long as the members contradict each other, no Workload is created, and each member gets an
event. Source: Kueue, pkg/controller/jobs/pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from api import keys
from api.jobs.job import MAIN_POD_SET, ComposeError
from api.jobs.job_workload import (
    NO_KEYS,
    CopiedKeys,
    Priority,
    copied_annotations,
    is_label_value,
    workload_name,
    workload_spec,
)
from api.jobs.pod import POD_GROUP, POD_KIND, Pod
from api.jobs.pod_role import role_of
from api.jobs.pod_template import resource_faults, sanitised
from api.jobs.resource_requests import pod_requests
from api.jobs.stateful_set import claims_stateful_set
from api.jobs.topology_request import topology_request_body
from api.objects.common import OwnerReference
from api.objects.templates import WirePodSpec
from api.parsing.decimals import whole_number
from api.parsing.quantities import QuantityError, to_text
from api.validation.jobs import job_errors

_CORE_VERSION = "v1"
# Maximum number of pod sets of a Workload.
MAX_ROLES = 18
# A pod is checked by the rules for a Job's template; this part of the path is removed from the messages.
_TEMPLATE_PATH = "spec.template."


class GroupMember:
    """A pod and its object.

    The object is decoded on first use, because most operations on a group need only the pod's value.
    """

    def __init__(self, pod: Pod, raw: bytes) -> None:
        self.pod = pod
        self.raw = raw

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """The pod's object as last seen."""
        return _DECODER.decode(self.raw)

    @cached_property
    def role(self) -> str:
        """The pod set that the pod belongs to in a group."""
        return self.pod.annotations.get(keys.ROLE_HASH) or role_of(self.body)

    def excess_over(self, template: Mapping[str, Any]) -> str:
        """Return of which resource the pod requests more than the template, and how much; "" if of none.

        A role is no proof of it: the annotation that records it is a tenant's to write, and with fast
        admission every pod has the first one's. The text is such as "8 nvidia.com/gpu instead of 1".
        """
        own, admitted = _spec_of(self.body), _spec_of(template)
        # Another claim template may ask for any number of devices.
        if own.resource_claims and own.resource_claims != admitted.resource_claims:
            return "devices by spec.resourceClaims"
        try:
            asked, known = pod_requests(own), pod_requests(admitted)
        except QuantityError as error:
            return str(error)
        more = sorted(name for name, amount in asked.items() if amount > known.get(name, 0))
        if not more:
            return ""
        name = more[0]
        return f"{to_text(name, asked[name])} {name} instead of {to_text(name, known.get(name, 0))}"


def _spec_of(body: Mapping[str, Any]) -> WirePodSpec:
    return msgspec.convert(body.get("spec") or {}, WirePodSpec)


def name_of_pod_workload(pod: Pod) -> str:
    """Return the name of the Workload of an individual pod."""
    return workload_name(POD_KIND, POD_GROUP, pod.name, pod.uid)


def pod_sets_of_pod(member: GroupMember) -> list[dict[str, Any]]:
    """Return spec.podSets of an individual pod. Raises ComposeError."""
    _check(member, count=1)
    return [_pod_set(MAIN_POD_SET, 1, member)]


def group_total(members: Sequence[GroupMember]) -> int:
    """Return how many pods the group is to have. Raises ComposeError if its members contradict each other."""
    first = members[0].pod
    # The others are compared with the first pod: it is impossible to know which of two values is right.
    text = first.annotations.get(keys.POD_GROUP_TOTAL_COUNT, "")
    total = whole_number(text)
    if not total:
        raise ComposeError(
            f"annotation {keys.POD_GROUP_TOTAL_COUNT} is {text!r}, but a group needs a whole number from 1"
        )
    for member in members[1:]:
        other = member.pod.annotations.get(keys.POD_GROUP_TOTAL_COUNT, "")
        if other != text:
            raise _contradiction(first, text, member.pod, other, keys.POD_GROUP_TOTAL_COUNT)
        if member.pod.queue_name != first.queue_name:
            raise _contradiction(first, first.queue_name, member.pod, member.pod.queue_name, keys.QUEUE_NAME)
    return total


def is_fast(members: Iterable[GroupMember]) -> bool:
    """Return whether the group is admitted as a whole as soon as its first pod exists."""
    return any(one.pod.annotations.get(keys.POD_GROUP_FAST_ADMISSION) == "true" for one in members)


def pod_sets_of_group(members: Sequence[GroupMember], total: int) -> list[dict[str, Any]]:
    """Return spec.podSets of a group: one per role, sorted by name. Raises ComposeError.

    If the group is admitted fast, its first pod represents all `total` pods.
    """
    # The first pod of each role, and the number of its pods. A list of `total` entries could exhaust the
    # memory of the controller, since the total is an arbitrary number from an annotation.
    roles: dict[str, tuple[GroupMember, int]] = {}
    # The roles of pods that do not exist yet are unknown, so they are assumed to equal that of the first.
    if is_fast(members):
        roles[members[0].role] = (members[0], total)
    else:
        for member in members:
            first, count = roles.get(member.role, (member, 0))
            if excess := member.excess_over(first.body):
                raise ComposeError(
                    f"pod {member.pod.name} requests {excess} on pod {first.pod.name}, but both have the role"
                    f" {member.role!r}; remove the annotation {keys.ROLE_HASH} from the pods"
                )
            roles[member.role] = (first, count + 1)
    if len(roles) > MAX_ROLES:
        raise ComposeError(f"the group has pods of {len(roles)} kinds, but at most {MAX_ROLES} can be queued")
    for first, count in roles.values():
        _check(first, count=count)
    # Sorted by name, because the order of the pods depends on the order of watch events.
    return [_pod_set(role, count, first) for role, (first, count) in sorted(roles.items())]


def pod_workload_body(
    members: Sequence[GroupMember],
    pod_sets: list[dict[str, Any]],
    priority: Priority,
    *,
    group: str = "",
    keeper: OwnerReference | None = None,
    copied: CopiedKeys = NO_KEYS,
) -> dict[str, Any]:
    """Return the complete Workload object of a pod or, if `group` is set, of that group, ready for creation.

    `keeper` as in `owner_references`. Raises ComposeError if pods contradict each other in what is copied.
    """
    pod = members[0].pod
    labels = group_labels(members, copied)
    annotations = {**copied_annotations(pod, copied), **group_annotations(members, copied)}
    if group:
        annotations[keys.IS_GROUP_WORKLOAD] = "true"
        if keeper is not None and claims_stateful_set(keeper):
            # A group has one owner per pod, and no uid label; that of a set outlives its pods.
            labels[keys.JOB_UID] = keeper.uid
            annotations[keys.JOB_OWNER_GVK] = f"{keeper.api_version}, Kind={keeper.kind}"
            annotations[keys.JOB_OWNER_NAME] = keeper.name
        if application := _application_of_group(pod):
            annotations[keys.REPLICA_OF] = application
    else:
        labels[keys.JOB_UID] = pod.uid
        if pod.application:
            annotations[keys.REPLICA_OF] = pod.application
    return {
        "apiVersion": keys.KUEUE_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": group or name_of_pod_workload(pod),
            "namespace": pod.namespace,
            # The name of an application or queue may be too long for a label, and the API server would
            # reject the whole Workload.
            "labels": {key: value for key, value in labels.items() if is_label_value(value)},
            "annotations": annotations,
            "finalizers": [keys.RESOURCE_IN_USE],
            "ownerReferences": owner_references(members, is_group=bool(group), keeper=keeper),
        },
        "spec": workload_spec(pod, pod.queue_name, pod_sets, priority),
    }


def group_labels(members: Sequence[GroupMember], copied: CopiedKeys) -> dict[str, str]:
    """Return the labels that a Workload copies from its pods: each has it from any of them.

    Raises ComposeError if they contradict each other. Source: Kueue, ConstructComposableWorkload.
    """
    return _agreed([(one.pod, one.pod.labels) for one in members], copied.labels)


def group_annotations(members: Sequence[GroupMember], copied: CopiedKeys) -> dict[str, str]:
    """Return the configured annotations that a Workload copies from its pods. As `group_labels`."""
    return _agreed([(one.pod, one.pod.annotations) for one in members], copied.annotations)


def _agreed(sources: Iterable[tuple[Pod, Mapping[str, str]]], wanted: Iterable[str]) -> dict[str, str]:
    keys_ = tuple(wanted)
    found: dict[str, tuple[Pod, str]] = {}
    for pod, values in sources:
        for key in keys_:
            if key not in values:
                continue
            first, value = found.setdefault(key, (pod, values[key]))
            if value != values[key]:
                raise _contradiction(first, value, pod, values[key], key)
    return {key: value for key, (_, value) in found.items()}


def owner_references(
    members: Sequence[GroupMember], *, is_group: bool, keeper: OwnerReference | None = None
) -> list[dict[str, Any]]:
    """Return the owner references of the Workload: its pod, its group's members, or a service's controller.

    The pods of a serving group are replaced one by one. If they were the owners, the garbage collector could
    delete the Workload between the deletion of the last pod and the creation of its successor. `keeper` is
    such a controller if it is not among the owners of the pods.
    """
    if not is_group:
        return [{**_reference(members[0].pod), "controller": True, "blockOwnerDeletion": True}]
    if keeper is not None:
        return [_owner(keeper)]
    references = [_keeper(one.pod) or _reference(one.pod) for one in members]
    # Each uid once: all pods of one controller have the same owner.
    return list({reference["uid"]: reference for reference in references}.values())


def _application_of_group(pod: Pod) -> str:
    """Return the application that the group of this pod is a replica of; empty if there is none."""
    if not pod.is_serving:
        return ""
    # Checked before the owner, because its leaders are owned by a StatefulSet. A replica is a
    # leader with its workers.
    if leader_worker_set := pod.labels.get(keys.LEADER_WORKER_SET):
        return f"LeaderWorkerSet/{leader_worker_set}"
    # All replicas of a StatefulSet form one group.
    return pod.application if pod.owner is not None and pod.owner.kind == "StatefulSet" else ""


def _keeper(pod: Pod) -> dict[str, Any] | None:
    owner = pod.owner
    # One StatefulSet owns the leaders of all groups of a LeaderWorkerSet, and outlives each group. The
    # LeaderWorkerSet is the owner if it is known, otherwise the pods are.
    if not pod.is_serving or owner is None or keys.LEADER_WORKER_SET in pod.labels:
        return None
    return _owner(owner)


def _owner(owner: OwnerReference) -> dict[str, Any]:
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}


def _reference(pod: Pod) -> dict[str, Any]:
    return {"apiVersion": _CORE_VERSION, "kind": POD_KIND, "name": pod.name, "uid": pod.uid}


def _check(member: GroupMember, *, count: int) -> None:
    """Raise ComposeError with all faults that prevent a pod from being queued."""
    body = member.body
    # The pod takes the place of a Job's template: rules and messages are the same, except for the path.
    as_job = {
        "metadata": body.get("metadata"),
        "spec": {"parallelism": count, "completions": count, "template": body},
    }
    faults = [*map(str, job_errors(as_job)), *resource_faults(body)]
    if faults:
        raise ComposeError("; ".join(faults).replace(_TEMPLATE_PATH, ""))


def _pod_set(name: str, count: int, member: GroupMember) -> dict[str, Any]:
    template = sanitised(member.body)
    # The node and the gates of this pod are not requirements of the next pod of its role.
    for field in ("schedulingGates", "nodeName"):
        template["spec"].pop(field, None)
    pod_set: dict[str, Any] = {"name": name, "count": count, "template": template}
    annotations = member.pod.annotations
    request = topology_request_body(annotations)
    if request is not None:
        # The creator of the pods may index them by a label of its own; otherwise the group's
        # index label is used.
        label = annotations.get(keys.POD_GROUP_INDEX_LABEL) or keys.POD_GROUP_INDEX
        pod_set["topologyRequest"] = {**request, "podIndexLabel": label}
    return pod_set


def _contradiction(one: Pod, has: str, other: Pod, other_has: str, key: str) -> ComposeError:
    return ComposeError(
        f"{key} is {has!r} on pod {one.name} and {other_has!r} on pod {other.name},"
        " but must be the same on all pods of a group"
    )


_DECODER = msgspec.json.Decoder(dict[str, Any])
