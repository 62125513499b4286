"""Run times: raised in steps, learned from earlier runs, kept apart by name stem and shape."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from queues.estimates.run_history import Run
from queues.estimates.runtime_estimate import (
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
        ("eval-cddpl", "eval"),
        ("eval-2026-cddpl", "eval"),
        ("eval-small", "eval-small"),
        ("eval-lstm", "eval-lstm"),
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


def ran(*seconds: float) -> list[Run]:
    """Return runs that ended one after the other, each of another Workload."""
    return [Run(at=float(number), uid=f"uid-{number}", seconds=one) for number, one in enumerate(seconds)]


def test_a_quantile_is_an_observed_time() -> None:
    learned = LearnedRuntimes()
    learned.observe(KEY, *ran(50, 10, 30, 20, 40))

    assert [learned.quantile(KEY, share) for share in (0.0, 0.2, 0.5, 0.9, 1.0)] == [10, 10, 30, 50, 50]
    assert learned.quantile(RunKey("ns", "other", "00"), 0.5) is None


@given(st.lists(st.sampled_from(ran(*range(30))), max_size=60))
def test_a_run_counts_once_in_whatever_order_it_is_reported(reported: list[Run]) -> None:
    learned = LearnedRuntimes()
    for run in reported:
        learned.observe(KEY, run)

    want = tuple(sorted(set(reported))[-REMEMBERED_RUNS:])
    # One that was forgotten for being old is not remembered again, whenever it is reported.
    assert learned.runs.get(KEY, ()) == want


def test_only_what_is_new_is_to_be_stored() -> None:
    learned = LearnedRuntimes()
    runs = ran(1, 2)
    learned.observe(KEY, *runs)
    assert learned.runs.take_changed() == {KEY: tuple(runs)}

    learned.observe(KEY, runs[0])

    assert not learned.runs.has_changed


@given(st.lists(st.floats(0, 1e6), max_size=60), st.floats(0, 1))
def test_only_the_latest_runs_count(seconds: list[float], share: float) -> None:
    learned = LearnedRuntimes()
    learned.observe(KEY, *ran(*seconds))

    latest = seconds[-REMEMBERED_RUNS:]
    got = learned.quantile(KEY, share)
    assert (got is None) == (not latest)
    if got is not None:
        assert got in latest
        assert sum(one <= got for one in latest) >= share * len(latest) - 1e-9
