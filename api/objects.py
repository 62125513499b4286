"""Hot reads: the wanted fields of the objects that Berth watches, as msgspec structs.

An informer decodes tens of thousands of these. A partial struct costs 4-9 us where a dict costs 60 and a
pydantic model over 100, and it frees the garbage collector of the object (gc=False: they hold no cycles).
Fields that Berth does not read are skipped; writes are built from the object's bytes, so nothing is lost.
Explicit nulls are read as absent, as Kubernetes does. Values for the core are made in `api.workload`,
`api.queueing`, `api.job` and `api.node`.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Wire(msgspec.Struct, rename="camel", gc=False, frozen=True, omit_defaults=True):
    """The base of all wire structs: camelCase names, frozen."""


class OwnerReference(Wire, frozen=True):
    """metadata.ownerReferences[]."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Wire, frozen=True):
    """metadata, as far as it is read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None


class WireCondition(Wire, frozen=True):
    """status.conditions[] of any kind."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class NamedObject(Wire, frozen=True):
    """An object of which only the metadata is read (Namespace, LocalQueue owners, ...)."""

    metadata: Meta


class WireSelectorRequirement(Wire, frozen=True):
    """A label selector's expression: operator In, NotIn, Exists, DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class WireSelector(Wire, frozen=True):
    """metav1.LabelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[WireSelectorRequirement, ...] | None = None


class WireToleration(Wire, frozen=True):
    """core/v1 Toleration."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class WireTaint(Wire, frozen=True):
    """core/v1 Taint."""

    key: str
    effect: str
    value: str = ""


# --- pod templates -------------------------------------------------------------------------------


class WireResources(Wire, frozen=True):
    """resources of a container or of a pod. Quantities stay text or number until they are summed."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None
    claims: tuple[dict[str, Any], ...] | None = None


class WireContainer(Wire, frozen=True):
    """A container as far as scheduling cares."""

    name: str = ""
    image: str = ""
    resources: WireResources | None = None
    restart_policy: str | None = None


class WireNodeSelectorTerm(Wire, frozen=True):
    """One term of required node affinity; terms are alternatives, expressions within one all hold."""

    match_expressions: tuple[WireSelectorRequirement, ...] | None = None
    match_fields: tuple[WireSelectorRequirement, ...] | None = None


class WireNodeSelector(Wire, frozen=True):
    """requiredDuringSchedulingIgnoredDuringExecution."""

    node_selector_terms: tuple[WireNodeSelectorTerm, ...] | None = None


class WireNodeAffinity(Wire, frozen=True):
    """affinity.nodeAffinity; preferred terms do not bind, they are not read."""

    required_during_scheduling_ignored_during_execution: WireNodeSelector | None = None


class WireAffinity(Wire, frozen=True):
    """affinity."""

    node_affinity: WireNodeAffinity | None = None


class WirePodSpec(Wire, frozen=True):
    """spec of a pod or of a pod template, as far as it is read."""

    containers: tuple[WireContainer, ...] | None = None
    init_containers: tuple[WireContainer, ...] | None = None
    resources: WireResources | None = None
    overhead: dict[str, str | int | float] | None = None
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    node_selector: dict[str, str] | None = None
    node_name: str | None = None
    affinity: WireAffinity | None = None
    tolerations: tuple[WireToleration, ...] | None = None
    scheduling_gates: tuple[dict[str, str], ...] | None = None
    resource_claims: tuple[dict[str, Any], ...] | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None


class WirePodTemplate(Wire, frozen=True):
    """core/v1 PodTemplateSpec."""

    metadata: Meta | None = None
    spec: WirePodSpec | None = None


# --- Kueue's kinds -------------------------------------------------------------------------------


class WireResourceQuota(Wire, frozen=True):
    """resourceGroups[].flavors[].resources[]."""

    name: str
    nominal_quota: str | int | float
    borrowing_limit: str | int | float | None = None
    lending_limit: str | int | float | None = None


class WireFlavorQuotas(Wire, frozen=True):
    """resourceGroups[].flavors[]."""

    name: str
    resources: tuple[WireResourceQuota, ...] = ()


