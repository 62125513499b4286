"""Quota windows over time: which one is open, what the quota is then, and when that changes.

        quota
          8 ┤             ┌─────┐
          4 ┤███████┐     │     │        ┌──────     nominal quota 4
          0 ┼───────┴─────┴─────┴────────┴──▶ t      night: 0 until the end, course: 8 for a while
                    night       night

Of the windows that are open at the same time the last in the list takes effect, so a list reads from the rule
to its exceptions. A window that opens again before it closes stays open in between.

Nothing is stored. What is in force at an instant follows from the list and the instant alone, so a controller
that starts in the middle of a window knows as much as one that saw it open. A caller that asks again and
again uses `queues.quota.window_timeline`, which moves along with time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from math import inf

from api.parsing.schedule import firings, last_firing, next_firing
from api.policy import QuotaWindow
from queues.steps import Steps

# At most this many openings without a gap in between are joined. A longer chain is as good as always open,
# and the caller that was given its end looks again then.
_MOST_JOINED = 500
# Openings per step of a sweep, a few milliseconds.
_SWEPT_AT_ONCE = 4096


def closes_at(window: QuotaWindow, at: float) -> float | None:
    """Return when the window that is open at `at` closes (Unix seconds), None where it is not open.

    Openings that follow without a gap count as one, so the answer may be many openings away. A chain of more
    than `_MOST_JOINED` openings is cut there, and the caller that asks again at that instant gets the next
    part. Of two openings of one schedule the later one counts.
    """
    schedule = window.schedule
    if schedule is None:
        start, end = window.start_at, window.end_at
        return end if start is not None and end is not None and start <= at < end else None
    # Only the last opening matters: all openings last equally long, so no earlier one can end later.
    opened = last_firing(schedule.cron, schedule.time_zone, at)
    if opened is None or opened + schedule.duration_seconds <= at:
        return None
    end = opened + schedule.duration_seconds
    for _ in range(_MOST_JOINED):
        again = next_firing(schedule.cron, schedule.time_zone, opened)
        # An opening at the very end is joined too, because the window is never closed in between.
        if again is None or again > end:
            break
        opened, end = again, again + schedule.duration_seconds
    return end


def opens_at(window: QuotaWindow, after: float) -> float | None:
    """Return when the window opens next after `after` (Unix seconds), None for never.

    An open window may open again before it closes; the answer is then that opening. Crontabs that never fire,
    such as 30 February, give None. `next_firing` reads the crontab in the time zone of the schedule.
    """
    schedule = window.schedule
    if schedule is None:
        return window.start_at if window.start_at is not None and window.start_at > after else None
    return next_firing(schedule.cron, schedule.time_zone, after)


def in_force(windows: Sequence[QuotaWindow], at: float) -> QuotaWindow | None:
    """Return the window in force at `at`: the last open one of the list, None where none is open."""
    return next((one for one in reversed(windows) if closes_at(one, at) is not None), None)


def next_change_at(windows: Sequence[QuotaWindow], at: float) -> float:
    """Return when a window next opens or closes after `at` (Unix seconds), infinity for never.

    A change of a window need not change the quota: a window that is covered by a later one of the list opens
    and closes without effect. O(n) for n windows, with a search in the calendar for each.
    """
    return min((_turns_at(one, at) for one in windows), default=inf)


def spans(
    window: QuotaWindow, *, after: float, until: float = inf, most: int | None = None
) -> Iterator[tuple[float, float]]:
    """Yield when the window is open, as (from, until) in Unix seconds, in order.

    Covers the spans that end after `after` and begin by `until`, and at most `most` openings of a
    schedule. Openings without a gap form one span, up to a limit. The end of a span that continues beyond
    `until` may be too early.
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
    """Return which windows of one quota are ever open at the same time between two instants, in steps.

    The result holds sorted pairs of indexes, the smaller first. At most `most` openings of each window are
    considered, because two crontabs may first coincide in years, or never. One sweep over all openings in
    order replaces a comparison of each pair, which takes seconds where there are dozens of windows.

    `after` and `until` are in Unix seconds. Windows that only touch (one closes as the other opens) do not
    overlap. The result of the last step holds the pairs; the steps before it yield nothing and only let the
    caller do other work. O(n log n) for n openings, plus the pairs found.
    """
    openings: list[tuple[float, int, float]] = []
    for index, window in enumerate(windows):
        found = spans(window, after=after, until=until, most=most)
        openings += [(begins, index, ends) for begins, ends in found]
        yield
    openings.sort()
    ends: list[tuple[float, int]] = []
    # Bit sets over the windows: those that are open, and for each window those that were open as it opened.
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
    """Return when the window next opens or closes after `at` (Unix seconds), infinity for never."""
    turns_at = closes_at(window, at)
    if turns_at is None:
        turns_at = opens_at(window, at)
    return inf if turns_at is None else turns_at
