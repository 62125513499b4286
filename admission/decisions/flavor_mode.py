"""How good a flavor is for a request: what must happen before it can be used, and how far it borrows.

        NO_FIT < NO_CANDIDATES < PREEMPT < RECLAIM < FIT
        └ never, or not by eviction ┘   └ by evicting in its own queue / reclaiming lent quota ┘

Which of two grades is better, and whether a search stops at a grade, is decided by the ClusterQueue's
`flavorFungibility`.
Source: Kueue, pkg/scheduler/flavorassigner/flavorassigner.go, granularMode.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from admission.decisions.assignment import Mode
from api.queueing import FlavorFungibility, FungibilityPolicy, FungibilityPreference


class Granular(IntEnum):
    """What must happen before one flavor can be used for one resource, worst first."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


MODES = {
    Granular.NO_FIT: Mode.NO_FIT,
    Granular.NO_CANDIDATES: Mode.PREEMPT,
    Granular.PREEMPT: Mode.PREEMPT,
    Granular.RECLAIM: Mode.PREEMPT,
    Granular.FIT: Mode.FIT,
}


class Grade(NamedTuple):
    """What must happen before the flavor can be used, and how far up the tree it would borrow then."""

    mode: Granular
    height: int


BEST = Grade(Granular.FIT, 0)
WORST = Grade(Granular.NO_FIT, 1 << 62)


def should_try_next(grade: Grade, fungibility: FlavorFungibility) -> bool:
    """Return whether the search continues with the next flavor after one of this grade."""
    mode, height = grade
    if mode is Granular.FIT:
        return height > 0 and fungibility.when_can_borrow is FungibilityPolicy.TRY_NEXT_FLAVOR
    if mode <= Granular.NO_CANDIDATES or fungibility.when_can_preempt is FungibilityPolicy.TRY_NEXT_FLAVOR:
        return True
    return height > 0 and fungibility.when_can_borrow is FungibilityPolicy.TRY_NEXT_FLAVOR


def is_preferred(a: Grade, b: Grade, preference: FungibilityPreference | None) -> bool:
    """Return whether `a` is better than `b`. Under any preference, a grade that cannot be used is worst."""
    if a.mode is Granular.NO_FIT:
        return False
    if b.mode is Granular.NO_FIT:
        return True
    if (a.mode is Granular.NO_CANDIDATES) != (b.mode is Granular.NO_CANDIDATES):
        return b.mode is Granular.NO_CANDIDATES
    if preference is FungibilityPreference.PREEMPTION_OVER_BORROWING:
        return (-a.height, a.mode) > (-b.height, b.mode)
    return (a.mode, -a.height) > (b.mode, -b.height)
