"""Kubernetes' own kinds: Jobs, pods and their controllers, nodes, and the objects that limit pods."""

from __future__ import annotations

from api.objects.common import Meta, Wire, WireCondition, WireSelector, WireTaint
from api.objects.templates import WirePodSpec


class JobSpec(Wire, frozen=True):
    """The fields of Job.spec that are read."""

    # None instead of a default, so that an absent field differs from one that was set.
    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    active_deadline_seconds: int | None = None
    managed_by: str | None = None


class JobStatus(Wire, frozen=True):
    """Job.status."""

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


class NodeSpec(Wire, frozen=True):
    """Node.spec."""

    taints: tuple[WireTaint, ...] | None = None
    unschedulable: bool | None = None


class NodeStatus(Wire, frozen=True):
    """Node.status."""

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
    """core/v1 Pod."""

    metadata: Meta
    spec: WirePodSpec = WirePodSpec()
    status: PodStatus = PodStatus()


class ScaledSpec(Wire, frozen=True):
    """The number of replicas in the spec of a controller of pods."""

    replicas: int | None = None


class ScaledObject(Wire, frozen=True):
    """apps/v1 StatefulSet, or LeaderWorkerSet: the number of pods, or groups of pods, that it maintains."""

    metadata: Meta
    spec: ScaledSpec = ScaledSpec()


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """PodDisruptionBudget.spec; the number of allowed disruptions is read from the status."""

    selector: WireSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Wire, frozen=True):
    """PodDisruptionBudget.status."""

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
    """LimitRange.spec.limits[]."""

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
    """RuntimeClass.overhead."""

    pod_fixed: dict[str, str | int | float] | None = None


class RuntimeClassObject(Wire, frozen=True):
    """node.k8s.io RuntimeClass."""

    metadata: Meta
    overhead: WireOverhead | None = None
