"""Kubernetes' own kinds: Jobs, pods and their controllers, nodes, and the objects that limit pods."""

from __future__ import annotations

from typing import Any

import msgspec

from api.objects.common import Meta, Wire, WireCondition, WireSelector, WireTaint
from api.objects.templates import WirePodSpec


class JobSpec(Wire, frozen=True):
    """The fields of Job.spec that are read.

    None means absent: the API server fills in `parallelism` 1 and `completionMode` NonIndexed, and absent
    `completions` with a parallelism mean that any success ends the Job. `managed_by` names the controller of
    the Job if it is not the built-in one. The Job controller owns the pods that `selector` matches.
    """

    # None instead of a default, so that an absent field differs from one that was set.
    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    active_deadline_seconds: int | None = None
    managed_by: str | None = None
    selector: WireSelector | None = None


class JobStatus(Wire, frozen=True):
    """Job.status.

    Counts of pods; None counts as 0. The indexes are texts such as "1,3-5". Pods in `uncountedTerminatedPods`
    have ended and are not yet part of `succeeded`.
    """

    active: int | None = None
    ready: int | None = None
    succeeded: int | None = None
    terminating: int | None = None
    start_time: str | None = None
    completed_indexes: str | None = None
    failed_indexes: str | None = None
    uncounted_terminated_pods: dict[str, list[str]] | None = None
    conditions: tuple[WireCondition, ...] | None = None


class JobObject(Wire, frozen=True):
    """batch/v1 Job."""

    metadata: Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class OwnerObject(msgspec.Struct, gc=False, frozen=True):
    """An object of a kind of `api.jobs.owners`, whose spec and status its row reads."""

    metadata: Meta
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class NodeSpec(Wire, frozen=True):
    """Node.spec."""

    taints: tuple[WireTaint, ...] | None = None
    unschedulable: bool | None = None


class NodeStatus(Wire, frozen=True):
    """Node.status.

    `allocatable` holds quantities as they are written, by resource.
    """

    allocatable: dict[str, str | int | float] | None = None
    conditions: tuple[WireCondition, ...] | None = None


class NodeObject(Wire, frozen=True):
    """core/v1 Node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PodStatus(Wire, frozen=True):
    """Pod.status."""

    phase: str = "Pending"
    message: str = ""
    conditions: tuple[WireCondition, ...] | None = None


class PodObject(Wire, frozen=True):
    """core/v1 Pod.

    Partial: of the containers only what requests and scheduling need (`api.objects.templates`).
    """

    metadata: Meta
    spec: WirePodSpec = WirePodSpec()
    status: PodStatus = PodStatus()


class ScaledSpec(Wire, frozen=True):
    """The number of replicas in the spec of a controller of pods.

    An absent number means 1, which is the API server's default.
    """

    replicas: int | None = None


class ScaledObject(Wire, frozen=True):
    """LeaderWorkerSet: the number of groups of pods that it maintains."""

    metadata: Meta
    spec: ScaledSpec = ScaledSpec()


class TemplateOfSet(Wire, frozen=True):
    """StatefulSet.spec.template. Partial: its metadata says how the pods are queued."""

    metadata: Meta | None = None


class StatefulSetSpec(Wire, frozen=True):
    """StatefulSet.spec. An absent number of replicas means 1, which is the API server's default."""

    replicas: int | None = None
    template: TemplateOfSet | None = None


class StatefulSetObject(Wire, frozen=True):
    """apps/v1 StatefulSet."""

    metadata: Meta
    spec: StatefulSetSpec = StatefulSetSpec()


class PodGroupSpec(Wire, frozen=True):
    """PodGroup.spec. The values may have any type: `api.jobs.gang` names those that are wrong."""

    min_member: object = None
    min_available: object = None
    schedule_timeout_seconds: object = None


class PodGroupObject(Wire, frozen=True):
    """scheduling.x-k8s.io PodGroup of the scheduler-plugins project."""

    metadata: Meta
    spec: PodGroupSpec | None = None


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """PodDisruptionBudget.spec; the number of allowed disruptions is read from the status.

    `unhealthy_pod_eviction_policy` is "" where absent, which means IfHealthyBudget.
    """

    selector: WireSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Wire, frozen=True):
    """PodDisruptionBudget.status.

    The counts belong to the spec of `observed_generation`; the disruption controller updates them after each
    change of a pod.
    """

    current_healthy: int = 0
    desired_healthy: int = 0
    disruptions_allowed: int = 0
    observed_generation: int = 0


class PodDisruptionBudgetObject(Wire, frozen=True):
    """policy/v1 PodDisruptionBudget."""

    metadata: Meta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class NamespaceObject(Wire, frozen=True):
    """core/v1 Namespace."""

    metadata: Meta


class LimitRangeItem(Wire, frozen=True):
    """LimitRange.spec.limits[].

    Quantities by resource. `type` is Container, Pod or PersistentVolumeClaim; only the first two concern
    Workloads.
    """

    type: str = "Container"
    default: dict[str, str | int | float] | None = None
    default_request: dict[str, str | int | float] | None = None
    min: dict[str, str | int | float] | None = None
    max: dict[str, str | int | float] | None = None


class LimitRangeSpec(Wire, frozen=True):
    """LimitRange.spec."""

    limits: tuple[LimitRangeItem, ...] | None = None


class LimitRangeObject(Wire, frozen=True):
    """core/v1 LimitRange."""

    metadata: Meta
    spec: LimitRangeSpec = LimitRangeSpec()


class WireOverhead(Wire, frozen=True):
    """RuntimeClass.overhead.

    What a pod of the class uses beside its containers, as quantities.
    """

    pod_fixed: dict[str, str | int | float] | None = None


class RuntimeClassObject(Wire, frozen=True):
    """node.k8s.io RuntimeClass."""

    metadata: Meta
    overhead: WireOverhead | None = None
