"""Run times: raised in steps, learned from earlier runs, kept apart by name stem and shape."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from queues.estimates import (
    REMEMBERED_RUNS,
    Estimate,
    LearnedRuntimes,
    RunKey,
    Source,
    name_stem,
    raised,
    run_key,
)

KEY = RunKey("ns", "train", "00")


@pytest.mark.parametrize(
    ("name", "want_stem"),
    [
        ("train", "train"),
        ("train-7", "train"),
        ("train-2026-01-31", "train"),
        ("train7", "train"),
        ("eval-x7f2k", "eval"),
        ("llama-70b-pretrain-3", "llama-70b-pretrain"),
        ("resnet50", "resnet"),
        ("nightly.1234", "nightly"),
        ("2026", "2026"),
    ],
)
def test_repeats_share_a_name_stem(name: str, want_stem: str) -> None:
    assert name_stem(name) == want_stem


def test_runs_of_another_shape_or_namespace_are_not_alike() -> None:
    keys = {run_key("a", "j-1", b"x"), run_key("a", "j-2", b"x"), run_key("a", "j-1", b"y")}

    assert len(keys | {run_key("b", "j-1", b"x")}) == 3


@pytest.mark.parametrize(
    ("seconds", "elapsed", "percent", "want"),
    [
        pytest.param(1000, 999, 50, 1000, id="an estimate that holds stays"),
        pytest.param(1000, 1000, 50, 1500, id="at its end it is raised by its share"),
        pytest.param(1000, 1600, 50, 2250, id="step after step until it holds"),
        pytest.param(10, 11, 50, 70, id="a short one is raised by a minute"),
        pytest.param(0, 100, 0, 120, id="whatever the share, it rises"),
    ],
)
def test_an_outrun_estimate_is_raised_in_steps(
    seconds: float, elapsed: float, percent: int, want: float
) -> None:
    assert raised(seconds, elapsed, percent) == want


def test_only_limits_are_enforced() -> None:
    enforced = {source for source in Source if Estimate(seconds=1, source=source).is_enforced}

    assert enforced == {Source.EXECUTION_LIMIT, Source.JOB_DEADLINE}


def test_a_quantile_is_an_observed_time() -> None:
    learned = LearnedRuntimes()
    for seconds in (50, 10, 30, 20, 40):
        learned.observe(KEY, seconds)

    assert [learned.quantile(KEY, share) for share in (0.0, 0.2, 0.5, 0.9, 1.0)] == [10, 10, 30, 50, 50]
    assert learned.quantile(RunKey("ns", "other", "00"), 0.5) is None


def test_what_a_store_remembers_is_older_than_what_was_seen_since() -> None:
    learned = LearnedRuntimes()
    learned.observe(KEY, 3)

    learned.load({KEY: (1.0, 2.0)})

    assert dict(learned.items()) == {KEY: (1.0, 2.0, 3.0)}


@given(st.lists(st.floats(0, 1e6), max_size=60), st.floats(0, 1))
def test_only_the_latest_runs_count(runs: list[float], share: float) -> None:
    learned = LearnedRuntimes()
    for seconds in runs:
        learned.observe(KEY, seconds)

    latest = runs[-REMEMBERED_RUNS:]
    got = learned.quantile(KEY, share)
    assert (got is None) == (not latest)
    if got is not None:
        assert got in latest
        assert sum(seconds <= got for seconds in latest) >= share * len(latest) - 1e-9
