"""A leader, its election included, where server, watch, Redis or processor are slow: slower, nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from admission.decisions.api_writes import Purpose
from api.kube.errors import KubeError, TooManyRequests
from api.kube.leadership import LeaseTiming
from api.kube.lease import Elector, LeaseLock
from tests.admission.controller.replica import Replica
from tests.admission.controller.stage import Stage, key_of
from tests.admission.controller.virtualtime import end
from tests.api.kube.leases import LeaseLine, LeaseTable

NAMES = [f"w{number}" for number in range(1, 7)]


@dataclass(frozen=True, slots=True)
class Elected:
    """A replica that leads as often as its elector lets it."""

    replica: Replica
    lease: LeaseLine
    electing: asyncio.Task[None]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Give a stage, and close its loop."""
    made = Stage()
    yield made
    end(made.loop)


def elect(stage: Stage) -> Elected:
    """Start a replica and its elector, with the usual times of the lease."""
    replica, line = stage.start(), LeaseLine(LeaseTable())
    line.seconds = 0.01
    lock = LeaseLock(name="berth-default", namespace="berth-system", identity=replica.name)
    elector = Elector(line.client, lock, LeaseTiming(), on_error=lambda _: None, clock=stage.loop.monotonic)
    return Elected(replica, line, stage.loop.create_task(elector.run(replica.takeover.lead)))


def check_all_admitted_once(stage: Stage, elected: Elected) -> None:
    """The Workloads were admitted by one write each, and nothing was fenced off."""
    purposes = [write.purpose for write in stage.cluster.written]
    assert stage.admitted() == NAMES
    assert purposes.count(Purpose.ADMIT) == len(NAMES)
    assert Purpose.FENCE not in purposes
    assert stage.store.fence == 1, "the leader has lost its lease"
    assert not elected.electing.done()
    elected.replica.check()


@pytest.mark.parametrize("seconds", [0.1, 1.0, 2.0, 3.0])
def test_a_leader_is_only_slower_at_a_server_whose_every_answer_takes(seconds: float, stage: Stage) -> None:
    elected = elect(stage)
    elected.lease.seconds = elected.replica.line.answers_after_seconds = seconds
    for name in NAMES:
        stage.submit(name, cpus=1)

    # Two requests for the lease, a list, and two admissions by each of four workers.
    stage.wait(10.0 * seconds + 5.0)
    assert stage.admitted() == NAMES

    stage.wait(600.0)
    check_all_admitted_once(stage, elected)


def test_a_leader_is_only_slower_at_a_server_that_answers_429_to_half_of_all_requests(stage: Stage) -> None:
    chance = random.Random(5)

    def refuse_half() -> KubeError | None:
        busy = TooManyRequests("later", status=429, retry_after_seconds=1.0)
        return busy if chance.random() < 0.5 else None

    elected = elect(stage)
    elected.lease.fault = elected.replica.line.faults.refuses = refuse_half
    for name in NAMES:
        stage.submit(name, cpus=1)

    stage.wait(60.0)
    assert stage.admitted() == NAMES

    stage.wait(600.0)
    check_all_admitted_once(stage, elected)


def test_a_leader_is_only_slower_with_a_watch_that_is_a_minute_late(stage: Stage) -> None:
    elected = elect(stage)
    stage.wait(5.0)
    elected.replica.line.hears_after_seconds = 60.0
    for name in NAMES:
        stage.submit(name, cpus=1)

    stage.wait(59.0)
    assert stage.admitted() == []
    stage.wait(2.0)
    assert stage.admitted() == NAMES

    stage.wait(600.0)
    check_all_admitted_once(stage, elected)


def test_what_a_late_watch_has_not_shown_yet_is_not_given_twice(stage: Stage) -> None:
    elected = elect(stage)
    stage.wait(5.0)
    elected.replica.line.hears_after_seconds = 60.0
    # Two that exclude each other, which `Stage` checks at every change. The first ends unseen for a minute.
    for name in ("first", "second"):
        stage.submit(name)
    stage.wait(90.0)
    assert stage.admitted() == ["first"]
    stage.cluster.delete(key_of("first"))

    stage.wait(59.0)
    assert stage.admitted() == []
    stage.wait(2.0)
    assert stage.admitted() == ["second"]


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(0.1, id="each answer comes in its time"),
        pytest.param(0.5, id="each answer comes too late, so that Redis counts as lost"),
    ],
)
def test_a_leader_is_only_slower_with_a_redis_whose_every_answer_is_late(
    seconds: float, stage: Stage
) -> None:
    elected = elect(stage)
    elected.replica.store.answers_after_seconds = seconds
    for name in NAMES:
        stage.submit(name, cpus=1)

    stage.wait(90.0)
    assert stage.admitted() == NAMES

    # It is written back what was decided meanwhile.
    elected.replica.store.answers_after_seconds = 0.0
    stage.wait(600.0)
    check_all_admitted_once(stage, elected)


def test_a_leader_is_only_slower_where_a_neighbour_takes_its_processor(stage: Stage) -> None:
    elected = elect(stage)
    # Between any two turns of the event loop, which are some dozens for each of its requests.
    stage.loop.turn_seconds = 0.2
    for name in NAMES:
        stage.submit(name, cpus=1)

    stage.wait(60.0)
    assert stage.admitted() == NAMES

    stage.wait(600.0)
    check_all_admitted_once(stage, elected)