class WireResourceGroup(Wire, frozen=True):
    """resourceGroups[]."""

    covered_resources: tuple[str, ...] = ()
    flavors: tuple[WireFlavorQuotas, ...] = ()


class WireFungibility(Wire, frozen=True):
    """flavorFungibility; v1beta1's words Borrow and Preempt are converted before."""

    when_can_borrow: str | None = None
    when_can_preempt: str | None = None
    preference: str | None = None


class WireBorrowWithinCohort(Wire, frozen=True):
    """preemption.borrowWithinCohort."""

    policy: str | None = None
    max_priority_threshold: int | None = None


class WirePreemption(Wire, frozen=True):
    """spec.preemption."""

    reclaim_within_cohort: str | None = None
    borrow_within_cohort: WireBorrowWithinCohort | None = None
    within_cluster_queue: str | None = None


class WireCheckRule(Wire, frozen=True):
    """admissionChecksStrategy.admissionChecks[]."""

    name: str
    on_flavors: tuple[str, ...] | None = None


class WireChecksStrategy(Wire, frozen=True):
    """admissionChecksStrategy."""

    admission_checks: tuple[WireCheckRule, ...] | None = None


class WireFairSharing(Wire, frozen=True):
    """spec.fairSharing."""

    weight: str | int | float | None = None


class WireAdmissionScope(Wire, frozen=True):
    """spec.admissionScope."""

    admission_mode: str = "NoAdmissionFairSharing"


class ClusterQueueSpec(Wire, frozen=True):
    """ClusterQueue.spec."""

    cohort_name: str | None = None
    resource_groups: tuple[WireResourceGroup, ...] | None = None
    queueing_strategy: str | None = None
    namespace_selector: WireSelector | None = None
    flavor_fungibility: WireFungibility | None = None
    preemption: WirePreemption | None = None
    admission_checks_strategy: WireChecksStrategy | None = None
    stop_policy: str | None = None
    fair_sharing: WireFairSharing | None = None
    admission_scope: WireAdmissionScope | None = None
    concurrent_admission_policy: dict[str, Any] | None = None


class ClusterQueueObject(Wire, frozen=True):
    """kueue.x-k8s.io ClusterQueue."""

    metadata: Meta
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: msgspec.Raw = msgspec.Raw(b"{}")


class CohortSpec(Wire, frozen=True):
    """Cohort.spec."""

    parent_name: str | None = None
    resource_groups: tuple[WireResourceGroup, ...] | None = None
    fair_sharing: WireFairSharing | None = None


class CohortObject(Wire, frozen=True):
    """kueue.x-k8s.io Cohort."""

    metadata: Meta
    spec: CohortSpec = CohortSpec()
    status: msgspec.Raw = msgspec.Raw(b"{}")


class LocalQueueSpec(Wire, frozen=True):
    """LocalQueue.spec."""

    cluster_queue: str = ""
    stop_policy: str | None = None
    fair_sharing: WireFairSharing | None = None


class LocalQueueObject(Wire, frozen=True):
    """kueue.x-k8s.io LocalQueue."""

    metadata: Meta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: msgspec.Raw = msgspec.Raw(b"{}")


class ResourceFlavorSpec(Wire, frozen=True):
    """ResourceFlavor.spec."""

    node_labels: dict[str, str] | None = None
    node_taints: tuple[WireTaint, ...] | None = None
    tolerations: tuple[WireToleration, ...] | None = None
    topology_name: str | None = None


class ResourceFlavorObject(Wire, frozen=True):
    """kueue.x-k8s.io ResourceFlavor."""

    metadata: Meta
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class TopologyLevel(Wire, frozen=True):
    """Topology.spec.levels[]."""

    node_label: str


class TopologySpec(Wire, frozen=True):
    """Topology.spec."""

    levels: tuple[TopologyLevel, ...] = ()


class TopologyObject(Wire, frozen=True):
    """kueue.x-k8s.io Topology."""

    metadata: Meta
    spec: TopologySpec = TopologySpec()


