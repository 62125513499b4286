"""Evictions in a simulation: what a victim keeps, which is chosen, and that reported checkpoints pay."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from admission.preemption.node_cover import may_make_room
from admission.simulation.checkpointing import Habits
from admission.simulation.figures import Figures, figures_of
from admission.simulation.settings import Checkpoints, Setting
from admission.simulation.traces import TraceJob, parse_trace
from tests.admission.simulation.virtual import busy_trace, make_job, run_policy

# Every Job saves each ten minutes, and reports it.
REGULAR = Checkpoints(least_interval_seconds=600, most_interval_seconds=600, publishing_share=1.0)
ONE_NODE = Setting(nodes=1, gpus_per_node=8, restart_seconds=60, checkpoints=REGULAR)


def best(number: int, *, at: float, gpus: int = 4, runs: float = 7200) -> TraceJob:
    """Return a Job that may be evicted."""
    return replace(make_job(number, gpus=gpus, at=at, runs=runs), is_preemptible=True)


def figures(name: str, jobs: tuple[TraceJob, ...], setting: Setting = ONE_NODE) -> Figures:
    """Return the figures of a policy."""
    return figures_of(run_policy(name, jobs, setting), gpus=setting.gpus)


def lost_seconds(name: str, *jobs: TraceJob, setting: Setting = ONE_NODE) -> float:
    """Return the GPU-seconds that were lost by one GPU's share: all victims here have four."""
    return round(figures(name, jobs, setting).gpu_hours_lost * 3600 / 4)


def test_the_column_job_type_says_which_jobs_may_be_evicted() -> None:
    lines = ["user,num_gpu,submit_time,duration,job_type", "a,1,0,1,best", "a,1,0,1,strict", "a,1,0,1,"]

    assert [job.is_preemptible for job in parse_trace(lines, source="t")] == [True, False, False]


def test_a_victim_that_is_not_asked_keeps_its_last_own_checkpoint() -> None:
    # It runs for 25 minutes when the other comes and saved after 20. Starting again takes 60 s.
    assert lost_seconds("preemption", best(1, at=0), make_job(2, gpus=8, at=1500, runs=60)) == 300 + 60


def test_a_victim_that_is_asked_saves_and_keeps_all() -> None:
    # It sees the request a minute later, works on until then, and saves for 30 s.
    assert lost_seconds("loss-aware", best(1, at=0), make_job(2, gpus=8, at=1500, runs=60)) == 30 + 60


def test_a_victim_that_reports_nothing_is_not_asked() -> None:
    silent = replace(ONE_NODE, checkpoints=replace(REGULAR, publishing_share=0.0))

    lost = lost_seconds("loss-aware", best(1, at=0), make_job(2, gpus=8, at=1500, runs=60), setting=silent)

    assert lost == 300 + 60


def test_a_victim_that_is_asked_runs_on_when_room_comes_up_elsewhere() -> None:
    # It would see the request at 1560; at 1520 another has ended.
    jobs = (best(1, at=0), make_job(2, gpus=4, at=0, runs=1520), make_job(3, gpus=4, at=1500, runs=60))

    run = run_policy("loss-aware", jobs, ONE_NODE)

    assert [course.evictions for course in run.courses] == [0, 0, 0]
    assert [course.first_start_at for course in run.courses] == [0, 0, 1520]
    assert run.courses[0].finished_at == 7200


def test_a_victim_that_is_asked_saves_for_the_next_in_need_when_the_first_starts_elsewhere() -> None:
    """It is asked once: the second in need does not have to wait for a request of its own to be seen."""
    jobs = (
        best(1, at=0),
        make_job(2, gpus=4, at=0, runs=1520),
        make_job(3, gpus=4, at=1500, runs=600),
        make_job(4, gpus=4, at=1510, runs=60),
    )

    run = run_policy("loss-aware", jobs, ONE_NODE)

    assert [course.evictions for course in run.courses] == [1, 0, 0, 0]
    # Asked at 1500, it sees the request a minute later and saves for thirty seconds.
    assert [course.first_start_at for course in run.courses[2:]] == [1520, 1590]


