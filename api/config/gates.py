"""Kueue's feature gates that Berth does not switch: which of their two values holds in Berth.

A gate that a file sets to what holds anyway says nothing. Set to the other value it has no effect, and the
log says what holds instead. Gates that Berth acts upon are in `api.config.loading.ACTED_UPON`.
Source: Kueue v0.19.2, pkg/features/kube_features.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple


class Fixed(NamedTuple):
    """The value that holds in Berth, and what follows from it, as a sentence without its full stop."""

    value: bool
    follows: str


_ALONE = Fixed(False, "Workloads run in this cluster alone")

FIXED: Mapping[str, Fixed] = {
    "AdmissionFairSharing": Fixed(True, "past usage counts where admissionFairSharing is set"),
    "AdmissionGatedBy": Fixed(True, "the annotation kueue.x-k8s.io/admission-gated-by holds a Workload back"),
    "AssignQueueLabelsForPods": Fixed(True, "pods have the names of their queues as labels"),
    "ConcurrentAdmission": Fixed(
        False, "a Workload has no variants; spec.preemptionGates need MultiKueueOrchestratedPreemption"
    ),
    "FairSharingPreemptWithinNominal": Fixed(
        True, "within its nominal quota a ClusterQueue preempts whatever the shares are"
    ),
    "FairSharingPrioritizeNonBorrowing": Fixed(
        True, "Workloads that let no part of the tree borrow come first under fair sharing"
    ),
    "FinishOrphanedWorkloads": Fixed(True, "the Workload of a Job that is gone finishes"),
    "FlavorFungibility": Fixed(True, "flavorFungibility says when the next flavor is tried"),
    "HierarchicalCohorts": Fixed(True, "Cohorts have parents"),
    "LocalQueueMetrics": Fixed(True, "metrics.localQueueMetrics.enable decides"),
    "MultiKueue": _ALONE,
    "MultiKueueAdaptersForCustomJobs": _ALONE,
    "MultiKueueClusterProfile": _ALONE,
    "ObjectRetentionPolicies": Fixed(True, "finished Workloads are deleted as objectRetentionPolicies says"),
    "PartialAdmission": Fixed(True, "a Job with job-min-parallelism may start with fewer pods"),
    "PrioritizePreemptorWorkloads": Fixed(True, "a Workload whose victims leave is tried before others"),
    "PrioritySortingWithinCohort": Fixed(True, "heads of a cohort are tried by their priority"),
    "RecomputeAssignmentUponPreemptionTargetsOverlap": Fixed(
        True, "two Workloads whose victims overlap have one victim each evicted at once"
    ),
    "SparkApplicationIntegration": Fixed(True, "integrations.frameworks decides"),
    "TASAssignmentsEncodingByHostnamePrefix": Fixed(True, "hosts that begin alike make one slice each"),
    "TASHandleOverlappingFlavors": Fixed(True, "flavors that share nodes share what is taken of them"),
    "TASMultiLayerTopology": Fixed(True, "slices may have several layers"),
    "TopologyAwareScheduling": Fixed(True, "flavors with a topologyName place pods"),
    "VisibilityOnDemand": Fixed(True, "the flag --visibility-port decides"),
}

# How Kueue does what both values do, so nothing follows from them.
_INTERNAL = frozenset(
    {
        "FlavorFungibilityPreserveScanProgress",
        "RemoveFinalizersWithStrictPatch",
        "SchedulerLibraryIntegration",
        "SchedulingEquivalenceHashing",
        "SkipAncestorCheckForDeletedWorkloads",
        "TASCacheNodeMatchResults",
        "TASCacheTopologyTree",
        "TASCachingRemainingResources",
        "VectorizedResourceRequests",
        "WorkloadRequestUseMergePatch",
    }
)

# What one of the two values does is not in Berth, or is done otherwise: docs/from-kueue.md.
_OTHERS = frozenset(
    {
        "CleanupProvisioningRequestsOnEviction",
        "DeferRayServiceFinalizationForRedisCleanup",
        "ElasticJobsViaWorkloadSlicesWithTAS",
        "FastQuotaReleaseInPodIntegration",
        "ManagedJobsNamespaceSelectorAlwaysRespected",
        "MetricForWorkloadCreationLatency",
        "MetricsForCohorts",
        "MultiKueueAllowInsecureKubeconfigs",
        "MultiKueueIncrementalDispatcherConfig",
        "MultiKueueIncrementalDispatcherRespectConfigOrder",
        "MultiKueueKubeConfigPathValidation",
        "MultiKueueManagerQuotaAutomation",
        "MultiKueueRedoAdmissionOnEvictionInWorker",
        "MultiKueueRemoteSpecSync",
        "MultiKueueWaitForWorkloadAdmitted",
        "PodIntegrationValidateGroupOwner",
        "PropagateBatchJobLabelsToWorkload",
        "RejectUpdatesToCQWithInvalidOnFlavors",
        "SchedulerLongRequeueInterval",
        "SchedulerTimestampPreemptionBuffer",
        "ShortWorkloadNames",
        "SkipFinalizersForPodsSuspendedByParent",
        "TASRecomputeAssignmentWithinSchedulingCycle",
        "TASValidateWorkloadSliceSize",
        "TLSOptions",
        "WorkloadValidateResourcesAreNonNegative",
        "WorkloadValidationForPodSetMetadata",
    }
)


def gate_notice(gate: str, *, value: bool, acted_upon: frozenset[str]) -> str:
    """Return what to say of a gate that a file sets to a value, after its name; "" if nothing.

    `acted_upon`: the gates that Berth switches.
    """
    if gate in acted_upon or gate in _INTERNAL:
        return ""
    fixed = FIXED.get(gate)
    if fixed is not None:
        return "" if fixed.value is value else f"is read and has no effect in Berth: {fixed.follows}"
    if gate in _OTHERS:
        return "is read and has no effect in Berth"
    near = get_close_matches(gate, [*acted_upon, *FIXED, *_INTERNAL, *_OTHERS], n=1)
    advice = f"; did you mean {near[0]}?" if near else ""
    return f"is read and has no effect in Berth, and Kueue v0.19 has no such gate{advice}"
