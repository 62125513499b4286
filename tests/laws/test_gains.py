"""The law of gains: a Workload that no freed resource can help starts no earlier than before, or not at all.

The search itself is the judge. It is expensive, and only its answer counts: whenever the quick check says no,
it is made all the same, with what came free and with that taken, for any stream of work in two queues of a
cohort that share nodes or have quota alone. A start that is there either way owes nothing to what came free:
a look that leaves out a Workload that is hardly ever helped has missed it before.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given

from admission.backfill.improvable_promises import ImprovablePromises
from admission.backfill.planned_starts import Promise
from admission.backfill.planner import Planner
from admission.backfill.profile_trial import StartClaim
from admission.snapshot.queue_state import QueueState
from api.policy import BackfillMode
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import Claim
from queues.steps import finish
from tests.examples import trying
from tests.laws.test_backfill import MODES, Piece, pieces, run

_LAW = trying(40)


def _height(footing: StartClaim) -> int:
    assert footing.assignment is not None, "what a search finds has flavors"
    return footing.assignment.borrowing


class _Judge:
    """Asks a search wherever the quick question has said no."""

    def __init__(self) -> None:
        self.ask = ImprovablePromises.may_help
        self.wrong: list[str] = []

    def may_help(
        self,
        gains: ImprovablePromises,
        promise: Promise,
        queue: QueueState,
        pending: Pending,
        *,
        latest: float,
    ) -> bool:
        may_help = self.ask(gains, promise, queue, pending, latest=latest)
        if not may_help:
            visible, planned = gains.visible, promise.planned
            others = [one for key, one in visible.schedule_plan.promises.items() if key != planned.key]

            def earliest() -> float:
                planner = Planner(visible=visible)
                start = finish(planner.earliest(queue, pending, planned.rank, others, latest=latest))
                # One that borrows higher would come behind those it is before, and is not moved by that.
                keeps_rank = start is not None and _height(start.value) <= planned.rank.height
                is_in_time = start is not None and start.at <= max(latest, visible.now)
                return start.at if start is not None and keeps_rank and is_in_time else inf

            at = earliest()
            if at < inf and at < self._with_it_taken(gains, earliest):
                self.wrong.append(f"{planned.key} at {visible.now}: {planned.start_at} could be {at}")
        return may_help

    @staticmethod
    def _with_it_taken(gains: ImprovablePromises, earliest: Callable[[], float]) -> float:
        profile = gains.visible.schedule_plan.profile
        taken = [
            Claim(
                holder=WorkloadKey("slack", str(number)),
                queue=piece.queue,
                usage=piece.usage,
                spots=piece.spots,
                begins_at=max(piece.from_at, gains.visible.now),
                ends_at=piece.until,
            )
            for number, piece in enumerate(gains.slack.pieces)
            if piece.until > gains.visible.now
        ]
        for claim in taken:
            profile.put(claim)
        try:
            return earliest()
        finally:
            for claim in taken:
                profile.drop(claim.holder)


@pytest.mark.parametrize("has_nodes", [False, True], ids=["quota alone", "with nodes"])
@pytest.mark.parametrize("mode", MODES)
@_LAW
@given(work=pieces((0.5, 1.0, 2.0, 4.0)))
def test_no_search_starts_a_workload_earlier_that_nothing_freed_can_help(
    work: list[Piece], mode: BackfillMode, has_nodes: bool
) -> None:
    judge = _Judge()

    def judged(
        gains: ImprovablePromises, promise: Promise, queue: QueueState, pending: Pending, *, latest: float
    ) -> bool:
        return judge.may_help(gains, promise, queue, pending, latest=latest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImprovablePromises, "may_help", judged)
        run(work, mode, has_nodes=has_nodes)

    assert judge.wrong == []
