"""A Job whose start may be on its way is moved to another version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from admission.controller.leadership.stray_starts import PAUSE_SECONDS, StrayStarts
from admission.controller.writer.executor import Executor, ExecutorLimits
from admission.controller.writer.write_order import ObjectTarget
from api.kube.errors import Forbidden, NotFound
from tests.admission.controller.fakes import FakeClock, FakeSender

JOB = ObjectTarget("Job", "team", "job")


@asynccontextmanager
async def sending(sender: FakeSender, clock: FakeClock) -> AsyncIterator[StrayStarts]:
    """Give what fences off starts through this sender; its pauses let time pass."""

    async def sleep(seconds: float) -> None:
        clock.at += seconds

    executor = Executor(
        sender,
        clock,
        write_seconds=lambda: 10.0,
        note_duration=lambda *_: None,
        report_error=lambda: None,
        limits=ExecutorLimits(),
    )
    task = asyncio.create_task(executor.run())
    try:
        yield StrayStarts(executor, clock, sleep=sleep)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_answer_shows_the_job_in_its_new_version() -> None:
    sender, clock = FakeSender(answers=[b"new"]), FakeClock()

    async with sending(sender, clock) as strays:
        assert await strays.fence_off(JOB, "7.1", until=60.0) == b"new"

    (write,) = sender.sent
    assert (write.resource_version, write.body) == (
        "",
        b'{"metadata":{"annotations":{"berth.dev/fence":"7.1"}}}',
    )


async def test_a_job_that_is_gone_is_left_alone() -> None:
    async with sending(FakeSender(answers=[NotFound("gone")]), FakeClock()) as strays:
        assert await strays.fence_off(JOB, "7.1", until=60.0) == b""


async def test_a_refusal_is_tried_again_until_no_start_can_be_stored() -> None:
    sender, clock = FakeSender(answers=[Forbidden("a webhook refuses this")] * 3), FakeClock()

    async with sending(sender, clock) as strays:
        until = clock.monotonic() + 2.5 * PAUSE_SECONDS
        assert await strays.fence_off(JOB, "7.1", until=until) == b""

    assert len(sender.sent) == 3
