"""Kueue's kinds that an administrator creates: queues, cohorts, flavors, topologies, checks, priorities."""

from __future__ import annotations

from typing import Any

import msgspec

from api.objects.common import Meta, Wire, WireCondition, WireSelector, WireTaint, WireToleration


class WireResourceQuota(Wire, frozen=True):
    """resourceGroups[].flavors[].resources[].

    Quantities as they are written; absent limits mean no limit.
    """

    name: str
    # Quantities stay as they were written: "1k" and 1000 are the same amount,
    # and api.parsing.quantities parses them.
    nominal_quota: str | int | float
    borrowing_limit: str | int | float | None = None
    lending_limit: str | int | float | None = None


class WireFlavorQuotas(Wire, frozen=True):
    """resourceGroups[].flavors[]."""

    name: str
    resources: tuple[WireResourceQuota, ...] = ()


class WireResourceGroup(Wire, frozen=True):
    """resourceGroups[].

    Each flavor has a quota for each of the covered resources, in the same order. A resource belongs to one
    group at most.
    """

    covered_resources: tuple[str, ...] = ()
    flavors: tuple[WireFlavorQuotas, ...] = ()


class WireFungibility(Wire, frozen=True):
    """flavorFungibility; v1beta1's values Borrow and Preempt are converted before."""

    when_can_borrow: str | None = None
    when_can_preempt: str | None = None
    preference: str | None = None


class WireBorrowWithinCohort(Wire, frozen=True):
    """preemption.borrowWithinCohort."""

    policy: str | None = None
    max_priority_threshold: int | None = None


class WirePreemption(Wire, frozen=True):
    """spec.preemption.

    Absent policies mean Never.
    """

    reclaim_within_cohort: str | None = None
    borrow_within_cohort: WireBorrowWithinCohort | None = None
    within_cluster_queue: str | None = None


class WireCheckRule(Wire, frozen=True):
    """admissionChecksStrategy.admissionChecks[].

    Without `on_flavors` the check applies whatever flavors a Workload gets.
    """

    name: str
    on_flavors: tuple[str, ...] | None = None


class WireChecksStrategy(Wire, frozen=True):
    """admissionChecksStrategy."""

    admission_checks: tuple[WireCheckRule, ...] | None = None


class WireFairSharing(Wire, frozen=True):
    """spec.fairSharing.

    An absent weight means 1. A weight of 0 gives an infinite share to a queue that borrows.
    """

    weight: str | int | float | None = None


class WireAdmissionScope(Wire, frozen=True):
    """spec.admissionScope."""

    admission_mode: str = "NoAdmissionFairSharing"


class ClusterQueueSpec(Wire, frozen=True):
    """ClusterQueue.spec.

    Absent fields have Kueue's defaults, which `api.specs` fills in. The namespace selector is an exception:
    without one no namespace is selected.
    """

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
    """kueue.x-k8s.io ClusterQueue.

    The status is kept as bytes, because only its writer needs it.
    """

    metadata: Meta
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: msgspec.Raw = msgspec.Raw(b"{}")


class CohortSpec(Wire, frozen=True):
    """Cohort.spec.

    Without a parent the Cohort is the root of its tree. Its own quota is shared by all ClusterQueues below
    it.
    """

    parent_name: str | None = None
    resource_groups: tuple[WireResourceGroup, ...] | None = None
    fair_sharing: WireFairSharing | None = None


class CohortObject(Wire, frozen=True):
    """kueue.x-k8s.io Cohort."""

    metadata: Meta
    spec: CohortSpec = CohortSpec()
    status: msgspec.Raw = msgspec.Raw(b"{}")


class LocalQueueSpec(Wire, frozen=True):
    """LocalQueue.spec.

    The ClusterQueue need not exist; Workloads wait until it does.
    """

    cluster_queue: str = ""
    stop_policy: str | None = None
    fair_sharing: WireFairSharing | None = None


class LocalQueueObject(Wire, frozen=True):
    """kueue.x-k8s.io LocalQueue."""

    metadata: Meta
    spec: LocalQueueSpec = LocalQueueSpec()
    status: msgspec.Raw = msgspec.Raw(b"{}")


class ResourceFlavorSpec(Wire, frozen=True):
    """ResourceFlavor.spec.

    `node_labels` select the nodes of the flavor, `tolerations` are added to the pods that use it.
    """

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
    """Topology.spec.

    Levels from the widest to the narrowest, each a node label.
    """

    levels: tuple[TopologyLevel, ...] = ()


class TopologyObject(Wire, frozen=True):
    """kueue.x-k8s.io Topology."""

    metadata: Meta
    spec: TopologySpec = TopologySpec()


class ConditionsStatus(Wire, frozen=True):
    """A status of which only the conditions are read."""

    conditions: tuple[WireCondition, ...] | None = None


class WireCheckParameters(Wire, frozen=True):
    """AdmissionCheck.spec.parameters."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class AdmissionCheckSpec(Wire, frozen=True):
    """AdmissionCheck.spec."""

    controller_name: str = ""
    parameters: WireCheckParameters | None = None


class AdmissionCheckObject(Wire, frozen=True):
    """kueue.x-k8s.io AdmissionCheck."""

    metadata: Meta
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: ConditionsStatus | None = None


class PriorityClassObject(Wire, frozen=True):
    """WorkloadPriorityClass and scheduling.k8s.io PriorityClass.

    A higher value goes first. Only a PriorityClass can be the global default.
    """

    metadata: Meta
    value: int = 0
    global_default: bool | None = None
