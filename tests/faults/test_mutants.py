"""A guard of the protocol that is taken out is missed: without it, and only then, a schedule breaks a law."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.known import findings
from tests.faults.mutants import MUTANTS, Mutant
from tests.faults.phases import Phase
from tests.faults.schedule import Event, Fault, JobPlan, Schedule
from tests.faults.world import run

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def make_job(at: float, *, cpus: int = 6, seconds: float = 300.0, is_urgent: bool = False) -> JobPlan:
    """Return a Job of the queue a, which has 4 CPUs and may borrow 2, all that there are."""
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


def make_event(at: float, fault: Fault, seconds: float = 0.0, **fields: Any) -> Event:
    """Return an event at a time, or from then on at its phase."""
    return Event(at=at, fault=fault, seconds=seconds, **fields)


# What the next ones begin with: the first admission is still on its way for 20 s, and all later writes on its
# Workload are refused, also those that would show that it waits and so make the late one a conflict.
LATE = make_event(0.0, Fault.VERY_LATE, 20.0, phase=Phase.ADMIT)
REFUSING = make_event(0.0, Fault.OBJECT_FAILS, 60.0, count=3, phase=Phase.ADMIT)
LEADER_DIES = make_event(2.0, Fault.KILLED, 100.0, target=1)
RIVALS = (make_job(1.0, seconds=20.0), make_job(3.0, is_urgent=True))

# The late write comes when the Job has run again, ended, and given way to another.
SENT_TWICE = make_schedule(LATE, jobs=(make_job(1.0, seconds=2.0), make_job(2.0, seconds=60.0)))

EDITED = make_schedule(
    make_event(0.0, Fault.TOUCHED, count=2, phase=Phase.ADMIT), jobs=(make_job(1.0, cpus=2, seconds=5.0),)
)

GIVEN_UP = make_schedule(LATE, REFUSING, jobs=RIVALS)

ORPHANED = make_schedule(LATE, REFUSING, LEADER_DIES, jobs=RIVALS)

FORGOTTEN_BY_REDIS = make_schedule(
    LATE, REFUSING, make_event(0.0, Fault.REDIS_FLUSHED, phase=Phase.ADMIT), LEADER_DIES, jobs=RIVALS
)

NEVER_IN_REDIS = make_schedule(
    LATE, REFUSING, make_event(0.5, Fault.REDIS_ISOLATED, 30.0, target=1), LEADER_DIES, jobs=RIVALS
)

# A leader that is cut off from Redis gives back what it had reserved there, gives it to another, and dies.
RESERVED_TWICE = make_schedule(
    make_event(0.0, Fault.OBJECT_FAILS, 40.0, count=3, phase=Phase.ADMIT),
    make_event(0.0, Fault.REDIS_ISOLATED, 30.0, phase=Phase.ADMIT),
    make_event(15.0, Fault.KILLED, 100.0, target=1),
    jobs=RIVALS,
)

# The first leader loses its lease while the Job b fills what the second Job lacks. The next one admits that,
# and stops right when an urgent Job comes. The first one leads again, and its watch of Workloads lags.
BEHIND = make_schedule(
    make_event(3.0, Fault.LEASE_FAILS, 17.0, target=1),
    make_event(17.5, Fault.WATCH_LAG, 10.0, count=2),
    make_event(19.4, Fault.STOPPED, 60.0, target=1),
    jobs=(
        replace(make_job(0.5, cpus=1, seconds=14.5), queue="b"),
        make_job(2.0),
        make_job(19.5, is_urgent=True),
    ),
)

NEVER_WATCHED = findings()["a-workload-that-the-watch-never-showed-is-kept-for-ever"].schedule

# Which schedule misses which guard, and the law that is then broken.
MISSED = (
    ("Job started without admission", QUIET, "start"),
    ("release before the Job has stopped", PREEMPTING, "release"),
    ("fence not raised at an election", STOPPED, "fence"),
    ("refused decisions are kept", REFUSED, "liveness"),
    ("no reservation before the write", HANGING, "quota"),
    ("reservation confirmed when sent", HANGING, "quota"),
    ("reservations dropped at takeover", HANGING, "quota"),
    ("no resourceVersion in an admission", SENT_TWICE, "quota"),
    ("admission written onto any spec", EDITED, "admission"),
    ("no fencing before a term's release", GIVEN_UP, "quota"),
    ("an unanswered write cannot land", GIVEN_UP, "quota"),
    ("no fencing before a successor's release", ORPHANED, "quota"),
    ("never blind", FORGOTTEN_BY_REDIS, "quota"),
    ("decisions without the store not told", NEVER_IN_REDIS, "quota"),
    ("replayed without looking for room", RESERVED_TWICE, "quota"),
    ("every term continues the last one", BEHIND, "quota"),
    ("no list at the start of a term", BEHIND, "quota"),
    ("what the watch never showed is kept", NEVER_WATCHED, "status"),
)


@pytest.mark.parametrize("schedule", {id(one): one for _, one, _ in MISSED}.values())
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
