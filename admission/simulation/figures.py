"""Figures of a simulated run, to compare policies.

wait                finish − submit − duration; includes repeated waits, lost work, saves and restarts
bounded slowdown    (wait + duration) ÷ max(duration, 10 min), at least 1
utilisation         useful GPU-seconds until the last submit ÷ (GPUs × span of submits)
GPU-hours lost      GPU time that Jobs held, less the useful work that was kept
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from admission.simulation.course import JobCourse
from admission.simulation.virtual_run import PolicyRun

# A Job with at least this many GPUs counts as a gang: a whole machine of the traces.
GANG_GPUS = 8
# Keeps short Jobs from dominating the slowdown. Feitelson's bound, ten minutes here.
_SHORTEST_SECONDS = 600.0
# A promise is broken when the start is later by more than this.
PROMISE_SLACK_SECONDS = 1.0
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFigures:
    """Figures of the Jobs with 8 GPUs or more."""

    jobs: int
    mean_wait_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """Figures of the Jobs that may be preempted (best), or of those that may preempt them (strict)."""

    jobs: int
    mean_wait_seconds: float
    evictions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedFigures:
    """Figures of the Jobs that name a reservation. `missed` of them could not use theirs.

    `mean_late_seconds` is the mean time of the others from when both the Job and its reservation existed to
    the Job's first start.
    """

    jobs: int
    missed: int
    mean_late_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One policy in figures, named as in the JSON report. Percentiles are actual waits (nearest rank).

    `strict` and `best` exist only for policies that preempt, `reserved` if Jobs name reservations, and
    `cost_lost`, in the currency of the price, if a GPU has a price; `cost`, of all GPU-hours that Jobs held,
    if flavors have prices.
    """

    jobs: int
    blind: bool
    mean_wait_seconds: float
    p50_wait_seconds: float
    p90_wait_seconds: float
    p99_wait_seconds: float
    mean_bounded_slowdown: float
    utilisation: float
    gpu_hours_lost: float
    evictions: int
    promises: int
    promises_broken: int
    gangs: GangFigures
    run_seconds: float
    strict: ClassFigures | None = None
    best: ClassFigures | None = None
    reserved: ReservedFigures | None = None
    cost_lost: float | None = None
    cost: float | None = None


def wait_of(course: JobCourse) -> float:
    """Return how much later than possible the Job finished, in seconds. It must have finished."""
    assert course.finished_at is not None
    wait = course.finished_at - course.job.submitted_at - course.job.duration_seconds
    return max(0.0, wait)


def figures_of(run: PolicyRun, *, gpus: int, cost_per_gpu_hour: float | None = None) -> Figures:
    """Return the figures of a run on `gpus` GPUs. With a price they include the cost of lost GPU-hours."""
    waits = sorted(wait_of(course) for course in run.courses)
    gangs = [course for course in run.courses if course.job.gpus >= GANG_GPUS]
    gpu_hours_lost = _lost_seconds(run.courses) / _SECONDS_PER_HOUR
    return Figures(
        jobs=len(waits),
        blind=run.is_blind,
        mean_wait_seconds=mean(waits),
        p50_wait_seconds=percentile(waits, 50),
        p90_wait_seconds=percentile(waits, 90),
        p99_wait_seconds=percentile(waits, 99),
        mean_bounded_slowdown=mean([_slowdown(course) for course in run.courses]),
        utilisation=_utilisation(run.courses, gpus),
        gpu_hours_lost=gpu_hours_lost,
        evictions=sum(course.evictions for course in run.courses),
        promises=sum(course.promised_at is not None for course in run.courses),
        promises_broken=sum(is_broken(course) for course in run.courses),
        gangs=GangFigures(jobs=len(gangs), mean_wait_seconds=mean([wait_of(one) for one in gangs])),
        run_seconds=run.run_seconds,
        strict=_of_class(run.courses, is_preemptible=False) if run.policy.preempts else None,
        best=_of_class(run.courses, is_preemptible=True) if run.policy.preempts else None,
        reserved=_of_reservations(run.courses),
        cost=sum(course.cost for course in run.courses) if any(one.cost for one in run.courses) else None,
        cost_lost=None if cost_per_gpu_hour is None else gpu_hours_lost * cost_per_gpu_hour,
    )


def _of_class(courses: Iterable[JobCourse], *, is_preemptible: bool) -> ClassFigures:
    of_class = [course for course in courses if course.job.is_preemptible is is_preemptible]
    return ClassFigures(
        jobs=len(of_class),
        mean_wait_seconds=mean([wait_of(course) for course in of_class]),
        evictions=sum(course.evictions for course in of_class),
    )


def _of_reservations(courses: Iterable[JobCourse]) -> ReservedFigures | None:
    joining = [course for course in courses if course.job.reservation and course.job.gpus]
    late = [
        course.first_start_at - course.reserved_from
        for course in joining
        if course.first_start_at is not None and course.reserved_from is not None
    ]
    if not joining:
        return None
    return ReservedFigures(jobs=len(joining), missed=len(joining) - len(late), mean_late_seconds=mean(late))


def mean(values: Sequence[float]) -> float:
    """Return the mean, or 0 without values."""
    return sum(values) / len(values) if values else 0.0


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest of the ascending values that `percent` of them do not exceed; 0 without values.

    The nearest rank: an interpolated figure would be a wait that no Job had.
    """
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0.0


def span_of(courses: Iterable[JobCourse]) -> tuple[float, float]:
    """Return the times of the first and the last submit."""
    submits = [course.job.submitted_at for course in courses]
    return min(submits), max(submits)


def is_broken(course: JobCourse) -> bool:
    """Return whether the Job started later than it was first promised."""
    if course.promised_at is None or course.first_start_at is None:
        return False
    return course.first_start_at > course.promised_at + PROMISE_SLACK_SECONDS


def _slowdown(course: JobCourse) -> float:
    duration = course.job.duration_seconds
    return max(1.0, (wait_of(course) + duration) / max(duration, _SHORTEST_SECONDS))


def _utilisation(courses: Sequence[JobCourse], gpus: int) -> float:
    begin, end = span_of(courses)
    if gpus == 0 or end <= begin:
        return 0.0
    useful = sum(
        course.job.gpus * max(0.0, min(end, until) - since)
        for course in courses
        for since, until in course.useful
    )
    return useful / (gpus * (end - begin))


def _lost_seconds(courses: Iterable[JobCourse]) -> float:
    return sum(course.job.gpus * (course.held_seconds - course.useful_seconds) for course in courses)
