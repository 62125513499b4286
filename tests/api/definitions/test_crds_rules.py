"""CEL rules on the real server: a violation is rejected with the message of the rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.changes import put, put_all
from tests.api.samples import Object, full, make_resource_group
from tests.api.serving import admitted, collection, content, create, path_of, refusal
from tests.controlplane import Rest

NEEDS_COHORT = "borrowingLimit and lendingLimit need"


@pytest.mark.parametrize(
    ("kind", "changes", "want"),
    [
        pytest.param(
            "ClusterQueue",
            {"spec.cohortName": None},
            f"{NEEDS_COHORT} cohortName",
            id="limits of a ClusterQueue without cohort",
        ),
        pytest.param(
            "Cohort",
            {"spec.parentName": None},
            f"{NEEDS_COHORT} parentName",
            id="limits of a Cohort without parent",
        ),
        pytest.param(
            "Cohort",
            {"spec.resourceGroups.0.coveredResources": ["cpu"]},
            "every flavor must list as many resources as coveredResources",
            id="a flavor with more resources than its group",
        ),
        pytest.param(
            "ClusterQueue",
            {"spec.flavorFungibility.whenCanBorrow": "MayStopSearch"},
            "preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
            id="a preference among flavors that are not looked at",
        ),
        pytest.param(
            "ClusterQueue",
            {"spec.preemption.reclaimWithinCohort": "Never"},
            "borrowWithinCohort needs reclaimWithinCohort other than Never",
            id="preemption while borrowing without reclaim",
        ),
        pytest.param(
            "ClusterQueue",
            {"spec.resourceGroups": [make_resource_group(cohort=True)] * 2},
            "concurrentAdmissionPolicy needs exactly one resource group",
            id="concurrent admission with two groups",
        ),
        pytest.param(
            "ClusterQueue",
            {"spec.queueingStrategy": "StrictFIFO"},
            "concurrentAdmissionPolicy cannot be combined with queueingStrategy StrictFIFO",
            id="concurrent admission in strict order",
        ),
        pytest.param(
            "ClusterQueue",
            {"spec.concurrentAdmissionPolicy.migration.mode": "RetainFirstAdmission"},
            "migration constraints need mode TryPreferredFlavors",
            id="limits of a migration that never happens",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.nodeLabels": {}},
            "topologyName needs at least one entry in nodeLabels",
            id="a topology for nodes that no label selects",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.nodeTaints.0.effect": "Never"},
            "effect of a taint must be NoSchedule, PreferNoSchedule or NoExecute",
            id="an effect of a taint that is none",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"effect": "NoSchedule"}]},
            "a toleration without key needs operator Exists",
            id="a toleration of nothing",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"key": "a", "tolerationSeconds": 5, "effect": "NoSchedule"}]},
            "tolerationSeconds needs effect NoExecute",
            id="a toleration for a time of what has none",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            "a toleration with operator Exists takes no value",
            id="a toleration of any value with a value",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"key": "a", "operator": "Like"}]},
            "operator of a toleration must be Equal or Exists",
            id="an operator of a toleration that is none",
        ),
        pytest.param(
            "Workload",
            {"status": None, "spec.podSets.0.minCount": 4},
            "minCount must not exceed count",
            id="a minimum above the count",
        ),
        pytest.param(
            "Workload",
            {"spec.priority": None},
            "priorityClassRef needs priority",
            id="a priority class without priority",
        ),
        pytest.param(
            "Workload",
            {"spec.priorityClassRef.group": "scheduling.k8s.io"},
            "kind WorkloadPriorityClass goes with group kueue.x-k8s.io",
            id="a priority class of another group",
        ),
        pytest.param(
            "Topology",
            {"spec.levels.0.nodeLabel": "cloud.example.com/rack"},
            "levels must be unique",
            id="a level twice",
        ),
        pytest.param(
            "Topology",
            {"spec.levels.0.nodeLabel": "kubernetes.io/hostname", "spec.levels.2.nodeLabel": "block"},
            "kubernetes.io/hostname can only be the last level",
            id="hosts above racks",
        ),
    ],
)
def test_a_wrong_object_is_refused_with_a_sentence(
    real_server: Rest, kind: str, changes: Object, want: str
) -> None:
    assert want in refusal(real_server, "POST", collection(kind), put_all(full(kind), changes))


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        pytest.param(
            "status.admission.podSetAssignments",
            [],
            "podSetAssignments must have one entry for each of the podSets",
            id="an admission without all pod sets",
        ),
        pytest.param(
            "status.admission.podSetAssignments.0.topologyAssignment.levels",
            ["block"],
            "valuesPerLevel must have one entry for each of the levels",
            id="a placement with values for a level that is none",
        ),
        pytest.param(
            "status.admission.podSetAssignments.0.topologyAssignment.slices.0.domainCount",
            3,
            "roots must have domainCount entries",
            id="a slice with a domain too many",
        ),
        pytest.param(
            "status.admission.podSetAssignments.0.topologyAssignment.slices.0.podCounts.individual",
            [1],
            "individual podCounts must have domainCount entries",
            id="a slice with a pod count too few",
        ),
        pytest.param(
            "status.admission.podSetAssignments.0.topologyAssignment.slices.0.podCounts.universal",
            1,
            "exactly one of universal and individual must be set",
            id="pod counts in two forms",
        ),
        pytest.param(
            "status.nominatedClusterNames",
            ["worker-2"],
            "clusterName and nominatedClusterNames exclude each other",
            id="a cluster chosen and others nominated",
        ),
        pytest.param(
            "status.clusterName",
            "worker-2",
            "clusterName may be set or cleared, not changed",
            id="another cluster",
        ),
    ],
)
def test_a_wrong_status_is_refused_with_a_sentence(
    real_server: Rest, path: str, value: Any, want: str
) -> None:
    workload = admitted(real_server)

    assert want in refusal(real_server, "PUT", f"{path_of(workload)}/status", put(workload, path, value))


@pytest.mark.parametrize(
    ("kind", "path", "value", "want"),
    [
        pytest.param("LocalQueue", "spec.clusterQueue", "other", "field is immutable", id="the ClusterQueue"),
        pytest.param(
            "AdmissionCheck", "spec.controllerName", "other", "field is immutable", id="the controller"
        ),
        pytest.param(
            "ResourceFlavor",
            "spec.topologyName",
            None,
            "topologyName is immutable once set",
            id="the topology",
        ),
        pytest.param(
            "ClusterQueue",
            "spec.concurrentAdmissionPolicy",
            None,
            "concurrentAdmissionPolicy is immutable",
            id="concurrent admission",
        ),
        pytest.param(
            "Topology",
            "spec.levels",
            [{"nodeLabel": "block"}],
            "levels are immutable unless kubernetes.io/hostname is the last one before and after",
            id="levels that end in hosts no more",
        ),
        pytest.param(
            "Workload",
            "spec.queueName",
            "other",
            "queueName is immutable while quota is reserved",
            id="queue",
        ),
        pytest.param(
            "Workload",
            "spec.priorityClassRef",
            None,
            "priorityClassRef is immutable while quota is reserved",
            id="whether there is a priority class",
        ),
        pytest.param(
            "Workload",
            "spec.priorityClassRef",
            {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"},
            "priorityClassRef.kind is immutable while quota is reserved",
            id="the kind of priority class",
        ),
        pytest.param(
            "Workload",
            "spec.maximumExecutionTimeSeconds",
            7200,
            "maximumExecutionTimeSeconds is immutable while admitted",
            id="the time limit",
        ),
    ],
)
def test_what_is_frozen_cannot_be_changed(
    real_server: Rest, kind: str, path: str, value: Any, want: str
) -> None:
    kept = admitted(real_server) if kind == "Workload" else create(real_server, full(kind))

    assert want in refusal(real_server, "PUT", path_of(kept), put(kept, path, value))


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        pytest.param(
            "Workload", "spec.priorityClassRef.name", "low", id="the name of a WorkloadPriorityClass"
        ),
        pytest.param("Workload", "spec.priority", 5, id="the priority"),
        pytest.param("Workload", "spec.active", True, id="whether a Workload is active"),
        pytest.param(
            "Topology", "spec.levels", [{"nodeLabel": "kubernetes.io/hostname"}], id="levels above hosts"
        ),
        pytest.param("ResourceFlavor", "spec.nodeLabels", {"gpu": "h100"}, id="the nodes of a flavor"),
    ],
)
def test_what_is_not_frozen_can_be_changed(real_server: Rest, kind: str, path: str, value: Any) -> None:
    kept = admitted(real_server) if kind == "Workload" else create(real_server, full(kind))

    changed = real_server.request("PUT", path_of(kept), put(kept, path, value))

    assert content(changed)["spec"] == kept["spec"]


def test_a_workload_without_quota_may_change_its_queue(real_server: Rest) -> None:
    kept = create(real_server, full("Workload"))

    assert real_server.patch(path_of(kept), {"spec": {"queueName": "other"}})["spec"]["queueName"] == "other"
