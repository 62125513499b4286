"""Where a start lies in four of five cases: from a forecast, from a promise, and what is learned of it."""

from __future__ import annotations

import pytest

from tests.admission.timed import TimedWorld, key, make_policy
from tests.builders import make_cluster_queue

T = 1000.0


def make_world() -> TimedWorld:
    """Return a full cluster of 8 GPUs in which `head` is promised a start and `next` waits behind it."""
    world = TimedWorld(now=T)
    world.put(make_cluster_queue(quota=8), make_policy())
    world.submit("running", 8, runs=6000, says=7200)
    world.submit("head", 8, runs=100, at=T + 1)
    world.submit("next", 8, runs=100, at=T + 2)
    run_and_forecast(world, until=T + 10)
    return world


def run_and_forecast(world: TimedWorld, *, until: float) -> None:
    world.run(until=until)
    forecast = world.engine.forecasts.begin(now=world.now)
    assert forecast is not None
    while forecast.step():
        pass
    world.engine.forecasts.take(forecast, most=10, now=world.now)


def test_a_promise_ends_its_interval() -> None:
    interval = make_world().engine.promises.start_interval(key("head"))

    assert interval is not None
    assert (interval.earliest_at, interval.latest_at) == (T + 10, T + 7200)


def test_a_start_that_is_only_expected_may_be_later() -> None:
    world = make_world()
    interval = world.engine.promises.start_interval(key("next"))

    assert world.engine.promises.expected_start(key("next")) == T + 7300
    assert interval is not None
    assert interval.earliest_at == T + 10
    assert interval.latest_at > T + 7300


@pytest.mark.parametrize("name", ["head", "next"])
def test_no_interval_begins_in_the_past(name: str) -> None:
    world = make_world()
    run_and_forecast(world, until=T + 5900)

    interval = world.engine.promises.start_interval(key(name))

    assert interval is not None
    assert interval.earliest_at == T + 5900 < interval.latest_at


def test_a_start_is_compared_with_its_first_estimate_once() -> None:
    world = make_world()

    world.run()

    (outcome,) = world.engine.promises.take_start_outcomes()
    assert (outcome.error_seconds, outcome.side) == (-1200, "inside")
    assert world.engine.promises.take_start_outcomes() == ()


def test_a_workload_that_runs_or_is_unknown_has_no_interval() -> None:
    world = make_world()

    assert world.engine.promises.start_interval(key("running")) is None
    assert world.engine.promises.start_interval(key("absent")) is None
