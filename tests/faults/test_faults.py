"""Seeds of the simulation break no law; a law that is broken is found, repeats itself, and is shrunk."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.known import Finding, findings
from tests.faults.phases import Phase
from tests.faults.schedule import Event, Fault, JobPlan, Schedule, draw
from tests.faults.shrink import shrink
from tests.faults.world import run

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# What `make test` tries: 25 s of CPU time.
SEEDS = "0..30"

QUIET = Schedule(
    seed=7,
    is_shuffled=True,
    skews=(0.0, 0.0),
    rates=(1.0, 1.0),
    jobs=(
        JobPlan(at=1.0, queue="a", cpus=4, is_urgent=False, seconds=20.0),
        JobPlan(at=2.0, queue="a", cpus=3, is_urgent=False, seconds=5.0),
        JobPlan(at=3.0, queue="b", cpus=2, is_urgent=True, seconds=5.0),
    ),
    events=(),
)


def _as_parameter(name: str, finding: Finding) -> Any:
    marks = () if finding.is_mended else (pytest.mark.xfail(reason=finding.reason, strict=True),)
    return pytest.param(finding, id=name, marks=marks)


@pytest.mark.parametrize("finding", [_as_parameter(*one) for one in findings().items()])
def test_what_was_found_is_mended(finding: Finding) -> None:
    """Strict: what is mended fails here until its file says so, and its faults need not be kept apart."""
    assert run(finding.schedule).law != finding.law


@pytest.mark.slow
def test_no_seed_breaks_a_law() -> None:
    """In a process of its own: the order of sets must be that of the command, or a seed means another run."""
    command = [sys.executable, "-m", "tests.faults", "--seeds", SEEDS]

    ended = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_run_without_faults_ends_at_rest_with_every_job_done() -> None:
    outcome = run(QUIET)

    assert outcome.broken == []
    assert outcome.recovery_seconds == 0.0


def test_a_schedule_brings_the_same_run_whatever_ran_before() -> None:
    schedule = draw(3)
    first = run(schedule)

    run(QUIET)

    assert run(schedule).digest == first.digest


def test_another_order_of_what_is_ready_is_another_run() -> None:
    assert run(replace(QUIET, is_shuffled=False)).digest != run(QUIET).digest


def test_a_fault_strikes_in_the_phase_that_it_waits_for() -> None:
    killed = Event(at=0.0, fault=Fault.KILLED, seconds=3.0, phase=Phase.ADMIT)

    outcome = run(replace(QUIET, events=(killed,)))

    assert outcome.broken == []
    assert dict(outcome.coverage) == {(Fault.KILLED, Phase.ADMIT): 1}


def test_shrinking_keeps_what_the_law_needs_and_nothing_else() -> None:
    schedule = next(one for one in map(draw, range(100)) if len(one.jobs) > 3 and len(one.events) > 3)
    needed_job, needed_event = schedule.jobs[2], schedule.events[1]

    small = shrink(schedule, lambda one: needed_job in one.jobs and needed_event in one.events)

    assert (small.jobs, small.events) == ((needed_job,), (needed_event,))
    assert len(small.skews) == 1
    assert not small.is_shuffled


def test_faults_that_are_kept_apart_never_meet_in_one_schedule() -> None:
    apart = (frozenset({Fault.FROZEN, Fault.KILLED}), frozenset({Fault.TOUCHED}))

    for seed in range(300):
        faults = {event.fault for event in draw(seed, apart=apart).events}
        assert not any(group <= faults for group in apart)
