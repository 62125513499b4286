"""One object of each kind with every field set, as a user or a controller would write it.

`FULL` holds them by kind. A test takes a copy with `full(kind)` and changes what it is about.
"""

from __future__ import annotations

import copy
from typing import Any

Object = dict[str, Any]

NOW = "2026-08-01T12:00:00Z"
KUEUE = "kueue.x-k8s.io/v1beta2"


def full(kind: str) -> Object:
    """Return a copy of the full object of `kind`."""
    return copy.deepcopy(FULL[kind])


def make_condition(type_: str, status: str = "True", reason: str = "Ready") -> Object:
    """Return a condition as controllers write it."""
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": f"{type_} is {status}",
        "lastTransitionTime": NOW,
        "observedGeneration": 3,
    }


def make_resource_group(*, cohort: bool) -> Object:
    """Return a resource group of two flavors and two resources; with limits where there is a cohort."""
    limits: Object = {"borrowingLimit": "4", "lendingLimit": 1} if cohort else {}
    flavors = [
        {
            "name": name,
            "resources": [
                {"name": "cpu", "nominalQuota": "1500m", **limits},
                {"name": "nvidia.com/gpu", "nominalQuota": 8},
            ],
        }
        for name in ("a100", "h100-80gb")
    ]
    return {"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": flavors}


_USAGE = [
    {
        "name": "a100",
        "resources": [
            {"name": "cpu", "total": "2500m", "borrowed": "1"},
            {"name": "nvidia.com/gpu", "total": 4},
        ],
    }
]
_LOCAL_USAGE = [{"name": "a100", "resources": [{"name": "cpu", "total": "2500m"}]}]
_SELECTOR = {
    "matchLabels": {"team": "vision"},
    "matchExpressions": [{"key": "stage", "operator": "In", "values": ["dev", "prod"]}],
}
_TOLERATION = {
    "key": "gpu",
    "operator": "Equal",
    "value": "yes",
    "effect": "NoExecute",
    "tolerationSeconds": 60,
}

