"""The CRDs on API servers: they are established, set defaults, store objects, and reject invalid ones.

The embedded server must behave like the real one in all of this; for CEL rules see test_crds_rules.py.
"""

from __future__ import annotations

import pytest

from api.definitions.crds import crd
from tests.api.changes import put, put_all
from tests.api.samples import Object, full
from tests.api.serving import KIND_BY_NAME, collection, content, create, path_of, refusal
from tests.controlplane import Rest, RestError
from tests.controlplane.definitions import CRDS

each_kind = pytest.mark.parametrize("kind", KIND_BY_NAME)


@each_kind
def test_the_definition_is_established_without_a_fault(any_server: Rest, kind: str) -> None:
    name = f"{KIND_BY_NAME[kind].plural}.{KIND_BY_NAME[kind].group}"

    conditions = {c["type"]: c["status"] for c in any_server.get(f"{CRDS}/{name}")["status"]["conditions"]}

    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@each_kind
def test_a_full_object_comes_back_as_it_was_sent(any_server: Rest, kind: str) -> None:
    kept = create(any_server, full(kind))
    if "status" in full(kind) and "status" not in kept:
        kept = any_server.request("PUT", f"{path_of(kept)}/status", {**kept, "status": full(kind)["status"]})

    assert content(kept) == content(full(kind))
    assert content(any_server.get(path_of(kept))) == content(full(kind))


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        pytest.param(
            "ClusterQueue",
            {
                "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
                "preemption": {
                    "borrowWithinCohort": {"policy": "Never"},
                    "reclaimWithinCohort": "Never",
                    "withinClusterQueue": "Never",
                },
                "queueingStrategy": "BestEffortFIFO",
                "stopPolicy": "None",
            },
            id="ClusterQueue",
        ),
        pytest.param("LocalQueue", {"stopPolicy": "None"}, id="LocalQueue"),
        pytest.param("Workload", {"active": True}, id="Workload"),
        pytest.param(
            "AdmissionPolicy",
            {"aliases": "None", "clusterQueues": {}, "precedence": 0},
            id="AdmissionPolicy",
        ),
    ],
)
def test_defaults_are_filled_in(any_server: Rest, kind: str, want: Object) -> None:
    kept = create(any_server, {**full(kind), "spec": {}, "status": None})

    assert kept["spec"] == want


def test_a_pod_set_has_a_name_and_one_pod_by_default(any_server: Rest) -> None:
    workload = full("Workload")
    workload["spec"] = {"podSets": [{"template": {}}]}

    assert create(any_server, workload)["spec"]["podSets"] == [{"name": "main", "count": 1, "template": {}}]


def test_a_weight_is_one_by_default(any_server: Rest) -> None:
    queue = put(full("Cohort"), "spec.fairSharing", {})

    assert create(any_server, queue)["spec"]["fairSharing"] == {"weight": 1}


def test_unknown_fields_are_pruned_but_for_those_of_pod_templates(any_server: Rest) -> None:
    workload = put(full("Workload"), "spec.unknown", 1)
    put(workload, "spec.podSets.0.template.spec.unknown", {"a": 1})

    spec = create(any_server, workload)["spec"]

    assert "unknown" not in spec
    assert spec["podSets"][0]["template"]["spec"]["unknown"] == {"a": 1}


def test_workloads_are_selected_by_cluster_queue(any_server: Rest) -> None:
    workload = create(any_server, full("Workload"))
    put(workload, "status.admission", {"clusterQueue": "selected"})
    any_server.request("PUT", f"{path_of(workload)}/status", workload)

    found = any_server.get(f"{collection('Workload')}?fieldSelector=status.admission.clusterQueue%3Dselected")

    assert [item["metadata"]["name"] for item in found["items"]] == [workload["metadata"]["name"]]


@pytest.mark.parametrize(
    ("kind", "changes", "want"),
    [
        pytest.param(
            "ClusterQueue",
            {"spec.resourceGroups.0.flavors.1.name": "a100"},
            'Duplicate value: {"name":"a100"}',
            id="a flavor twice",
        ),
        pytest.param(
            "ClusterQueue",
            {"spec.resourceGroups.0.flavors.0.resources.0.nominalQuota": "8 GPUs"},
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
            id="a quantity that is none",
        ),
        pytest.param(
            "ClusterQueue",
            {"spec.stopPolicy": "Stop"},
            'Unsupported value: "Stop"',
            id="a word that is no choice",
        ),
        pytest.param("Topology", {"spec": None}, "spec: Required value", id="a topology without levels"),
        pytest.param(
            "WorkloadPriorityClass", {"value": None}, "value: Required value", id="a priority class of none"
        ),
        pytest.param(
            "AdmissionPolicy", {"spec.aliases": "All"}, 'Unsupported value: "All"', id="aliases of no kind"
        ),
    ],
)
def test_what_the_schema_forbids_is_refused(any_server: Rest, kind: str, changes: Object, want: str) -> None:
    assert want in refusal(any_server, "POST", collection(kind), put_all(full(kind), changes))


def test_null_is_as_good_as_absent_for_fields_and_values_of_maps(any_server: Rest) -> None:
    flavor = put_all(full("ResourceFlavor"), {"spec.nodeLabels.old": None, "spec.topologyName": None})

    spec = create(any_server, flavor)["spec"]

    assert spec["nodeLabels"] == {"gpu": "a100"}
    assert "topologyName" not in spec


def test_null_is_kept_where_everything_is(any_server: Rest) -> None:
    workload = put(full("Workload"), "spec.podSets.0.template.spec.unknown", None)

    template = create(any_server, workload)["spec"]["podSets"][0]["template"]

    assert template["spec"]["unknown"] is None


@each_kind
def test_the_definition_is_kept_as_it_was_sent(any_server: Rest, kind: str) -> None:
    """Otherwise `kubectl apply` would find a difference each time."""
    sent = crd(KIND_BY_NAME[kind])

    kept = any_server.get(f"{CRDS}/{sent['metadata']['name']}")["spec"]

    assert kept == sent["spec"]


@pytest.mark.parametrize("count", [2**31, -1, 2**63], ids=["above int32", "below 0", "above int64"])
def test_a_number_of_pods_that_no_int32_holds_is_refused(any_server: Rest, count: int) -> None:
    workload = put(full("Workload"), "spec.podSets.0.count", count)

    with pytest.raises(RestError, match=r"spec\.podSets\[0\]\.count"):
        create(any_server, workload)
