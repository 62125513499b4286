"""A chain of Cohorts longer than the stack of Python: decided like any other, in linear time."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from admission.engine.engine import EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from api.queueing import Cohort
from tests.builders import World, admits, make_cluster_queue, make_workload, waits

LENGTH = 1500
NOW = 1000.0


def chain(length: int) -> list[Cohort]:
    """Return Cohorts of which each but the last is below the next."""
    return [
        Cohort(name=f"c{number:05}", parent=f"c{number + 1:05}" if number + 1 < length else None)
        for number in range(length)
    ]


@pytest.mark.parametrize("fair_sharing", [False, True], ids=["classical", "fair sharing"])
def test_a_queue_below_a_long_chain_borrows_through_it(fair_sharing: bool) -> None:
    queues = [
        make_cluster_queue("lender", quota=3, cohort=f"c{LENGTH - 1:05}"),
        make_cluster_queue("queue", quota=1, cohort="c00000"),
    ]
    world = make_world(chain(LENGTH), EngineSettings(fair_sharing=FairPreemption() if fair_sharing else None))
    world.put(*queues, make_workload("a", gpus=4), make_workload("b", gpus=1, at=1))

    decisions = world.settle()

    assert admits(decisions) == ["a"]
    assert waits(decisions) == {"b": "WaitingForQuota"}


def make_world(cohorts: list[Cohort], settings: EngineSettings | None = None) -> World:
    """Return a world with these Cohorts. Its own `put` checks all of them after each."""
    world = World(settings=settings or EngineSettings())
    for cohort in cohorts:
        world.engine.objects.upsert(cohort, now=NOW)
    return world


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions the work calls."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_four_times_the_cohorts_cost_four_times_the_calls() -> None:
    def build(length: int) -> None:
        engine = make_world(chain(length)).engine
        engine.objects.upsert(make_cluster_queue("queue", quota=1, cohort="c00000"), now=NOW)
        engine.cycle(now=NOW)
        # A changed Cohort builds the trees again, and they are compared with those before.
        engine.objects.upsert(Cohort(name="c00000", parent="c00001", fair_weight_milli=2000), now=NOW)
        engine.cycle(now=NOW)

    build(100)
    few, many = (calls_of(lambda length=length: build(length)) for length in (300, 1200))  # type: ignore[misc]

    assert many < 4.5 * few


def test_a_long_way_into_a_cycle_is_passed_once() -> None:
    cohorts = chain(LENGTH)
    cohorts[-1] = Cohort(name=cohorts[-1].name, parent=cohorts[-2].name)
    world = make_world(cohorts).put(make_cluster_queue("queue", quota=1, cohort="c00000"))

    view = world.engine.queues.cluster_queue_view("queue")

    assert view is not None
    assert "c01498 → c01499 → c01498" in view.message
