"""A spec that concerns thousands of Workloads takes effect in steps, and the end is as if it was in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from admission.status.views import EngineStatistics
from api.jobs.resource_requests import LimitRange
from api.objects.cluster import LimitRangeItem
from api.policy import AdmissionPolicy, Backfill, Ordering, OrderingMode
from api.queueing import LocalQueue, StopPolicy
from api.workload import Workload, WorkloadKey
from tests.builders import NAMESPACE, World, make_cluster_queue, make_workload, reserved

WORKLOADS = 24


def make_world() -> World:
    """Return two queues, one of them full, with a crowd that waits in each."""
    world = World().put(make_cluster_queue("left", quota=1), make_cluster_queue("right", quota=0))
    world.put(reserved(make_workload("running", queue="left")))
    for number in range(WORKLOADS):
        queue = ("left", "right")[number % 2]
        world.put(make_workload(f"w{number:02}", queue=queue, at=number, priority=number % 3))
    world.settle()
    return world


def put(world: World, value: Any) -> None:
    """Upsert without a look at the state, which would do at once what is to be done in steps."""
    world.engine.objects.upsert(value, now=world.now)


def stop_left(world: World) -> None:
    stopped = LocalQueue(namespace=NAMESPACE, name="left", cluster_queue="left", stop_policy=StopPolicy.HOLD)
    put(world, stopped)


def bind_policy(**sections: Any) -> Callable[[World], object]:
    return lambda world: put(world, AdmissionPolicy(name="policy", **sections))


def limit_gpus(world: World) -> None:
    put(world, LimitRange(namespace=NAMESPACE, name="one", limits=(LimitRangeItem(max={"gpu": "0"}),)))


CHANGES = [
    pytest.param(stop_left, id="a LocalQueue is stopped"),
    pytest.param(bind_policy(ordering=Ordering(mode=OrderingMode.LEAST_ATTAINED)), id="queues take turns"),
    pytest.param(bind_policy(backfill=Backfill()), id="queues get backfill"),
    pytest.param(limit_gpus, id="a LimitRange forbids what they ask for"),
]


def queue_state(world: World) -> tuple[EngineStatistics, object]:
    """Return which Workloads wait where, in which order, and how many that are."""
    waiting = {name: (world.active(name), world.parked(name)) for name in ("left", "right")}
    return world.engine.statistics(), waiting


@pytest.mark.parametrize("change", CHANGES)
def test_in_steps_a_spec_does_what_it_does_at_once(change: Callable[[World], object]) -> None:
    at_once, in_steps = make_world(), make_world()
    change(at_once)
    change(in_steps)
    steps = 1
    while in_steps.engine.catch_up(5, now=in_steps.now):
        steps += 1

    assert steps >= WORKLOADS // 2 // 5
    assert queue_state(in_steps) == queue_state(at_once)
    in_steps.engine.validate()
    assert in_steps.settle() == at_once.settle()
    assert queue_state(in_steps) == queue_state(at_once)


def test_a_question_in_between_does_not_do_the_rest_in_one() -> None:
    world = make_world()
    stop_left(world)
    assert world.engine.catch_up(5, now=world.now)

    waiting = world.engine.statistics().active_pending + world.engine.statistics().parked_pending

    assert WORKLOADS // 2 < waiting < WORKLOADS
    assert world.engine.catch_up(1, now=world.now)


@pytest.mark.parametrize("change", CHANGES)
def test_a_decision_in_between_takes_all_of_it_into_account(change: Callable[[World], object]) -> None:
    at_once, early = make_world(), make_world()
    change(at_once)
    change(early)
    early.engine.catch_up(5, now=early.now)

    assert early.settle() == at_once.settle()
    assert queue_state(early) == queue_state(at_once)
    assert not early.engine.catch_up(5, now=early.now)


def test_a_workload_that_goes_in_between_is_not_missed() -> None:
    world = make_world()
    limit_gpus(world)
    world.engine.catch_up(5, now=world.now)

    for number in range(WORKLOADS):
        world.engine.objects.remove(Workload, WorkloadKey(NAMESPACE, f"w{number:02}"), now=world.now)

    assert not world.engine.catch_up(5, now=world.now)
    world.engine.validate()
    assert world.engine.statistics().workloads == 1
