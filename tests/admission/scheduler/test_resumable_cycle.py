"""A cycle in steps: what others see in a pause, and what becomes of it when the state changes."""

from __future__ import annotations

import pytest

from admission.decisions.decision import Decision
from admission.status.views import EngineStatistics
from api.queueing import Preemption, PreemptionPolicy
from api.workload import Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_quota,
    make_workload,
    reserved,
)

# Nominated, served and carried into the state: three steps a head.
STEPS = 9


def three_queues() -> World:
    """One that admits, one that evicts, and one that has to wait.

    cohort ── fitting    2 GPUs
           ── evicting   2 GPUs and no more, held by one of low priority
           ── waiting    1 GPU, asks for 9
    """
    own = make_quota(2, borrowing=0)
    evicting = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    return World().put(
        make_cluster_queue("fitting", quota=2, cohort="cohort"),
        make_cluster_queue("evicting", quota=own, cohort="cohort", preemption=evicting),
        make_cluster_queue("waiting", quota=1, cohort="cohort"),
        reserved(make_workload("low", queue="evicting", gpus=2)),
        make_workload("fits", queue="fitting", gpus=2, at=1),
        make_workload("urgent", queue="evicting", gpus=2, priority=9, at=2),
        make_workload("large", queue="waiting", gpus=9, at=3),
    )


def visible_state(world: World) -> tuple[EngineStatistics, object, dict[str, list[str]]]:
    """Return what can be seen of the state."""
    queues = ("fitting", "evicting", "waiting")
    return (
        world.engine.statistics(),
        [world.engine.queues.cluster_queue_view(name) for name in queues],
        {name: [*world.active(name), *world.parked(name)] for name in queues},
    )


def decide_with_pauses(world: World) -> tuple[Decision, ...]:
    """Run a cycle that pauses after every step."""
    cycle = world.engine.begin_cycle(now=world.now)
    while cycle.step():
        cycle.pause()
        world.engine.validate()
    return tuple(cycle.decisions)


def test_a_cycle_with_pauses_decides_as_one_without() -> None:
    assert decide_with_pauses(three_queues()) == three_queues().cycle()


def test_in_a_pause_the_state_is_seen_as_before_until_decisions_are_carried_into_it() -> None:
    world = three_queues()
    world.engine.wake_heads(now=world.now)
    before = visible_state(world)
    cycle = world.engine.begin_cycle(now=world.now)

    for _ in range(STEPS - 3):
        assert cycle.step()
        cycle.pause()
        _, *seen = visible_state(world)
        assert seen == [*before[1:]]

    while cycle.step():
        pass
    _, *seen = visible_state(world)
    assert seen != [*before[1:]]


@pytest.mark.parametrize("steps", range(STEPS + 1))
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.put(make_workload("new", queue="waiting", at=0)), id="arrives"),
        pytest.param(lambda world: world.remove(Workload, WorkloadKey(NAMESPACE, "urgent")), id="is deleted"),
    ],
)
def test_no_head_is_lost_when_a_workload_comes_or_goes_in_a_pause(steps: int, change: object) -> None:
    assert callable(change)
    world, at_once = three_queues(), three_queues()
    cycle = world.engine.begin_cycle(now=world.now)
    for _ in range(steps):
        cycle.step()
    cycle.pause()

    change(world)
    decisions = [*cycle.decisions, *world.settle()]
    change(at_once)
    expected = at_once.settle()

    assert cycle.is_over
    assert world.holding() == at_once.holding()
    assert visible_state(world)[2] == visible_state(at_once)[2]
    if steps <= STEPS - 3:
        assert (admits(decisions), evicts(decisions)) == (admits(expected), evicts(expected))


def test_an_interrupted_cycle_has_carried_out_all_or_nothing() -> None:
    for steps in range(STEPS + 1):
        world = three_queues()
        cycle = world.engine.begin_cycle(now=world.now)
        for _ in range(steps):
            cycle.step()

        world.put(make_workload("new", queue="waiting", at=0))

        assert admits(cycle.decisions) == ([] if steps <= STEPS - 3 else ["fits"])
        assert evicts(cycle.decisions) == ({} if steps <= STEPS - 3 else {"low": "InClusterQueue"})
