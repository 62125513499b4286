"""Marks of all Workloads: each is looked at once, and marking them takes no time of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from admission.controller.cluster_state.dirty_set import DirtySet
from admission.controller.cluster_state.pod_groups import UnitKey
from api import keys
from api.kube.informer import ChangeType
from tests.admission.controller.known import Known, Object, made, workload_object

_FINISHED = {"conditions": [{"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}]}


def group(name: str) -> Object:
    """Return the Workload of a group of pods."""
    spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}
    return made("Workload", name, "team", annotations={keys.IS_GROUP_WORKLOAD: "true"}, spec=spec)


def unmarked(*objects: Object) -> Known:
    """Return a state with these objects, of which none is marked."""
    known = Known(*objects)
    taken(known.cluster_state.marks)
    while known.cluster_state.pods.take_dirty() is not None:
        pass
    return known


def taken(marks: DirtySet) -> list[str]:
    """Take all marks of Workloads; return the names."""
    return [key[1] for key in iter(marks.take_workload, None) if key is not None]


def calls_of(step: Callable[[], object]) -> int:
    """Return how many functions a call runs."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("mark", "want"),
    [
        pytest.param(DirtySet.everything, ["a", "b", "done"], id="a new term looks at all"),
        pytest.param(DirtySet.all_unfinished, ["a", "b"], id="a changed spec concerns only unfinished ones"),
    ],
)
def test_all_are_looked_at_once(mark: Callable[[DirtySet], None], want: list[str]) -> None:
    done = {**workload_object("done", "team", "main"), "status": _FINISHED}
    marks = unmarked(*(workload_object(name, "team", "main") for name in "ab"), done).cluster_state.marks

    mark(marks)
    mark(marks)

    assert taken(marks) == want
    assert taken(marks) == []


def test_what_has_a_mark_already_is_looked_at_once_and_what_goes_meanwhile_is_not() -> None:
    known = unmarked(*(workload_object(name, "team", "main") for name in "abc"))
    marks = known.cluster_state.marks

    marks.everything()
    assert marks.take_workload() == ("team", "a")
    marks.workload(("team", "c"))
    known.tell(workload_object("b", "team", "main"), ChangeType.DELETED)

    assert taken(marks) == ["c"]


def test_what_changes_after_it_was_looked_at_is_looked_at_again() -> None:
    marks = unmarked(*(workload_object(name, "team", "main") for name in "ab")).cluster_state.marks

    marks.everything()
    assert marks.take_workload() == ("team", "a")
    marks.workload(("team", "a"))

    assert taken(marks) == ["b", "a"]


def test_a_spec_that_changes_during_a_pass_begins_another_after_it() -> None:
    marks = unmarked(*(workload_object(name, "team", "main") for name in "ab")).cluster_state.marks

    marks.all_unfinished()
    marks.take_workload()
    marks.all_unfinished()

    assert taken(marks) == ["b", "a", "b"]


def test_a_new_term_begins_a_pass_over_all_in_place_of_one_under_way() -> None:
    marks = unmarked(*(workload_object(name, "team", "main") for name in "ab")).cluster_state.marks

    marks.all_unfinished()
    marks.take_workload()
    marks.everything()

    assert taken(marks) == ["a", "b"]


def test_a_new_term_looks_at_the_pods_of_each_workload_too() -> None:
    known = unmarked(group("g"))

    known.cluster_state.marks.everything()
    taken(known.cluster_state.marks)

    assert known.cluster_state.pods.take_dirty() == UnitKey("team", "g", "")


def test_neither_a_new_term_nor_any_look_takes_longer_with_more_workloads() -> None:
    marks = unmarked(*(workload_object(f"w{number}", "team", "main") for number in range(500)))
    state = marks.cluster_state

    steps = [calls_of(state.mark_all), *(calls_of(state.marks.take_workload) for _ in range(500))]

    assert max(steps) < 50
