"""Intervals of expected starts: four of five starts lie inside, however wrong the estimates are."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.workload import WorkloadKey
from queues.estimates.start_errors import StartAccuracy, StartErrors
from tests.examples import trying

NOW = 1_000_000.0


def key(number: int) -> WorkloadKey:
    return WorkloadKey("team", f"w{number}")


def sides(
    errors: StartErrors, wait: Callable[[random.Random], float], *, starts: int, late: int
) -> list[str]:
    """Return the side of each of so many starts, estimated to be in an hour, learned `late` starts later."""
    chance, pending = random.Random(0), []
    for number in range(starts):
        errors.note_estimate(key(number), NOW + number + 3600, made_at=NOW + number)
        pending.append((number, NOW + number + wait(chance)))
        if len(pending) > late:
            done, at = pending.pop(0)
            errors.note_start(key(done), at)
    return [one.side for one in errors.take_outcomes()]


@pytest.mark.parametrize("late", [0, 50], ids=["learned at once", "learned later"])
@pytest.mark.parametrize(
    ("wait", "most"),
    [
        pytest.param(lambda chance: 3600 * chance.uniform(0.9, 1.1), 0.86, id="estimates that are right"),
        pytest.param(lambda chance: 600 * chance.uniform(0.5, 1.5), 0.95, id="far too long"),
        pytest.param(
            lambda chance: 3600 * chance.lognormvariate(1, 1), 0.86, id="far too short, with a long tail"
        ),
    ],
)
def test_four_of_five_starts_lie_in_the_interval(
    wait: Callable[[random.Random], float], most: float, late: int
) -> None:
    found = sides(StartErrors(), wait, starts=1000, late=late)[200:]

    assert 0.74 <= found.count("inside") / len(found) <= most


def _always(wait: float, _: random.Random) -> float:
    return wait


@trying(20)
@given(
    st.lists(st.tuples(st.sampled_from([0, 900, 3600, 36_000]), st.sampled_from([50, 1500])), max_size=2),
    st.sampled_from([0, 600, 1800, 7200, 36_000]),
)
def test_however_starts_erred_before_a_new_error_is_soon_inside(
    before: list[tuple[int, int]], wait: int
) -> None:
    errors = StartErrors()
    for earlier, starts in before:
        sides(errors, partial(_always, earlier), starts=starts, late=0)

    found = sides(errors, partial(_always, wait), starts=200, late=0)

    # From half a level, that takes 53 starts.
    assert found[53:] == ["inside"] * 147


def test_before_there_are_outcomes_the_interval_is_wide_and_has_the_estimate() -> None:
    interval = StartErrors().interval(NOW + 3600, made_at=NOW)

    assert (interval.earliest_at, interval.latest_at) == (NOW, NOW + 7800)


def test_only_the_first_estimate_of_a_workload_counts() -> None:
    errors = StartErrors()
    errors.note_estimate(key(1), NOW + 100, made_at=NOW)
    errors.note_estimate(key(1), NOW + 900, made_at=NOW + 50)

    errors.note_start(key(1), NOW + 160)

    assert [one.error_seconds for one in errors.take_outcomes()] == [60.0]
    assert errors.take_outcomes() == ()


def test_nothing_is_learned_of_a_workload_that_is_gone() -> None:
    errors = StartErrors()
    errors.note_estimate(key(1), NOW + 100, made_at=NOW)

    errors.forget(key(1))
    errors.note_start(key(1), NOW + 160)

    assert errors.take_outcomes() == ()


def test_starts_are_counted_by_the_side_of_their_interval() -> None:
    errors = StartErrors()
    # Nothing is known yet: from now to twice the wait and ten minutes.
    for number, started in enumerate((50.0, 100.0, 800.0, 801.0)):
        errors.note_estimate(key(number), 100.0, made_at=0.0)
        errors.note_start(key(number), started)
    errors.note_start(key(9), 1.0)

    assert errors.accuracy == StartAccuracy(inside=3, early=0, late=1)
    assert errors.accuracy.starts == 4
