"""A guard of the protocol that is taken out is missed: without it, and only then, a schedule breaks a law."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.faults.mutants import MUTANTS, Mutant
from tests.faults.phases import Phase
from tests.faults.schedule import Event, Fault, JobPlan, Schedule
from tests.faults.world import run

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def make_job(at: float, *, cpus: int = 6, seconds: float = 300.0, is_urgent: bool = False) -> JobPlan:
    """Return a Job of the queue a, which has 4 CPUs and may borrow 2."""
    return JobPlan(at=at, queue="a", cpus=cpus, is_urgent=is_urgent, seconds=seconds)


def make_schedule(*events: Event, jobs: tuple[JobPlan, ...]) -> Schedule:
    """Return a schedule with two replicas on machines without skew."""
    return Schedule(seed=2, is_shuffled=False, skews=(0.0, 0.0), rates=(1.0, 1.0), jobs=jobs, events=events)


QUIET = make_schedule(jobs=(make_job(1.0, cpus=4, seconds=20.0), make_job(2.0, cpus=4, seconds=5.0)))

PREEMPTING = make_schedule(
    jobs=(make_job(1.0, cpus=4, seconds=60.0), make_job(10.0, cpus=4, seconds=5.0, is_urgent=True))
)

STOPPED = make_schedule(
    Event(at=10.0, fault=Fault.STOPPED, seconds=5.0, target=1), jobs=(make_job(1.0, seconds=20.0),)
)

REFUSED = make_schedule(
    Event(at=0.5, fault=Fault.REFUSED, phase=Phase.ADMIT), jobs=(make_job(1.0, seconds=20.0),)
)

# The leader's second admission hangs for 25 s, and the leader dies while it queues a more urgent Job.
HANGING = make_schedule(
    Event(at=10.0, fault=Fault.VERY_LATE, seconds=25.0, phase=Phase.ADMIT),
    Event(at=10.0, fault=Fault.KILLED, seconds=60.0, phase=Phase.CREATE),
    jobs=(make_job(1.0, seconds=20.0), make_job(5.0), make_job(23.0, is_urgent=True)),
)

# Which schedule misses which guard, and the law that is then broken.
MISSED = (
    ("Job started without admission", QUIET, "start"),
    ("release before the Job has stopped", PREEMPTING, "release"),
    ("fence not raised at an election", STOPPED, "fence"),
    ("refused decisions are kept", REFUSED, "liveness"),
    ("no reservation before the write", HANGING, "quota"),
    ("reservation confirmed when sent", HANGING, "quota"),
    ("reservations dropped at takeover", HANGING, "quota"),
)


@pytest.mark.parametrize(
    "schedule",
    [QUIET, PREEMPTING, STOPPED, REFUSED, HANGING],
    ids=str.split("quiet preempting stopped refused hanging"),
)
def test_with_all_guards_no_law_is_broken(schedule: Schedule) -> None:
    assert run(schedule).broken == []


@pytest.mark.parametrize(("title", "schedule", "want"), MISSED, ids=[title for title, _, _ in MISSED])
def test_without_a_guard_a_law_is_broken(title: str, schedule: Schedule, want: str) -> None:
    (mutant,) = (one for one in MUTANTS if one.title == title)

    with mutant.applied():
        outcome = run(schedule)

    assert outcome.law == want


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_what_a_mutant_takes_out_is_there(mutant: Mutant) -> None:
    with mutant.applied():
        pass


@pytest.mark.slow
def test_the_seeds_of_the_mutants_find_them() -> None:
    """In a process of its own, as in `test_no_seed_breaks_a_law`."""
    command = [sys.executable, "-m", "tests.faults", "--mutants"]

    ended = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
