"""Conversion of v1beta1 manifests to v1beta2: a row for each difference between the two versions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.definitions.conversion import NEW_VERSION, OLD_VERSION, convert
from api.models.cluster_queue import ClusterQueue
from tests.api.samples import Object, full


def old(kind: str, **parts: Any) -> Object:
    return {"apiVersion": OLD_VERSION, "kind": kind, "metadata": {"name": "one"}, **parts}


def new(kind: str, **parts: Any) -> Object:
    return {**old(kind, **parts), "apiVersion": NEW_VERSION}


def assigned(assignment: Object) -> Object:
    return {"admission": {"clusterQueue": "cq", "podSetAssignments": [{"topologyAssignment": assignment}]}}


@pytest.mark.parametrize(
    ("before", "want"),
    [
        pytest.param(
            old("ClusterQueue", spec={"cohort": "research"}),
            new("ClusterQueue", spec={"cohortName": "research"}),
            id="cohort of a ClusterQueue is cohortName",
        ),
        pytest.param(
            old("ClusterQueue", spec={"cohort": ""}),
            new("ClusterQueue", spec={}),
            id="an empty cohort is none",
        ),
        pytest.param(
            old("ClusterQueue", spec={"admissionChecks": ["a", "b"]}),
            new(
                "ClusterQueue",
                spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}},
            ),
            id="names of admission checks are rules for every flavor",
        ),
        pytest.param(
            old(
                "ClusterQueue",
                spec={
                    "admissionChecks": ["a", "b"],
                    "admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]},
                },
            ),
            new(
                "ClusterQueue",
                spec={
                    "admissionChecksStrategy": {
                        "admissionChecks": [{"name": "a", "onFlavors": ["f"]}, {"name": "b"}]
                    }
                },
            ),
            id="a check that has a rule keeps it",
        ),
        pytest.param(
            old("ClusterQueue", spec={"admissionChecksStrategy": {"admissionChecks": []}}),
            new("ClusterQueue", spec={}),
            id="a strategy without checks is none",
        ),
        pytest.param(
            old(
                "ClusterQueue",
                spec={"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
            ),
            new(
                "ClusterQueue",
                spec={
                    "flavorFungibility": {
                        "whenCanBorrow": "MayStopSearch",
                        "whenCanPreempt": "MayStopSearch",
                    }
                },
            ),
            id="Borrow and Preempt are MayStopSearch",
        ),
        pytest.param(
            old("ClusterQueue", spec={"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}}),
            new("ClusterQueue", spec={"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}}),
            id="TryNextFlavor stays",
        ),
        pytest.param(
            old("ClusterQueue", status={"pendingWorkloads": 1, "pendingWorkloadsStatus": {"head": []}}),
            new("ClusterQueue", status={"pendingWorkloads": 1}),
            id="the list of pending Workloads is dropped",
        ),
        pytest.param(
            old(
                "Workload",
                spec={
                    "priority": 5,
                    "priorityClassName": "high",
                    "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
                },
            ),
            new(
                "Workload",
                spec={
                    "priority": 5,
                    "priorityClassRef": {
                        "group": "kueue.x-k8s.io",
                        "kind": "WorkloadPriorityClass",
                        "name": "high",
                    },
                },
            ),
            id="a WorkloadPriorityClass is referred to",
        ),
        pytest.param(
            old(
                "Workload",
                spec={
                    "priorityClassName": "high",
                    "priorityClassSource": "scheduling.k8s.io/priorityclass",
                },
            ),
            new(
                "Workload",
                spec={
                    "priorityClassRef": {
                        "group": "scheduling.k8s.io",
                        "kind": "PriorityClass",
                        "name": "high",
                    }
                },
            ),
            id="a PriorityClass is referred to",
        ),
        pytest.param(
            old("Workload", spec={"priorityClassName": "high", "priorityClassSource": ""}),
            new("Workload", spec={}),
            id="a class of no source is dropped",
        ),
        pytest.param(
            old(
                "Workload",
                status=assigned(
                    {
                        "levels": ["block", "rack"],
                        "domains": [
                            {"values": ["b1", "r1"], "count": 4},
                            {"values": ["b1", "r2"], "count": 2},
                        ],
                    }
                ),
            ),
            new(
                "Workload",
                status=assigned(
                    {
                        "levels": ["block", "rack"],
                        "slices": [
                            {
                                "domainCount": 2,
                                "valuesPerLevel": [
                                    {"universal": "b1"},
                                    {"individual": {"prefix": "r", "roots": ["1", "2"]}},
                                ],
                                "podCounts": {"individual": [4, 2]},
                            }
                        ],
                    }
                ),
            ),
            id="domains of a placement are a slice",
        ),
        pytest.param(
            old(
                "Workload", status=assigned({"levels": ["host"], "domains": [{"values": ["n"], "count": 1}]})
            ),
            new(
                "Workload",
                status=assigned(
                    {
                        "levels": ["host"],
                        "slices": [
                            {
                                "domainCount": 1,
                                "valuesPerLevel": [{"universal": "n"}],
                                "podCounts": {"universal": 1},
                            }
                        ],
                    }
                ),
            ),
            id="what all domains share is said once",
        ),
        pytest.param(
            old("Workload", status=assigned({"levels": ["host"], "domains": []})),
            new("Workload", status=assigned({"levels": ["host"], "slices": []})),
            id="a placement of nothing has no slices",
        ),
        pytest.param(
            old("Workload", status={"accumulatedPastExexcutionTimeSeconds": 7}),
            new("Workload", status={"accumulatedPastExecutionTimeSeconds": 7}),
            id="accumulated time loses a letter",
        ),
        pytest.param(
            old("LocalQueue", status={"flavorUsage": [{"name": "f", "resources": []}], "flavors": [{}]}),
            new("LocalQueue", status={"flavorsUsage": [{"name": "f", "resources": []}]}),
            id="flavorUsage of a LocalQueue is flavorsUsage, and flavors are dropped",
        ),
        pytest.param(
            old("MultiKueueCluster", spec={"kubeConfig": {"location": "secret", "locationType": "Secret"}}),
            new(
                "MultiKueueCluster",
                spec={"clusterSource": {"kubeConfig": {"location": "secret", "locationType": "Secret"}}},
            ),
            id="kubeConfig of a MultiKueueCluster is one of its sources",
        ),
        pytest.param(
            old("MultiKueueConfig", spec={"clusters": ["a"]}),
            new("MultiKueueConfig", spec={"clusters": ["a"]}),
            id="a MultiKueueConfig stays the same",
        ),
        pytest.param(
            old("AdmissionCheck", spec={"controllerName": "c", "retryDelayMinutes": 15}),
            new("AdmissionCheck", spec={"controllerName": "c"}),
            id="retryDelayMinutes of an AdmissionCheck is dropped",
        ),
        pytest.param(
            old("ResourceFlavor", spec={"nodeLabels": {"a": "b"}}),
            new("ResourceFlavor", spec={"nodeLabels": {"a": "b"}}),
            id="other kinds have one schema",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "List", "items": [old("Cohort"), {"kind": "Pod"}]},
            {"apiVersion": "v1", "kind": "List", "items": [new("Cohort"), {"kind": "Pod"}]},
            id="items of a list are converted one by one",
        ),
        pytest.param(
            old("ClusterQueueList", items=[old("ClusterQueue", spec={"cohort": "a"})]),
            new("ClusterQueueList", items=[new("ClusterQueue", spec={"cohortName": "a"})]),
            id="a typed list too",
        ),
        pytest.param(
            new("ClusterQueue", spec={"cohortName": "a"}),
            new("ClusterQueue", spec={"cohortName": "a"}),
            id="v1beta2 stays",
        ),
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "Job", "spec": {}},
            {"apiVersion": "batch/v1", "kind": "Job", "spec": {}},
            id="objects of others stay",
        ),
    ],
)
def test_an_object_says_the_same_in_v1beta2(before: Object, want: Object) -> None:
    given = copy.deepcopy(before)

    assert convert(given) == want
    assert given == before


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(old("ClusterQueue", spec="none"), id="a spec that is no object"),
        pytest.param(old("Workload", status={"admission": {"podSetAssignments": 1}}), id="assignments"),
        pytest.param(
            old("Workload", status=assigned({"levels": ["a"], "domains": [{"values": ["a", "b"]}]})),
            id="a domain of more levels than there are",
        ),
    ],
)
def test_what_is_malformed_is_left_for_validation(obj: Object) -> None:
    assert convert(obj) == {**obj, "apiVersion": NEW_VERSION}


FIELDS = st.sampled_from(
    [
        "admission",
        "admissionChecks",
        "admissionChecksStrategy",
        "domains",
        "flavorFungibility",
        "levels",
        "name",
        "podSetAssignments",
        "priorityClassName",
        "priorityClassSource",
        "topologyAssignment",
        "values",
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a", "Borrow"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
)


@given(kind=st.sampled_from(["ClusterQueue", "Workload", "LocalQueue"]), spec=ANYTHING, status=ANYTHING)
def test_conversion_never_fails(kind: str, spec: Any, status: Any) -> None:
    """Whatever a manifest contains, the result is an object whose faults validation can report."""
    assert convert(old(kind, spec=spec, status=status))["apiVersion"] == NEW_VERSION


def test_a_converted_manifest_is_a_valid_one() -> None:
    queue = {**full("ClusterQueue"), "apiVersion": OLD_VERSION}
    queue["spec"]["cohort"] = queue["spec"].pop("cohortName")
    queue["spec"]["flavorFungibility"]["whenCanBorrow"] = "Borrow"

    assert ClusterQueue.model_validate(convert(queue)).spec.cohort_name == "research"
