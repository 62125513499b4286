"""bench.answers asks questions about random clusters and plays what comes of the answers."""

from __future__ import annotations

import pytest

from bench.answers import Outcome, ask_help, ask_what_if, outcomes


def test_the_first_help_brings_the_start_that_it_names() -> None:
    # Clusters where fewer pods would have a start that is forecast only, and come too late.
    for first, count in ((55, 1), (59, 1), (84, 1)):
        found = outcomes(ask_help, count=count, seed=first, errors=0.0)
        assert [one for one in found if not one.is_true] == []


def test_a_submission_starts_within_the_interval_of_its_answer() -> None:
    found = outcomes(ask_what_if, count=3, seed=0, errors=0.0)

    assert [one for one in found if not one.is_true] == []
    # Some are played to a start that is not the first second of its interval.
    assert any(one.started > one.earliest + 1 for one in found)


@pytest.mark.parametrize(
    ("started", "want"),
    [
        pytest.param(9.5, True, id="within the second that texts show"),
        pytest.param(8.0, False, id="too early"),
        pytest.param(20.0, True, id="at its latest"),
        pytest.param(22.0, False, id="too late"),
        pytest.param(float("inf"), False, id="never"),
    ],
)
def test_a_start_is_as_answered_within_the_interval(started: float, want: bool) -> None:
    assert Outcome(seed=0, what="", earliest=10.0, latest=20.0, started=started).is_true is want
