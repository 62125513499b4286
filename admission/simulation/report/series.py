"""The data of the report's charts: GPUs over time, waits by group, and promises against starts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from admission.simulation.course import JobCourse
from admission.simulation.figures import percentile, wait_of

# Size classes of Jobs: the smallest number of GPUs, and the label. Gangs start at 8.
_SIZES = ((64, "64 GPUs and more"), (8, "8-63 GPUs"), (2, "2-7 GPUs"), (1, "1 GPU"), (0, "no GPU"))
MOST_TENANTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The waits of the Jobs of a group, in seconds. Percentiles are actual waits (nearest rank)."""

    jobs: int
    p50: float
    p90: float
    p99: float


def gpus_over_time(
    intervals: Iterable[tuple[int, Sequence[tuple[float, float]]]], *, end: float, bins: int
) -> tuple[float, ...]:
    """Return the mean number of GPUs in each of `bins` equal parts of the time from 0 to `end`.

    `intervals` are numbers of GPUs and the times when they were held. The values are means rather than
    samples, so the area below them is exactly the GPU time, also for short Jobs. The cost is O(intervals +
    the bins they span).
    """
    width = max(end, 1.0) / bins
    taken = [0.0] * bins
    for gpus, spans in intervals:
        for begin, until in spans:
            for number in range(int(begin / width), min(bins, int(until / width) + 1)):
                inside = min(until, (number + 1) * width) - max(begin, number * width)
                taken[number] += gpus * max(0.0, inside)
    return tuple(seconds / width for seconds in taken)


def waits_by_size(courses: Iterable[JobCourse]) -> dict[str, Waits]:
    """Return the waits by size of the Job, smallest first. Sizes without Jobs are omitted."""
    found = _waits_by(courses, lambda course: next(name for most, name in _SIZES if course.job.gpus >= most))
    return {name: found[name] for _, name in reversed(_SIZES) if name in found}


def waits_by_tenant(courses: Sequence[JobCourse]) -> dict[str, Waits]:
    """Return the waits of the MOST_TENANTS tenants with the most Jobs, in descending order."""
    jobs = Counter(course.job.tenant for course in courses)
    found = _waits_by(courses, lambda course: course.job.tenant)
    return {name: found[name] for name in sorted(jobs, key=lambda name: (-jobs[name], name))[:MOST_TENANTS]}


def _waits_by(courses: Iterable[JobCourse], group_of: Callable[[JobCourse], str]) -> dict[str, Waits]:
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for course in courses:
        groups[group_of(course)].append(wait_of(course))
    return {name: _to_waits(sorted(waits)) for name, waits in groups.items()}


def _to_waits(ordered: Sequence[float]) -> Waits:
    p50, p90, p99 = (percentile(ordered, percent) for percent in (50, 90, 99))
    return Waits(jobs=len(ordered), p50=p50, p90=p90, p99=p99)


def furthest_from_promise(courses: Iterable[JobCourse], most: int) -> tuple[JobCourse, ...]:
    """Return the `most` Jobs that started furthest from their first promise, by submit time.

    A promise that was kept to the second needs no inspection.
    """
    promised = [course for course in courses if course.promised_at is not None]
    chosen = sorted(promised, key=lambda one: (-abs(_lateness(one)), one.job.submitted_at, one.job.id))[:most]
    return tuple(sorted(chosen, key=lambda one: (one.job.submitted_at, one.job.id)))


def _lateness(course: JobCourse) -> float:
    if course.first_start_at is None or course.promised_at is None:
        return 0.0
    return course.first_start_at - course.promised_at
