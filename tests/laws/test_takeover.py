"""A promise does not move because the leader has changed, whichever replica leads next and whenever.

The laws of promised starts hold over changes of the leader, too: here another engine takes over at every
arrival, end and deadline that is drawn, with the cluster's objects and the store's plan alone.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from admission.engine.engine import Engine
from admission.engine.restore_plan import stored_value
from api.policy import BackfillMode
from queues.reservations.plan import PLAN_TABLES, PlanTable
from tests.admission.succession import successor
from tests.examples import trying
from tests.laws.test_backfill import MODES, Watched, make_world, pieces, submit


def promises_of(engine: Engine) -> dict[object, object]:
    """Return the promises by Workload."""
    promises = engine.plan.tables()[PlanTable.PROMISES]
    return {key: stored_value(promise) for key, promise in promises.items()}


class Handed(Watched):
    """A world whose leader changes: `changes` says at which events."""

    changes: list[bool]

    def _decide(self) -> None:
        super()._decide()
        if self.changes and self.changes.pop():
            before = self.engine
            # A promise that no longer holds moves when the leader of that time next looks at it.
            before._cache.schedule_plan.note_adopted()
            super()._decide()
            self.engine = successor(before, settings=self.settings, now=self.now)
            for table in PLAN_TABLES:
                want = {key: stored_value(one) for key, one in before.plan.tables()[table].items()}
                got = {key: stored_value(one) for key, one in self.engine.plan.tables()[table].items()}
                assert got == want, table
            # Its first look, before any Workload is tried. (A new leader tries a Workload without a promise
            # again, which may then get one.)
            looking = successor(before, settings=self.settings, now=self.now)
            looking.begin_cycle(now=self.now)
            assert promises_of(looking) == promises_of(before), f"a promise moved at {self.now}"
            super()._decide()


@pytest.mark.parametrize("has_nodes", [False, True], ids=["quota alone", "with nodes"])
@pytest.mark.parametrize("mode", [*MODES, BackfillMode.OPPORTUNISTIC])
@trying(20)
@given(data=st.data())
def test_no_promise_moves_because_the_leader_has_changed(
    data: st.DataObject, mode: BackfillMode, has_nodes: bool
) -> None:
    ending_seconds = data.draw(st.sampled_from([0, 5]))
    world = make_world(mode, has_nodes=has_nodes, sharing=None, kind=Handed, ending_seconds=ending_seconds)
    world.changes = data.draw(st.lists(st.booleans(), max_size=12))
    submit(world, data.draw(pieces((0.1, 1.0, 3.0))), has_nodes=has_nodes)

    world.run()

    assert world.ended.keys() == world.lengths.keys(), "a Workload never ran to the end"
    for name in world.plans:
        assert None not in world.causes(name)


class Skewed(Watched):
    """A world whose next leader has another clock: `skews` says by how many seconds, at which events.

    What happens takes as long as before; what was stamped by the other clock stays as it was stamped.
    """

    skews: list[int]

    def _decide(self) -> None:
        super()._decide()
        skew = self.skews.pop() if self.skews else 0
        if not skew:
            return
        self.now += skew
        self.ends = {name: at + skew for name, at in self.ends.items()}
        self.stops = {name: at + skew for name, at in self.stops.items()}
        self.arrivals = [(at + skew, workload) for at, workload in self.arrivals]
        self.engine = successor(self.engine, settings=self.settings, now=self.now)
        super()._decide()


@pytest.mark.parametrize("mode", [*MODES, BackfillMode.OPPORTUNISTIC])
@trying(20)
@given(data=st.data())
def test_leaders_whose_clocks_are_minutes_apart_lose_no_workload_and_admit_none_twice(
    data: st.DataObject, mode: BackfillMode
) -> None:
    """Invariants (quota, claims, promises of a lone waiter) are checked after every cycle of every leader.

    Promises may come to nothing by it: one clock says that their time has come. Each move has its cause.
    """
    world = make_world(mode, has_nodes=True, sharing=None, kind=Skewed)
    world.skews = data.draw(st.lists(st.sampled_from([0, 0, 240, -240, 30]), max_size=10))
    submit(world, data.draw(pieces((0.1, 1.0, 3.0))), has_nodes=True)

    world.run()

    assert world.ended.keys() == world.lengths.keys(), "a Workload never ran to the end"
    for name in world.plans:
        assert None not in world.causes(name)
