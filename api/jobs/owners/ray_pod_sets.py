"""The pod sets of KubeRay's kinds: the head, each group of workers, and the submitter of a RayJob.

KubeRay adds containers to pods that no template shows. They request resources, so the Workload has them.
Source: Kueue, pkg/controller/jobs/raycluster/common.go and rayjob; KubeRay v1.6, controllers/ray/common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from api.jobs.owners.paths import Body, Path, value_at
from api.jobs.owners.ray_scaling import heads
from api.jobs.owners.row import OwnerPodSet
from api.jobs.pod_template import Template
from api.parsing.quantities import parse

CLUSTER_OF_JOB: Path = ("spec", "rayClusterSpec")
HEAD, SUBMITTER = "head", "submitter"

# What KubeRay calls the containers that it adds, and what it requests for them unless told otherwise.
_SUBMITTER_CONTAINER = "ray-job-submitter"
_SUBMITTER_RESOURCES = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
_AUTOSCALER_RESOURCES = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
# What the Job requests that clears Redis after a fault-tolerant cluster, on the head's quota.
_REDIS_CLEANUP_REQUESTS = {"cpu": "200m", "memory": "256Mi"}
_SUBMITTER_TEMPLATE: Path = ("spec", "submitterPodTemplate")


def cluster_pod_sets(body: Body, at: Path) -> tuple[OwnerPodSet, ...]:
    """Return the pod sets of the specification of a RayCluster that is found at `at`."""
    spec = value_at(body, at)
    template = spec["headGroupSpec"]["template"]
    head = OwnerPodSet(
        name=HEAD,
        count=heads(body),
        template=template,
        at=(*at, "headGroupSpec", "template"),
        extended=_extended_head(template, spec, body),
    )
    workers = (
        OwnerPodSet(
            name=group["groupName"].lower(),
            count=_pods(group),
            template=group["template"],
            at=(*at, "workerGroupSpecs", index, "template"),
        )
        for index, group in enumerate(groups(spec))
    )
    return (head, *workers)


def job_pod_sets(body: Body) -> tuple[OwnerPodSet, ...]:
    """Return the pod sets of a RayJob: those of its cluster, and a submitter with a pod of its own."""
    head, *workers = cluster_pod_sets(body, CLUSTER_OF_JOB)
    match _submission_mode(body):
        case "K8sJobMode":
            template = value_at(body, _SUBMITTER_TEMPLATE) or _default_submitter(head.template)
            submitter = OwnerPodSet(name=SUBMITTER, count=1, template=template, at=_SUBMITTER_TEMPLATE)
            return (head, *workers, submitter)
        case "SidecarMode":
            # In the head's pod. KubeRay takes its own resources there, whatever submitterPodTemplate says.
            sidecar = {"name": _SUBMITTER_CONTAINER, "resources": _SUBMITTER_RESOURCES}
            return (_with_container(head, sidecar), *workers)
        case _:
            return (head, *workers)


def _extended_head(template: Template, spec: Body, body: Body) -> Template | None:
    """Return the head's template with what KubeRay adds to its pod; None if it adds nothing."""
    extended: Template | None = None
    if is_fault_tolerant(spec, body):
        first, *others = template["spec"]["containers"]
        extended = _with_containers(template, [_with_cleanup(first), *others])
    if spec.get("enableInTreeAutoscaling"):
        options = spec.get("autoscalerOptions") or {}
        autoscaler = {"name": "autoscaler", "resources": options.get("resources") or _AUTOSCALER_RESOURCES}
        present = template if extended is None else extended
        extended = _with_containers(present, [*present["spec"]["containers"], autoscaler])
    return extended


def _with_cleanup(container: Body) -> Body:
    resources = container.get("resources") or {}
    requests = dict(resources.get("requests") or {})
    for name, quantity in _REDIS_CLEANUP_REQUESTS.items():
        if name not in requests or parse(requests[name]) < parse(quantity):
            requests[name] = quantity
    return {**container, "resources": {**resources, "requests": requests}}


def _with_container(pod_set: OwnerPodSet, container: Body) -> OwnerPodSet:
    queued = pod_set.queued
    extended = _with_containers(queued, [*queued["spec"]["containers"], container])
    return replace(pod_set, extended=extended)


def _with_containers(template: Template, containers: Sequence[Body]) -> Template:
    return {**template, "spec": {**template["spec"], "containers": containers}}


def _default_submitter(head: Template) -> Template:
    container = {"name": _SUBMITTER_CONTAINER, "resources": _SUBMITTER_RESOURCES}
    # The head's image: another version of Ray could not talk to it.
    if image := head["spec"]["containers"][0].get("image"):
        container["image"] = image
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


def groups(spec: Body) -> list[Body]:
    return spec.get("workerGroupSpecs") or []


def _pods(group: Body) -> int:
    replicas: int = 1 if group.get("replicas") is None else group["replicas"]
    return replicas * max(1, group.get("numOfHosts") or 1)


def is_fault_tolerant(spec: Body, body: Body) -> bool:
    annotations = value_at(body, ("metadata", "annotations")) or {}
    is_asked = str(annotations.get("ray.io/ft-enabled", "")).lower() == "true"
    return is_asked or spec.get("gcsFaultToleranceOptions") is not None


def _submission_mode(body: Body) -> str:
    # The API server fills it in.
    mode: str = body["spec"].get("submissionMode") or "K8sJobMode"
    return mode
