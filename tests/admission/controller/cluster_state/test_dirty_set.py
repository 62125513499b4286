"""Marks of all Workloads: each is looked at once, and marking them takes no time of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from admission.controller.cluster_state.dirty_set import DirtySet
from admission.controller.cluster_state.pod_groups import UnitKey
from admission.controller.writer.write_order import ObjectTarget
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
    """Take all marks of Workloads, then those of a pass; return the names."""
    takes = (marks.take_workload, marks.take_swept)
    return [key[1] for take in takes for key in iter(take, None) if key is not None]


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


def seconds_of(step: Callable[[], object]) -> float:
    """Return the CPU seconds of a hundred calls."""
    began = time.process_time()
    for _ in range(100):
        step()
    return time.process_time() - began


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


def test_a_mark_comes_before_the_rest_of_a_pass_and_what_goes_meanwhile_is_not_looked_at() -> None:
    known = unmarked(*(workload_object(name, "team", "main") for name in "abc"))
    marks = known.cluster_state.marks

    marks.everything()
    assert marks.take_swept() == ("team", "a")
    marks.workload(("team", "c"))
    known.tell(workload_object("b", "team", "main"), ChangeType.DELETED)

    assert taken(marks) == ["c", "c"]


def test_what_changes_after_it_was_looked_at_is_looked_at_again() -> None:
    marks = unmarked(*(workload_object(name, "team", "main") for name in "ab")).cluster_state.marks

    marks.everything()
    assert marks.take_swept() == ("team", "a")
    marks.workload(("team", "a"))

    assert taken(marks) == ["a", "b"]


def test_a_spec_that_changes_during_a_pass_begins_another_after_it() -> None:
    marks = unmarked(*(workload_object(name, "team", "main") for name in "ab")).cluster_state.marks

    marks.all_unfinished()
    marks.take_swept()
    marks.all_unfinished()

    assert taken(marks) == ["b", "a", "b"]


def test_a_new_term_begins_a_pass_over_all_in_place_of_one_under_way() -> None:
    marks = unmarked(*(workload_object(name, "team", "main") for name in "ab")).cluster_state.marks

    marks.all_unfinished()
    marks.take_swept()
    marks.everything()

    assert taken(marks) == ["a", "b"]


def test_a_new_term_looks_first_at_what_holds_quota_and_may_give_it_back() -> None:
    holds = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]},
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}],
    }
    held = {**workload_object("held", "team", "main"), "status": holds}
    marks = unmarked(workload_object("a", "team", "main"), held).cluster_state.marks
    marks.workload(("team", "a"))

    marks.everything()

    assert [*iter(marks.take_workload, None)] == [("team", "held")]
    assert [*iter(marks.take_swept, None)] == [("team", "held"), ("team", "a")]


def test_a_new_term_looks_at_the_pods_of_each_workload_too() -> None:
    known = unmarked(group("g"))

    known.cluster_state.marks.everything()
    taken(known.cluster_state.marks)

    assert known.cluster_state.pods.take_dirty() == UnitKey("team", "g", "")


def test_neither_a_new_term_nor_any_look_takes_longer_with_more_workloads() -> None:
    marks = unmarked(*(workload_object(f"w{number}", "team", "main") for number in range(500)))
    state = marks.cluster_state

    steps = [calls_of(state.mark_all), *(calls_of(state.marks.take_swept) for _ in range(500))]

    assert max(steps) < 50


def mark_job(known: Known, name: str) -> None:
    """Mark a Job."""
    known.cluster_state.marks.job(ObjectTarget("Job", "team", name))


def mark_workload(known: Known, name: str) -> None:
    """Mark a Workload."""
    known.cluster_state.marks.workload(("team", name))


def mark_unit(known: Known, name: str) -> None:
    """Mark the pods of a group."""
    known.cluster_state.pods.mark(UnitKey("team", name, ""), has_workload=True)


@pytest.mark.parametrize(
    ("mark", "take"),
    [
        pytest.param(mark_job, lambda known: known.cluster_state.marks.take_job, id="Jobs"),
        pytest.param(mark_workload, lambda known: known.cluster_state.marks.take_workload, id="Workloads"),
        pytest.param(mark_unit, lambda known: known.cluster_state.pods.take_dirty, id="pods"),
    ],
)
def test_taking_a_mark_costs_the_same_however_many_were_taken_before(
    mark: Callable[[Known, str], None], take: Callable[[Known], Callable[[], object]]
) -> None:
    known, few = Known(), Known()
    for number in range(50_000):
        mark(known, f"w{number}")
    while take(known)() is not None:
        pass

    # A ratio of the fastest of many turns: a dict that is emptied from its front keeps the places of all keys
    # that it had, and looking through them for the first would take a hundred times as long.
    pairs = [(seconds_of(take(known)), seconds_of(take(few))) for _ in range(20)]
    assert min(many for many, _ in pairs) < 20 * min(least for _, least in pairs)


def job(name: str, *, owner: str = "", **labels: str) -> Object:
    """Return a Job of this name and uid, below another one where `owner` names it."""
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
    spec = {"suspend": True, "template": {"spec": {"containers": []}}}
    owners = [reference] if owner else []
    return made("Job", name, "team", version="batch/v1", labels=labels, owners=owners, spec=spec)


def jobs_taken(marks: DirtySet) -> list[str]:
    """Take all marks of Jobs; return the names."""
    return [target.name for target in iter(marks.take_job, None) if target is not None]


NAMES_BUILT = {keys.PREBUILT_WORKLOAD_NAME: "built"}


def test_a_prebuilt_workload_that_comes_after_its_job_is_shown_to_the_job() -> None:
    known = Known(job("j", **NAMES_BUILT), job("other"))
    jobs_taken(known.cluster_state.marks)

    known.tell(workload_object("built", "team", "lq"))

    assert jobs_taken(known.cluster_state.marks) == ["j"]


@pytest.mark.parametrize("is_gone", [False, True], ids=["names another by now", "is gone"])
def test_a_job_that_names_a_workload_no_longer_is_left_alone(is_gone: bool) -> None:
    known = Known(job("j", **NAMES_BUILT))
    known.tell(*((job("j"), ChangeType.DELETED) if is_gone else (job("j"), ChangeType.MODIFIED)))
    jobs_taken(known.cluster_state.marks)

    known.tell(workload_object("built", "team", "lq"))

    assert jobs_taken(known.cluster_state.marks) == []


def test_the_jobs_below_a_job_are_looked_at_when_its_workload_changes() -> None:
    # The second is below the first, and the first names the second as its owner too.
    known = Known(job("first", owner="second"), job("second", owner="first"), job("third", owner="second"))
    jobs_taken(known.cluster_state.marks)

    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "first", "uid": "first", "controller": True}
    known.tell(workload_object("w", "team", "lq", owners=[owner]))

    assert sorted(jobs_taken(known.cluster_state.marks)) == ["first", "second", "third"]
