"""The figures of a simulation, on courses worked out by hand."""

from __future__ import annotations

import pytest

from admission.simulation.course import JobCourse
from admission.simulation.figures import Figures, figures_of, percentile
from admission.simulation.policies import POLICIES
from admission.simulation.virtual_run import PolicyRun
from tests.admission.simulation.virtual import make_job


def figures(*courses: JobCourse, gpus: int = 8) -> Figures:
    run = PolicyRun(policy=POLICIES["fifo"], is_blind=True, courses=courses, run_seconds=1.5)
    return figures_of(run, gpus=gpus)


def ended(course: JobCourse, *, start: float) -> JobCourse:
    course.finish(course.start(start, restart_seconds=0))
    return course


def test_waits_are_counted_from_submit_to_finish() -> None:
    waits = [ended(JobCourse(make_job(n, runs=600)), start=n * 10.0) for n in range(10)]

    found = figures(*waits)

    assert (found.jobs, found.mean_wait_seconds) == (10, 45)
    assert (found.p50_wait_seconds, found.p90_wait_seconds, found.p99_wait_seconds) == (40, 80, 90)


def test_an_eviction_is_in_the_wait_and_in_what_is_lost() -> None:
    # 100 s of work, 30 s of saving, 70 s away, 20 s of restarting, and the other 500 s.
    course = JobCourse(make_job(0, gpus=4, runs=600))
    course.start(0, restart_seconds=20)
    course.stop_work(100)
    course.leave(130)
    course.evictions = 1
    course.finish(course.start(200, restart_seconds=20))

    found = figures(course)

    assert course.finished_at == 720
    assert found.mean_wait_seconds == 120
    assert found.gpu_hours_lost == pytest.approx(4 * (30 + 20) / 3600)
    assert found.evictions == 1


def test_utilisation_counts_useful_work_until_the_last_submit() -> None:
    first = ended(JobCourse(make_job(0, gpus=8, runs=1000)), start=0)
    last = ended(JobCourse(make_job(1, gpus=8, at=500, runs=100)), start=1000)

    assert figures(first, last, gpus=16).utilisation == pytest.approx(0.5)


def test_the_slowdown_of_short_jobs_is_bounded() -> None:
    # (540 + 60) ÷ 600 and (600 + 1200) ÷ 1200
    short = ended(JobCourse(make_job(0, runs=60)), start=540)
    long = ended(JobCourse(make_job(1, runs=1200)), start=600)

    assert figures(short, long).mean_bounded_slowdown == pytest.approx((1 + 1.5) / 2)


def test_gangs_are_jobs_of_a_whole_machine_and_more() -> None:
    waits = {4: 10.0, 8: 20.0, 16: 40.0}
    courses = [ended(JobCourse(make_job(gpus, gpus=gpus)), start=at) for gpus, at in waits.items()]

    gangs = figures(*courses).gangs

    assert (gangs.jobs, gangs.mean_wait_seconds) == (2, 30)


@pytest.mark.parametrize(
    ("values", "percent", "want"),
    [
        pytest.param([], 50, 0.0, id="of nothing it is zero"),
        pytest.param([7.0], 90, 7.0, id="of one it is that one"),
        pytest.param([1.0, 2.0], 50, 1.0, id="the median of two is the lower"),
        pytest.param([1.0, 2.0, 3.0, 4.0, 5.0], 50, 3.0, id="the middle one"),
        pytest.param([float(n) for n in range(1, 11)], 90, 9.0, id="nine of ten do not exceed it"),
        pytest.param([1.0, 2.0], 100, 2.0, id="all do not exceed the largest"),
    ],
)
def test_percentiles_are_actual_values(values: list[float], percent: int, want: float) -> None:
    assert percentile(values, percent) == want
