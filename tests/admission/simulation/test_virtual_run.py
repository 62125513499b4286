"""The simulation: waits worked out by hand, laws that hold under every policy, and what breaks on the way."""

from __future__ import annotations

from itertools import pairwise

import pytest

from admission.simulation.policies import POLICIES
from admission.simulation.settings import Faults, Queues, Setting
from admission.simulation.traces import TraceJob
from tests.admission.simulation.virtual import busy_trace, make_job, most_gpus_held, run_policy, waits_of

ONE_NODE = Setting(nodes=1, gpus_per_node=8)
TWO_NODES = Setting(nodes=2, gpus_per_node=8)
FOUR_NODES = Setting(nodes=4, gpus_per_node=8)

# A runs on six of eight GPUs; B, of eight, is blocked until it ends; C would fit beside A.
BLOCKED_HEAD = (
    make_job(0, gpus=6, runs=600),
    make_job(1, gpus=8, at=60, runs=60),
    make_job(2, gpus=2, at=120, runs=600),
)


@pytest.mark.parametrize("policy", ["fifo", "best-effort", "sjf-oracle", "fair"])
def test_jobs_of_one_gpu_are_served_in_rounds_of_eight(policy: str) -> None:
    jobs = tuple(make_job(number) for number in range(200))

    waits = waits_of(run_policy(policy, jobs, ONE_NODE))

    assert sorted(waits.values()) == [60.0 * (number // 8) for number in range(200)]


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        # B waits for A to end at 600 s; C for B to end at 660 s.
        pytest.param("fifo", {"0": 0, "1": 540, "2": 540}, id="under StrictFIFO no Job passes the head"),
        # C starts at once and runs to 720 s, B after it.
        pytest.param("best-effort", {"0": 0, "1": 660, "2": 0}, id="a Job that fits passes the head"),
    ],
)
def test_a_blocked_head(policy: str, want: dict[str, float]) -> None:
    assert waits_of(run_policy(policy, BLOCKED_HEAD, ONE_NODE)) == want


def test_backfill_fills_the_gap_before_the_promised_start_and_no_more() -> None:
    # B is promised 600 s. D ends at 430 s and runs at once; C would end at 720 s and waits for B.
    jobs = (*BLOCKED_HEAD, make_job(3, gpus=2, at=130, runs=300))

    run = run_policy("easy", jobs, ONE_NODE)

    assert waits_of(run) == {"0": 0, "1": 540, "2": 540, "3": 0}
    assert run.courses[1].promised_at == 600


@pytest.mark.parametrize(
    ("policy", "jobs", "seed"),
    [
        *(pytest.param("easy", 40, seed, id=f"easy {seed}") for seed in range(3)),
        *(pytest.param("conservative", 40, seed, id=f"conservative {seed}") for seed in range(3)),
        # A Workload that could start before its own promise took the nodes promised to a younger one.
        pytest.param("conservative", 80, 7, id="a Job that may start early takes no promised nodes"),
    ],
)
def test_with_exact_estimates_backfill_keeps_every_promise(policy: str, jobs: int, seed: int) -> None:
    run = run_policy(policy, busy_trace(jobs, seed=seed), FOUR_NODES)

    promised = [course for course in run.courses if course.promised_at is not None]
    assert promised
    assert all((course.first_start_at or 0) <= (course.promised_at or 0) + 1 for course in promised)


def test_opportunistic_work_runs_in_the_hold_and_is_gone_in_time() -> None:
    # B is promised 600 s. C would run to 2,120 s; it starts at once, and saves in time to be gone by then.
    setting = Setting(nodes=1, gpus_per_node=8, min_runtime_seconds=60)
    jobs = (
        make_job(0, gpus=6, runs=600),
        make_job(1, gpus=8, at=60, runs=60),
        make_job(2, gpus=2, at=120, runs=2000),
    )

    run = run_policy("opportunistic", jobs, setting)

    assert [course.first_start_at for course in run.courses] == [0, 600, 120]
    assert [course.evictions for course in run.courses] == [0, 0, 1]


def test_the_shortest_predicted_is_served_first() -> None:
    jobs = (
        make_job(0, gpus=8, runs=100),
        make_job(1, gpus=8, at=10, runs=30_000),
        make_job(2, gpus=8, at=20, runs=50),
    )

    waits = waits_of(run_policy("shortest-predicted", jobs, ONE_NODE))

    assert waits == {"0": 0, "2": 80, "1": 140}


def test_least_attained_lets_the_short_pass_the_long() -> None:
    # The long one has run for 20 minutes on 8 GPUs when the short one comes: it saves, and restarts after it.
    jobs = (make_job(0, gpus=8, runs=7200), make_job(1, gpus=8, at=1200, runs=60))

    run = run_policy("least-attained", jobs, ONE_NODE)

    assert waits_of(run) == {"1": 30, "0": 30 + 60 + 30}
    assert run.courses[0].evictions == 1


