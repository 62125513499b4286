"""CEL rules on the real server: a violation is rejected with the message of the rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.changes import put, put_all
from tests.api.samples import Object, full, make_resource_group
from tests.api.serving import admitted, collection, content, create, path_of, refusal
from tests.controlplane import Rest


@pytest.mark.parametrize(
    ("kind", "changes", "want"),
    [
        pytest.param(
            "ClusterQueue",
            {"spec.cohortName": None},
            "borrowingLimit must be nil when cohort is empty",
            id="limits of a ClusterQueue without cohort",
        ),
        pytest.param(
            "Cohort",
            {"spec.resourceGroups.0.coveredResources": ["cpu"]},
            "flavors must have the same number of resources as the coveredResources",
            id="a flavor with more resources than its group",
        ),
        pytest.param(
            "ClusterQueue",
            {"spec.flavorFungibility.whenCanBorrow": "MayStopSearch"},
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
            id="a preference among flavors that are not looked at",
        ),
        pytest.param(
            "ClusterQueue",
            {"spec.preemption.reclaimWithinCohort": "Never"},
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
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
            "at least one nodeLabel is required when topology is set",
            id="a topology for nodes that no label selects",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.nodeTaints.0.effect": "Never"},
            "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
            id="an effect of a taint that is none",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"effect": "NoSchedule"}]},
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
            id="a toleration of nothing",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"key": "a", "tolerationSeconds": 5, "effect": "NoSchedule"}]},
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            id="a toleration for a time of what has none",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
            "a value must be empty when 'operator' is 'Exists'",
            id="a toleration of any value with a value",
        ),
        pytest.param(
            "ResourceFlavor",
            {"spec.tolerations": [{"key": "a", "operator": "Like"}]},
            "supported toleration values: 'Equal'(default), 'Exists'",
            id="an operator of a toleration that is none",
        ),
        pytest.param(
            "Workload",
            {"status": None, "spec.podSets.0.minCount": 4},
            "minCount should be positive and less or equal to count",
            id="a minimum above the count",
        ),
        pytest.param(
            "Workload",
            {"spec.priority": None},
            "priority should not be nil when priorityClassRef is set",
            id="a priority class without priority",
        ),
        pytest.param(
            "Workload",
            {"spec.priorityClassRef.group": "scheduling.k8s.io"},
            "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
            id="a priority class of another group",
        ),
        pytest.param(
            "Workload",
            {"spec.priorityClassRef.kind": "PriorityClass"},
            "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
            id="a priority class of another kind",
        ),
        pytest.param(
            "Topology",
            {"spec.levels.0.nodeLabel": "cloud.example.com/rack"},
            "must be unique",
            id="a level twice",
        ),
        pytest.param(
            "Topology",
            {"spec.levels.0.nodeLabel": "kubernetes.io/hostname", "spec.levels.2.nodeLabel": "block"},
            "the kubernetes.io/hostname label can only be used at the lowest level of topology",
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
            "podSetAssignments must have the same number of podSets as the spec",
            id="an admission without all pod sets",
        ),
        pytest.param(
            "status.admission.podSetAssignments.0.topologyAssignment.levels",
            ["block"],
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
            id="a placement with values for a level that is none",
        ),
        pytest.param(
            "status.admission.podSetAssignments.0.topologyAssignment.slices.0.domainCount",
            3,
            "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this"
            " TopologyAssignmentSlice",
            id="a slice with a domain too many",
        ),
        pytest.param(
            "status.admission.podSetAssignments.0.topologyAssignment.slices.0.podCounts.individual",
            [1],
            "podCounts.individual must have length equal to domainCount",
            id="a slice with a pod count too few",
        ),
        pytest.param(
            "status.admission.podSetAssignments.0.topologyAssignment.slices.0.podCounts.universal",
            1,
            "exactly one of the fields in [universal individual] must be set",
            id="pod counts in two forms",
        ),
        pytest.param(
            "status.nominatedClusterNames",
            ["worker-2"],
            "clusterName and nominatedClusterNames are mutually exclusive",
            id="a cluster chosen and others nominated",
        ),
        pytest.param(
            "status.clusterName",
            "worker-2",
            "clusterName is immutable once set",
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
            "topologyName is immutable when topologyName is set",
            id="the topology",
        ),
        pytest.param(
            "ResourceFlavor",
            "spec.nodeLabels",
            {"gpu": "h100"},
            "nodeLabels are immutable when topologyName is set",
            id="the nodes of a flavor with a topology",
        ),
        pytest.param(
            "ResourceFlavor",
            "spec.tolerations",
            None,
            "tolerations are immutable when topologyName is set",
            id="the tolerations of a flavor with a topology",
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
            [{"nodeLabel": "other"}, {"nodeLabel": "kubernetes.io/hostname"}],
            "field is immutable",
            id="levels, also above the host",
        ),
        pytest.param(
            "Workload",
            "spec.queueName",
            "other",
            "queueName is immutable while workload quota reserved",
            id="queue",
        ),
        pytest.param(
            "Workload",
            "spec.priorityClassRef",
            None,
            "priorityClassRef is immutable while workload quota reserved",
            id="whether there is a priority class",
        ),
        pytest.param(
            "Workload",
            "spec.priorityClassRef",
            {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"},
            "priorityClassRef.kind is immutable while workload quota reserved",
            id="the kind of priority class",
        ),
        pytest.param(
            "Workload",
            "spec.maximumExecutionTimeSeconds",
            7200,
            "maximumExecutionTimeSeconds is immutable while workload quota reserved",
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
    ("path", "value"),
    [
        pytest.param("spec.priorityClassRef.name", "low", id="the name of a WorkloadPriorityClass"),
        pytest.param("spec.priority", 5, id="the priority"),
        pytest.param("spec.active", True, id="whether it is active"),
    ],
)
def test_what_is_not_frozen_of_a_workload_can_be_changed(real_server: Rest, path: str, value: Any) -> None:
    kept = admitted(real_server)

    changed = real_server.request("PUT", path_of(kept), put(kept, path, value))

    assert content(changed)["spec"] == kept["spec"]


def test_a_workload_without_quota_may_change_its_queue(real_server: Rest) -> None:
    kept = create(real_server, full("Workload"))

    assert real_server.patch(path_of(kept), {"spec": {"queueName": "other"}})["spec"]["queueName"] == "other"
