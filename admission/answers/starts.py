"""Starts as the annotations of Workloads show them, and the bounds that follow for those behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api.keys import EXPECTED_START, PLANNED_START


def start_bounds(starts: Sequence[str]) -> list[str]:
    """Return a lower bound for the start at each position of a queue, by the queue's order; "": no bound.

    `starts` are the known starts (RFC 3339, "" for none), in the queue's order. There is a bound only behind
    the last known start: before it, a missing start may only not be written yet.
    """
    known = [place for place, start in enumerate(starts) if start]
    if not known:
        return [""] * len(starts)
    # The texts sort like the times, because all are in UTC with whole seconds.
    latest = max(starts)
    return [latest if place > known[-1] else "" for place in range(len(starts))]


def interval_text(earliest: str, latest: str) -> str:
    """Return where a start lies that is expected but not promised; both are times as they are to be shown."""
    return f"in four of five cases between {earliest} and {latest}"


def start_of(annotations: Mapping[str, str]) -> str:
    """Return the promised start that a Workload's annotations name, or else the expected one, or ""."""
    # If both exist, they may differ by rounding.
    return annotations.get(PLANNED_START) or annotations.get(EXPECTED_START, "")
