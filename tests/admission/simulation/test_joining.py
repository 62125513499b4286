"""Jobs of a trace that join a reservation: eight GPUs, six of them kept from 600 s to 1,200 s."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.simulation.figures import ReservedFigures, figures_of
from admission.simulation.policies import POLICIES
from admission.simulation.settings import Setting
from admission.simulation.traces import TraceJob, parse_trace
from admission.simulation.virtual_run import PolicyRun
from api.policy import CapacityReservation
from tests.admission.simulation.virtual import make_job, run_policy, waits_of

KEPT = CapacityReservation(
    name="demo",
    local_queue=("simulation", "simulation"),
    start_at=600.0,
    end_at=1_200.0,
    amounts={("gpu", "nvidia.com/gpu"): 6},
)
ONE_NODE = Setting(nodes=1, gpus_per_node=8, reservations=(KEPT,))


def join(job: TraceJob, name: str = "demo") -> TraceJob:
    return replace(job, reservation=name)


def reserved(run: PolicyRun) -> ReservedFigures | None:
    return figures_of(run, gpus=8).reserved


def test_the_column_reservation_says_which_jobs_join() -> None:
    lines = ["user,num_gpu,submit_time,duration,reservation", "a,1,0,1, demo ", "a,1,0,1,"]

    assert [job.reservation for job in parse_trace(lines, source="jobs.csv")] == ["demo", ""]


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"fair"}))
def test_members_start_at_the_start_and_others_wait_for_its_end(policy: str) -> None:
    """Of two gangs of six that run for 300 s one joins, and starts at 600 s; the other at 1,200 s."""
    jobs = (join(make_job(0, gpus=6, at=500, runs=300)), make_job(1, gpus=6, at=500, runs=300))

    run = run_policy(policy, jobs, ONE_NODE)

    assert waits_of(run) == {"0": 100, "1": 700}
    assert reserved(run) == ReservedFigures(jobs=1, missed=0, mean_late_seconds=0)
    assert run.calendar_problems == ()


def test_a_member_that_comes_late_counts_from_when_it_comes() -> None:
    jobs = (join(make_job(0, gpus=6, runs=400)), join(make_job(1, gpus=6, at=700, runs=60)))

    run = run_policy("best-effort", jobs, ONE_NODE)

    # The first starts at 600 s; the second came at 700 s and follows it at 1,000 s.
    assert reserved(run) == ReservedFigures(jobs=2, missed=0, mean_late_seconds=150)


@pytest.mark.parametrize(
    ("job", "setting", "want"),
    [
        pytest.param(
            join(make_job(0), "dmeo"),
            ONE_NODE,
            '1 Job could not use a reservation and ran like any other: berth.dev/reservation is "dmeo": '
            "policy best-effort has no such reservation",
            id="there is none of that name",
        ),
        pytest.param(
            join(make_job(0)),
            replace(ONE_NODE, reservations=()),
            '1 Job could not use a reservation and ran like any other: berth.dev/reservation is "demo": '
            "there is no such reservation",
            id="there is no calendar",
        ),
        pytest.param(
            join(make_job(0)),
            replace(ONE_NODE, reservations=(replace(KEPT, amounts={("gpu", "nvidia.com/gpu"): 9}),)),
            'berth.dev/reservation is "demo": it is not in force',
            id="it asks for more than there is and is refused",
        ),
    ],
)
def test_a_job_that_cannot_use_its_reservation_runs_like_any_other(
    job: TraceJob, setting: Setting, want: str
) -> None:
    run = run_policy("best-effort", (job,), setting)

    assert waits_of(run) == {"0": 0}
    assert reserved(run) == ReservedFigures(jobs=1, missed=1, mean_late_seconds=0)
    assert any(want in problem for problem in run.calendar_problems), run.calendar_problems


def test_a_member_for_which_there_is_no_room_until_the_end_runs_after_it() -> None:
    """The first fills what is kept to the end and beyond; the second does not wait for ever."""
    jobs = (join(make_job(0, gpus=8, runs=900)), join(make_job(1, gpus=6, at=700, runs=60)))

    run = run_policy("best-effort", jobs, ONE_NODE)

    assert waits_of(run) == {"0": 600, "1": 800}
    assert reserved(run) == ReservedFigures(jobs=2, missed=1, mean_late_seconds=0)
    (problem,) = run.calendar_problems
    assert "it ended at 1970-01-01T00:20:00Z" in problem


def test_members_of_another_tenant_s_reservation_are_reported() -> None:
    """Under `fair` there is a LocalQueue a tenant, so that the one of the calendar is not there."""
    run = run_policy("fair", (join(make_job(0)),), ONE_NODE)

    assert waits_of(run) == {"0": 0}
    assert any("it is kept for LocalQueue simulation/simulation" in one for one in run.calendar_problems)


def test_under_strict_fifo_a_member_waits_with_the_head_before_it() -> None:
    jobs = (make_job(0, gpus=6, at=500, runs=300), join(make_job(1, gpus=6, at=500, runs=300)))

    assert waits_of(run_policy("fifo", jobs, ONE_NODE)) == {"0": 700, "1": 1_000}
