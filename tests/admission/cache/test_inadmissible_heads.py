"""A head that can neither start nor be promised a start under backfill: it takes no other's turn.

cohort ── left    4 GPUs, all of them running until 100
       ── right   4 GPUs, 3 of them running until 100; waiting, in this order:
                  first (4, promised 100), hopeless (3, behind the depth), small (1, fits now)
"""

from __future__ import annotations

import pytest

from admission.decisions.decision import Admit, Decision, Wait
from api.policy import BackfillMode
from api.queueing import Preemption, PreemptionPolicy
from tests.admission.timed import TimedWorld, make_policy
from tests.builders import make_cluster_queue, make_workload


def make_world(*, has_policy: bool = True, preemption: Preemption | None = None) -> TimedWorld:
    """Return the world with `first` promised its start, and the two behind it not tried yet."""
    world = TimedWorld()
    for name in ("left", "right"):
        world.put(make_cluster_queue(name, quota=4, cohort="cohort", preemption=preemption or Preemption()))
    if has_policy:
        world.put(make_policy(BackfillMode.EASY))
    world.submit("runs-left", 4, runs=100, queue="left")
    world.submit("runs-right", 3, runs=100, queue="right")
    world.run(until=1)
    world.submit("first", 4, runs=50, at=1, queue="right")
    world.run(until=2)
    world.submit("hopeless", 3, runs=50, queue="right")
    world.submit("small", 1, runs=20, queue="right")
    world._arrive()
    return world


def outcomes(decisions: tuple[Decision, ...]) -> list[tuple[str, str]]:
    return [(type(one).__name__, one.key.name) for one in decisions if isinstance(one, Admit | Wait)]


def test_the_next_of_its_queue_is_tried_in_the_same_cycle() -> None:
    world = make_world()

    assert outcomes(world.cycle()) == [("Wait", "hopeless"), ("Admit", "small")]
    assert world.parked("right") == ["first", "hopeless"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"has_policy": False}, id="without backfill, as Kueue has it"),
        pytest.param(
            {"preemption": Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)},
            id="where others may be evicted for it, for what is kept for it",
        ),
    ],
)
def test_it_has_its_turn(fields: dict[str, object]) -> None:
    world = make_world(**fields)  # type: ignore[arg-type]  # a table of keyword arguments

    assert outcomes(world.cycle()) == [("Wait", "hopeless")]
    assert outcomes(world.cycle()) == [("Admit", "small")]


@pytest.mark.parametrize("steps", range(6))
def test_a_workload_that_was_passed_over_waits_on_where_the_cycle_is_interrupted(steps: int) -> None:
    world, at_once = make_world(), make_world()
    cycle = world.engine.begin_cycle(now=world.now)
    for _ in range(steps):
        cycle.step()
    cycle.pause()

    world.put(make_workload("new", gpus=9, at=4, queue="left"))
    at_once.put(make_workload("new", gpus=9, at=4, queue="left"))
    decided = outcomes((*cycle.decisions, *world.settle()))

    at_once.settle()
    world.engine.validate()
    assert ("Wait", "hopeless") in decided
    assert world.holding() == at_once.holding()
    assert world.parked("right") == at_once.parked("right")