class ConditionsStatus(Wire, frozen=True):
    """A status of which only the conditions are read."""

    conditions: tuple[WireCondition, ...] | None = None


class AdmissionCheckSpec(Wire, frozen=True):
    """AdmissionCheck.spec."""

    controller_name: str = ""


class AdmissionCheckObject(Wire, frozen=True):
    """kueue.x-k8s.io AdmissionCheck."""

    metadata: Meta
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: ConditionsStatus | None = None


class PriorityClassObject(Wire, frozen=True):
    """WorkloadPriorityClass and scheduling.k8s.io PriorityClass."""

    metadata: Meta
    value: int = 0
    global_default: bool | None = None


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
    """podSets[].topologyRequest."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None
    pod_set_group_name: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None
    # The wire name has a lower-case s here, in Kueue's own types.
    podset_slice_required_topology_constraints: tuple[WireSliceConstraint, ...] | None = None


class WirePodSet(Wire, frozen=True):
    """Workload.spec.podSets[]. The template is parsed when the spec is new, not at every status change."""

    template: msgspec.Raw
    name: str = "main"
    count: int = 1
    min_count: int | None = None
    topology_request: WireTopologyRequest | None = None


class WorkloadSpec(Wire, frozen=True):
    """Workload.spec."""

    pod_sets: tuple[WirePodSet, ...] | None = None
    queue_name: str | None = None
    priority: int | None = None
    priority_class_ref: WirePriorityClassRef | None = None
    active: bool | None = None
    maximum_execution_time_seconds: int | None = None
    preemption_gates: tuple[dict[str, str], ...] | None = None


class WireSlice(Wire, frozen=True):
    """topologyAssignment.slices[]."""

    domain_count: int
    pod_counts: dict[str, Any]
    values_per_level: tuple[dict[str, Any], ...]


class WireTopologyAssignment(Wire, frozen=True):
    """podSetAssignments[].topologyAssignment."""

    levels: tuple[str, ...]
    slices: tuple[WireSlice, ...]


class WirePodSetAssignment(Wire, frozen=True):
    """status.admission.podSetAssignments[]."""

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
    """status.admissionChecks[].podSetUpdates[], as far as it says which nodes the pods may use."""

    name: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: tuple[WireToleration, ...] | None = None


class WireCheckState(Wire, frozen=True):
    """status.admissionChecks[]."""

    name: str
    state: str = "Pending"
    message: str = ""
    last_transition_time: str | None = None
    pod_set_updates: tuple[dict[str, Any], ...] | None = None
    requeue_after_seconds: int | None = None
    retry_count: int | None = None


class WireRequeueState(Wire, frozen=True):
    """status.requeueState."""

    count: int | None = None
    requeue_at: str | None = None


class WireEvictionCount(Wire, frozen=True):
    """status.schedulingStats.evictions[]."""

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


class WireNamed(Wire, frozen=True):
    """A list member of which only the name is read."""

    name: str


class WirePreemptionGate(Wire, frozen=True):
    """status.preemptionGates[]."""

    name: str
    position: str = "Closed"


class WorkloadStatus(Wire, frozen=True):
    """Workload.status."""

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


# --- Kubernetes' own kinds -----------------------------------------------------------------------


class JobSpec(Wire, frozen=True):
    """Job.spec as far as it is read; the template stays bytes until it is needed."""

    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    active_deadline_seconds: int | None = None
    managed_by: str | None = None
    template: msgspec.Raw = msgspec.Raw(b"{}")


class JobStatus(Wire, frozen=True):
    """Job.status."""

    active: int | None = None
    ready: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    terminating: int | None = None
    start_time: str | None = None
    completion_time: str | None = None
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
    """spec of a StatefulSet, as far as it says how many pods there are to be."""

    replicas: int | None = None


class ScaledObject(Wire, frozen=True):
    """apps/v1 StatefulSet: how many pods it keeps up."""

    metadata: Meta
    spec: ScaledSpec = ScaledSpec()


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """PodDisruptionBudget.spec; what may be taken is read from the status."""

    selector: WireSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    """PodDisruptionBudget.status."""

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
