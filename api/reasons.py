"""The reasons that Berth writes into conditions, events and metrics.

They are Kueue's, so that dashboards and alerts written for Kueue keep working.
Source: Kueue's API, apis/kueue/v1beta2/workload_types.go and clusterqueue_types.go.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Condition types of a Workload."""

    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    PODS_READY = "PodsReady"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    REQUEUED = "Requeued"
    DEACTIVATION_TARGET = "DeactivationTarget"
    FINISHED = "Finished"
    WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"
    BLOCKED_ON_PREEMPTION_GATES = "BlockedOnPreemptionGates"
    # Berth's own: pods run outside of the domains that their Workload was assigned.
    MISPLACED = "berth.dev/Misplaced"
    # Berth's own: kube-scheduler finds no node for pods that were not assigned to single nodes.
    PODS_UNSCHEDULABLE = "berth.dev/PodsUnschedulable"
    # Berth's own: against which quota, and by which leader, the reservation was checked (`api.quota_check`).
    QUOTA_CHECKED = "berth.dev/QuotaChecked"
    # Berth's own: whether the budgets allow the eviction of all pods of a group. The name is that
    # of a PodDisruptionBudget's condition.
    DISRUPTION_ALLOWED = "berth.dev/DisruptionAllowed"


class PendingReason(StrEnum):
    """Why a Workload has no quota: the reason of QuotaReserved=False."""

    PENDING_EVALUATION = "PendingEvaluation"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    ADMISSION_GATED = "AdmissionGated"
    # Berth's own: Jobs that it depends on have not succeeded yet (`admission.cache.dependencies`).
    WAITING_FOR_DEPENDENCIES = "WaitingForDependencies"
    DEACTIVATED = "Deactivated"
    ON_HOLD = "OnHold"


# A Workload that waits for one of these cannot start as it is, whatever ends: it, its queue or the nodes have
# to change first.
CANNOT_START = frozenset(
    {
        PendingReason.NO_MATCHING_FLAVOR,
        PendingReason.EXCEEDS_MAX_QUOTA,
        PendingReason.TOPOLOGY_PLACEMENT_FAILED,
        PendingReason.MISCONFIGURED,
        PendingReason.DEACTIVATED,
        PendingReason.ON_HOLD,
    }
)


class DisruptionReason(StrEnum):
    """Why the pods of a replica may or may not be evicted: the reason of `berth.dev/DisruptionAllowed`.

    The first two are the reasons of a PodDisruptionBudget's own condition.
    """

    SUFFICIENT_PODS = "SufficientPods"
    INSUFFICIENT_PODS = "InsufficientPods"
    EVICTION_REFUSED = "EvictionRefused"


class EvictionReason(StrEnum):
    """Why a Workload lost its quota: the reason of Evicted=True."""

    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    ADMISSION_CHECK = "AdmissionCheck"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    NODE_FAILURES = "NodeFailures"
    DEACTIVATED = "Deactivated"
    # Berth's own: Kueue has a single writer, so it needs no such reason.
    OVER_ADMITTED = "OverAdmitted"
    # Berth's own: it was backfilled before a promised Workload, whose start is now due.
    BACKFILL_LEASE_EXPIRED = "BackfillLeaseExpired"
    # Berth's own: it uses capacity that an advance reservation needs from now on.
    RESERVATION_DUE = "ReservationDue"
    # Berth's own: kube-scheduler cannot bind its pods to the nodes that they were assigned.
    PODS_UNSCHEDULABLE = "PodsUnschedulable"
    # Berth's own: another flavor has room and is better for it, by more than the move costs.
    FLAVOR_PROMOTION = "FlavorPromotion"


class PreemptionReason(StrEnum):
    """Which rule allowed the preemption of a Workload: the reason of Preempted=True."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    # Berth's own: it moves to other nodes, with the same quota, because a gang needs its domain.
    CONSOLIDATION = "Consolidation"


class FinishedReason(StrEnum):
    """How a Workload finished: the reason of Finished=True."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OUT_OF_SYNC = "OutOfSync"
    OWNER_NOT_FOUND = "OwnerNotFound"
    FAILED_TO_START = "FailedToStart"
    SLICE_REPLACED = "WorkloadSliceReplaced"


# The reason of Requeued=False of a Workload whose requests, of devices say, cannot be counted. It queues as
# soon as they can be.
INADMISSIBLE = "Inadmissible"


class RequeueReason(StrEnum):
    """Why a Workload may be queued again: the reason of Requeued=True."""

    PREEMPTED = "Preempted"
    NODE_FAILURES = "NodeFailures"
    OVER_ADMITTED = "OverAdmitted"
    BACKFILL_LEASE_EXPIRED = "BackfillLeaseExpired"
    RESERVATION_DUE = "ReservationDue"
    PODS_UNSCHEDULABLE = "PodsUnschedulable"
    FLAVOR_PROMOTION = "FlavorPromotion"
    BACKOFF_FINISHED = "BackoffFinished"
    REACTIVATED = "Reactivated"
    CLUSTER_QUEUE_RESTARTED = "ClusterQueueRestarted"
    LOCAL_QUEUE_RESTARTED = "LocalQueueRestarted"


class InactiveReason(StrEnum):
    """Why a ClusterQueue or LocalQueue admits no Workload: the reason of Active=False."""

    TERMINATING = "Terminating"
    STOPPED = "Stopped"
    FLAVOR_NOT_FOUND = "FlavorNotFound"
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"
    ADMISSION_CHECK_NOT_FOUND = "AdmissionCheckNotFound"
    ADMISSION_CHECK_INACTIVE = "AdmissionCheckInactive"
    MULTIPLE_MULTIKUEUE_CHECKS = "MultipleMultiKueueAdmissionChecks"
    MULTIKUEUE_CHECK_PER_FLAVOR = "MultiKueueAdmissionCheckAppliedPerFlavor"
    MULTIKUEUE_WITH_PROVISIONING_REQUEST = "MultiKueueWithProvisioningRequest"
    # Berth's own: Kueue ignores such queues without a condition.
    COHORT_CYCLE = "CohortCycle"
    UNKNOWN = "Unknown"
    CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist"
    CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive"


PREEMPTION_GATED = "Workload requires preemption, but it's gated"
"""Why a Workload waits whose preemption gates hold back the evictions that it needs, in Kueue's words."""
