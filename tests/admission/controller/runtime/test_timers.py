"""The agenda keeps one instant a key; rests grow, end, and are forgotten."""

from __future__ import annotations

import pytest

from admission.controller.runtime.timers import LAST_REST_SECONDS, Backoffs, Timers


def test_keys_come_back_when_their_instant_has_come_the_earliest_first() -> None:
    timers: Timers[str] = Timers()
    for key, at in (("c", 30.0), ("a", 10.0), ("b", 20.0)):
        timers.put(key, at)

    assert timers.take_due(9.9) == []
    assert timers.take_due(20.0) == ["a", "b"]
    assert timers.next_at() == 30.0


@pytest.mark.parametrize(
    ("puts", "want"),
    [
        pytest.param([5.0, 9.0], 9.0, id="a later instant replaces the earlier"),
        pytest.param([9.0, 5.0], 5.0, id="an earlier instant replaces the later"),
        pytest.param([5.0, 9.0, 5.0], 5.0, id="an instant that comes back counts again"),
        pytest.param([5.0, None], None, id="none takes the key off"),
    ],
)
def test_the_last_time_that_was_set_counts(puts: list[float | None], want: float | None) -> None:
    timers: Timers[str] = Timers()
    for at in puts:
        timers.put("x", at)

    assert timers.next_at() == want
    assert timers.take_due(100.0) == ([] if want is None else ["x"])
    assert timers.take_due(100.0) == []


def test_looking_at_an_object_often_does_not_make_the_agenda_grow() -> None:
    timers: Timers[str] = Timers()
    for look in range(10_000):
        timers.put("x", 1000.0 + look % 7)

    assert len(timers) == 1
    assert len(timers._heap) < 100


def test_rests_double_up_to_the_last_and_never_overflow() -> None:
    backoffs: Backoffs[str] = Backoffs()
    now, rests = 0.0, []
    for _ in range(1100):
        rests.append(backoffs.fail("x", now))
        now += rests[-1]

    assert rests[:4] == [1.0, 2.0, 4.0, 8.0]
    assert rests[-1] == LAST_REST_SECONDS


def test_a_second_failure_within_a_rest_does_not_prolong_it() -> None:
    backoffs: Backoffs[str] = Backoffs()
    backoffs.fail("x", 0.0)

    assert backoffs.fail("x", 0.25) == 0.75
    assert backoffs.take_due(1.0) == ["x"]
    assert backoffs.fail("x", 1.0) == 2.0


def test_an_object_is_left_alone_until_its_rest_is_over() -> None:
    backoffs: Backoffs[str] = Backoffs()
    backoffs.fail("x", 0.0)

    assert [backoffs.is_resting("x", at) for at in (0.0, 0.9, 1.0)] == [True, True, False]
    assert not backoffs.is_resting("y", 0.0)


def test_success_forgets_all_failures_and_leaves_nothing_behind() -> None:
    backoffs: Backoffs[str] = Backoffs()
    backoffs.fail("x", 0.0)
    backoffs.forget("x")

    assert not backoffs.is_resting("x", 0.5)
    assert backoffs.next_at() is None
    assert len(backoffs) == 0
    assert backoffs.fail("x", 0.5) == 1.0
