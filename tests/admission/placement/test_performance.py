"""How work that ended speaks for or against the nodes that it was on."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.placement.performance import FAILED, Performance, run_outcome


@pytest.mark.parametrize(
    ("seconds", "usual", "want"),
    [
        pytest.param(100.0, 100.0, 0.5, id="the usual time"),
        pytest.param(50.0, 100.0, 1.0, id="half of it"),
        pytest.param(10.0, 100.0, 1.0, id="less counts no more"),
        pytest.param(200.0, 100.0, 0.25, id="twice of it"),
        pytest.param(100.0, None, 0.5, id="nothing to compare with"),
    ],
)
def test_the_outcome_of_a_run(seconds: float, usual: float | None, want: float) -> None:
    assert run_outcome(seconds, usual) == want


def test_one_failure_says_little_and_many_say_much() -> None:
    performance = Performance()

    scores = []
    for number in range(20):
        performance.observe(["n0"], uid=str(number), at=float(number), outcome=FAILED)
        scores.append(performance.scores["n0"])

    assert (round(scores[0], 3), round(scores[-1], 3)) == (0.4, 0.083)
    assert scores == sorted(scores, reverse=True)


def test_the_same_run_counts_once_and_only_on_its_hosts() -> None:
    performance = Performance()

    for _ in range(2):
        performance.observe(["n0", "n1"], uid="a", at=1.0, outcome=1.0)

    assert performance.scores == {"n0": 0.6, "n1": 0.6}


def test_a_repaired_node_scores_well_again() -> None:
    performance = Performance()
    for number in range(40):
        outcome = FAILED if number < 20 else 0.5
        performance.observe(["n0"], uid=str(number), at=float(number), outcome=outcome)

    assert performance.scores["n0"] == pytest.approx(0.5)


def test_the_order_in_which_runs_are_seen_does_not_matter() -> None:
    """After a restart finished Workloads come in the order of their names."""
    runs = [("a", 1.0, 0.0), ("b", 2.0, 0.5), ("c", 3.0, 1.0), ("d", 4.0, 0.25)]
    seen = set()
    for order in permutations(runs):
        performance = Performance()
        for uid, at, outcome in order:
            performance.observe(["n0"], uid=uid, at=at, outcome=outcome)
        seen.add(performance.scores["n0"])

    assert len(seen) == 1


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1)), min_size=1, max_size=40))
def test_a_score_is_between_0_and_1(runs: list[tuple[float, float]]) -> None:
    performance = Performance()
    for number, (at, outcome) in enumerate(runs):
        performance.observe(["n0"], uid=str(number), at=at, outcome=outcome)

    assert 0.0 <= performance.scores["n0"] <= 1.0
