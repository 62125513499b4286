"""The status of a Workload: the admission, its checks, and how it went."""

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
    """What one pod set was given."""

    count: Count | None = None
    """Pods that were admitted."""
    delayed_topology_request: Annotated[Literal["Pending", "Ready"], Field(max_length=7)] | None = None
    """Pending: the placement waits until the admission checks are Ready."""
    flavors: dict[str, str] | None = None
    """Flavor for each resource."""
    name: DnsLabel = "main"
    """Pod set."""
    resource_usage: dict[str, Quantity] | None = None
    """Quota charged for all pods of the set together."""
    topology_assignment: TopologyAssignment | None = None
    """Domains that the pods go to."""


class Admission(Model):
    """The quota reservation."""

    cluster_queue: DnsSubdomain | None = None
    """ClusterQueue whose quota is used."""
    pod_set_assignments: Annotated[list[PodSetAssignment], Field(max_length=18), list_map("name")] | None = (
        None
    )
    """What each pod set was given."""


class PodSetUpdate(Model):
    """What a check wants changed on pods when they start. Keys that are there already must not be changed."""

    annotations: dict[str, str] | None = None
    """Annotations to add."""
    labels: dict[str, str] | None = None
    """Labels to add."""
    name: DnsLabel
    """Pod set."""
    node_selector: dict[str, str] | None = None
    """Node labels to ask for as well."""
    tolerations: Tolerations | None = None
    """Tolerations to add."""


class AdmissionCheckState(Model):
    """Where one check stands."""

    last_transition_time: Timestamp
    """When `state` last changed."""
    message: Annotated[str, Field(max_length=32768)]
    """What a person should know about the state; may be empty."""
    name: CheckName
    """AdmissionCheck."""
    pod_set_updates: Annotated[list[PodSetUpdate], Field(max_length=18), ATOMIC] | None = None
    """Changes to the pods; fixed once the check is Ready."""
    requeue_after_seconds: Count | None = None
    """Seconds to wait after Retry."""
    retry_count: Count | None = None
    """How often the check has asked for a retry."""
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    """Ready lets the Workload start, Retry evicts it for another try, Rejected deactivates it."""


class PreemptionGateState(Model):
    """Where one preemption gate stands."""

    last_transition_time: Timestamp
    """When `position` last changed."""
    name: ShortName
    """Gate of the spec."""
    position: Literal["Closed", "Open"]
    """Closed: this Workload may not preempt others."""


class ReclaimablePods(Model):
    """Pods that no longer need their quota, because they have ended."""

    count: Count
    """Number of such pods; only grows while quota is reserved."""
    name: DnsLabel
    """Pod set."""


class RequeueState(Model):
    """Back-off after pods did not become ready in time."""

    count: Count | None = None
    """How often the Workload was evicted for that."""
    requeue_at: Timestamp | None = None
    """When it may queue again."""


class PodSetRequest(Model):
    """What a waiting pod set asks for, as it is counted."""

    name: DnsLabel
    """Pod set."""
    resources: dict[str, Quantity] | None = None
    """Requests of all pods together, with overhead, defaults and transformations."""


class EvictionCount(Model):
    """Evictions of one kind."""

    count: Count
    """How many there were."""
    reason: CauseWord
    """Reason of the Evicted condition."""
    underlying_cause: CauseWord
    """What was behind it; may be empty."""


class SchedulingStats(Model):
    """Counters of what happened to the Workload."""

    evictions: (
        Annotated[list[EvictionCount], Field(max_length=256), list_map("reason", "underlying_cause")] | None
    ) = None
    """Evictions by reason and cause."""


class UnhealthyNode(Model):
    """A node that must be replaced."""

    name: Annotated[str, Field(max_length=63)]
    """Node."""


class WorkloadStatus(Model):
    """What was given, and how it went."""

    model_config = object_rules(
        rule(
            "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
            "clusterName may be set or cleared, not changed",
        ),
        rule(
            "!has(self.clusterName) || !has(self.nominatedClusterNames) ||"
            " size(self.nominatedClusterNames) == 0",
            "clusterName and nominatedClusterNames exclude each other",
        ),
    )

    accumulated_past_execution_time_seconds: Int32 | None = None
    """Seconds admitted in earlier runs."""
    admission: Admission | None = None
    """The quota reservation. Fixed while it stands, but for the placement."""
    admission_checks: Annotated[list[AdmissionCheckState], Field(max_length=8), list_map("name")] | None = (
        None
    )
    """Where each check stands."""
    cluster_name: ClusterName | None = None
    """Worker cluster that runs the Workload."""
    conditions: Conditions | None = None
    """QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished and others."""
    nominated_cluster_names: Annotated[list[ClusterName], Field(max_length=20), ATOMIC] | None = None
    """Worker clusters that are being tried."""
    preemption_gates: Annotated[list[PreemptionGateState], Field(max_length=8), list_map("name")] | None = (
        None
    )
    """Where each preemption gate stands."""
    reclaimable_pods: Annotated[list[ReclaimablePods], Field(max_length=18), list_map("name")] | None = None
    """Pods whose quota is free already."""
    requeue_state: RequeueState | None = None
    """Back-off after pods did not become ready in time."""
    resource_requests: Annotated[list[PodSetRequest], Field(max_length=18), list_map("name")] | None = None
    """What the pods ask for, while the Workload waits."""
    scheduling_stats: SchedulingStats | None = None
    """Counters of what happened to the Workload."""
    unhealthy_nodes: Annotated[list[UnhealthyNode], Field(max_length=8), list_map("name")] | None = None
    """Nodes of the placement that must be replaced."""
