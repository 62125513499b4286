"""The rows of KubeRay's kinds (ray.io/v1): RayCluster, RayJob and RayService.

A RayJob and a RayService create a RayCluster, which creates the pods; a RayJob also a Job that submits it.
All of these belong to the Workload of the topmost one. Source: Kueue,
pkg/controller/jobs/ray{cluster,job,service}; KubeRay v1.6, ray-operator/controllers/ray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api.jobs.owners.conditions import is_true
from api.jobs.owners.paths import Body, Path, path_text, value_at
from api.jobs.owners.ray_pod_sets import (
    CLUSTER_OF_JOB,
    HEAD,
    SUBMITTER,
    cluster_pod_sets,
    groups,
    is_fault_tolerant,
    job_pod_sets,
)
from api.jobs.owners.ray_scaling import as_scaled, slice_suffixes
from api.jobs.owners.row import Child, OwnerKind, OwnerPodSet, Read
from api.jobs.pod_template import Template
from api.jobs.queued_object import JobOutcome
from api.keys import ELASTIC_JOB
from api.parsing.faults import ABSENT, FieldError

_GROUP = "ray.io"
UPDATE_GATE = "ValidateRayAndSparkJobUpdates"
# The most pod sets of a Workload.
_MOST_POD_SETS = 18
# Of the name of a RayCluster, so much is part of the names of its pods.
_LONGEST_POD_PREFIX = 50

_CLUSTER: Path = ("spec",)
_CLUSTER_OF_SERVICE: Path = ("spec", "rayClusterConfig")
# Of its cluster, and of the one that an upgrade puts in its place.
_SERVICE_STATUSES = ("activeServiceStatus", "pendingServiceStatus")


# --- status ---------------------------------------------------------------------------------------


def _cluster_active(status: Any) -> int:
    """Return 1 while a RayCluster of this status may have pods."""
    found = status or {}
    # It is no longer ready once its suspension has begun, but its pods take some time to end.
    is_ending = is_true({"status": found}, "RayClusterSuspending")
    return int(found.get("state") == "ready" or is_ending or (found.get("availableWorkerReplicas") or 0) > 0)


def _job_active(body: Body) -> int:
    # "" and Suspended are the two states of a valid RayJob without a cluster.
    state = value_at(body, ("status", "jobDeploymentStatus")) or "Suspended"
    return int(state != "Suspended" and not _is_refused(body))


def _service_active(body: Body) -> int:
    clusters = (value_at(body, ("status", one, "rayClusterStatus")) for one in _SERVICE_STATUSES)
    return int(is_true(body, "Ready") or any(map(_cluster_active, clusters)))


def _job_outcome(body: Body) -> JobOutcome | None:
    status = body.get("status") or {}
    if status.get("jobDeploymentStatus") not in ("Complete", "Failed"):
        return None
    is_success = status.get("jobStatus") == "SUCCEEDED"
    fallback = "finished successfully" if is_success else "failed"
    return JobOutcome(is_success=is_success, message=status.get("message") or fallback)


def _never_ends(_: Body) -> JobOutcome | None:
    return None


# --- what belongs to it ---------------------------------------------------------------------------


def _cluster_counts(body: Body, child: Child) -> bool:
    """Return whether KubeRay may have created a pod, or the Job that clears Redis, for this RayCluster.

    Anyone who may create pods can name any owner. There is one head, by its name. Workers have names at
    random, but KubeRay deletes those above the number of its group.
    """
    head, *workers = cluster_pod_sets(body, _CLUSTER)
    name = body["metadata"]["name"]
    if child.kind == "Job":
        return child.name == f"{name}-redis-cleanup" and _is_single(child, head.queued)
    labels: Mapping[str, str] = value_at(child.body, ("metadata", "labels")) or {}
    if child.kind != "Pod" or labels.get("ray.io/cluster") != name:
        return False
    if child.name == f"{name[:_LONGEST_POD_PREFIX]}-{HEAD}".lower():
        return child.requests_no_more(child.body, head.queued)
    group = labels.get("ray.io/group", "").lower()
    return labels.get("ray.io/node-type") == "worker" and any(
        one.name == group and child.requests_no_more(child.body, one.queued) for one in workers
    )


def _job_counts(body: Body, child: Child) -> bool:
    """Return whether KubeRay has created a RayCluster, or the Job of the submitter, for this RayJob."""
    if _uses_another_cluster(body):
        return False
    pod_sets = job_pod_sets(body)
    if child.kind == "Job":
        is_its_own = child.name == body["metadata"]["name"]
        return is_its_own and any(
            one.name == SUBMITTER and _is_single(child, one.template) for one in pod_sets
        )
    name = value_at(body, ("status", "rayClusterName"))
    return child.name == name and _is_cluster_of([one for one in pod_sets if one.name != SUBMITTER], child)


def _service_counts(body: Body, child: Child) -> bool:
    """Return whether KubeRay has created a RayCluster for this RayService, of which an upgrade has two."""
    is_named = child.name in _clusters_of_service(body)
    return is_named and _is_cluster_of(cluster_pod_sets(body, _CLUSTER_OF_SERVICE), child)


def _clusters_of_service(body: Body) -> tuple[str | None, ...]:
    return tuple(value_at(body, ("status", one, "rayClusterName")) for one in _SERVICE_STATUSES)


def _is_cluster_of(pod_sets: Sequence[OwnerPodSet], child: Child) -> bool:
    """Return whether a RayCluster has no more pods than these, which request no more."""
    if child.kind != "RayCluster":
        return False
    ours, theirs = {one.name: one for one in pod_sets}, cluster_pod_sets(child.body, _CLUSTER)
    # KubeRay tells groups apart by capitals, which names of pod sets have not.
    counts = Counter[str]()
    for one in theirs:
        counts[one.name] += one.count
    return all(
        one.name in ours
        and counts[one.name] <= ours[one.name].count
        and child.requests_no_more(one.queued, ours[one.name].queued)
        for one in theirs
    )


def _is_single(child: Child, template: Template) -> bool:
    spec = child.body["spec"]
    pods = max(spec.get("parallelism") or 1, spec.get("completions") or 1)
    return pods == 1 and child.requests_no_more(spec["template"], template)


# --- what may be queued ---------------------------------------------------------------------------


def _uses_another_cluster(body: Body) -> bool:
    # KubeRay then creates none, whatever the object says of one.
    return bool(value_at(body, ("spec", "clusterSelector")))


def _is_refused(body: Body) -> bool:
    """Return whether KubeRay finds the RayJob invalid, and has not created its cluster before."""
    status = body.get("status") or {}
    return status.get("jobDeploymentStatus") == "ValidationFailed" and not status.get("rayClusterName")


def _is_cleaning_up(body: Body) -> bool:
    """Return whether a deleted RayService waits for the Job that clears Redis: it must not be stopped."""
    is_deleted = value_at(body, ("metadata", "deletionTimestamp")) is not None
    return is_deleted and is_fault_tolerant(value_at(body, _CLUSTER_OF_SERVICE) or {}, body)


def _cluster_faults(body: Body, at: Path) -> Iterator[FieldError]:
    spec = value_at(body, at)
    annotations = value_at(body, ("metadata", "annotations")) or {}
    if spec.get("enableInTreeAutoscaling") and annotations.get(ELASTIC_JOB) != "true":
        yield FieldError(
            path=path_text((*at, "enableInTreeAutoscaling")),
            value=True,
            rule="a kueue managed job should only use autoscaling when workload slicing is enabled",
        )
    workers = groups(spec)
    if len(workers) + 1 > _MOST_POD_SETS:
        yield FieldError(
            path=path_text((*at, "workerGroupSpecs")),
            value=len(workers),
            rule=f"must be at most {_MOST_POD_SETS - 1} groups: a Workload has {_MOST_POD_SETS} pod sets, "
            "and the head is one",
        )
    for index, group in enumerate(workers):
        if group.get("groupName") == HEAD:
            yield FieldError(
                path=path_text((*at, "workerGroupSpecs", index, "groupName")),
                value=HEAD,
                rule=f'"{HEAD}" is reserved for the head group',
            )


def _job_faults(body: Body) -> Iterator[FieldError]:
    spec = body["spec"]
    has_cluster = spec.get("rayClusterSpec") is not None
    if spec.get("clusterSelector") and has_cluster:
        yield FieldError(
            path="spec.clusterSelector",
            value=spec["clusterSelector"],
            rule="a kueue managed job should not use an existing cluster",
        )
    elif not has_cluster:
        if not spec.get("clusterSelector"):
            rule = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector"
            yield FieldError(path="spec.rayClusterSpec", value=ABSENT, rule=rule)
    else:
        if not spec.get("shutdownAfterJobFinishes"):
            yield FieldError(
                path="spec.shutdownAfterJobFinishes",
                value=bool(spec.get("shutdownAfterJobFinishes")),
                rule="a kueue managed job should delete the cluster after finishing",
            )
        yield from _cluster_faults(body, CLUSTER_OF_JOB)


# --- how many workers there are -------------------------------------------------------------------


def _scaled_job(body: Body, read: Read) -> Body:
    return as_scaled(body, read, CLUSTER_OF_JOB, (value_at(body, ("status", "rayClusterName")),))


def _scaled_service(body: Body, read: Read) -> Body:
    return as_scaled(body, read, _CLUSTER_OF_SERVICE, _clusters_of_service(body))


# --- rows -----------------------------------------------------------------------------------------

RAY_CLUSTER = OwnerKind(
    kind="RayCluster",
    group=_GROUP,
    version="v1",
    plural="rayclusters",
    framework="ray.io/raycluster",
    update_gate=UPDATE_GATE,
    pod_sets=lambda body: cluster_pod_sets(body, _CLUSTER),
    active=lambda body: _cluster_active(body.get("status")),
    # It serves until it is deleted.
    outcome=_never_ends,
    are_pods_ready=lambda body: value_at(body, ("status", "state")) == "ready",
    counts=_cluster_counts,
    owns_pods=True,
    faults=lambda body: _cluster_faults(body, _CLUSTER),
    may_be_elastic=True,
)

RAY_JOB = OwnerKind(
    kind="RayJob",
    group=_GROUP,
    version="v1",
    plural="rayjobs",
    framework="ray.io/rayjob",
    update_gate=UPDATE_GATE,
    pod_sets=job_pod_sets,
    active=_job_active,
    outcome=_job_outcome,
    are_pods_ready=lambda body: value_at(body, ("status", "rayClusterStatus", "state")) == "ready",
    counts=_job_counts,
    faults=_job_faults,
    is_left_alone=_uses_another_cluster,
    is_on_hold=_is_refused,
    expand=_scaled_job,
    may_be_elastic=True,
    slice_suffixes=slice_suffixes,
)

RAY_SERVICE = OwnerKind(
    kind="RayService",
    group=_GROUP,
    version="v1",
    plural="rayservices",
    framework="ray.io/rayservice",
    update_gate=UPDATE_GATE,
    pod_sets=lambda body: cluster_pod_sets(body, _CLUSTER_OF_SERVICE),
    active=_service_active,
    outcome=_never_ends,
    are_pods_ready=lambda body: is_true(body, "Ready"),
    suspend=("spec", "rayClusterConfig", "suspend"),
    counts=_service_counts,
    faults=lambda body: _cluster_faults(body, _CLUSTER_OF_SERVICE),
    is_left_alone=_is_cleaning_up,
    # KubeRay counts its endpoints only while one of its clusters answers, so it may stay Ready once stopped.
    has_stale_status=True,
    expand=_scaled_service,
    may_be_elastic=True,
    slice_suffixes=slice_suffixes,
)
