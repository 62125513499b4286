"""Every violated rule of Kueue's webhooks and CRDs is reported: field, value, rule."""

from __future__ import annotations

from typing import Any

import pytest

from api import keys
from api.validation import validate
from tests.api.changes import put_all
from tests.api.samples import FULL, Object, full, make_condition, make_resource_group

GROUPS = "spec.resourceGroups"
FLAVOR = f"{GROUPS}.0.flavors.0"
QUOTA = f"{FLAVOR}.resources.0"
POD_SET = "spec.podSets.0"
TEMPLATE = f"{POD_SET}.template"
ASSIGNMENT = "status.admission.podSetAssignments.0"
PLACEMENT = f"{ASSIGNMENT}.topologyAssignment"


def sentences(obj: Object) -> list[str]:
    return [str(error) for error in validate(obj)]


def make_groups(count: int, flavors: int, resources: int) -> list[Object]:
    """Return groups with names of their own, as many flavors each, as many resources each."""
    return [
        {
            "coveredResources": [f"r{g}-{r}" for r in range(resources)],
            "flavors": [
                {
                    "name": f"f{g}-{f}",
                    "resources": [{"name": f"r{g}-{r}", "nominalQuota": 1} for r in range(resources)],
                }
                for f in range(flavors)
            ],
        }
        for g in range(count)
    ]


PLAIN_QUEUE: Object = {"spec.concurrentAdmissionPolicy": None, "spec.admissionChecksStrategy": None}


@pytest.mark.parametrize("kind", FULL)
def test_a_full_object_has_no_fault(kind: str) -> None:
    assert sentences(full(kind)) == []


def test_objects_of_other_kinds_have_no_rules_here() -> None:
    assert validate({"apiVersion": "v1", "kind": "Pod", "spec": 5}) == ()


def test_faults_of_the_schema_are_named_by_field() -> None:
    queue = put_all(full("ClusterQueue"), {"spec.stopPolicy": "Stop", f"{FLAVOR}.name": None})

    assert sentences(queue) == [
        "spec.resourceGroups[0].flavors[0].name is null: must be text",
        "spec.stopPolicy is \"Stop\": must be 'None', 'Hold' or 'HoldAndDrain'",
    ]


def test_a_missing_field_is_not_set() -> None:
    assert sentences(put_all(full("Topology"), {"spec": {}})) == ["spec.levels is not set: it is required"]


