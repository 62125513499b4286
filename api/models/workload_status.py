"""The status of a Workload: the admission, its checks, and the observed state."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import (
    CheckName,
    Conditions,
    Count,
    DnsLabel,
    DnsSubdomain,
    Int32,
    Model,
    Quantity,
    Timestamp,
    Tolerations,
)
from api.models.markers import ATOMIC, list_map, object_rules, rule
from api.models.topology_assignment import TopologyAssignment

ClusterName = Annotated[str, Field(max_length=256)]
ShortName = Annotated[str, Field(min_length=1, max_length=63)]
CauseWord = Annotated[str, Field(max_length=316)]


class PodSetAssignment(Model):
    """What one pod set was assigned."""

    count: Count | None = None
    """Number of pods that were admitted."""
    delayed_topology_request: Annotated[Literal["Pending", "Ready"], Field(max_length=7)] | None = None
    """Pending: the placement is decided once the admission checks are Ready."""
    flavors: dict[str, str] | None = None
    """Flavor for each resource."""
    name: DnsLabel = "main"
    """Pod set."""
    resource_usage: dict[str, Quantity] | None = None
    """Quota charged for all pods of the set together."""
    topology_assignment: TopologyAssignment | None = None
    """Domains in which the pods run."""


class Admission(Model):
    """The quota reservation."""

    cluster_queue: DnsSubdomain | None = None
    """ClusterQueue whose quota is used."""
    pod_set_assignments: Annotated[list[PodSetAssignment], Field(max_length=18), list_map("name")] | None = (
        None
    )
    """What each pod set was assigned."""


class PodSetUpdate(Model):
    """Changes that a check makes to the pods when they start. Keys that already exist must not be changed."""

    annotations: dict[str, str] | None = None
    """Annotations to add."""
    labels: dict[str, str] | None = None
    """Labels to add."""
    name: DnsLabel
    """Pod set."""
    node_selector: dict[str, str] | None = None
    """Entries to add to the node selector."""
    tolerations: Tolerations | None = None
    """Tolerations to add."""


class AdmissionCheckState(Model):
    """Observed state of one check."""

    last_transition_time: Timestamp
    """When `state` last changed."""
    message: Annotated[str, Field(max_length=32768)]
    """Human-readable details about the state; may be empty."""
    name: CheckName
    """Name of the AdmissionCheck."""
    pod_set_updates: Annotated[list[PodSetUpdate], Field(max_length=18), ATOMIC] | None = None
    """Changes to the pods; immutable once the check is Ready."""
    requeue_after_seconds: Count | None = None
    """Seconds to wait after Retry."""
    retry_count: Count | None = None
    """Number of times the check has requested a retry."""
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    """Ready: the Workload may start. Retry: it is evicted and queued again. Rejected: it is deactivated."""


class PreemptionGateState(Model):
    """Observed state of one preemption gate."""

    last_transition_time: Timestamp
    """When `position` last changed."""
    name: ShortName
    """Gate of the spec."""
    position: Literal["Closed", "Open"]
    """Closed: this Workload may not preempt others."""


class ReclaimablePods(Model):
    """Pods that no longer need their quota because they have finished."""

    count: Count
    """Number of such pods; it can only grow while quota is reserved."""
    name: DnsLabel
    """Pod set."""


class RequeueState(Model):
    """Back-off after the pods did not become ready in time."""

    count: Count | None = None
    """Number of evictions for that reason."""
    requeue_at: Timestamp | None = None
    """When the Workload may be queued again."""


class PodSetRequest(Model):
    """Resources that a pending pod set requests, as they are counted against quota."""

    name: DnsLabel
    """Pod set."""
    resources: dict[str, Quantity] | None = None
    """Requests of all pods together, including overhead, defaults and transformations."""


class EvictionCount(Model):
    """Number of evictions with one reason and cause."""

    count: Count
    """Number of evictions."""
    reason: CauseWord
    """Reason of the Evicted condition."""
    underlying_cause: CauseWord
    """More detailed cause; may be empty."""


class SchedulingStats(Model):
    """Counters of scheduling events of the Workload."""

    evictions: (
        Annotated[list[EvictionCount], Field(max_length=256), list_map("reason", "underlying_cause")] | None
    ) = None
    """Evictions by reason and cause."""


class UnhealthyNode(Model):
    """A node that must be replaced."""

    name: Annotated[str, Field(max_length=63)]
    """Name of the node."""


class WorkloadStatus(Model):
    """Assigned quota, and the observed state."""

    model_config = object_rules(
        rule(
            "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
            "clusterName is immutable once set",
        ),
        rule(
            "!has(self.clusterName) || !has(self.nominatedClusterNames) ||"
            " size(self.nominatedClusterNames) == 0",
            "clusterName and nominatedClusterNames are mutually exclusive",
        ),
    )

    accumulated_past_execution_time_seconds: Int32 | None = None
    """Seconds for which the Workload was admitted in earlier runs."""
    admission: Admission | None = None
    """The quota reservation. Immutable while it exists, except for the placement."""
    admission_checks: Annotated[list[AdmissionCheckState], Field(max_length=8), list_map("name")] | None = (
        None
    )
    """Observed state of each check."""
    cluster_name: ClusterName | None = None
    """Worker cluster that runs the Workload."""
    conditions: Conditions | None = None
    """QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished and others."""
    nominated_cluster_names: Annotated[list[ClusterName], Field(max_length=20), ATOMIC] | None = None
    """Worker clusters that may still be chosen."""
    preemption_gates: Annotated[list[PreemptionGateState], Field(max_length=8), list_map("name")] | None = (
        None
    )
    """Observed state of each preemption gate."""
    reclaimable_pods: Annotated[list[ReclaimablePods], Field(max_length=18), list_map("name")] | None = None
    """Pods whose quota is already released."""
    requeue_state: RequeueState | None = None
    """Back-off after the pods did not become ready in time."""
    resource_requests: Annotated[list[PodSetRequest], Field(max_length=18), list_map("name")] | None = None
    """Resources that the pods request, while the Workload is pending."""
    scheduling_stats: SchedulingStats | None = None
    """Counters of scheduling events of the Workload."""
    unhealthy_nodes: Annotated[list[UnhealthyNode], Field(max_length=8), list_map("name")] | None = None
    """Nodes of the placement that must be replaced."""