_TEMPLATE: Object = {
    "metadata": {
        "labels": {"app": "train"},
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"},
    },
    "spec": {
        "restartPolicy": "Never",
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "nodeSelector": {"zone": "a"},
        "overhead": {"cpu": "100m"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "resources": {"requests": {"memory": "2Gi"}},
        "initContainers": [{"name": "fetch", "image": "fetch:1", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "main",
                "image": "train:1",
                "command": ["train", "--all"],
                "env": [{"name": "SEED", "value": "1"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {
                    "requests": {"cpu": "500m", "nvidia.com/gpu": 1},
                    "limits": {"nvidia.com/gpu": 1},
                },
            }
        ],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    },
}

_WORKLOAD_STATUS: Object = {
    "accumulatedPastExecutionTimeSeconds": 30,
    "admission": {
        "clusterQueue": "vision",
        "podSetAssignments": [
            {
                "name": "main",
                "count": 3,
                "flavors": {"cpu": "a100"},
                "resourceUsage": {"cpu": "1500m", "nvidia.com/gpu": 3},
                "delayedTopologyRequest": "Ready",
                "topologyAssignment": {
                    "levels": ["block", "kubernetes.io/hostname"],
                    "slices": [
                        {
                            "domainCount": 2,
                            "valuesPerLevel": [
                                {"universal": "b1"},
                                {"individual": {"prefix": "node-", "roots": ["1", "2"], "suffix": ".local"}},
                            ],
                            "podCounts": {"individual": [1, 2]},
                        },
                        {
                            "domainCount": 1,
                            "valuesPerLevel": [{"universal": "b2"}, {"individual": {"roots": ["node-9"]}}],
                            "podCounts": {"universal": 1},
                        },
                    ],
                },
            }
        ],
    },
    "admissionChecks": [
        {
            "name": "capacity",
            "state": "Ready",
            "message": "provisioned",
            "lastTransitionTime": NOW,
            "requeueAfterSeconds": 60,
            "retryCount": 1,
            "podSetUpdates": [
                {
                    "name": "main",
                    "labels": {"a": "b"},
                    "annotations": {"c": "d"},
                    "nodeSelector": {"pool": "new"},
                    "tolerations": [_TOLERATION],
                }
            ],
        }
    ],
    "clusterName": "worker-1",
    "conditions": [make_condition("QuotaReserved"), make_condition("Admitted")],
    "preemptionGates": [{"name": "kueue.x-k8s.io/multikueue", "position": "Open", "lastTransitionTime": NOW}],
    "reclaimablePods": [{"name": "main", "count": 1}],
    "requeueState": {"count": 2, "requeueAt": NOW},
    "resourceRequests": [{"name": "main", "resources": {"cpu": "1500m"}}],
    "schedulingStats": {
        "evictions": [
            {"reason": "Preempted", "underlyingCause": "", "count": 1},
            {"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 2},
        ]
    },
    "unhealthyNodes": [{"name": "node-2"}],
}

FULL: dict[str, Object] = {
    "ClusterQueue": {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": "vision", "labels": {"tier": "gold"}, "annotations": {"note": "yes"}},
        "spec": {
            "admissionChecksStrategy": {"admissionChecks": [{"name": "capacity", "onFlavors": ["a100"]}]},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
            "cohortName": "research",
            "concurrentAdmissionPolicy": {
                "migration": {
                    "mode": "TryPreferredFlavors",
                    "constraints": {"lastAcceptableFlavorName": "a100"},
                }
            },
            "fairSharing": {"weight": "500m"},
            "flavorFungibility": {
                "preference": "PreemptionOverBorrowing",
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "TryNextFlavor",
            },
            "namespaceSelector": _SELECTOR,
            "preemption": {
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100},
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "LowerOrNewerEqualPriority",
            },
            "queueingStrategy": "BestEffortFIFO",
            "resourceGroups": [make_resource_group(cohort=True)],
            "stopPolicy": "Hold",
        },
        "status": {
            "admittedWorkloads": 1,
            "conditions": [make_condition("Active")],
            "fairSharing": {"weightedShare": 9223372036854775807},
            "flavorsReservation": _USAGE,
            "flavorsUsage": _USAGE,
            "pendingWorkloads": 4,
            "reservingWorkloads": 2,
        },
    },
    "Cohort": {
        "apiVersion": KUEUE,
        "kind": "Cohort",
        "metadata": {"name": "research"},
        "spec": {
            "fairSharing": {"weight": 2},
            "parentName": "company",
            "resourceGroups": [make_resource_group(cohort=True)],
        },
        "status": {"fairSharing": {"weightedShare": 12}},
    },
    "LocalQueue": {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": "train"},
        "spec": {"clusterQueue": "vision", "fairSharing": {"weight": "1.5"}, "stopPolicy": "HoldAndDrain"},
        "status": {
            "admittedWorkloads": 1,
            "conditions": [make_condition("Active", "False", "Stopped")],
            "fairSharing": {
                "weightedShare": 0,
                "admissionFairSharingStatus": {"consumedResources": {"cpu": "12300m"}, "lastUpdate": NOW},
            },
            "flavorsReservation": _LOCAL_USAGE,
            "flavorsUsage": _LOCAL_USAGE,
            "pendingWorkloads": 0,
            "reservingWorkloads": 1,
        },
    },
    "ResourceFlavor": {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": "a100"},
        "spec": {
            "nodeLabels": {"gpu": "a100"},
            "nodeTaints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": NOW}],
            "tolerations": [_TOLERATION, {"operator": "Exists"}],
            "topologyName": "racks",
        },
    },
    "Topology": {
        "apiVersion": KUEUE,
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {
            "levels": [
                {"nodeLabel": "cloud.example.com/block"},
                {"nodeLabel": "cloud.example.com/rack"},
                {"nodeLabel": "kubernetes.io/hostname"},
            ]
        },
    },
    "Workload": {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {
            "name": "job-train-1a2b3",
            "labels": {"kueue.x-k8s.io/job-uid": "u"},
            "annotations": {"kueue.x-k8s.io/priority-boost": "-5"},
        },
        "spec": {
            "active": False,
            "maximumExecutionTimeSeconds": 3600,
            "podSets": [
                {
                    "name": "main",
                    "count": 3,
                    "minCount": 2,
                    "template": _TEMPLATE,
                    "topologyRequest": {
                        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
                        "podSetGroupName": "all",
                        "podSetSliceRequiredTopology": "cloud.example.com/rack",
                        "podSetSliceSize": 1,
                        "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 1}],
                        "preferred": "cloud.example.com/block",
                        "required": "cloud.example.com/block",
                        "subGroupCount": 1,
                        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
                        "unconstrained": True,
                    },
                }
            ],
            "preemptionGates": [{"name": "kueue.x-k8s.io/multikueue"}],
            "priority": 100,
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            "queueName": "train",
        },
        "status": _WORKLOAD_STATUS,
    },
    "WorkloadPriorityClass": {
        "apiVersion": KUEUE,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"},
        "value": -100,
        "description": "before all others",
    },
    "AdmissionCheck": {
        "apiVersion": KUEUE,
        "kind": "AdmissionCheck",
        "metadata": {"name": "capacity"},
        "spec": {
            "controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {
                "apiGroup": "kueue.x-k8s.io",
                "kind": "ProvisioningRequestConfig",
                "name": "default",
            },
        },
        "status": {"conditions": [make_condition("Active", reason="Active")]},
    },
    "ProvisioningRequestConfig": {
        "apiVersion": KUEUE,
        "kind": "ProvisioningRequestConfig",
        "metadata": {"name": "default"},
        "spec": {
            "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
            "parameters": {"ValidUntilSeconds": "600"},
            "managedResources": ["nvidia.com/gpu"],
            "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 30, "backoffMaxSeconds": 900},
            "podSetUpdates": {
                "nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "NodePoolName"}]
            },
            "podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements",
        },
    },
    "AdmissionPolicy": {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "recommended"},
        "spec": {
            "clusterQueues": {"names": ["vision", "speech"], "selector": _SELECTOR},
            "precedence": 10,
            "base": "common",
            "aliases": "Articles",
            "ordering": {
                "mode": "LeastAttained",
                "ageSeconds": 43200,
                "unknownSeconds": 7200,
                "levels": [1.0, 8.5],
            },
            "backfill": {
                "mode": "Conservative",
                "reservationDepth": 20,
                "windowSeconds": 86400,
                "resolutionSeconds": 30,
                "endingSeconds": 10,
                "maxTested": 200,
                "onOverrun": "Extend",
                "etaDepth": 100,
            },
            "preemption": {
                "rules": {
                    "protectPriority": {"enabled": True, "minPriority": 1000},
                    "preferInference": {"enabled": True},
                    "protectNearlyDone": {"enabled": False, "remainingSeconds": 3600},
                    "protectUncheckpointed": {"enabled": False},
                    "requireFreshCheckpoint": {"enabled": True, "maxAgeSeconds": 900},
                },
                "maxCountedLossSeconds": 7200,
                "maxDeclaredSeconds": 300,
                "defaultSaveSeconds": 20,
                "defaultRestartSeconds": 40,
                "graceSeconds": 0,
                "minimumRuntimeSeconds": 60,
                "holdSeconds": 30,
                "savedFirst": False,
            },
            "placement": {
                "strategy": "Consolidated",
                "domainRules": {
                    "leafLevel": "cloud.example.com/rack",
                    "adjacencyLabel": "cloud.example.com/rack-number",
                    "maxNodesPerLeaf": 8,
                    "maxGPUsPerLeaf": 64,
                    "sizeRules": [{"maxNodes": 2, "leaves": 1, "adjacent": True, "complete": False}],
                },
                "scoringWeights": {
                    "resourceAvailability": 0.5,
                    "topologyAlignment": 0.5,
                    "domainUtilization": 0.0,
                    "historicalPerformance": 1.0,
                },
                "fragmentation": "Avoid",
                "flavors": {
                    "weights": {
                        "expectedWait": 0.0,
                        "cost": 0.5,
                        "expectedLoss": 0.25,
                        "generation": 0.125,
                        "fragmentation": 0.125,
                    },
                    "spot": "All",
                    "spotMeanSeconds": 43200,
                    "promote": {"minGain": 0.1, "maxMovesPerHour": 3},
                },
                "consolidation": {"maxMovesPerHour": 2, "minWaitingSeconds": 300, "maxLostSeconds": 900},
                "recovery": {
                    "notReadySeconds": 5,
                    "leaveTaintedNodes": True,
                    "leaveCordonedNodes": True,
                    "heartbeatSeconds": 30,
                    "unschedulableSeconds": 30,
                },
                "bandwidthLabel": "ib.coreweave.cloud/speed",
            },
            "quotaWindows": [
                {
                    "name": "night",
                    "clusterQueue": "vision",
                    "flavor": "a100",
                    "resource": "nvidia.com/gpu",
                    "nominalQuota": 64,
                    "schedule": "0 20 * * mon-fri",
                    "timeZone": "Europe/Berlin",
                    "durationSeconds": 36000,
                    "reclaimLeadSeconds": 1800,
                },
                {
                    "name": "course",
                    "clusterQueue": "vision",
                    "flavor": "a100",
                    "resource": "nvidia.com/gpu",
                    "nominalQuota": "8",
                    "start": "2026-03-01T08:00:00Z",
                    "end": "2026-03-05T18:00:00Z",
                    "timeZone": "UTC",
                    "reclaimLeadSeconds": 0,
                },
            ],
            "reservations": [
                {
                    "name": "launch",
                    "namespace": "team-vision",
                    "localQueue": "main",
                    "start": "2026-04-01T00:00:00Z",
                    "end": "2026-04-08T00:00:00+02:00",
                    "resources": [{"flavor": "a100", "resource": "nvidia.com/gpu", "amount": 32}],
                },
                {
                    "name": "benchmark",
                    "namespace": "team-vision",
                    "localQueue": "main",
                    "start": "2026-05-01T00:00:00Z",
                    "end": "2026-05-02T00:00:00Z",
                    "domain": "block-1/rack-3",
                },
            ],
            "estimates": {
                "defaultSeconds": 7200,
                "quantile": 0.8,
                "minObservations": 5,
                "raisePercent": 100,
            },
        },
        "status": {
            "conditions": [make_condition("Accepted")],
            "clusterQueueCount": 2,
            "clusterQueues": ["speech", "vision"],
            "quotasInForce": [
                {
                    "clusterQueue": "vision",
                    "flavor": "a100",
                    "resource": "nvidia.com/gpu",
                    "window": "night",
                    "nominalQuota": "64",
                    "until": "2026-03-05T18:00:00Z",
                }
            ],
            "quotaWindows": [
                {
                    "name": "night",
                    "state": "Active",
                    "clusterQueue": "vision",
                    "flavor": "a100",
                    "resource": "nvidia.com/gpu",
                    "nominalQuota": "64",
                    "opensAt": "2026-03-05T19:00:00Z",
                    "closesAt": "2026-03-05T18:00:00Z",
                    "message": "quota window course is open too and counts, as the later in the list",
                }
            ],
            "reservations": [
                {
                    "name": "deadline-run",
                    "state": "Active",
                    "namespace": "speech",
                    "localQueue": "gpu",
                    "clusterQueue": "speech",
                    "start": "2026-03-05T18:00:00Z",
                    "end": "2026-03-06T18:00:00Z",
                    "resources": [{"flavor": "a100", "resource": "nvidia.com/gpu", "amount": "32"}],
                    "domain": "block-1/rack-3",
                    "nodes": 4,
                    "userCount": 1,
                    "users": ["speech/train"],
                    "message": "said",
                }
            ],
        },
    },
}