def test_a_long_value_is_cut() -> None:
    (sentence,) = sentences(put_all(full("Cohort"), {"spec.fairSharing.weight": "x" * 1000}))

    assert sentence.startswith('spec.fairSharing.weight is "xxx')
    assert "x…: " in sentence


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param(
            {f"{QUOTA}.nominalQuota": -1, f"{QUOTA}.lendingLimit": None},
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota is -1: must not be negative",
            id="a negative quota",
        ),
        pytest.param(
            {f"{QUOTA}.borrowingLimit": "-1m"},
            'spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit is "-1m": must not be negative',
            id="a negative limit",
        ),
        pytest.param(
            {f"{QUOTA}.lendingLimit": "1501m"},
            'spec.resourceGroups[0].flavors[0].resources[0].lendingLimit is "1501m": must be at most'
            " nominalQuota (1500m)",
            id="lending more than there is",
        ),
        pytest.param(
            {
                f"{FLAVOR}.resources": list(
                    reversed(make_resource_group(cohort=True)["flavors"][0]["resources"])
                )
            },
            'spec.resourceGroups[0].flavors[0].resources is ["nvidia.com/gpu", "cpu"]: must list the covered'
            " resources in their order: cpu, nvidia.com/gpu",
            id="resources in another order",
        ),
        pytest.param(
            {"spec.fairSharing.weight": "1n"},
            'spec.fairSharing.weight is "1n": must be 0 or more than 1e-9',
            id="a weight of almost nothing",
        ),
        pytest.param(
            {"spec.fairSharing.weight": -1},
            "spec.fairSharing.weight is -1: must be 0 or more than 1e-9",
            id="a negative weight",
        ),
        pytest.param(
            {"spec.namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.namespaceSelector.matchExpressions[0].values is not set: In needs at least one value",
            id="a selector of no value",
        ),
        pytest.param(
            {"spec.namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
            'spec.namespaceSelector.matchExpressions[0].operator is "Like": must be In, NotIn, Exists or'
            " DoesNotExist",
            id="a selector by no operator",
        ),
        pytest.param(
            {
                "spec.namespaceSelector": {
                    "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
                }
            },
            'spec.namespaceSelector.matchExpressions[0].values is ["b"]: Exists takes no values',
            id="a selector of existence with values",
        ),
        pytest.param(
            {"spec.namespaceSelector": {"matchLabels": {"a": "not valid"}}},
            'spec.namespaceSelector.matchLabels[a] is "not valid": must be a label value: at most 63 letters,'
            " digits, '-', '_' or '.'",
            id="a selector of what no label has",
        ),
        pytest.param(
            {"spec.preemption.reclaimWithinCohort": "Never"},
            'spec.preemption.borrowWithinCohort.policy is "LowerPriority": must be Never while'
            " reclaimWithinCohort is Never",
            id="preemption while borrowing without reclaim",
        ),
        pytest.param(
            {"spec.flavorFungibility.whenCanPreempt": "MayStopSearch"},
            'spec.flavorFungibility.preference is "PreemptionOverBorrowing": needs whenCanBorrow and'
            " whenCanPreempt to be TryNextFlavor",
            id="a preference among flavors that are not looked at",
        ),
        pytest.param(
            {"spec.admissionChecksStrategy.admissionChecks.0.onFlavors": ["tpu"]},
            'spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0] is "tpu": must be a flavor of'
            " spec.resourceGroups",
            id="a check on a flavor that is none",
        ),
        pytest.param(
            {"spec.queueingStrategy": "StrictFIFO"},
            'spec.queueingStrategy is "StrictFIFO": cannot be combined with spec.concurrentAdmissionPolicy',
            id="concurrent admission in strict order",
        ),
        pytest.param(
            {"spec.concurrentAdmissionPolicy.migration.mode": "RetainFirstAdmission"},
            'spec.concurrentAdmissionPolicy.migration.mode is "RetainFirstAdmission": constraints need'
            " TryPreferredFlavors",
            id="limits of a migration that never happens",
        ),
        pytest.param(
            {"spec.concurrentAdmissionPolicy.migration.constraints": {}},
            "spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName is not set: must"
            " be a flavor of the resource group",
            id="limits that are none",
        ),
        pytest.param(
            {GROUPS: make_groups(2, 1, 1), "spec.admissionChecksStrategy": None}
            | {"spec.concurrentAdmissionPolicy.migration.constraints": None},
            "spec.resourceGroups is 2: spec.concurrentAdmissionPolicy needs exactly one resource group",
            id="concurrent admission with two groups",
        ),
        pytest.param(
            {GROUPS: make_groups(1, 17, 1), "spec.admissionChecksStrategy": None}
            | {"spec.concurrentAdmissionPolicy.migration.constraints": None},
            "spec.resourceGroups is 17: must be at most 16 flavors beside spec.concurrentAdmissionPolicy",
            id="concurrent admission with many flavors",
        ),
        pytest.param(
            PLAIN_QUEUE | {GROUPS: make_groups(5, 52, 1)},
            "spec.resourceGroups is 260: must be at most 256 flavors in all",
            id="too many flavors",
        ),
        pytest.param(
            PLAIN_QUEUE | {GROUPS: make_groups(5, 1, 52)},
            "spec.resourceGroups is 260: must be at most 256 covered resources in all",
            id="too many resources",
        ),
        pytest.param(
            PLAIN_QUEUE | {GROUPS: make_groups(1, 33, 16)},
            "spec.resourceGroups[0] is 528: must be at most 512 flavors times resources in a group",
            id="too many quotas",
        ),
        pytest.param(
            PLAIN_QUEUE | {GROUPS: make_groups(1, 1, 1) * 2},
            'spec.resourceGroups is "r0-0": a resource must be covered only once',
            id="a resource in two groups",
        ),
        pytest.param(
            PLAIN_QUEUE | {GROUPS: make_groups(1, 1, 1) * 2},
            'spec.resourceGroups is "f0-0": a flavor must be in one group only',
            id="a flavor in two groups",
        ),
        pytest.param(
            {f"{GROUPS}.0.coveredResources.0": "C PU"},
            'spec.resourceGroups[0].coveredResources[0] is "C PU": must be a label key: an optional DNS'
            " prefix and '/', then at most 63 letters, digits, '-', '_' or '.'",
            id="a resource that can be none",
        ),
    ],
)
def test_a_cluster_queue_is_refused(changes: Object, want: str) -> None:
    assert want in sentences(put_all(full("ClusterQueue"), changes))


