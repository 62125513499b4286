"""Every word for why: the reasons that Berth writes into conditions, events and metrics.

The words are Kueue's, so that dashboards and alerts written for Kueue keep working.
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
    # Ours: pods run outside of the domains that their Workload was given.
    MISPLACED = "berth.dev/Misplaced"
    # Ours: whether the budgets let all pods of a group go that is evicted whole. The word is a budget's own.
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
    ON_HOLD = "OnHold"
    DEACTIVATED = "Deactivated"


class DisruptionReason(StrEnum):
    """Why the pods of a replica that is to go may be evicted, or may not (`berth.dev/DisruptionAllowed`).

    The first two are those of a PodDisruptionBudget's own condition.
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
    # Kueue has one writer and no word for it; this one is ours.
    OVER_ADMITTED = "OverAdmitted"
    # Ours: it ran ahead of a promised Workload, whose time has come.
    BACKFILL_LEASE_EXPIRED = "BackfillLeaseExpired"
    # Ours: it is in the way of an advance reservation that begins.
    RESERVATION_DUE = "ReservationDue"


class PreemptionReason(StrEnum):
    """By which right a Workload was preempted: the reason of Preempted=True."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    # Ours: it keeps its quota's worth, and has another place; a gang needs the one it has.
    CONSOLIDATION = "Consolidation"


class FinishedReason(StrEnum):
    """How a Workload ended: the reason of Finished=True."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OUT_OF_SYNC = "OutOfSync"
    OWNER_NOT_FOUND = "OwnerNotFound"
    FAILED_TO_START = "FailedToStart"


class RequeueReason(StrEnum):
    """Why a Workload may queue again: the reason of Requeued=True."""

    PREEMPTED = "Preempted"
    NODE_FAILURES = "NodeFailures"
    OVER_ADMITTED = "OverAdmitted"
    BACKFILL_LEASE_EXPIRED = "BackfillLeaseExpired"
    RESERVATION_DUE = "ReservationDue"
    BACKOFF_FINISHED = "BackoffFinished"
    REACTIVATED = "Reactivated"
    CLUSTER_QUEUE_RESTARTED = "ClusterQueueRestarted"
    LOCAL_QUEUE_RESTARTED = "LocalQueueRestarted"


class InactiveReason(StrEnum):
    """Why a ClusterQueue or LocalQueue admits nothing: the reason of Active=False."""

    TERMINATING = "Terminating"
    STOPPED = "Stopped"
    FLAVOR_NOT_FOUND = "FlavorNotFound"
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"
    ADMISSION_CHECK_NOT_FOUND = "AdmissionCheckNotFound"
    ADMISSION_CHECK_INACTIVE = "AdmissionCheckInactive"
    # Kueue leaves out such queues without a word; this one is ours.
    COHORT_CYCLE = "CohortCycle"
    UNKNOWN = "Unknown"
    CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist"
    CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive"
