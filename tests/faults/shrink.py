"""Making a schedule that breaks a law small: parts of it are left out, large ones first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.faults.schedule import Schedule

Fails = Callable[[Schedule], bool]


def shrink(schedule: Schedule, fails: Fails) -> Schedule:
    """Return a schedule that still fails and of which nothing more can be left out."""
    before = None
    while schedule != before:
        before = schedule
        schedule = next(filter(fails, _simpler(schedule)), schedule)
        schedule = _with_fewer_events(schedule, fails)
        schedule = _with_fewer_jobs(schedule, fails)
    return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    """Yield the schedule with a replica less, with exact clocks, and with the order of asyncio."""
    if len(schedule.skews) > 1:
        yield replace(schedule, skews=schedule.skews[:-1], rates=schedule.rates[:-1])
    if any(schedule.skews):
        yield replace(
            schedule, skews=tuple(0.0 for _ in schedule.skews), rates=tuple(1.0 for _ in schedule.rates)
        )
    if schedule.is_shuffled:
        yield replace(schedule, is_shuffled=False)


def _with_fewer_events(schedule: Schedule, fails: Fails) -> Schedule:
    for start, end in _parts(len(schedule.events)):
        fewer = replace(schedule, events=(*schedule.events[:start], *schedule.events[end:]))
        if fewer != schedule and fails(fewer):
            schedule = fewer
    return schedule


def _with_fewer_jobs(schedule: Schedule, fails: Fails) -> Schedule:
    for start, end in _parts(len(schedule.jobs)):
        fewer = replace(schedule, jobs=(*schedule.jobs[:start], *schedule.jobs[end:]))
        if fewer != schedule and fails(fewer):
            schedule = fewer
    return schedule


def _parts(count: int) -> Iterator[tuple[int, int]]:
    """Yield slices, large ones first, and from the last to the first: what is before one keeps its place."""
    size = count
    while size:
        for start in range((count - 1) // size * size, -1, -size):
            yield start, start + size
        size //= 2