def test_limits_of_a_queue_without_cohort_are_refused_one_by_one() -> None:
    queue = put_all(full("ClusterQueue"), {"spec.cohortName": None, "spec.concurrentAdmissionPolicy": None})

    assert sentences(queue) == [
        f"spec.resourceGroups[0].flavors[{flavor}].resources[0].{limit}: needs spec.cohortName"
        for flavor in (0, 1)
        for limit in ('borrowingLimit is "4"', "lendingLimit is 1")
    ]


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({QUOTA + ".lendingLimit": "100"}, [], id="may lend more than its own quota"),
        pytest.param(
            {"metadata.name": "company"},
            ['spec.parentName is "company": a Cohort cannot be its own parent'],
            id="cannot be its own parent",
        ),
        pytest.param(
            {"spec.parentName": None, GROUPS: make_groups(1, 1, 1), f"{QUOTA}.borrowingLimit": 1},
            ["spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit is 1: needs spec.parentName"],
            id="needs a parent to have limits",
        ),
        pytest.param({"spec.fairSharing.weight": 0}, [], id="may have no weight"),
    ],
)
def test_a_cohort(changes: Object, want: list[str]) -> None:
    assert sentences(put_all(full("Cohort"), changes)) == want


@pytest.mark.parametrize(
    ("kind", "changes", "want"),
    [
        pytest.param(
            "ResourceFlavor",
            {"spec.nodeLabels": {"a/b/c": "d"}},
            'spec.nodeLabels is "a/b/c": must be a label key',
            id="a label that can be none",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.nodeLabels": {"a": "d" * 64}},
            f'spec.nodeLabels[a] is "{"d" * 64}": must be a label value',
            id="a label value too long",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.nodeTaints": [{"key": "a", "effect": "NoSchedule"}] * 2},
            'spec.nodeTaints is "a:NoSchedule": taints must differ in key or effect',
            id="a taint twice",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.nodeTaints.0.effect": "Never"},
            'spec.nodeTaints[0].effect is "Never": must be NoSchedule, PreferNoSchedule or NoExecute',
            id="a taint of no effect",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.nodeTaints.0.key": ""},
            'spec.nodeTaints[0].key is "": must be a label key',
            id="a taint of no key",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"effect": "NoSchedule"}]},
            'spec.tolerations[0].operator is "Equal": must be Exists where there is no key',
            id="a toleration of nothing",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            'spec.tolerations[0].value is "b": operator Exists takes no value',
            id="a toleration of any value with a value",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"key": "a", "operator": "Like"}]},
            'spec.tolerations[0].operator is "Like": must be Equal or Exists',
            id="a toleration by no operator",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"key": "a", "tolerationSeconds": 5}]},
            "spec.tolerations[0].effect is not set: must be NoExecute where there are tolerationSeconds",
            id="a toleration for a time of every effect",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.nodeLabels": {}},
            'spec.topologyName is "racks": needs at least one of spec.nodeLabels',
            id="a topology of nodes that no label selects",
        ),
        pytest.param(
            "Topology",
            {"spec.levels.1.nodeLabel": "cloud.example.com/block"},
            'spec.levels is "cloud.example.com/block": must be unique',
            id="a level twice",
        ),
        pytest.param(
            "Topology",
            {"spec.levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}]},
            'spec.levels is ["kubernetes.io/hostname", "rack"]: the kubernetes.io/hostname label can only be',
            id="hosts above racks",
        ),
        pytest.param(
            "AdmissionPolicy",
            {"spec.clusterQueues.selector": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]}},
            "spec.clusterQueues.selector.matchExpressions[0].values is not set: NotIn needs at least one",
            id="a policy for queues that cannot be selected",
        ),
        pytest.param(
            "AdmissionPolicy",
            {"spec.ordering.levels": [10.0, 1.0]},
            "spec.ordering.levels is [10.0, 1.0]: must be in ascending order",
            id="levels that fall",
        ),
        pytest.param(
            "AdmissionPolicy",
            {"spec.placement.domainRules.sizeRules": [{"maxNodes": 2}, {"maxNodes": 2}]},
            "spec.placement.domainRules.sizeRules is 2: maxNodes must be unique",
            id="two rules for one size",
        ),
        pytest.param(
            "AdmissionPolicy",
            {
                "spec.placement.scoringWeights": {
                    "resourceAvailability": 0,
                    "topologyAlignment": 0,
                    "domainUtilization": 0,
                    "historicalPerformance": 0,
                }
            },
            "spec.placement.scoringWeights is ",
            id="weights that are all nothing",
        ),
        pytest.param(
            "AdmissionPolicy",
            {"spec.quotaWindows.0.schedule": "0 25 * * *"},
            "spec.quotaWindows[0].schedule is \"0 25 * * *\": the hour '25' must be between 0 and 23",
            id="a window at an hour that does not exist",
        ),
        pytest.param(
            "AdmissionPolicy",
            {"spec.quotaWindows.0.timeZone": "Atlantis"},
            'spec.quotaWindows[0].timeZone is "Atlantis": must be an IANA time zone',
            id="a window in a time zone that does not exist",
        ),
        pytest.param(
            "AdmissionPolicy",
            {"spec.quotaWindows.0.start": "2026-03-01T08:00:00Z"},
            'spec.quotaWindows[0] is "night": give start and end, or schedule and durationSeconds',
            id="a window of both forms",
        ),
        pytest.param(
            "AdmissionPolicy",
            {"spec.quotaWindows.1.end": "2026-03-01T08:00:00Z"},
            'spec.quotaWindows[1].end is "2026-03-01T08:00:00Z": must be after start',
            id="a window that ends when it begins",
        ),
        pytest.param(
            "AdmissionPolicy",
            {"spec.reservations.0.domain": "block-1"},
            'spec.reservations[0] is "launch": give resources or a domain, not both',
            id="a reservation of resources and a domain",
        ),
        pytest.param(
            "AdmissionPolicy",
            {"spec.reservations.0.resources.0.amount": -1},
            "spec.reservations[0].resources[0].amount is -1: must not be negative",
            id="a reservation of less than nothing",
        ),
    ],
)
def test_an_object_is_refused(kind: str, changes: Object, want: str) -> None:
    (sentence,) = sentences(put_all(full(kind), changes))

    assert sentence.startswith(want)


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param(
            {"spec.priority": None}, "spec.priority is not set: spec.priorityClassRef needs it", id="priority"
        ),
        pytest.param(
            {"spec.priorityClassRef.kind": "PriorityClass"},
            'spec.priorityClassRef.kind is "PriorityClass": must be WorkloadPriorityClass for group'
            " kueue.x-k8s.io",
            id="a class of another group",
        ),
        pytest.param(
            {f"{POD_SET}.minCount": 4},
            "spec.podSets[0].minCount is 4: must be at most count (3)",
            id="a minimum above the count",
        ),
        pytest.param(
            {f"{TEMPLATE}.metadata.labels": {"a b": "c"}},
            'spec.podSets[0].template.metadata.labels is "a b": must be a label key',
            id="a label that can be none",
        ),
        pytest.param(
            {f"{TEMPLATE}.metadata.annotations": {"a b": "c"}},
            'spec.podSets[0].template.metadata.annotations is "a b": must be a label key',
            id="an annotation that can be none",
        ),
        pytest.param(
            {f"{TEMPLATE}.spec.containers.0.resources.requests": {"pods": 1}},
            "spec.podSets[0].template.spec.containers[0].resources.requests[pods] is 1: pods are counted"
            " automatically and cannot be requested",
            id="a container that requests pods",
        ),
        pytest.param(
            {f"{TEMPLATE}.spec.resources.requests": {"pods": 1}},
            "spec.podSets[0].template.spec.resources.requests[pods] is 1: pods are counted automatically",
            id="a pod that requests pods",
        ),
        pytest.param(
            {f"{TEMPLATE}.spec.initContainers.0.resources": {"limits": {"cpu": "-1"}}},
            'spec.podSets[0].template.spec.initContainers[0].resources.limits[cpu] is "-1": must not be',
            id="a negative limit",
        ),
        pytest.param(
            {f"{TEMPLATE}.spec.overhead": {"cpu": "-1"}},
            'spec.podSets[0].template.spec.overhead[cpu] is "-1": must not be negative',
            id="a negative overhead",
        ),
        pytest.param(
            {f"{POD_SET}.topologyRequest": {"podSetSliceSize": 2}},
            "spec.podSets[0].topologyRequest.podSetSliceRequiredTopology is not set:"
            " podSetSliceRequiredTopology and podSetSliceSize go together",
            id="slices without a level",
        ),
        pytest.param(
            {f"{POD_SET}.topologyRequest": {"podSetSliceRequiredTopology": "rack"}},
            "spec.podSets[0].topologyRequest.podSetSliceSize is not set: podSetSliceRequiredTopology and",
            id="slices without a size",
        ),
        pytest.param(
            {"metadata.annotations": {keys.ELASTIC_JOB: "true"}},
            "spec.podSets[0].minCount is 2: cannot be combined with an elastic job",
            id="a minimum of an elastic job",
        ),
        pytest.param(
            {"metadata.annotations": {keys.PRIORITY_BOOST: "3000000000"}},
            'metadata.annotations[kueue.x-k8s.io/priority-boost] is "3000000000": must be a whole number of',
            id="a boost beyond 32 bits",
        ),
        pytest.param(
            {"metadata.annotations": {keys.ADMISSION_GATED_BY: "budget"}},
            'metadata.annotations[kueue.x-k8s.io/admission-gated-by] is "budget": a gate needs a domain and',
            id="a gate without a domain",
        ),
        pytest.param(
            {"metadata.annotations": {keys.ADMISSION_GATED_BY: "a.b/c,a.b/c"}},
            'metadata.annotations[kueue.x-k8s.io/admission-gated-by] is "a.b/c": a gate must be listed only',
            id="a gate twice",
        ),
        pytest.param(
            {"metadata.annotations": {keys.ADMISSION_GATED_BY: "a.b/" + "c" * 60}},
            f'metadata.annotations[kueue.x-k8s.io/admission-gated-by] is "a.b/{"c" * 60}": a gate has',
            id="a gate too long",
        ),
        pytest.param(
            {"status.admission": None},
            "status.admission is not set: QuotaReserved=True needs it",
            id="quota without admission",
        ),
        pytest.param(
            {f"{ASSIGNMENT}.resourceUsage": {"cpu": "1"}},
            'status.admission.podSetAssignments[0].resourceUsage[cpu] is "1": must be divisible by count (3)',
            id="usage that does not divide among pods",
        ),
        pytest.param(
            {"status.admission.podSetAssignments": []},
            "status.admission.podSetAssignments is []: must have one entry for each of the 1 podSets",
            id="an admission without all pod sets",
        ),
        pytest.param(
            {f"{ASSIGNMENT}.name": "other"},
            'status.admission.podSetAssignments[0].name is "other": must be one of the podSets: main',
            id="an admission of others",
        ),
        pytest.param(
            {f"{PLACEMENT}.levels": ["block"]},
            "status.admission.podSetAssignments[0].topologyAssignment.slices[0].valuesPerLevel is 2: must"
            " have one entry for each of the 1 levels",
            id="a placement with values for a level that is none",
        ),
        pytest.param(
            {f"{PLACEMENT}.slices.0.podCounts": {"individual": [1]}},
            "status.admission.podSetAssignments[0].topologyAssignment.slices[0].podCounts.individual is 1:"
            " must have domainCount (2) entries",
            id="a placement without the pods of a domain",
        ),
        pytest.param(
            {
                f"{PLACEMENT}.slices": [
                    {
                        "domainCount": 2,
                        "valuesPerLevel": [{"universal": "b1"}, {"universal": "n"}],
                        "podCounts": {"universal": 1},
                    }
                ]
            },
            "status.admission.podSetAssignments[0].topologyAssignment.slices[0].domainCount is 2: must be 1"
            " without a list of individual values: two domains differ in a level",
            id="a placement of several domains without a list of them",
        ),
        pytest.param(
            {f"{PLACEMENT}.slices.1.podCounts": {}},
            "status.admission.podSetAssignments[0].topologyAssignment.slices[1].podCounts is not set: exactly"
            " one of universal and individual must be set",
            id="a placement without pods",
        ),
        pytest.param(
            {"status.reclaimablePods.0.count": 4},
            "status.reclaimablePods[0].count is 4: must be at most the pod set's count (3)",
            id="more pods ended than there were",
        ),
        pytest.param(
            {"status.reclaimablePods.0.name": "other"},
            'status.reclaimablePods[0].name is "other": must be one of the podSets: main',
            id="others' pods ended",
        ),
        pytest.param(
            {"status.admissionChecks.0.podSetUpdates.0.name": "other"},
            'status.admissionChecks[0].podSetUpdates[0].name is "other": must be one of the podSets: main',
            id="an update of others",
        ),
        pytest.param(
            {"status.admissionChecks.0.podSetUpdates.0.nodeSelector": {"a": "b c"}},
            'status.admissionChecks[0].podSetUpdates[0].nodeSelector[a] is "b c": must be a label value',
            id="an update to nodes that cannot be",
        ),
        pytest.param(
            {"status.nominatedClusterNames": ["a"]},
            'status.clusterName is "worker-1": clusterName and nominatedClusterNames exclude each other',
            id="a cluster chosen and others nominated",
        ),
    ],
)
def test_a_workload_is_refused(changes: Object, want: str) -> None:
    found = sentences(put_all(full("Workload"), changes))

    assert found[0].startswith(want)


