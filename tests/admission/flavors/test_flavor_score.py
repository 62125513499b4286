"""The score of flavors: each term alone decides as it should, and what is not known is the worst."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.flavors.flavor_score import (
    FlavorTerms,
    expected_loss,
    expected_wait,
    left_over,
    score_flavors,
)
from api.policy import FlavorWeights

HOUR = 3600.0
PLAIN = FlavorTerms(run_seconds=HOUR, cost=4.0, generation=8)
WEIGHTS = FlavorWeights()


def prefers(*flavors: FlavorTerms) -> int:
    scores = [one.score for one in score_flavors(flavors, WEIGHTS)]
    return scores.index(max(scores))


@pytest.mark.parametrize(
    "better",
    [
        pytest.param(replace(PLAIN, cost=3.0), id="a lower cost"),
        pytest.param(replace(PLAIN, generation=9), id="newer GPUs"),
    ],
)
def test_a_better_term_decides(better: FlavorTerms) -> None:
    assert prefers(PLAIN, better) == 1


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param(replace(PLAIN, wait_seconds=HOUR), id="a longer wait"),
        pytest.param(replace(PLAIN, lost_seconds=HOUR), id="more lost work"),
        pytest.param(replace(PLAIN, left_over=0.5), id="more GPUs left over"),
        pytest.param(replace(PLAIN, generation=0), id="no known generation"),
    ],
)
def test_a_worse_term_decides(worse: FlavorTerms) -> None:
    assert prefers(worse, PLAIN) == 1


def test_a_flavor_without_a_price_counts_as_the_dearest() -> None:
    costs = (4.0, None, 3.0)
    dear, unknown, cheap = score_flavors([replace(PLAIN, cost=cost) for cost in costs], WEIGHTS)
    assert dear.score == unknown.score < cheap.score


def test_without_any_price_the_cost_decides_nothing() -> None:
    free, unknown = score_flavors([replace(PLAIN, cost=0.0), replace(PLAIN, cost=None)], WEIGHTS)
    assert free.score == unknown.score


def test_the_run_time_decides_whether_a_cheap_flavor_with_interruptions_is_worth_it() -> None:
    def spot(run: float) -> FlavorTerms:
        lost = expected_loss(run, mean_seconds=8 * HOUR, interval_seconds=None, restart_seconds=60)
        return FlavorTerms(run_seconds=run, cost=1.0 * (run + lost), lost_seconds=lost)

    def safe(run: float) -> FlavorTerms:
        return FlavorTerms(run_seconds=run, cost=3.0 * run)

    assert prefers(safe(HOUR), spot(HOUR)) == 1
    assert prefers(safe(24 * HOUR), spot(24 * HOUR)) == 0


@pytest.mark.parametrize(
    ("mean", "interval", "want"),
    [
        pytest.param(None, None, 0.0, id="nothing is lost where nothing is interrupted"),
        # (10 h + 36 s) (e^0.1 - 1) - 1 h
        pytest.param(10 * HOUR, None, 189.9, id="without checkpoints the whole run may be lost"),
        # 10 (10 h + 36 s) (e^0.01 - 1) - 1 h
        pytest.param(10 * HOUR, HOUR / 10, 21.7, id="with checkpoints a part of an interval"),
    ],
)
def test_the_expected_loss(mean: float | None, interval: float | None, want: float) -> None:
    lost = expected_loss(HOUR, mean_seconds=mean, interval_seconds=interval, restart_seconds=36.0)
    assert lost == pytest.approx(want, abs=0.05)


@pytest.mark.parametrize(
    ("asked", "demand", "capacity", "want"),
    [
        pytest.param(8, 4.0, 8, HOUR, id="one server half busy waits for one run on average"),
        pytest.param(0, 4.0, 8, 0.0, id="what asks for nothing does not wait"),
        pytest.param(8, 0.0, 8, 0.0, id="an idle flavor has no wait"),
    ],
)
def test_the_expected_wait(asked: int, demand: float, capacity: int, want: float) -> None:
    assert expected_wait(HOUR, asked=asked, demand=demand, capacity=capacity) == pytest.approx(want)


@given(
    demand=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
    asked=st.integers(1, 64),
    capacity=st.integers(1, 1000),
)
def test_the_wait_is_finite_and_grows_with_demand(
    demand: float, more: float, asked: int, capacity: int
) -> None:
    less = expected_wait(HOUR, asked=asked, demand=demand, capacity=capacity)
    assert 0 <= less <= expected_wait(HOUR, asked=asked, demand=demand + more, capacity=capacity) < inf


@pytest.mark.parametrize(
    ("pods", "per_node", "want"),
    [
        pytest.param([(1, 1)], 8, 7 / 8, id="a small pod breaks up a large node"),
        pytest.param([(1, 1)], 1, 0.0, id="a small pod fills a small node"),
        pytest.param([(4, 8)], 8, 0.0, id="a gang on whole nodes leaves nothing"),
        pytest.param([(2, 3)], 8, 2 / 8, id="two pods share a node"),
        pytest.param([(1, 16)], 8, 0.0, id="a pod larger than the nodes"),
        pytest.param([(3, 0)], 8, 0.0, id="pods without GPUs"),
        pytest.param([(1, 1)], 0, 0.0, id="nodes that are not known"),
    ],
)
def test_what_pods_leave_over(pods: list[tuple[int, int]], per_node: int, want: float) -> None:
    assert left_over(pods, per_node) == pytest.approx(want)


TERMS = st.builds(
    FlavorTerms,
    run_seconds=st.floats(60, 1e8),
    wait_seconds=st.floats(0, 1e12),
    cost=st.none() | st.floats(0, 1e12),
    lost_seconds=st.floats(0, 1e22),
    generation=st.integers(0, 99),
    left_over=st.floats(0, 1),
)


@given(flavors=st.lists(TERMS, min_size=1, max_size=5))
def test_every_part_and_every_score_is_from_0_to_1(flavors: list[FlavorTerms]) -> None:
    for one in score_flavors(flavors, WEIGHTS):
        parts = (one.wait, one.cost, one.loss, one.generation, one.fragmentation)
        assert all(0 <= part <= 1 for part in parts)
        assert 0 <= one.score <= 1 + 1e-9
