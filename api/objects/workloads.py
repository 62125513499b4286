"""Kueue's Workload: spec and status."""

from __future__ import annotations

from typing import Any

import msgspec

from api.objects.common import Meta, Wire, WireCondition, WireToleration


class WirePriorityClassRef(Wire, frozen=True):
    """Workload.spec.priorityClassRef."""

    group: str = ""
    kind: str = ""
    name: str = ""


class WireSliceConstraint(Wire, frozen=True):
    """topologyRequest.podsetSliceRequiredTopologyConstraints[]."""

    topology: str
    size: int


class WireTopologyRequest(Wire, frozen=True):
    """podSets[].topologyRequest.

    `required` and `preferred` name a level by its node label. The two slice fields are the older form of a
    list with one layer.
    """

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None
    pod_set_group_name: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None
    # Kueue writes this one with a lower-case s.
    podset_slice_required_topology_constraints: tuple[WireSliceConstraint, ...] | None = None


class WirePodSet(Wire, frozen=True):
    """Workload.spec.podSets[].

    The template is decoded only when the spec is new, not on every status change.

    Without `min_count` the pod set is admitted with all of its pods or not at all.
    """

    template: msgspec.Raw
    name: str = "main"
    count: int = 1
    min_count: int | None = None
    topology_request: WireTopologyRequest | None = None


class WireNamed(Wire, frozen=True):
    """A list entry of which only the name is read."""

    name: str


class WorkloadSpec(Wire, frozen=True):
    """Workload.spec.

    Absent `active` means true. `priority` is filled in from the priority class when the Workload is created.
    """

    pod_sets: tuple[WirePodSet, ...] | None = None
    queue_name: str | None = None
    priority: int | None = None
    priority_class_ref: WirePriorityClassRef | None = None
    active: bool | None = None
    maximum_execution_time_seconds: int | None = None
    preemption_gates: tuple[WireNamed, ...] | None = None


class WireSlice(Wire, frozen=True):
    """topologyAssignment.slices[].

    A run of `domain_count` domains in compact form. `pod_counts` holds `universal`, one number for all, or
    `individual`, one for each; `values_per_level` likewise for the values of each level, where individual
    values share a prefix and a suffix.
    """

    domain_count: int
    pod_counts: dict[str, Any]
    values_per_level: tuple[dict[str, Any], ...]


class WireTopologyAssignment(Wire, frozen=True):
    """podSetAssignments[].topologyAssignment."""

    levels: tuple[str, ...]
    slices: tuple[WireSlice, ...]


class WirePodSetAssignment(Wire, frozen=True):
    """status.admission.podSetAssignments[].

    `resource_usage` is for all pods of the pod set together. `count` is lower than that of the spec after
    partial admission.
    """

    name: str = "main"
    flavors: dict[str, str] | None = None
    resource_usage: dict[str, str | int | float] | None = None
    count: int | None = None
    topology_assignment: WireTopologyAssignment | None = None
    delayed_topology_request: str | None = None


class WireAdmission(Wire, frozen=True):
    """status.admission."""

    cluster_queue: str
    pod_set_assignments: tuple[WirePodSetAssignment, ...] | None = None


class WirePodSetUpdate(Wire, frozen=True):
    """The fields of status.admissionChecks[].podSetUpdates[] that restrict the nodes of the pods."""

    name: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: tuple[WireToleration, ...] | None = None


class WireCheckState(Wire, frozen=True):
    """status.admissionChecks[].

    `state` is Pending, Ready, Retry or Rejected. It is written by the controller of the check.
    """

    name: str
    state: str = "Pending"
    message: str = ""
    last_transition_time: str | None = None
    pod_set_updates: tuple[dict[str, Any], ...] | None = None
    requeue_after_seconds: int | None = None
    retry_count: int | None = None


class WireRequeueState(Wire, frozen=True):
    """status.requeueState.

    `count` is how often it has been requeued after its pods did not become ready, `requeue_at` an RFC 3339
    text before which it is not tried.
    """

    count: int | None = None
    requeue_at: str | None = None


class WireEvictionCount(Wire, frozen=True):
    """status.schedulingStats.evictions[].

    Counted since the Workload was created.
    """

    reason: str = ""
    underlying_cause: str = ""
    count: int = 0


class WireSchedulingStats(Wire, frozen=True):
    """status.schedulingStats."""

    evictions: tuple[WireEvictionCount, ...] | None = None


class WireNamedCount(Wire, frozen=True):
    """status.reclaimablePods[]."""

    name: str
    count: int


class WirePreemptionGate(Wire, frozen=True):
    """status.preemptionGates[]."""

    name: str
    position: str = "Closed"


class WorkloadStatus(Wire, frozen=True):
    """Workload.status.

    The Workload holds quota if it has an admission and the condition QuotaReserved is True; either alone is a
    state in between. Fields that Berth does not read are kept in the object's bytes.
    """

    admission: WireAdmission | None = None
    conditions: tuple[WireCondition, ...] | None = None
    admission_checks: tuple[WireCheckState, ...] | None = None
    requeue_state: WireRequeueState | None = None
    reclaimable_pods: tuple[WireNamedCount, ...] | None = None
    unhealthy_nodes: tuple[WireNamed, ...] | None = None
    preemption_gates: tuple[WirePreemptionGate, ...] | None = None
    accumulated_past_execution_time_seconds: int | None = None
    scheduling_stats: WireSchedulingStats | None = None


class WorkloadObject(Wire, frozen=True):
    """kueue.x-k8s.io Workload."""

    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
