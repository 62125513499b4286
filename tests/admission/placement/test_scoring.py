"""The score of a domain: what each part says, and that all of it stays between 0 and 1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.placement.scoring import NEUTRAL_PERFORMANCE, SubScores, sub_scores
from api.policy import ScoringWeights
from tests.examples import trying

NUMBERS = st.integers(0, 10_000)


@pytest.mark.parametrize(
    ("free", "pods", "depth", "want"),
    [
        pytest.param(
            8, 8, 3, SubScores(availability=1.0, alignment=1.0, utilization=1.0), id="an empty node, filled"
        ),
        pytest.param(
            8, 2, 2, SubScores(availability=1.0, alignment=2 / 3, utilization=0.25), id="an empty leaf"
        ),
        pytest.param(
            2, 2, 0, SubScores(availability=0.25, alignment=0.0, utilization=1.0), id="the rest of everything"
        ),
    ],
)
def test_the_parts_of_a_score(free: int, pods: int, depth: int, want: SubScores) -> None:
    got = sub_scores(free=free, capacity=8, pods=pods, depth=depth, levels=3, performance=NEUTRAL_PERFORMANCE)

    assert got == want


def test_the_weights_equal_those_of_the_article() -> None:
    scores = SubScores(availability=1.0, alignment=0.5, utilization=0.25, performance=0.8)

    assert scores.weighted(ScoringWeights()) == pytest.approx(0.4 + 0.15 + 0.05 + 0.08)


@trying()
@given(
    free=NUMBERS,
    capacity=NUMBERS,
    pods=NUMBERS,
    depth=st.integers(0, 5),
    levels=st.integers(0, 5),
    performance=st.floats(-5, 5),
)
def test_a_score_is_between_0_and_1(
    free: int, capacity: int, pods: int, depth: int, levels: int, performance: float
) -> None:
    scores = sub_scores(
        free=free, capacity=capacity, pods=pods, depth=depth, levels=levels, performance=performance
    )

    parts = (scores.availability, scores.alignment, scores.utilization, scores.performance)
    assert all(0.0 <= part <= 1.0 for part in parts)
    assert -1e-9 <= scores.weighted(ScoringWeights()) <= 1.0 + 1e-9
