"""Precedence: which Workloads come before their turn, and when that ends."""

from __future__ import annotations

from typing import Any

import pytest

from queues.pending.entries import Pending
from queues.pending.precedence import Precedence
from queues.pending.requeuing import RequeueCause
from tests.builders import make_workload


def make_pending(
    name: str, *, generation: int = 1, level: int = 0, at: float = 0.0, **fields: Any
) -> Pending:
    workload = make_workload(name, generation=generation, **fields)
    return Pending(workload=workload, requests=(), shape=b"", queued_at=at, level=level)


ONE, OTHER = make_pending("one"), make_pending("other")
ONE_EDITED = make_pending("one", generation=2)


def test_no_workload_is_a_preemptor_at_first() -> None:
    assert not Precedence().is_preemptor(ONE)


def test_the_preemptor_is_the_first_that_was_preferred_and_only_while_it_is_unchanged() -> None:
    precedence = Precedence()
    precedence.prefer_preemptor(ONE.workload)
    precedence.prefer_preemptor(OTHER.workload)

    assert precedence.preemptor == ONE.key
    assert [precedence.is_preemptor(one) for one in (ONE, ONE_EDITED, OTHER)] == [True, False, False]


def test_many_may_have_held_capacity_and_each_only_while_it_is_unchanged() -> None:
    precedence = Precedence()
    precedence.prefer_holder(ONE.workload)
    precedence.prefer_holder(OTHER.workload)

    assert [precedence.is_preemptor(one) for one in (ONE, ONE_EDITED, OTHER)] == [True, False, True]
    assert precedence.preemptor is None


@pytest.mark.parametrize(
    ("tried", "cause", "want"),
    [
        pytest.param(OTHER, RequeueCause.PENDING_PREEMPTION, OTHER, id="another that evicts takes its place"),
        pytest.param(
            ONE_EDITED, RequeueCause.PENDING_PREEMPTION, ONE_EDITED, id="one that evicts again keeps it"
        ),
        pytest.param(ONE, RequeueCause.NO_FIT, None, id="one that evicted none this time loses it"),
        pytest.param(OTHER, RequeueCause.NO_FIT, ONE, id="another that evicts none does not matter"),
    ],
)
def test_after_an_attempt_the_preemptor_is(tried: Pending, cause: RequeueCause, want: Pending | None) -> None:
    precedence = Precedence()
    precedence.prefer_preemptor(ONE.workload)

    precedence.note_tried(tried, cause)

    assert precedence.preemptor == (None if want is None else want.key)
    assert [one for one in (ONE, ONE_EDITED, OTHER) if precedence.is_preemptor(one)] == (
        [] if want is None else [want]
    )


def test_with_its_hold_a_workload_loses_all_precedence_and_others_keep_theirs() -> None:
    precedence = Precedence()
    for pending in (ONE, OTHER):
        precedence.prefer_preemptor(pending.workload)
        precedence.prefer_holder(pending.workload)
        precedence.note_active(pending)

    precedence.end_hold(OTHER.key)
    assert (precedence.preemptor, list(precedence.ahead)) == (ONE.key, [ONE.key])
    precedence.end_hold(ONE.key)
    precedence.end_hold(ONE.key)

    assert (precedence.preemptor, list(precedence.ahead)) == (None, [])
    assert not precedence.is_preemptor(ONE)


def test_only_a_workload_with_held_capacity_is_tried_before_its_turn_and_until_it_leaves() -> None:
    precedence = Precedence()
    precedence.prefer_holder(ONE.workload)
    precedence.note_active(ONE)
    precedence.note_active(OTHER)
    assert precedence.ahead == {ONE.key: ONE}

    precedence.note_left(OTHER.key)
    precedence.note_left(ONE.key)

    assert precedence.ahead == {}
    assert precedence.is_preemptor(ONE)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"priority": 1}, {"at": -9.0, "level": -9}, id="priority"),
        pytest.param({"level": 1, "name": "kept"}, {"level": 0}, id="held capacity, before level and age"),
        pytest.param({"level": 1, "at": 9.0}, {"level": 2, "at": 1.0}, id="level, before age"),
        pytest.param({"at": 1.0, "name": "z"}, {"at": 2.0, "name": "b"}, id="age, before the uid"),
        pytest.param({"name": "b"}, {"name": "c"}, id="the uid"),
        pytest.param(
            {"name": "sticky"},
            {"priority": 9, "name": "kept"},
            id="the head that is retried, before priority",
        ),
        pytest.param(
            {"queue": "idle", "name": "w"},
            {"queue": "busy", "name": "sticky"},
            id="the past usage of the LocalQueue, before everything",
        ),
    ],
)
def test_of_two_workloads_the_first_is_decided_by(first: dict[str, Any], second: dict[str, Any]) -> None:
    precedence = Precedence()
    precedence.prefer_holder(make_pending("kept").workload)
    sticky = make_pending("sticky").key
    ahead, behind = (make_pending(**{"name": name, **one}) for name, one in (("x", first), ("y", second)))

    order = precedence.order(sticky, lambda local_queue: 1.0 if local_queue[1] == "busy" else 0.0)

    assert sorted([behind, ahead], key=order) == [ahead, behind]


def test_without_fair_sharing_of_admission_past_usage_does_not_count() -> None:
    ahead, behind = make_pending("x", priority=1), make_pending("y")

    assert min([behind, ahead], key=Precedence().order(None, None)) is ahead
