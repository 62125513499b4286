"""Which expected starts are reported: those that are news, a few at a time."""

from __future__ import annotations

import pytest

from admission.backfill.reported_starts import ReportedStarts
from api.workload import WorkloadKey

A, B = WorkloadKey("team", "a"), WorkloadKey("team", "b")


# Of `a`, a start at 1000 was reported at 0.
@pytest.mark.parametrize(
    ("start_at", "now", "want"),
    [
        pytest.param(1000.0, 400.0, (), id="the start that was reported"),
        pytest.param(2000.0, 299.0, (), id="another start soon after the last report"),
        pytest.param(2000.0, 300.0, (A,), id="another start five minutes after the last report"),
    ],
)
def test_a_known_start_is_reported_again(start_at: float, now: float, want: tuple[WorkloadKey, ...]) -> None:
    reported = ReportedStarts()
    reported[A] = 1000.0, 0.0

    assert reported.take({A: start_at}, {}, most=9, now=now) == want
    assert reported[A] == ((start_at, now) if want else (1000.0, 0.0))


def test_starts_beyond_the_most_are_reported_the_next_time() -> None:
    reported = ReportedStarts()

    assert reported.take({A: 10.0, B: 20.0}, {}, most=1, now=0.0) == (A,)
    assert reported.take({A: 10.0, B: 20.0}, {}, most=1, now=1.0) == (B,)


def test_what_another_leader_reported_does_not_replace_an_own_report() -> None:
    reported = ReportedStarts()
    reported[A] = 1000.0, 0.0

    reported.adopt(A, (5.0, 5.0))
    reported.adopt(B, (6.0, 6.0))

    assert reported == {A: (1000.0, 0.0), B: (6.0, 6.0)}


def test_the_bound_of_a_queue_is_forgotten_with_the_starts() -> None:
    reported = ReportedStarts()
    reported.take({}, {"queue": 70.0}, most=9, now=0.0)
    assert reported.after("queue") == 70.0

    reported.clear()

    assert reported.after("queue") is None
