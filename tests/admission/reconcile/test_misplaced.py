"""Pods that run outside of their domains: reported by a condition and an event until they are gone."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from admission.decisions.api_writes import Purpose, Write
from admission.reconcile.workload.context import LifecycleContext, PlacedPod
from admission.reconcile.workload.reconcile import reconcile_workload
from api.workload import Condition, Workload
from tests.admission.engine.test_lost_nodes import make_gang, make_pod
from tests.admission.engine.test_second_pass import admitted
from tests.admission.flavors.test_topology_assigner import make_engine, make_workload

WRONG = make_pod("p", host="n7")
MESSAGE = "pod p runs on node n7: outside of the domains assigned to the workload"


def reported(workload: Workload, *pods: PlacedPod) -> tuple[dict[str, str], list[str]] | None:
    """Return the condition that is written, and the notes of its events; None where nothing is."""
    context = LifecycleContext(misplaced=pods, pods=pods)
    conditions = [
        {
            "type": one.type,
            "status": str(one.status),
            "reason": one.reason,
            "message": one.message,
            "observedGeneration": 0,
        }
        for one in workload.conditions.values()
    ]
    raw = msgspec.json.encode({"status": {"conditions": conditions}})
    result = reconcile_workload(workload, raw, context, now=5.0)
    found = [one for one in result.actions if isinstance(one, Write) and one.purpose is Purpose.REPORT_PODS]
    if not found:
        return None
    status = msgspec.json.decode(found[0].body)["status"]
    (condition,) = (one for one in status["conditions"] if one["type"] == "berth.dev/Misplaced")
    return condition, [event.note for event in found[0].events]


def marked(*, is_true: bool) -> Workload:
    """Return a gang with the condition."""
    gang = make_gang()
    condition = Condition(type="berth.dev/Misplaced", status=is_true, reason="PodsElsewhere", message=MESSAGE)
    return replace(gang, conditions={**gang.conditions, condition.type: condition})


def test_a_pod_elsewhere_is_reported_by_name_and_node() -> None:
    found = reported(make_gang(), WRONG)

    assert found is not None
    condition, notes = found
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "True",
        "PodsElsewhere",
        MESSAGE,
    )
    assert notes == ["pod p runs on node n7"]


def test_a_reported_pod_is_not_reported_again_and_only_the_new_one_has_an_event() -> None:
    assert reported(marked(is_true=True), WRONG) is None

    found = reported(marked(is_true=True), WRONG, make_pod("q", host="n8"))

    assert found is not None
    assert found[1] == ["pod q runs on node n8"]


def test_the_condition_turns_false_when_all_are_in_place() -> None:
    found = reported(marked(is_true=True))

    assert found is not None
    assert (found[0]["status"], found[1]) == ("False", [])
    assert reported(make_gang()) is None


@pytest.mark.parametrize(
    ("node", "want"),
    [
        pytest.param("n0", True, id="its own node"),
        pytest.param("n3", False, id="another node"),
        pytest.param("unknown", True, id="a node that is not known"),
    ],
)
def test_a_node_is_in_place(node: str, want: bool) -> None:
    engine = make_engine()
    gang = admitted(engine, make_workload("gang", 4))

    assert engine.nodes.is_in_place(gang.key, "main", node) is want
