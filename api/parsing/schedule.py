"""When a cron line fires in a time zone: the instants before and after a given one.

A line speaks of the clock on the wall, which is set forward and back. Which hours a line names decides what
becomes of its times then, as in Vixie cron (cron(8), "daylight saving time"):

                               line that names hours            line of every hour (`*`)
    clock goes forward         a time that is skipped fires     fires by real time: what is
    (02:30 does not exist)     so much later (03:30)            skipped is left out
    clock goes back            fires once, the first time       fires both times
    (02:30 comes twice)

So a window that opens daily at 02:30 opens on every day of the year, and one that opens every hour opens in
every hour. A day is looked at as a whole and kept, because whoever asks for the last time soon asks for the
next one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from math import inf
from zoneinfo import ZoneInfo

from api.parsing.cron import CronLine, parse_cron

# Days that a search looks through: 29 February comes again after eight years at the latest (1896 to 1904).
_MOST_DAYS = 9 * 366
_HOURS = 24
_DAY_SECONDS = 86400


def last_firing(cron: str, time_zone: str, at: float) -> float | None:
    """Return the latest instant (Unix seconds) at or before `at` when the line fires, None for never."""
    for firings in _days(cron, time_zone, at, step=-1):
        # At or before: a window that opens this very second is open.
        index = bisect_right(firings, at)
        if index:
            return firings[index - 1]
    return None


def next_firing(cron: str, time_zone: str, after: float) -> float | None:
    """Return the first instant (Unix seconds) after `after` when the line fires, None for never."""
    for firings in _days(cron, time_zone, after, step=1):
        # Strictly after: who asks for the next firing at a firing wants the one that follows.
        index = bisect_left(firings, after)
        index += index < len(firings) and firings[index] == after
        if index < len(firings):
            return firings[index]
    return None


def firings(cron: str, time_zone: str, *, after: float, until: float) -> Iterator[float]:
    """Yield the instants (Unix seconds) after `after`, up to `until`, when the line fires, in order.

    One walk along the days, where asking for each next one would begin anew at each.
    """
    last = after
    for of_day in _days(cron, time_zone, after, step=1, until=until):
        for at in of_day:
            if at > until:
                return
            # A skipped time fires later than it is written, and then perhaps with one of the next day.
            if at > last:
                last = at
                yield at


def _days(
    cron: str, time_zone: str, at: float, *, step: int, until: float = inf
) -> Iterator[tuple[float, ...]]:
    """Yield the firings of each day that has any, from about the day of `at` on, to about that of `until`."""
    line = _parsed(cron)
    # Nine years of days would be walked for a line that never fires, at every question; asked
    # once a line instead.
    if not _has_days(cron):
        return
    # A skipped time fires later than it is written, which may be on the day after.
    day = datetime.fromtimestamp(at, _zone(time_zone)).date() - timedelta(days=step)
    end = day + timedelta(days=step * _MOST_DAYS)
    if until < inf:
        end = min(end, day + timedelta(days=2 + max(0.0, until - at) // _DAY_SECONDS + 1))
    while (day < end) is (step > 0):
        # Past the month in one step: a line of one month a year is found in twelve steps and not in 365.
        if day.month not in line.months:
            # To the last day of this month, or to its first: the next step leads out of it.
            day = _month_end(day) if step > 0 else day.replace(day=1)
        elif line.has_day(day.month, day.day, day.isoweekday() % 7):
            yield _firings(cron, time_zone, day)
        day += timedelta(days=step)


@lru_cache(maxsize=1024)
def _has_days(cron: str) -> bool:
    """Return whether there are days on which the line fires: 31 February is none."""
    line, first = _parsed(cron), date(2000, 1, 1)
    days = (first + timedelta(days=number) for number in range(_MOST_DAYS))
    return any(line.has_day(day.month, day.day, day.isoweekday() % 7) for day in days)


def _month_end(day: date) -> date:
    return day.replace(day=monthrange(day.year, day.month)[1])


@lru_cache(maxsize=1024)
def _firings(cron: str, time_zone: str, day: date) -> tuple[float, ...]:
    """Return when the line fires on a day that it has, in order."""
    line, zone = _parsed(cron), _zone(time_zone)
    is_hourly = len(line.hours) == _HOURS
    found: set[float] = set()
    for hour in line.hours:
        for minute in line.minutes:
            wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            # fold=0 is the earlier reading of a time that comes twice, fold=1 the later (PEP 495).
            first, second = wall.timestamp(), wall.replace(fold=1).timestamp()
            # Of a time that is skipped the first reading is later than the second (PEP 495).
            if not is_hourly or first <= second:
                found.add(first)
            # A line of every hour fires by real time: at both readings of a time that comes twice,
            # and never at one that is skipped.
            if is_hourly and first < second:
                found.add(second)
    return tuple(sorted(found))


@lru_cache(maxsize=1024)
def _parsed(cron: str) -> CronLine:
    return parse_cron(cron)


def _zone(name: str) -> tzinfo:
    # UTC needs no time zone database, which a small image may lack.
    return UTC if name == "UTC" else ZoneInfo(name)
