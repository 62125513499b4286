"""Kueue's order of eviction: the lowest priority, then the latest start, then the uid."""

from __future__ import annotations

from math import inf

import pytest

from admission.snapshot.candidate_order import CandidateOrderIndex
from tests.admission.snapshot.small_cluster import key_of


def make_index() -> CandidateOrderIndex:
    index = CandidateOrderIndex()
    for name, priority, reserved_at, uid in [
        ("high", 9, 50.0, "a"),
        ("early", 5, 10.0, "a"),
        ("late", 5, 20.0, "z"),
        ("tied", 5, 20.0, "b"),
        ("low", -1, 1.0, "a"),
    ]:
        index.put(key_of(name), priority=priority, reserved_at=reserved_at, uid=uid)
    return index


@pytest.mark.parametrize(
    ("priority", "want"),
    [
        pytest.param(inf, ["low", "tied", "late", "early", "high"], id="all of them"),
        pytest.param(5, ["low", "tied", "late", "early"], id="those of the priority itself and below"),
        pytest.param(4, ["low"], id="those below"),
        pytest.param(-2, [], id="none below the lowest"),
    ],
)
def test_the_candidates_up_to_a_priority(priority: float, want: list[str]) -> None:
    assert [key.name for key in make_index().up_to(priority)] == want


def test_a_candidate_that_changes_moves_and_one_that_is_dropped_is_gone() -> None:
    index = make_index()

    index.put(key_of("low"), priority=7, reserved_at=1.0, uid="a")
    index.drop(key_of("late"))
    index.drop(key_of("late"))

    assert [key.name for key in index.up_to(inf)] == ["tied", "early", "low", "high"]
    assert index.lowest == 5
    assert CandidateOrderIndex().lowest == inf
