"""Quota windows over time: which one is open, what the quota is then, and when that changes.

        quota
          8 ┤             ┌─────┐
          4 ┤███████┐     │     │        ┌──────     nominal quota 4
          0 ┼───────┴─────┴─────┴────────┴──▶ t      night: 0 until the end, course: 8 for a while
                    night       night

Of windows that are open at the same time the last of the list counts, so that a list reads from the rule to
its exceptions. A window whose next opening comes before its last closing stays open in between.

Nothing is stored: what is in force at an instant follows from the list and the instant, so that a controller
that starts in the middle of a window knows as much as one that saw it open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from api.policy import QuotaWindow
from api.schedule import last_firing, next_firing

# Openings that follow one another without a gap are joined up to here: such a window is as good as always
# open, and whoever asks when it closes looks again then.
_MOST_JOINED = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStep:
    """From `at` on the quota is `amount`, by the open window, None: the nominal quota.

    `lead_seconds`: how long before it the windows that open or close here want to be heeded.
    """

    at: float
    amount: int
    window: QuotaWindow | None
    lead_seconds: int


def closes_at(window: QuotaWindow, at: float) -> float | None:
    """Return when the window that is open at `at` closes (Unix seconds), None where it is not open."""
    schedule = window.schedule
    if schedule is None:
        start, end = window.start_at, window.end_at
        return end if start is not None and end is not None and start <= at < end else None
    # The last opening alone tells: an earlier one that lasts longer cannot be, all last equally
    # long.
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


def steps(
    windows: Sequence[QuotaWindow], nominal: int, *, after: float, until: float, most: int
) -> Iterator[QuotaStep]:
    """Yield each change of one quota between two instants, at most so many of them.

    `windows` are those of this quota alone, in the order of the list.
    """
    at, found = after, 0
    before = in_force(windows, after)
    while found < most:
        turns = [(_turns_at(one, at), one.reclaim_lead_seconds) for one in windows]
        # `at` moves on with every turn: a window's next turn always lies after the instant asked
        # about.
        at = min((turn for turn, _ in turns), default=inf)
        if at > until or at == inf:
            return
        now = in_force(windows, at)
        # A turn that changes nothing, such as a window covered by another, is no step.
        if _amount(now, nominal) != _amount(before, nominal):
            # Of several windows that turn together the longest lead counts: each asked to be heeded
            # so early.
            lead = max(lead for turn, lead in turns if turn == at)
            yield QuotaStep(at=at, amount=_amount(now, nominal), window=now, lead_seconds=lead)
            found += 1
        before = now


def first_overlap(
    one: QuotaWindow, other: QuotaWindow, *, after: float, until: float, most: int
) -> float | None:
    """Return when both windows are open for the first time between two instants, None where they never are.

    At most so many openings and closings are looked at.
    """
    at = after
    for _ in range(most):
        if at > until:
            return None
        if closes_at(one, at) is not None and closes_at(other, at) is not None:
            return at
        # Two windows can only begin to overlap where one of them opens.
        at = next_change_at((one, other), at)
    return None


def _turns_at(window: QuotaWindow, at: float) -> float:
    """Return when the window opens or closes next after `at`, infinity for never."""
    turns_at = closes_at(window, at)
    if turns_at is None:
        turns_at = opens_at(window, at)
    return inf if turns_at is None else turns_at


def _amount(window: QuotaWindow | None, nominal: int) -> int:
    return nominal if window is None else window.nominal
