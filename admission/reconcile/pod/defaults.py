"""The defaults of a pod at its creation, which make it wait for its queue: label, finalizer, gates, role.

Without these it would run: a gate cannot be added later. The pods of a Job wait through their Job, and the
pods of a DaemonSet never wait. The API server verifies no owner, so a pod that only claims to be one of these
is held.
Source: Kueue, pkg/controller/jobs/pod/pod_webhook.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admission.reconcile.job.context import JobContext, PodOwner
from admission.reconcile.job.defaults import DEFAULT_NAME, has_default_class
from admission.reconcile.pod.parents import group_of_leader_worker_set, group_of_stateful_set
from api import keys
from api.identifiers import names_group_by_annotation
from api.jobs.pod import Pod, claims_daemon_set
from api.jobs.pod_role import role_of
from api.parsing.decimals import whole_number
from api.parsing.faults import ABSENT, FieldError

Changes = dict[tuple[str, ...], object]

# The second is the user of all controllers if kube-controller-manager runs without
# --use-service-account-credentials.
_DAEMON_SET_CONTROLLERS = frozenset(
    {"system:serviceaccount:kube-system:daemon-set-controller", "system:kube-controller-manager"}
)
# NodeRestriction keeps a kubelet to pods on its own node.
_KUBELETS = "system:node:"


def pod_defaults(
    pod: Pod,
    body: Mapping[str, Any],
    context: JobContext,
    *,
    creator: str,
    has_default_queue: bool,
    set_group: tuple[str, int] = ("", 0),
) -> Changes:
    """Return the fields of a pod that is being created, as whole values by path; {} if it is not queued.

    `creator` is the name of the user who creates it. `has_default_queue`: whether its namespace has one.
    `set_group` are name and size of the group of the StatefulSet that it names as its controller, if any.
    """
    if _is_exempt(pod, context, creator) or not context.is_namespace_managed(pod.namespace):
        return {}
    if not context.is_pod_selected(pod.namespace, pod.labels):
        return {}
    if not context.settings.queues_plain_pods and keys.POD_SUSPENDING_PARENT not in pod.annotations:
        return {}
    labels = dict(pod.labels)
    if not pod.queue_name and has_default_queue:
        labels[keys.QUEUE_NAME] = DEFAULT_NAME
    if not (labels.get(keys.QUEUE_NAME) or context.settings.manages_without_queue_name):
        return {}
    if keys.PRIORITY_CLASS not in labels and has_default_class(pod.namespace, context):
        labels[keys.PRIORITY_CLASS] = DEFAULT_NAME
    labels[keys.MANAGED] = "true"
    of_set, set_annotations = group_of_stateful_set(pod, *set_group)
    of_group, group_annotations = group_of_leader_worker_set(pod)
    labels |= of_set | of_group
    metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
    # The second gate holds the pod while there is no free place in its topology. It cannot be added later.
    gates = spec.get("schedulingGates")
    for name in (keys.ADMISSION_GATE, keys.TOPOLOGY_GATE):
        gates = _with(gates, {"name": name})
    changes: Changes = {
        ("metadata", "labels"): labels,
        ("metadata", "finalizers"): _with(metadata.get("finalizers"), keys.POD_FINALIZER),
        ("spec", "schedulingGates"): gates,
    }
    if pod.group or of_group or set_annotations:
        role = {keys.ROLE_HASH: role_of(body)}
        annotations = {**pod.annotations, **group_annotations, **role, **set_annotations}
        changes["metadata", "annotations"] = annotations
    return changes


def placed_fault(pod: Pod) -> FieldError | None:
    """Return what is wrong with a queued pod that is created on a node: nothing could hold it there."""
    if not pod.node:
        return None
    rule = "a pod in a queue gets its node when it is admitted; leave it out, or set spec.nodeSelector"
    return FieldError(path="spec.nodeName", value=pod.node, rule=rule)


def group_fault(pod: Pod) -> FieldError | None:
    """Return what is wrong with the group that a new pod names: its pods would wait for it for ever.

    Source: Kueue, pkg/controller/jobs/pod/pod_webhook.go (validatePodGroupMetadata, ...PrebuiltWorkloadName).
    """
    place = "annotation" if names_group_by_annotation(pod.annotations) else "label"
    both = (
        f"both the '{keys.POD_GROUP_TOTAL_COUNT}' annotation and the '{keys.POD_GROUP_NAME}' {place}"
        " should be set"
    )
    total = pod.annotations.get(keys.POD_GROUP_TOTAL_COUNT)
    if not pod.group:
        path = f"metadata.labels[{keys.POD_GROUP_NAME}]"
        return None if total is None else FieldError(path=path, value=ABSENT, rule=both)
    path = f"metadata.annotations[{keys.POD_GROUP_TOTAL_COUNT}]"
    if total is None:
        return FieldError(path=path, value=ABSENT, rule=both)
    if not whole_number(total):
        return FieldError(path=path, value=total, rule="a group needs a whole number of pods from 1")
    if pod.prebuilt_workload and pod.prebuilt_workload != pod.group:
        where = "annotations" if pod.annotations.get(keys.PREBUILT_WORKLOAD_NAME) else "labels"
        path = f"metadata.{where}[{keys.PREBUILT_WORKLOAD_NAME}]"
        rule = "prebuilt workload and pod group should be equal"
        return FieldError(path=path, value=pod.prebuilt_workload, rule=rule)
    return None


def _is_exempt(pod: Pod, context: JobContext, creator: str) -> bool:
    """Return whether the pod's controller waits for it, or must not be held up by a queue."""
    # A kubelet reports its static pods, which run already. It can create no others.
    if pod.node and creator.startswith(_KUBELETS):
        return True
    if claims_daemon_set(pod.owner):
        # DaemonSets are not watched, but the API server says who creates the pod.
        return creator in _DAEMON_SET_CONTROLLERS
    return context.pod_owner(pod) is PodOwner.COUNTED


def _with(have: list[Any] | None, entry: object) -> list[Any]:
    present = list(have or ())
    return present if entry in present else [*present, entry]
