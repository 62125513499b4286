"""The times at which a cron line fires in a time zone: the last before and the next after a given time.

A cron line refers to local time, which changes with daylight saving time. As in Vixie cron (cron(8),
"daylight saving time"), the hours of the line decide what happens then:

                                         line that names hours        line for every hour (`*`)
    clock goes forward, no 02:30         fires at the change, 03:00   fires in elapsed time: does not fire
    clock goes back, 02:30 occurs twice  fires at the first of them   fires at both

So a window that opens daily at 02:30 opens on every day of the year, and one that opens every hour opens in
every hour. The firings of a day are computed together and cached, because a question for the last firing is
usually followed by one for the next.
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

# Days that a search covers: 29 February recurs after at most eight years (1896 to 1904).
_MOST_DAYS = 9 * 366
_HOURS = 24
_DAY_SECONDS = 86400


def last_firing(cron: str, time_zone: str, at: float) -> float | None:
    """Return the latest time (Unix seconds) at or before `at` at which the line fires.

    None if there is none.
    """
    for firings in _days(cron, time_zone, at, step=-1):
        # `at` is included, so that a window which opens in this second is open.
        index = bisect_right(firings, at)
        if index:
            return firings[index - 1]
    return None


def next_firing(cron: str, time_zone: str, after: float) -> float | None:
    """Return the first time (Unix seconds) after `after` at which the line fires, None if it never does."""
    for firings in _days(cron, time_zone, after, step=1):
        # `after` is excluded, so that the next firing of a firing is the following one.
        index = bisect_left(firings, after)
        index += index < len(firings) and firings[index] == after
        if index < len(firings):
            return firings[index]
    return None


def firings(cron: str, time_zone: str, *, after: float, until: float) -> Iterator[float]:
    """Yield the times (Unix seconds) after `after`, up to `until`, at which the line fires, in order.

    It visits each day once, while repeated calls of `next_firing` would start a new search each time.
    """
    last = after
    for of_day in _days(cron, time_zone, after, step=1, until=until):
        for at in of_day:
            if at > until:
                return
            # A skipped time fires when the clock changes, possibly at the same time as one of the next day.
            if at > last:
                last = at
                yield at


def _days(
    cron: str, time_zone: str, at: float, *, step: int, until: float = inf
) -> Iterator[tuple[float, ...]]:
    """Yield the firings of each day that has any, from about the day of `at` to about the day of `until`."""
    line = _parsed(cron)
    # For a line that never fires, every call would walk through nine years of days, so this is checked first
    # and cached per line.
    if not _has_days(cron):
        return
    # A skipped time fires later than it is written, possibly on the following day.
    day = datetime.fromtimestamp(at, _zone(time_zone)).date() - timedelta(days=step)
    end = day + timedelta(days=step * _MOST_DAYS)
    if until < inf:
        end = min(end, day + timedelta(days=2 + max(0.0, until - at) // _DAY_SECONDS + 1))
    while (day < end) is (step > 0):
        # Skips the month in one step: for a line that fires in one month a year, twelve steps instead of 365.
        if day.month not in line.months:
            # Moves to the last or first day of this month, so that the next step leaves it.
            day = _month_end(day) if step > 0 else day.replace(day=1)
        elif line.has_day(day.month, day.day, day.isoweekday() % 7):
            yield _firings(cron, time_zone, day)
        day += timedelta(days=step)


@lru_cache(maxsize=1024)
def _has_days(cron: str) -> bool:
    """Return whether there is any day on which the line fires; 31 February, for example, does not exist."""
    line, first = _parsed(cron), date(2000, 1, 1)
    days = (first + timedelta(days=number) for number in range(_MOST_DAYS))
    return any(line.has_day(day.month, day.day, day.isoweekday() % 7) for day in days)


def _month_end(day: date) -> date:
    return day.replace(day=monthrange(day.year, day.month)[1])


@lru_cache(maxsize=1024)
def _firings(cron: str, time_zone: str, day: date) -> tuple[float, ...]:
    """Return the times at which the line fires on a day that matches it, in order."""
    line, zone = _parsed(cron), _zone(time_zone)
    is_hourly = len(line.hours) == _HOURS
    found: set[float] = set()
    for hour in line.hours:
        for minute in line.minutes:
            wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            # For a time that occurs twice, fold=0 is the earlier and fold=1 the later reading (PEP 495).
            first, second = wall.timestamp(), wall.replace(fold=1).timestamp()
            # For a skipped time, the first reading is later than the second (PEP 495).
            if first <= second:
                found.add(first)
            elif not is_hourly:
                found.add(_clock_change(zone, second, first))
            # A line for every hour fires in elapsed time: at both readings of a time that occurs twice, and
            # never at a skipped time.
            if is_hourly and first < second:
                found.add(second)
    return tuple(sorted(found))


def _clock_change(zone: tzinfo, before: float, after: float) -> float:
    """Return the second (Unix time) between `before` and `after` at which the clock goes forward."""
    offset = datetime.fromtimestamp(after, zone).utcoffset()
    seconds = range(int(before), int(after) + 1)
    index = bisect_left(seconds, True, key=lambda at: datetime.fromtimestamp(at, zone).utcoffset() == offset)
    return float(seconds[index])


@lru_cache(maxsize=1024)
def _parsed(cron: str) -> CronLine:
    return parse_cron(cron)


def _zone(name: str) -> tzinfo:
    # UTC needs no time zone database, which a small image may lack.
    return UTC if name == "UTC" else ZoneInfo(name)
