"""Making a schedule that breaks a law small: whole faults are left out first, then single events and Jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.faults.schedule import Schedule


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Return a schedule that still fails and of which nothing more can be left out."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(schedule):
            if fails(smaller):
                schedule, is_smaller = smaller, True
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    """Yield simpler schedules, those first that leave out the most."""
    for fault in sorted({event.fault for event in schedule.events}):
        yield schedule.without_fault(fault)
    if len(schedule.skews) > 1:
        yield replace(schedule, skews=schedule.skews[:-1], rates=schedule.rates[:-1])
    if any(schedule.skews):
        yield replace(
            schedule, skews=tuple(0.0 for _ in schedule.skews), rates=tuple(1.0 for _ in schedule.rates)
        )
    if schedule.is_shuffled:
        yield replace(schedule, is_shuffled=False)
    for at in range(len(schedule.events)):
        yield replace(schedule, events=(*schedule.events[:at], *schedule.events[at + 1 :]))
    for at in range(len(schedule.jobs)):
        yield replace(schedule, jobs=(*schedule.jobs[:at], *schedule.jobs[at + 1 :]))
