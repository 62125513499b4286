"""Five-field cron lines: minute, hour, day of month, month, day of week.

Each field is a list of numbers, ranges `a-b`, `*`, and steps `/n`; months and days of the week also have
their English three-letter names, and Sunday is 0 or 7. Where both days are restricted a day that fits
either counts, as in Vixie cron, whose manual page crontab(5) is the source.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.parsing.decimals import whole_number

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class CronError(ValueError):
    """A text is no cron line. The message names the field and what it may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CronLine:
    """The numbers at which a line fires; `weekdays` count from Sunday = 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    month_days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_month_day_free: bool
    is_weekday_free: bool

    def has_day(self, month: int, month_day: int, weekday: int) -> bool:
        """Return whether it fires on such a day; `weekday` counts from Sunday = 0."""
        if month not in self.months:
            return False
        if self.is_month_day_free or self.is_weekday_free:
            return month_day in self.month_days and weekday in self.weekdays
        return month_day in self.month_days or weekday in self.weekdays


def parse_cron(line: str) -> CronLine:
    """Return the parsed line. Raises CronError."""
    fields = line.split()
    if len(fields) != 5:
        raise CronError("must have five fields: minute, hour, day of month, month, day of week")
    minute, hour, month_day, month, weekday = fields
    return CronLine(
        minutes=_numbers("minute", minute, 0, 59),
        hours=_numbers("hour", hour, 0, 23),
        month_days=_numbers("day of month", month_day, 1, 31),
        months=_numbers("month", _named(month, _MONTHS, 1), 1, 12),
        # Sunday is 0 and 7; what follows counts it as 0.
        weekdays=frozenset(n % 7 for n in _numbers("day of week", _named(weekday, _DAYS, 0), 0, 7)),
        # By its first character and not by what it matches: `1-31` restricts the day, in cron's eyes.
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
            # `5/15` means from 5 on, as in most crons; `5` alone means 5.
            last = str(high) if step else first
        texts = (first, last, step or "1")
        begin, end, every = map(whole_number, texts)
        if begin is None or end is None or every is None:
            raise CronError(f"the {what} {part!r} must be numbers from {low} to {high}, ranges, * or steps")
        if not (low <= begin <= end <= high) or every < 1:
            # A range that falls (`fri-mon`) has no meaning in cron; to wrap it round would
            # surprise who knows crontab.
            raise CronError(f"the {what} {part!r} must lie between {low} and {high} and rise")
        found.update(range(begin, end + 1, every))
    return frozenset(found)
