"""What is reported about promises: each change once, with what was reported before it."""

from __future__ import annotations

from admission.backfill.promise_reports import PromiseOutcome, PromiseReports
from api.workload import Admission, WorkloadKey
from queues.profile.planned_start import PlannedStart, Rank

KEY = WorkloadKey("ns", "w")


def make_planned(at: float) -> PlannedStart:
    return PlannedStart(
        key=KEY,
        uid="uid",
        cluster_queue="queue",
        rank=Rank(height=0, negative_priority=0, level=0, queued_at=0.0, uid="uid"),
        start_at=at,
        seconds=60.0,
        admission=Admission(cluster_queue="queue", pod_sets=()),
        made_at=0.0,
        first_start_at=at,
    )


def taken(reports: PromiseReports) -> list[tuple[float | None, float | None]]:
    """The promised and the formerly reported start of each report."""
    return [
        (
            one.planned.start_at if one.planned is not None else None,
            one.former.start_at if one.former is not None else None,
        )
        for one in reports.take()
    ]


def test_a_change_is_reported_once_with_what_was_reported_before() -> None:
    reports = PromiseReports()

    reports.note(KEY, make_planned(1.0))
    assert taken(reports) == [(1.0, None)]
    assert taken(reports) == []

    # Two moves between two reports are one: users know the first start only.
    reports.note(KEY, make_planned(2.0))
    reports.note(KEY, make_planned(3.0))
    assert taken(reports) == [(3.0, 1.0)]

    reports.note(KEY, None)
    assert taken(reports) == [(None, 3.0)]

    reports.note(KEY, make_planned(4.0))
    assert taken(reports) == [(4.0, None)]


def test_a_kept_promise_is_not_reported_and_counted_once() -> None:
    reports = PromiseReports()
    reports.note(KEY, make_planned(1.0))
    reports.take()
    reports.note(KEY, make_planned(2.0))

    reports.note_kept(make_planned(2.0), at=2.5)

    assert taken(reports) == []
    assert reports.take_kept() == (PromiseOutcome(planned=make_planned(2.0), at=2.5),)
    assert reports.take_kept() == ()
    # Promised again after an eviction: what was reported before its start is over.
    reports.note(KEY, make_planned(9.0))
    assert taken(reports) == [(9.0, None)]


def test_what_another_leader_reported_is_not_reported_again() -> None:
    reports = PromiseReports()
    reports.note(KEY, make_planned(1.0))

    reports.note_reported(make_planned(1.0))

    assert taken(reports) == []
    reports.note(KEY, None)
    assert taken(reports) == [(None, 1.0)]