def test_the_oracle_serves_the_shortest_first() -> None:
    jobs = (
        make_job(0, gpus=8, runs=100),
        make_job(1, gpus=8, at=10, runs=300),
        make_job(2, gpus=8, at=20, runs=50),
    )

    waits = waits_of(run_policy("sjf-oracle", jobs, ONE_NODE))

    assert waits == {"0": 0, "2": 80, "1": 140}


def test_a_gang_takes_whole_nodes() -> None:
    # Twelve GPUs are two pods of six; the two GPUs left over on each node are unused.
    jobs = (make_job(0, gpus=12, runs=100), make_job(1, gpus=2, at=10, runs=5))

    assert waits_of(run_policy("best-effort", jobs, TWO_NODES)) == {"0": 0, "1": 90}


def test_a_job_without_gpus_runs_at_once() -> None:
    jobs = (make_job(0, gpus=8, runs=100), make_job(1, gpus=8, at=1), make_job(2, gpus=0, at=2))

    assert waits_of(run_policy("fifo", jobs, ONE_NODE))["2"] == 0


def test_fair_sharing_serves_the_tenant_with_less_first() -> None:
    # The cohort is full with Jobs of a; those of a came before that of b, but b has nothing.
    jobs = (
        *(make_job(number, gpus=8, runs=100) for number in range(2)),
        *(make_job(number, gpus=8, at=1, runs=100) for number in range(2, 4)),
        make_job(4, gpus=8, at=2, runs=100, tenant="b"),
    )

    waits = waits_of(run_policy("fair", jobs, TWO_NODES))

    assert waits["4"] == 98
    assert sorted((waits["2"], waits["3"])) == [99, 199]


@pytest.mark.parametrize("queues", Queues)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_finishes_and_no_gpu_is_used_twice(policy: str, queues: Queues) -> None:
    setting = Setting(nodes=4, gpus_per_node=8, queues=queues)
    jobs = busy_trace(40, seed=7)

    run = run_policy(policy, jobs, setting)

    assert all(course.finished_at is not None for course in run.courses)
    assert min(waits_of(run).values()) >= 0
    assert most_gpus_held(run.courses, setting) <= setting.gpus
    assert all(abs(one.useful_seconds - one.job.duration_seconds) < 1e-6 for one in run.courses)


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_calls_give_equal_courses(policy: str) -> None:
    setting = Setting(
        nodes=4, gpus_per_node=8, faults=Faults(node_mtbf_hours=5, crash_mtbf_gpu_hours=20, seed=3)
    )
    jobs = busy_trace(25, seed=1)

    assert waits_of(run_policy(policy, jobs, setting)) == waits_of(run_policy(policy, jobs, setting))


def test_a_lost_node_costs_what_no_checkpoint_holds() -> None:
    # The one node is lost once before the Job would be done, and is back after ten minutes.
    setting = Setting(
        nodes=1,
        gpus_per_node=8,
        checkpoint_interval_seconds=1000,
        restart_seconds=30,
        faults=Faults(node_mtbf_hours=2, repair_seconds=600, seed=1),
    )

    run = run_policy("fifo", (make_job(0, gpus=8, runs=4000),), setting)

    course = run.courses[0]
    assert course.evictions >= 1
    assert course.useful[0][1] - course.useful[0][0] in (1000.0, 2000.0, 3000.0)
    (_, first_end), (second_start, _) = course.held[:2]
    assert second_start == first_end + 600
    assert course.useful_seconds == pytest.approx(4000)
    assert course.held_seconds > 4000


def test_a_crash_costs_work_but_no_place_in_the_queue() -> None:
    setting = Setting(nodes=1, gpus_per_node=8, faults=Faults(crash_mtbf_gpu_hours=4, seed=2))
    jobs: tuple[TraceJob, ...] = (make_job(0, gpus=8, runs=7200), make_job(1, gpus=8, at=1, runs=60))

    run = run_policy("best-effort", jobs, setting)

    assert [len(course.held) for course in run.courses] == [1, 1]
    assert run.courses[0].held_seconds > 7200
    assert run.courses[0].useful_seconds == pytest.approx(7200)


def test_under_least_attained_no_job_starves_behind_a_stream_of_newcomers() -> None:
    # The newcomers alone would fill the node twice over, each of them having received less than the long one.
    newcomers = (make_job(n, gpus=8, at=1800 * n, runs=3600) for n in range(1, 4 * 48))
    long = make_job(0, gpus=8, runs=30 * 3600)

    run = run_policy("least-attained", (long, *newcomers), ONE_NODE)

    held = run.courses[0].held
    pauses = [begins - ended for (_, ended), (begins, _) in pairwise(held)]
    # One level is climbed in a day, and it never has more than two to climb.
    assert max(pauses) < 2 * 86_400 + 3600
