"""What of a budget is left for a group while others of its application go, and which are looked at again."""

from __future__ import annotations

from typing import Any

import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.controller.cluster_state.pod_groups import UnitKey
from api import keys
from api.kube.informer import ChangeType
from tests.admission.controller.known import Known, made
from tests.admission.podworld import member_object

Object = dict[str, Any]
A, B = UnitKey("team", "a", ""), UnitKey("team", "b", "")


def pod(name: str, group: str) -> Object:
    """Return a pod of a group that runs."""
    found = member_object(name, labels={keys.POD_GROUP_NAME: group, "app": "chat"})
    found["spec"]["schedulingGates"] = []
    found["status"]["phase"] = "Running"
    return found


def budget(allowed: int) -> Object:
    """Return the application's budget."""
    spec = {"selector": {"matchLabels": {"app": "chat"}}}
    status = {"disruptionsAllowed": allowed, "observedGeneration": 1}
    return made("PodDisruptionBudget", "chat", "team", version="policy/v1", spec=spec, status=status)


def group(name: str, may_go: bool | None) -> Object:
    """Return the Workload of a group that may go together, is kept, or is asked nothing."""
    spec = {"podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": []}}}]}
    word = {"type": "berth.dev/DisruptionAllowed", "status": str(may_go), "reason": "r", "message": "m"}
    word["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {"conditions": [] if may_go is None else [word]}
    annotations = {keys.IS_GROUP_WORKLOAD: "true"}
    return made("Workload", name, "team", annotations=annotations, spec=spec, status=status)


@pytest.fixture
def known() -> Known:
    """Give a Knowledge of two groups of two pods under a budget that lets three go."""
    pods = [pod(f"{name}-{number}", name) for name in ("a", "b") for number in (0, 1)]
    settings = ClusterStateSettings(with_pods=True)
    return Known(*pods, group("a", None), group("b", None), budget(3), settings=settings)


def left_for(known: Known, unit: UnitKey) -> int:
    """Return how many pods of a unit the budget lets go."""
    (found,) = known.cluster_state.disruptions.budgets_for(unit)
    return found.allowed


def dirty(known: Known) -> list[UnitKey]:
    """Return the units that are to be looked at, and take their marks away."""
    found = []
    while (unit := known.cluster_state.pods.take_dirty()) is not None:
        found.append(unit)
    return found


def test_what_a_group_takes_that_goes_is_not_there_for_another(known: Known) -> None:
    known.tell(group("a", True), ChangeType.MODIFIED)

    assert (left_for(known, A), left_for(known, B)) == (3, 1)


def test_where_a_group_takes_more_than_there_is_nothing_is_left(known: Known) -> None:
    known.tell(group("a", True), ChangeType.MODIFIED)

    # The server has counted them off already.
    known.tell(budget(1), ChangeType.MODIFIED)

    assert left_for(known, B) == 0


def test_what_a_group_takes_is_reserved_while_its_write_is_on_the_way(known: Known) -> None:
    disruptions = known.cluster_state.disruptions
    disruptions.note_sent(A)
    assert left_for(known, B) == 1

    disruptions.note_answered(A)

    assert left_for(known, B) == 3


def test_a_kept_group_is_looked_at_when_its_budget_changes_or_another_has_gone(known: Known) -> None:
    known.tell(group("a", True), ChangeType.MODIFIED)
    known.tell(group("b", False), ChangeType.MODIFIED)
    dirty(known)

    known.tell(budget(4), ChangeType.MODIFIED)
    assert dirty(known) == [B]
    known.tell(group("a", None), ChangeType.MODIFIED)
    assert B in dirty(known)
    known.tell(group("b", None), ChangeType.MODIFIED)
    dirty(known)

    known.tell(budget(0), ChangeType.MODIFIED)
    assert dirty(known) == []
