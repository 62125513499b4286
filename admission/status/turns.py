"""Turns: at which position each pending Workload of a queue is, so that positions agree with known starts.

A queue's order says what is tried first. Under backfill a Workload that is tried later may be expected to
start earlier. Those with a known start therefore share their places in the order of these starts, and a
Workload without one keeps its place: its start may only not be computed yet. A Workload that cannot start as
it is has no position, and takes none from others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Start = TypeVar("Start", float, str)


def positions(in_order: Iterable[tuple[Key, Start | None]]) -> dict[Key, int]:
    """Return the position of each Workload, from 1. `in_order` are those that can start, with their starts.

    Starts are Unix seconds, or RFC 3339 in UTC, which sorts like the times. None: not known.
    """
    waiting = list(in_order)
    # Stable, so that equal starts keep the order of the queue.
    known = sorted(((key, at) for key, at in waiting if at is not None), key=lambda one: one[1])
    by_start = iter(known)
    turns = (key if at is None else next(by_start)[0] for key, at in waiting)
    return {key: place for place, key in enumerate(turns, start=1)}
