"""Quota windows over time: which one is open, what the quota is then, and when that changes.

        quota
          8 ┤             ┌─────┐
          4 ┤███████┐     │     │        ┌──────     nominal quota 4
          0 ┼───────┴─────┴─────┴────────┴──▶ t      night: 0 until the end, course: 8 for a while
                    night       night

Of windows that are open at the same time the last of the list counts, so that a list reads from the rule to
its exceptions. A window whose next opening comes before its last closing stays open in between.

Nothing is stored: what is in force at an instant follows from the list and the instant, so that a controller
that starts in the middle of a window knows as much as one that saw it open. Whoever asks again and again goes
along with time (`queues.quota.window_timeline`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from math import inf

from api.parsing.schedule import firings, last_firing, next_firing
from api.policy import QuotaWindow
from queues.steps import Steps

# Openings that follow one another without a gap are joined up to here: such a window is as good as always
# open, and whoever asks when it closes looks again then.
_MOST_JOINED = 500
# A step of a sweep: some milliseconds.
_SWEPT_AT_ONCE = 4096


def closes_at(window: QuotaWindow, at: float) -> float | None:
    """Return when the window that is open at `at` closes (Unix seconds), None where it is not open."""
    schedule = window.schedule
    if schedule is None:
        start, end = window.start_at, window.end_at
        return end if start is not None and end is not None and start <= at < end else None
    # The last opening alone tells: an earlier one that lasts longer cannot be, all last equally long.
    opened = last_firing(schedule.cron, schedule.time_zone, at)
    if opened is None or opened + schedule.duration_seconds <= at:
        return None
    end = opened + schedule.duration_seconds
    for _ in range(_MOST_JOINED):
        again = next_firing(schedule.cron, schedule.time_zone, opened)
        # An opening at the very end joins too: the window is never closed in between.
        if again is None or again > end:
            break
        opened, end = again, again + schedule.duration_seconds
    return end


def opens_at(window: QuotaWindow, after: float) -> float | None:
    """Return when the window opens next after `after` (Unix seconds), None for never."""
    schedule = window.schedule
    if schedule is None:
        return window.start_at if window.start_at is not None and window.start_at > after else None
    return next_firing(schedule.cron, schedule.time_zone, after)


def in_force(windows: Sequence[QuotaWindow], at: float) -> QuotaWindow | None:
    """Return which window counts at `at`: the last of the list that is open, None where none is."""
    # From the end of the list, where the exceptions stand.
    return next((one for one in reversed(windows) if closes_at(one, at) is not None), None)


def next_change_at(windows: Sequence[QuotaWindow], at: float) -> float:
    """Return when a window opens or closes next after `at`, infinity for never."""
    return min((_turns_at(one, at) for one in windows), default=inf)


def spans(
    window: QuotaWindow, *, after: float, until: float = inf, most: int | None = None
) -> Iterator[tuple[float, float]]:
    """Yield from when to when (Unix seconds) the window is open, in order.

    All that end after `after` and begin by `until`; of a schedule so many openings at `most`. Openings
    without a gap are one span, up to a number; of one that goes on beyond `until` the end may be too early.
    """
    schedule = window.schedule
    if schedule is None:
        start, end = window.start_at, window.end_at
        if start is not None and end is not None and max(start, after) < end and start <= until:
            yield start, end
        return
    lasts = schedule.duration_seconds
    begins = last_firing(schedule.cron, schedule.time_zone, after)
    if begins is not None and begins + lasts <= after:
        begins = None
    ends, joined = (begins or 0.0) + lasts, 0
    coming = firings(schedule.cron, schedule.time_zone, after=after, until=until)
    for at in islice(coming, most):
        if begins is not None and at <= ends and joined < _MOST_JOINED:
            joined += 1
        else:
            if begins is not None:
                yield begins, ends
            begins, joined = at, 0
        ends = at + lasts
    if begins is not None:
        yield begins, ends


def overlaps(
    windows: Sequence[QuotaWindow], *, after: float, until: float, most: int
) -> Steps[tuple[tuple[int, int], ...]]:
    """Return which windows of one quota are ever open together between two instants, in steps.

    Pairs of places in the list, the earlier first, in order. So many openings of each are looked at: two
    crontabs may first meet in years, or never. A sweep over all openings in order, since asking pair by pair
    takes seconds where there are dozens.
    """
    openings: list[tuple[float, int, float]] = []
    for index, window in enumerate(windows):
        found = spans(window, after=after, until=until, most=most)
        openings += [(begins, index, ends) for begins, ends in found]
        yield
    openings.sort()
    ends: list[tuple[float, int]] = []
    # One bit a window: those that are open, and with whom each has been open as it opened.
    is_open, met = 0, [0] * len(windows)
    for number, (at, index, end) in enumerate(openings):
        if number % _SWEPT_AT_ONCE == 0:
            yield
        while ends and ends[0][0] <= at:
            is_open &= ~(1 << heappop(ends)[1])
        met[index] |= is_open
        is_open |= 1 << index
        heappush(ends, (end, index))
    numbers = range(len(windows))
    pairs = ((one, other) for one in numbers for other in numbers if met[one] >> other & 1)
    return tuple(sorted({(min(pair), max(pair)) for pair in pairs}))


def _turns_at(window: QuotaWindow, at: float) -> float:
    """Return when the window opens or closes next after `at`, infinity for never."""
    turns_at = closes_at(window, at)
    if turns_at is None:
        turns_at = opens_at(window, at)
    return inf if turns_at is None else turns_at
