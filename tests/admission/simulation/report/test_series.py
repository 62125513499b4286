"""What the report's charts show, on courses worked out by hand."""

from __future__ import annotations

import pytest

from admission.simulation.course import JobCourse
from admission.simulation.report.series import (
    furthest_from_promise,
    gpus_over_time,
    waits_by_size,
    waits_by_tenant,
)
from tests.admission.simulation.virtual import make_job


def ended(number: int, *, start: float, gpus: int = 1, promised: float | None = None) -> JobCourse:
    course = JobCourse(make_job(number, gpus=gpus, at=number, runs=60, tenant="ab"[number % 2]))
    course.finish(course.start(start, restart_seconds=0))
    course.promised_at = promised
    return course


def test_gpus_over_time_are_means_of_equal_parts() -> None:
    found = gpus_over_time([(4, [(0.0, 15.0)]), (2, [(12.0, 13.0), (35.0, 40.0)])], end=40, bins=4)

    assert found == pytest.approx((4, 2.2, 0, 1))


def test_the_area_under_gpus_over_time_is_gpu_time() -> None:
    spans = [(3, [(0.1, 7.7), (8.3, 91.0)]), (5, [(33.3, 33.4)])]

    found = gpus_over_time(spans, end=91, bins=7)

    assert sum(found) * 91 / 7 == pytest.approx(3 * (7.6 + 82.7) + 5 * 0.1)


def test_waits_are_grouped_by_size_smallest_first() -> None:
    found = waits_by_size([ended(0, start=100, gpus=8), ended(1, start=11), ended(2, start=22)])

    assert list(found) == ["1 GPU", "8-63 GPUs"]
    assert (found["1 GPU"].jobs, found["1 GPU"].p50, found["1 GPU"].p99) == (2, 10, 20)


def test_waits_are_grouped_by_tenant_most_jobs_first() -> None:
    found = waits_by_tenant([ended(1, start=31), ended(3, start=3), ended(0, start=5)])

    assert [(name, one.jobs, one.p99) for name, one in found.items()] == [("b", 2, 30), ("a", 1, 5)]


def test_the_jobs_furthest_from_their_promise_are_chosen_in_either_direction() -> None:
    courses = [
        ended(0, start=10, promised=10),
        ended(1, start=50, promised=10),
        ended(2, start=10, promised=90),
        ended(3, start=9_000),
    ]

    assert [course.job.id for course in furthest_from_promise(courses, 2)] == ["1", "2"]
