"""The watchdog: a control loop that finishes nothing ends the process, and a slow one does not."""

from __future__ import annotations

import asyncio
import faulthandler
from collections.abc import Awaitable, Callable, Iterator

import pytest

from admission.controller.loop.control_loop import ControlLoop
from admission.controller.loop.progress import Progress
from admission.controller.loop.watchdog import SAMPLE_SECONDS, ControlLoopStalled, Watchdog, stack_of
from admission.controller.metrics.registry import Metrics
from admission.controller.writer.acting import Acting
from tests.admission.controller.fakes import FakeClock
from tests.admission.controller.replica import Replica
from tests.admission.controller.stage import Stage
from tests.admission.controller.virtualtime import end

DEADLINE_SECONDS = 20.0

Act = Callable[[ControlLoop, Acting], Awaitable[None]]


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the times that the thread was given, which this test must not let end the process."""
    times: list[float] = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: times.append(seconds))
    return times


@pytest.fixture
def stage(armed: list[float]) -> Iterator[Stage]:
    """Give a cluster in virtual time."""
    del armed
    stage = Stage()
    yield stage
    end(stage.loop)


def watch(stage: Stage, replica: Replica) -> asyncio.Task[None]:
    """Start the watchdog of a replica."""
    dog = Watchdog(replica.control_loop.progress, replica.metrics, deadline_seconds=DEADLINE_SECONDS)
    return stage.loop.create_task(dog.run(replica.tasks()[0]))


def test_the_time_without_a_finished_turn_counts_from_the_first_that_was_not_finished() -> None:
    clock = FakeClock(at=100.0)
    progress = Progress(clock)
    assert progress.unfinished_seconds == 0

    for clock.at in (110.0, 115.0):
        progress.begin()
    clock.at = 130.0
    assert progress.unfinished_seconds == 20.0

    progress.finish()
    clock.at = 500.0
    assert progress.unfinished_seconds == 0


async def hang(control_loop: ControlLoop, term: Acting) -> None:
    """Wait for what never happens."""
    del control_loop, term
    await asyncio.Event().wait()


async def fail(control_loop: ControlLoop, term: Acting) -> None:
    """Fail as a fault does that nothing foresees."""
    raise RuntimeError("a fault")


async def spin(control_loop: ControlLoop, term: Acting) -> None:
    """Find work again and again, and let other tasks run."""
    while True:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("act", [hang, fail, spin])
def test_a_leader_whose_turn_is_never_finished_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    leader = stage.lead()
    dog = watch(stage, leader)
    stage.wait(2 * DEADLINE_SECONDS)
    monkeypatch.setattr(ControlLoop, "_act", act)

    stage.submit("one")
    stage.wait(DEADLINE_SECONDS - SAMPLE_SECONDS)
    assert not dog.done()
    stage.wait(3 * SAMPLE_SECONDS)

    assert isinstance(dog.exception(), ControlLoopStalled)


def test_a_follower_whose_turn_is_never_finished_ends_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = stage.start()
    dog = watch(stage, follower)

    async def never(_: ControlLoop) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ControlLoop, "_take_in", never)
    stage.submit("one")
    stage.wait(DEADLINE_SECONDS + 3 * SAMPLE_SECONDS)

    assert isinstance(dog.exception(), ControlLoopStalled)


def test_a_leader_that_waits_for_silent_servers_goes_on(stage: Stage) -> None:
    """The store does not answer, then the API server does not either; there is always more to decide."""
    leader = stage.lead()
    dog = watch(stage, leader)
    leader.store.is_away = True
    for number in range(20):
        stage.submit(f"early-{number}", cpus=1)
        stage.wait(DEADLINE_SECONDS / 10)
    leader.line.faults.is_cut = True

    for number in range(20):
        stage.submit(f"late-{number}", cpus=1)
        stage.wait(DEADLINE_SECONDS / 10)

    assert not dog.done()
    gauge = leader.metrics.registry.get_sample_value(
        "berth_control_loop_unfinished_seconds", {"replica_role": "leader"}
    )
    assert gauge is not None
    assert gauge < 1.0


def test_the_thread_that_ends_a_blocked_process_is_armed_again_in_time(armed: list[float]) -> None:
    stage = Stage()
    dog = Watchdog(Progress(stage.loop), Metrics(version="test"), deadline_seconds=DEADLINE_SECONDS)
    stage.loop.create_task(dog.run(stage.loop.create_task(asyncio.sleep(1e6))))

    stage.loop.run_for(10 * DEADLINE_SECONDS)

    assert set(armed) == {DEADLINE_SECONDS}
    # Each gives the deadline again, so the steps between them must be far shorter.
    assert len(armed) > 40
    end(stage.loop)


def test_the_stack_of_a_stalled_loop_goes_down_to_where_it_waits(stage: Stage) -> None:
    async def inner() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    task = stage.loop.create_task(outer())
    stage.loop.run_for(1.0)

    stack = stack_of(task)

    assert [stack.index(f"in {name}") for name in ("outer", "inner", "wait")] == sorted(
        stack.index(f"in {name}") for name in ("outer", "inner", "wait")
    )
    task.cancel()