def test_one_pod_set_may_have_a_minimum() -> None:
    workload = full("Workload")
    pod_set = workload["spec"]["podSets"][0]
    changes = {"spec.podSets": [pod_set, {**pod_set, "name": "more"}], "status": None}

    assert sentences(put_all(workload, changes)) == [
        "spec.podSets[1].minCount is 2: at most one pod set may have it"
    ]


def test_a_workload_that_waits_needs_no_admission() -> None:
    waiting = {"status": {"conditions": [make_condition("QuotaReserved", "False", "WaitingForQuota")]}}

    assert sentences({**full("Workload"), **waiting}) == []


def make_job(
    labels: Object | None = None,
    annotations: Object | None = None,
    template: Object | None = None,
    **spec: Any,
) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "one", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"parallelism": 4, "template": {"metadata": {"annotations": template or {}}}, **spec},
    }


@pytest.mark.parametrize(
    ("job", "want"),
    [
        pytest.param(
            make_job({keys.QUEUE_NAME: "My Queue"}),
            'metadata.labels[kueue.x-k8s.io/queue-name] is "My Queue": must be a DNS subdomain',
            id="a queue that can be none",
        ),
        pytest.param(
            make_job(annotations={keys.PREBUILT_WORKLOAD_NAME: "A"}),
            'metadata.annotations[kueue.x-k8s.io/prebuilt-workload-name] is "A": must be a DNS subdomain',
            id="a Workload that can be none",
        ),
        pytest.param(
            make_job({keys.PRIORITY_CLASS: ""}),
            'metadata.labels[kueue.x-k8s.io/priority-class] is "": must be a DNS subdomain',
            id="a priority class of no name",
        ),
        pytest.param(
            make_job({keys.MAX_EXEC_TIME_SECONDS: "1h"}),
            'metadata.labels[kueue.x-k8s.io/max-exec-time-seconds] is "1h": must be a whole number of',
            id="a time limit with a unit",
        ),
        pytest.param(
            make_job({keys.MAX_EXEC_TIME_SECONDS: "0"}),
            'metadata.labels[kueue.x-k8s.io/max-exec-time-seconds] is "0": must be a whole number of seconds',
            id="no time at all",
        ),
        pytest.param(
            make_job(annotations={keys.JOB_MIN_PARALLELISM: "4"}),
            'metadata.annotations[kueue.x-k8s.io/job-min-parallelism] is "4": must be a whole number from 1'
            " to less than spec.parallelism (4)",
            id="a minimum that is all",
        ),
        pytest.param(
            make_job(annotations={keys.JOB_MIN_PARALLELISM: "2", keys.ELASTIC_JOB: "true"}),
            'metadata.annotations[kueue.x-k8s.io/job-min-parallelism] is "2": cannot be combined with',
            id="a minimum of an elastic job",
        ),
        pytest.param(
            make_job(annotations={keys.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"}, completions=4),
            'metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism] is "true": needs'
            " completionMode Indexed",
            id="as many completions as pods, not indexed",
        ),
        pytest.param(
            make_job(
                annotations={keys.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"},
                completions=5,
                completionMode="Indexed",
            ),
            'metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism] is "true": needs'
            " completionMode Indexed and as many",
            id="as many completions as pods, and more",
        ),
        pytest.param(
            make_job(annotations={keys.ADMISSION_GATED_BY: ""}),
            'metadata.annotations[kueue.x-k8s.io/admission-gated-by] is "": a gate needs a domain',
            id="a gate of no name",
        ),
        pytest.param(
            make_job(annotations={keys.DEPENDS_ON: "a," * 100 + "b"}),
            'metadata.annotations[berth.dev/depends-on] is "a,a,a,a,',
            id="a Job that depends on too many others",
        ),
        pytest.param(
            make_job(template={keys.REQUIRED_TOPOLOGY: "rack", keys.PREFERRED_TOPOLOGY: "rack"}),
            'spec.template.metadata.annotations[kueue.x-k8s.io/podset-preferred-topology] is "rack":'
            " kueue.x-k8s.io/podset-required-topology is set too",
            id="a place required and preferred",
        ),
        pytest.param(
            make_job(template={keys.REQUIRED_TOPOLOGY: "the rack"}),
            'spec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology] is "the rack":'
            " must be a label key",
            id="a level that is no label",
        ),
        pytest.param(
            make_job(template={keys.UNCONSTRAINED_TOPOLOGY: "yes"}),
            'spec.template.metadata.annotations[kueue.x-k8s.io/podset-unconstrained-topology] is "yes":'
            " must be true or false",
            id="unconstrained in another word",
        ),
        pytest.param(
            make_job(annotations={keys.ELASTIC_JOB: "true"}, template={keys.REQUIRED_TOPOLOGY: "rack"}),
            'spec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology] is "rack":'
            " an elastic job may only ask for",
            id="an elastic job in one place",
        ),
        pytest.param(
            make_job(template={keys.SLICE_REQUIRED_TOPOLOGY: "rack"}),
            'spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology] is "rack":'
            " needs kueue.x-k8s.io/podset-slice-size",
            id="slices without a size",
        ),
        pytest.param(
            make_job(template={keys.SLICE_SIZE: "2"}),
            'spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size] is "2":'
            " needs kueue.x-k8s.io/podset-slice-required-topology",
            id="slices without a level",
        ),
        pytest.param(
            make_job(template={keys.SLICE_REQUIRED_TOPOLOGY: "rack", keys.SLICE_SIZE: "5"}),
            'spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size] is "5":'
            " must be a whole number from 1 to the number of pods (4)",
            id="slices of more pods than there are",
        ),
        pytest.param(
            make_job(template={keys.SLICE_CONSTRAINTS: "rack"}),
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints] is"
            ' "rack": must be a JSON list of 1 to 3 layers',
            id="layers that are no JSON",
        ),
        pytest.param(
            make_job(template={keys.SLICE_CONSTRAINTS: "[" * 99_999}),
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints]",
            id="layers nested too deep",
        ),
        pytest.param(
            make_job(template={keys.SLICE_CONSTRAINTS: '[{"topology": "rack", "size": 9}]'}),
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints] is"
            " 9: the size of a slice must be from 1 to the number of pods (4)",
            id="a layer of more pods than there are",
        ),
        pytest.param(
            make_job(
                template={
                    keys.SLICE_CONSTRAINTS: '[{"topology": "rack", "size": 2}]',
                    keys.SLICE_REQUIRED_TOPOLOGY: "rack",
                    keys.SLICE_SIZE: "2",
                }
            ),
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints] is"
            ' "[{\\"topology\\": \\"rack\\", \\"size\\": 2}]": excludes',
            id="slices said in two ways",
        ),
        pytest.param(
            make_job(template={keys.POD_SET_GROUP: "all"}),
            'spec.template.metadata.annotations[kueue.x-k8s.io/podset-group-name] is "all":'
            " groups two pod sets, but a Job has only one",
            id="a group of pod sets",
        ),
    ],
)
def test_a_job_is_refused(job: Object, want: str) -> None:
    (sentence,) = sentences(job)

    assert sentence.startswith(want)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"apiVersion": "batch/v1", "kind": "Job"}, id="a Job of nothing"),
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": [], "spec": {"template": 1}},
            id="a Job of another form, which the API server refuses",
        ),
        pytest.param(
            make_job(
                {keys.QUEUE_NAME: "train", keys.PRIORITY_CLASS: "high", keys.MAX_EXEC_TIME_SECONDS: "60"},
                {
                    keys.JOB_MIN_PARALLELISM: "2",
                    keys.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true",
                    keys.ADMISSION_GATED_BY: "example.com/a,example.com/b",
                },
                {
                    keys.REQUIRED_TOPOLOGY: "cloud.example.com/block",
                    keys.SLICE_CONSTRAINTS: '[{"topology": "rack", "size": 2}]',
                },
                completions=4,
                completionMode="Indexed",
            ),
            id="a Job that asks for all of it",
        ),
    ],
)
def test_a_job_has_no_fault(job: Object) -> None:
    assert sentences(job) == []
