"""Parser for cron lines with five fields: minute, hour, day of month, month, day of week.

Each field is a list of numbers, ranges `a-b`, `*`, and steps `/n`. Months and days of the week also have
their English three-letter names, and Sunday is 0 or 7. If both day fields are restricted, a day that matches
either is accepted, as in Vixie cron. Source: the manual page crontab(5).
"""

from __future__ import annotations

from dataclasses import dataclass

from api.parsing.decimals import whole_number

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class CronError(ValueError):
    """A text is not a valid cron line. The message names the field and its valid values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CronLine:
    """The values at which a cron line fires; `weekdays` count from Sunday = 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    month_days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_month_day_free: bool
    is_weekday_free: bool

    def has_day(self, month: int, month_day: int, weekday: int) -> bool:
        """Return whether the line fires on this day; `weekday` counts from Sunday = 0."""
        if month not in self.months:
            return False
        if self.is_month_day_free or self.is_weekday_free:
            return month_day in self.month_days and weekday in self.weekdays
        return month_day in self.month_days or weekday in self.weekdays


def parse_cron(line: str) -> CronLine:
    """Return the parsed line. Raises CronError if it is malformed."""
    fields = line.split()
    if len(fields) != 5:
        raise CronError("must have five fields: minute, hour, day of month, month, day of week")
    minute, hour, month_day, month, weekday = fields
    return CronLine(
        minutes=_numbers("minute", minute, 0, 59),
        hours=_numbers("hour", hour, 0, 23),
        month_days=_numbers("day of month", month_day, 1, 31),
        months=_numbers("month", _named(month, _MONTHS, 1), 1, 12),
        # Both 0 and 7 mean Sunday; 7 is mapped to 0.
        weekdays=frozenset(n % 7 for n in _numbers("day of week", _named(weekday, _DAYS, 0), 0, 7)),
        # As in cron, a day field is unrestricted only if it starts with `*`: `1-31` counts as restricted.
        is_month_day_free=month_day.startswith("*"),
        is_weekday_free=weekday.startswith("*"),
    )


def _named(field: str, names: tuple[str, ...], first: int) -> str:
    field = field.lower()
    for index, name in enumerate(names):
        field = field.replace(name, str(index + first))
    return field


def _numbers(what: str, field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = (str(low), "-", str(high)) if span == "*" else span.partition("-")
        if not dash:
            # As in most crons, `5/15` means every 15 from 5 on; `5` alone means 5.
            last = str(high) if step else first
        texts = (first, last, step or "1")
        begin, end, every = map(whole_number, texts)
        if begin is None or end is None or every is None:
            raise CronError(f"the {what} {part!r} must be numbers from {low} to {high}, ranges, * or steps")
        if not (low <= begin <= end <= high) or every < 1:
            # In cron, a descending range such as `fri-mon` is invalid; wrapping it
            # around would be unexpected.
            raise CronError(f"the {what} {part!r} must be between {low} and {high} and ascend")
        found.update(range(begin, end + 1, every))
    return frozenset(found)
