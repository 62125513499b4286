"""Conversion from v1beta2 to v1beta1 and back: a row for each difference, and that nothing is lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.definitions.conversion import convert
from api.definitions.older_form import to_older
from api.topology_encoding import topology_body
from api.workload import DomainCount, TopologyAssignment
from tests.api.definitions.test_conversion import ANYTHING, assigned, new, old
from tests.api.samples import FULL, Object, full


def referred(group: str, kind: str) -> Object:
    return {"priority": 5, "priorityClassRef": {"group": group, "kind": kind, "name": "high"}}


@pytest.mark.parametrize(
    ("before", "want"),
    [
        pytest.param(
            new("ClusterQueue", spec={"cohortName": "research", "stopPolicy": "None"}),
            old("ClusterQueue", spec={"stopPolicy": "None", "cohort": "research"}),
            id="cohortName of a ClusterQueue is cohort",
        ),
        pytest.param(
            new("ClusterQueue", spec={"flavorFungibility": {"whenCanBorrow": "MayStopSearch"}}),
            old("ClusterQueue", spec={"flavorFungibility": {"whenCanBorrow": "MayStopSearch"}}),
            id="MayStopSearch is a word of v1beta1 too",
        ),
        pytest.param(
            new("ClusterQueue", spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}}),
            old("ClusterQueue", spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}}),
            id="rules of admission checks stay rules",
        ),
        pytest.param(
            new("LocalQueue", status={"flavorsUsage": [{"name": "f", "resources": []}]}),
            old("LocalQueue", status={"flavorUsage": [{"name": "f", "resources": []}]}),
            id="flavorsUsage of a LocalQueue is flavorUsage",
        ),
        pytest.param(
            new("Workload", spec=referred("kueue.x-k8s.io", "WorkloadPriorityClass")),
            old(
                "Workload",
                spec={
                    "priority": 5,
                    "priorityClassName": "high",
                    "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
                },
            ),
            id="a WorkloadPriorityClass is named with its source",
        ),
        pytest.param(
            new("Workload", spec=referred("scheduling.k8s.io", "PriorityClass")),
            old(
                "Workload",
                spec={
                    "priority": 5,
                    "priorityClassName": "high",
                    "priorityClassSource": "scheduling.k8s.io/priorityclass",
                },
            ),
            id="a PriorityClass is named with its source",
        ),
        pytest.param(
            new("Workload", status={"accumulatedPastExecutionTimeSeconds": 0}),
            old("Workload", status={"accumulatedPastExexcutionTimeSeconds": 0}),
            id="accumulated time gains a letter",
        ),
        pytest.param(
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
                                    {"individual": {"prefix": "r", "roots": ["1", "2"], "suffix": "x"}},
                                ],
                                "podCounts": {"individual": [4, 2]},
                            },
                            {
                                "domainCount": 1,
                                "valuesPerLevel": [{"universal": "b2"}, {"universal": "r1"}],
                                "podCounts": {"universal": 1},
                            },
                        ],
                    }
                ),
            ),
            old(
                "Workload",
                status=assigned(
                    {
                        "levels": ["block", "rack"],
                        "domains": [
                            {"values": ["b1", "r1x"], "count": 4},
                            {"values": ["b1", "r2x"], "count": 2},
                            {"values": ["b2", "r1"], "count": 1},
                        ],
                    }
                ),
            ),
            id="the slices of a placement are its domains",
        ),
        pytest.param(
            new("Workload", spec={"preemptionGates": [{"name": "g"}]}),
            old("Workload", spec={"preemptionGates": [{"name": "g"}]}),
            id="a field that Kueue has in v1beta2 alone is kept",
        ),
        pytest.param(
            new("ResourceFlavor", spec={"nodeLabels": {"a": "b"}}),
            old("ResourceFlavor", spec={"nodeLabels": {"a": "b"}}),
            id="other kinds have one schema",
        ),
        pytest.param(
            old("ClusterQueue", spec={"cohort": "a"}),
            old("ClusterQueue", spec={"cohort": "a"}),
            id="v1beta1 stays",
        ),
    ],
)
def test_an_object_says_the_same_in_v1beta1(before: Object, want: Object) -> None:
    given = copy.deepcopy(before)

    assert to_older(given) == want
    assert given == before


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(new("ClusterQueue", spec="none"), id="a spec that is no object"),
        pytest.param(new("Workload", spec={"priorityClassRef": "high"}), id="a reference that is a text"),
        pytest.param(
            new("Workload", spec={"priorityClassRef": {"group": ["g"], "kind": {}, "name": "n"}}),
            id="a reference to lists",
        ),
        pytest.param(
            new("Workload", spec={"priorityClassRef": {"group": "g", "kind": "K", "name": "n"}}),
            id="a class of an unknown kind",
        ),
        pytest.param(
            new("Workload", status=assigned({"levels": ["a"], "slices": [{"domainCount": 1}]})),
            id="a slice without values",
        ),
        pytest.param(
            new(
                "Workload",
                status=assigned(
                    {
                        "levels": ["a"],
                        "slices": [
                            {
                                "domainCount": 10**9,
                                "valuesPerLevel": [{"universal": "x"}],
                                "podCounts": {"universal": 1},
                            }
                        ],
                    }
                ),
            ),
            id="a slice that claims more domains than it lists",
        ),
    ],
)
def test_what_is_malformed_stays_as_it_is(obj: Object) -> None:
    assert to_older(obj) == {**obj, "apiVersion": "kueue.x-k8s.io/v1beta1"}


KUEUE_KINDS = sorted(kind for kind, obj in FULL.items() if obj["apiVersion"].startswith("kueue."))

VALUES = st.text("ab-1", min_size=1, max_size=6)


@st.composite
def placements(draw: st.DrawFn) -> Object:
    """Draw a topology assignment as Berth and Kueue write it."""
    levels = draw(st.sampled_from([("rack",), ("block", "kubernetes.io/hostname")]))
    values = draw(st.lists(st.tuples(*(VALUES for _ in levels)), min_size=1, max_size=5, unique=True))
    domains = tuple(DomainCount(values=one, count=draw(st.integers(1, 3))) for one in values)
    return topology_body(TopologyAssignment(levels=levels, domains=domains))


@st.composite
def objects(draw: st.DrawFn) -> Object:
    """Draw a valid v1beta2 object: any of the fields of the full one of its kind."""
    obj = full(draw(st.sampled_from(KUEUE_KINDS)))
    for section in ("spec", "status"):
        fields = obj.get(section, {})
        for name in draw(st.sets(st.sampled_from(sorted(fields)))) if fields else ():
            del fields[name]
    admission = obj.get("status", {}).get("admission", {})
    for assignment in admission.get("podSetAssignments", ()):
        assignment["topologyAssignment"] = draw(placements())
    return obj


@given(obj=objects())
def test_there_and_back_is_the_same_object(obj: Object) -> None:
    """Law: v1beta1 holds all that v1beta2 does, so a client that writes back what it read changes nothing."""
    before = copy.deepcopy(obj)

    assert convert(to_older(obj)) == before


@given(kind=st.sampled_from(["ClusterQueue", "Workload", "LocalQueue"]), spec=ANYTHING, status=ANYTHING)
def test_conversion_never_fails(kind: str, spec: Any, status: Any) -> None:
    """Whatever was stored, one object does not keep the others from being listed."""
    assert to_older(new(kind, spec=spec, status=status))["apiVersion"] == "kueue.x-k8s.io/v1beta1"
