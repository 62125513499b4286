"""The law of gains: whom nothing that came free can help, a search would not start earlier either.

Judged by the search itself, which is dear and alone decides: whenever the quick question says no, it is made
all the same, for any stream of work in two queues of a cohort that share nodes or have quota alone.

Run times are upper bounds here. Of work that outruns its estimate the quick question may miss that a promise
could come a moment sooner; it stays where it is then, and is kept.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from admission.backfill.gains import Gains
from admission.backfill.planner import Planner
from admission.snapshot import QueueState
from admission.stage import Footing
from admission.timekeeper import Promise
from api.policy import BackfillMode
from queues.pending import Pending
from tests.laws.test_backfill import MODES, Piece, pieces, run

_LAW = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=40)


def _height(footing: Footing) -> int:
    assert footing.assignment is not None, "what a search finds has flavors"
    return footing.assignment.borrowing


class _Judge:
    """Asks a search wherever the quick question has said no."""

    def __init__(self) -> None:
        self.ask = Gains.may_help
        self.wrong: list[str] = []

    def may_help(
        self, gains: Gains, promise: Promise, queue: QueueState, pending: Pending, *, latest: float
    ) -> bool:
        may_help = self.ask(gains, promise, queue, pending, latest=latest)
        if not may_help:
            outlook, planned = gains.outlook, promise.planned
            others = [one for key, one in outlook.keeper.promises.items() if key != planned.key]
            start = Planner(outlook=outlook).earliest(queue, pending, planned.rank, others, latest=latest)
            # One that borrows higher would come behind those it is before, and is not moved by that.
            keeps_rank = start is not None and _height(start.value) <= planned.rank.height
            if start is not None and keeps_rank and start.at <= max(latest, outlook.now):
                self.wrong.append(f"{planned.key} at {outlook.now}: {planned.start_at} could be {start.at}")
        return may_help


@pytest.mark.parametrize("has_nodes", [False, True], ids=["quota alone", "with nodes"])
@pytest.mark.parametrize("mode", MODES)
@_LAW
@given(work=pieces((1.0, 2.0, 4.0)))
def test_whom_nothing_that_came_free_helps_no_search_starts_earlier(
    work: list[Piece], mode: BackfillMode, has_nodes: bool
) -> None:
    judge = _Judge()

    def judged(gains: Gains, promise: Promise, queue: QueueState, pending: Pending, *, latest: float) -> bool:
        return judge.may_help(gains, promise, queue, pending, latest=latest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gains, "may_help", judged)
        run(work, mode, has_nodes=has_nodes)

    assert judge.wrong == []