@pytest.mark.parametrize("name", ["preemption", "loss-aware"])
def test_a_victim_that_saves_at_sigterm_keeps_all_under_every_policy(name: str) -> None:
    setting = replace(ONE_NODE, checkpoints=replace(REGULAR, on_sigterm=True))
    run = run_policy(name, (best(1, at=0), make_job(2, gpus=8, at=1500, runs=60)), setting)

    assert (
        lost_seconds(name, best(1, at=0), make_job(2, gpus=8, at=1500, runs=60), setting=setting) == 30 + 60
    )
    # It is not asked first: the other starts as soon as it has saved.
    assert run.courses[1].first_start_at == 1530


@pytest.mark.parametrize(("name", "want"), [("preemption", "2"), ("loss-aware", "1")])
def test_a_job_that_has_just_saved_is_evicted_rather_than_the_last_started(name: str, want: str) -> None:
    # The first saved 5 s ago, which is sooner than another save would take; the second has yet to save.
    jobs = (best(1, at=0), best(2, at=300), make_job(3, gpus=4, at=605, runs=600))

    run = run_policy(name, jobs, ONE_NODE)

    assert [course.job.id for course in run.courses if course.evictions] == [want]


def test_a_job_saves_alike_whatever_else_is_in_the_trace() -> None:
    alone, among = Habits(Checkpoints(), 7), Habits(Checkpoints(), 7)
    for number in range(100):
        among.of(make_job(number))

    assert alone.of(make_job(42)) == among.of(make_job(42))
    assert alone.of(make_job(42)) != Habits(Checkpoints(), 8).of(make_job(42))


def test_intervals_are_spread_evenly_over_their_orders_of_magnitude() -> None:
    habits = Habits(Checkpoints(), 0)
    drawn = [habits.of(make_job(number)) for number in range(2000)]

    assert all(600 <= habit.interval_seconds <= 7200 for habit in drawn)
    # As many below the geometric mean as above it, and as many that report as that do not.
    assert sum(habit.interval_seconds < (600 * 7200) ** 0.5 for habit in drawn) == pytest.approx(1000, abs=80)
    assert sum(habit.publishes for habit in drawn) == pytest.approx(1000, abs=80)


def full_trace(jobs: int, *, seed: int) -> tuple[TraceJob, ...]:
    """Return long best Jobs that fill four nodes, and short strict ones that come in between."""
    chance = random.Random(seed)
    long = (best(n, at=float(n), gpus=chance.choice((1, 2, 4)), runs=40_000.0) for n in range(24))
    short = (
        make_job(100 + n, gpus=chance.choice((2, 4)), at=6_000.0 + 400.0 * n, runs=900.0) for n in range(jobs)
    )
    return (*long, *short)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_knowing_of_checkpoints_loses_three_times_less(seed: int) -> None:
    jobs, setting = full_trace(60, seed=seed), Setting(nodes=4, gpus_per_node=8, restart_seconds=60)

    plain, aware = figures("preemption", jobs, setting), figures("loss-aware", jobs, setting)

    assert plain.best is not None
    assert plain.strict is not None
    assert aware.strict is not None
    assert plain.best.evictions > 10
    assert plain.strict.evictions == aware.strict.evictions == 0
    assert 3 * aware.gpu_hours_lost < plain.gpu_hours_lost


@pytest.mark.parametrize("name", ["preemption", "loss-aware"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_counting_first_whether_all_candidates_are_enough_changes_no_decision(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, setting = random.Random(seed), Setting(nodes=3, gpus_per_node=8)
    jobs = tuple(
        replace(job, is_preemptible=chance.random() < 0.5, gpus=max(1, job.gpus))
        for job in busy_trace(90, seed=seed)
    )
    said: list[bool] = []

    def count(*question: Any) -> bool:
        said.append(may_make_room(*question))
        return said[-1]

    monkeypatch.setattr("admission.preemption.targets._TAKEN_BEFORE_A_COUNT", 0)
    monkeypatch.setattr("admission.preemption.targets.may_make_room", count)
    quick = run_policy(name, jobs, setting)
    monkeypatch.setattr("admission.preemption.targets.may_make_room", lambda *_: True)
    thorough = run_policy(name, jobs, setting)

    assert set(said) == {True, False}
    assert sum(course.evictions for course in quick.courses) >= 5
    assert [one.held for one in quick.courses] == [one.held for one in thorough.courses]
