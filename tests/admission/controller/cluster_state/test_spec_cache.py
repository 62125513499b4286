"""What a changed queue, flavor or namespace has looked at again."""

from __future__ import annotations

import json

import pytest

from tests.admission.controller.known import (
    Known,
    Object,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)

JOB = made("Job", "j", "team", version="batch/v1", spec={"template": {"spec": {}}})
STOPPED = {"clusterQueue": "cq", "stopPolicy": "Hold"}
PRIORITY = {**made("WorkloadPriorityClass", "high"), "value": 5}


def only_for(team: str, kind: str = "WorkloadPriorityClass") -> Object:
    """Return the class, of this kind, for namespaces of this team alone."""
    selector = json.dumps({"matchLabels": {"team": team}})
    annotations = {"berth.dev/namespace-selector": selector}
    return {**PRIORITY, "kind": kind, "metadata": {**PRIORITY["metadata"], "annotations": annotations}}


def make_known() -> Known:
    """Return a state with a Workload in each of two LocalQueues and a Job, of which none is marked."""
    known = Known(
        namespace_object("team"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("cq", "4"),
        local_queue_object("main", "team", "cq"),
        local_queue_object("other", "team", "cq"),
        JOB,
        workload_object("w", "team", "main"),
        workload_object("x", "team", "other"),
    )
    # As the control loop does before it takes marks.
    while known.cluster_state.engine.catch_up(now=1_000.0):
        pass
    marked(known)
    return known


def marked(known: Known) -> list[str]:
    """Take all marks; return the names of what was marked."""
    marks = known.cluster_state.marks
    takes = (marks.take_workload, marks.take_swept, marks.take_job)
    keys = [key for take in takes for key in iter(take, None)]
    return [key[-1] for key in keys if key is not None]


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param(
            made("LocalQueue", "main", "team", spec=STOPPED), ["w"], id="a LocalQueue: its own Workloads"
        ),
        pytest.param(cluster_queue_object("cq", "8"), ["w", "x"], id="a ClusterQueue: every Workload"),
        pytest.param(
            {**cluster_queue_object("cq", "4"), "status": {"pendingWorkloads": 2}}, [], id="a status: none"
        ),
        pytest.param(
            namespace_object("team", tier="gold"), ["w", "x", "j"], id="a namespace's labels: its Jobs too"
        ),
        pytest.param(namespace_object("team"), [], id="the same labels: none"),
        pytest.param(PRIORITY, ["w", "x", "j"], id="a priority class: every Job, and Workloads without one"),
        pytest.param(
            made("ResourceFlavor", "f", spec={"nodeTaints": [{"key": "k", "effect": "NoSuch"}]}),
            ["w", "x"],
            id="a spec that cannot be read any more: every Workload",
        ),
    ],
)
def test_a_changed_spec_marks_what_it_may_affect(changed: Object, want: list[str]) -> None:
    known = make_known()

    known.tell(changed)

    assert marked(known) == want


def test_a_spec_that_has_become_unreadable_keeps_its_last_value() -> None:
    known = make_known()

    known.tell(made("ClusterQueue", "cq", spec={"resourceGroups": [{"coveredResources": []}]}))

    assert known.cluster_state.specs.cluster_queues["cq"].name == "cq"


@pytest.mark.parametrize("kind", ["WorkloadPriorityClass", "PriorityClass"])
def test_a_priority_class_is_for_the_namespaces_that_its_selector_selects_now(kind: str) -> None:
    known = Known(namespace_object("team", team="red"), only_for("blue", kind))
    specs = known.cluster_state.specs
    may = specs.may_use_class if kind == "WorkloadPriorityClass" else specs.may_use_pod_class

    def may_use() -> tuple[bool, bool]:
        return may("high", "team"), may("high", "unknown")

    assert may_use() == (False, False)
    known.tell(namespace_object("team", team="blue"))
    assert may_use() == (True, False)
    known.tell({**PRIORITY, "kind": kind})
    assert may_use() == (True, True)
    broken = only_for("blue", kind)
    broken["metadata"]["annotations"]["berth.dev/namespace-selector"] = "team=blue"
    known.tell(broken)
    assert may_use() == (False, False)
    said = known.cluster_state.inspection.sentence(kind, "", "high") or ""
    assert "must be a label selector" in said
