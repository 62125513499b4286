"""The chosen domains in the Job's template: added by the start, removed by the stop."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from api.jobs.job_patches import start_injection
from api.jobs.pod_template import injection_patch, restore_patch
from api.kube.embedded.apply.patches import merge_patch
from api.workload import (
    Admission,
    DomainCount,
    PodSetAssignment,
    TopologyAssignment,
    Workload,
    WorkloadKey,
)

BLOCK, RACK, HOST = "block", "rack", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Object = dict[str, Any]


def make_assignment(levels: tuple[str, ...], *domains: tuple[str, ...]) -> PodSetAssignment:
    """Return an assignment of one pod to each domain."""
    return PodSetAssignment(
        name="main",
        count=len(domains),
        flavors={},
        usage={},
        topology=TopologyAssignment(
            levels=levels, domains=tuple(DomainCount(values=values, count=1) for values in domains)
        ),
    )


def started(template: Object, assignment: PodSetAssignment) -> Object:
    """Return the template as a start leaves it; the flavor's nodes are in zone a."""
    workload = Workload(
        key=WorkloadKey("ns", "w"),
        uid="u",
        created_at=0.0,
        pod_sets=(),
        admission=Admission(cluster_queue="cq", pod_sets=(assignment,)),
    )
    injection = start_injection(workload, assignment, {"zone": "a"}, ())
    return dict(merge_patch(template, injection_patch(template, injection)))


def make_template(**spec: Any) -> Object:
    """Return a template as a user writes it; with its Job's label, as a Workload keeps it."""
    return {"metadata": {"labels": {"controller-uid": "j"}}, "spec": {"containers": [{"name": "c"}], **spec}}


def in_values(key: str, *values: str) -> Object:
    """Return one requirement of node affinity."""
    return {"key": key, "operator": "In", "values": list(values)}


def alternatives(*terms: Object) -> Object:
    """Return required node affinity."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


OWN = in_values("disk", "ssd")


@pytest.mark.parametrize(
    ("spec", "assignment", "selector", "affinity"),
    [
        pytest.param(
            {},
            make_assignment((BLOCK, RACK), ("b0", "r1")),
            {"zone": "a", BLOCK: "b0", RACK: "r1"},
            None,
            id="one domain is a node selector",
        ),
        pytest.param(
            {},
            make_assignment((BLOCK, RACK), ("b0", "r1"), ("b0", "r0")),
            {"zone": "a", BLOCK: "b0"},
            alternatives({"matchExpressions": [in_values(RACK, "r0", "r1")]}),
            id="several are the values that are allowed, what they share is selected",
        ),
        pytest.param(
            {"affinity": {"podAffinity": {"x": 1}, **alternatives({"matchExpressions": [OWN]}, {})}},
            make_assignment((RACK,), ("r0",), ("r1",)),
            {"zone": "a"},
            {
                "podAffinity": {"x": 1},
                **alternatives(
                    {"matchExpressions": [OWN, in_values(RACK, "r0", "r1")]},
                    {"matchExpressions": [in_values(RACK, "r0", "r1")]},
                ),
            },
            id="the user's own alternatives hold on, each narrowed",
        ),
        pytest.param(
            {},
            make_assignment((HOST,), ("n0",), ("n1",)),
            {"zone": "a"},
            None,
            id="hosts are set when the pod is ungated",
        ),
    ],
)
def test_a_start_is_written_to_the_template(
    spec: Object, assignment: PodSetAssignment, selector: Object, affinity: Object | None
) -> None:
    template = make_template(**spec)

    result = started(template, assignment)

    assert result["spec"]["nodeSelector"] == selector
    assert result["spec"].get("affinity") == affinity
    assert result["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]


@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param({}, id="none"),
        pytest.param({"podAffinity": {"x": 1}}, id="of pods"),
        pytest.param(alternatives({"matchExpressions": [OWN]}), id="of nodes"),
    ],
)
def test_a_stop_takes_it_off_again(affinity: Object) -> None:
    template = make_template(**({"affinity": affinity} if affinity else {}))
    original = copy.deepcopy(template)

    running = started(template, make_assignment((BLOCK, RACK), ("b0", "r1"), ("b0", "r0")))
    stopped = merge_patch(running, restore_patch(running, original))

    assert running != original
    assert {**stopped["spec"], "affinity": stopped["spec"].get("affinity") or None} == {
        **original["spec"],
        "affinity": affinity or None,
        "nodeSelector": {},
    }


def test_a_second_start_changes_nothing() -> None:
    assignment = make_assignment((RACK,), ("r0",), ("r1",))
    running = started(make_template(), assignment)

    assert started(running, assignment) == running
