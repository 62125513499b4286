"""The executor: order an object, bounds, the lease right before sending, and every kind of answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from admission.controller.writer.executor import (
    MAX_UNANSWERED,
    Executor,
    Moot,
    ObjectTarget,
    Refused,
    Result,
    Vanished,
    WriteOrder,
    Written,
)
from admission.decisions.api_writes import Purpose, Verb, Write
from api.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    Timeout,
    TooManyRequests,
)
from tests.admission.controller.fakes import Answer, FakeClock, FakeSender, make_write

FOREVER = float("inf")


@asynccontextmanager
async def running(executor: Executor) -> AsyncIterator[Executor]:
    """Run the executor's workers for the block."""
    task = asyncio.create_task(executor.run())
    yield executor
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def make_executor(
    sender: FakeSender,
    *,
    clock: FakeClock | None = None,
    remaining: Callable[[], float] = lambda: FOREVER,
    note_duration: Callable[[Purpose, float], None] = lambda _purpose, _seconds: None,
    **options: int,
) -> Executor:
    """Return an executor, on a clock that stands still unless one is given."""
    return Executor(
        sender, clock or FakeClock(), remaining_seconds=remaining, note_duration=note_duration, **options
    )


async def carry_out(
    sender: FakeSender, write: Write, rebuild: Callable[[bytes], Write | None] | None = None
) -> Result:
    """Send one write and return its result."""
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    async with running(make_executor(sender)) as executor:
        executor.submit(WriteOrder(write=write, on_result=done.set_result, rebuild=rebuild))
        return await done


async def test_a_write_that_is_taken_hands_back_the_object() -> None:
    assert await carry_out(FakeSender(answers=[b"new"]), make_write()) == Written(raw=b"new")


async def test_a_conflict_without_a_rebuild_hands_back_the_object_as_read() -> None:
    sender = FakeSender(answers=[Conflict("old")], reads=[b"fresh"])

    assert await carry_out(sender, make_write()) == Moot(raw=b"fresh")
    assert len(sender.sent) == 1


async def test_a_conflict_is_rebuilt_from_the_object_as_read() -> None:
    sender = FakeSender(answers=[Conflict("old"), b"done"], reads=[b"fresh"])

    result = await carry_out(sender, make_write(body=b"1"), lambda raw: make_write(body=b"from " + raw))

    assert result == Written(raw=b"done")
    assert [write.body for write in sender.sent] == [b"1", b"from fresh"]


async def test_a_lost_answer_is_sent_again_and_found_done() -> None:
    """The first PUT arrived though its answer did not: the second meets 409, reading shows it done."""
    sender = FakeSender(answers=[Timeout("no answer"), Conflict("already there")], reads=[b"mine"])

    assert await carry_out(sender, make_write(), lambda raw: None) == Moot(raw=b"mine")
    assert [write.body for write in sender.sent] == [b"1", b"1"]


async def test_endless_conflicts_end_as_refused() -> None:
    sender = FakeSender(answers=[Conflict("old")] * 5, reads=[b"fresh"] * 5)

    result = await carry_out(sender, make_write(), lambda raw: make_write())

    assert isinstance(result, Refused)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(NotFound("gone"), Vanished, id="an object that is gone"),
        pytest.param(Invalid("bad"), Refused, id="a write that breaks a rule"),
        pytest.param(Forbidden("no"), Refused, id="a write that RBAC forbids"),
    ],
)
async def test_final_answers_are_not_repeated(answer: KubeError, want: type[Result]) -> None:
    sender = FakeSender(answers=[answer])

    assert isinstance(await carry_out(sender, make_write()), want)
    assert len(sender.sent) == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ServerError("boom"), id="an error of the server"),
        pytest.param(Timeout("silence"), id="no answer"),
    ],
)
async def test_unclear_answers_are_sent_again_with_the_same_bytes(answer: KubeError) -> None:
    sender = FakeSender(answers=[answer, b"done"])

    assert await carry_out(sender, make_write()) == Written(raw=b"done")
    assert [write.body for write in sender.sent] == [b"1", b"1"]


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        pytest.param('"uid": "u"', Refused, id="has not come about where the object is as it was"),
        pytest.param(
            '"uid": "u", "deletionTimestamp": "2026-01-15T12:00:00Z"',
            Moot,
            id="has where the object is to go",
        ),
        pytest.param('"uid": "v"', Moot, id="has where another of its name is there"),
    ],
)
@pytest.mark.parametrize("verb", [Verb.DELETE, Verb.EVICT])
async def test_an_end_that_the_server_never_answers(verb: Verb, metadata: str, want: type[Result]) -> None:
    async def sleep(seconds: float) -> None:
        del seconds

    found = f'{{"metadata": {{"resourceVersion": "7", {metadata}}}}}'.encode()
    sender = FakeSender(answers=[ServerError("failed calling webhook")] * MAX_UNANSWERED, reads=[found])
    executor = make_executor(sender)
    executor.sleep = sleep
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    write = make_write(verb=verb, kind="Pod", uid="u")

    async with running(executor):
        executor.submit(WriteOrder(write=write, on_result=done.set_result))

        assert isinstance(await done, want)


async def test_a_create_that_finds_its_object_reads_it() -> None:
    sender = FakeSender(answers=[AlreadyExists("there")], reads=[b"there"])

    assert await carry_out(sender, make_write()) == Moot(raw=b"there")


async def test_an_object_deleted_between_conflict_and_reading_has_vanished() -> None:
    sender = FakeSender(answers=[Conflict("old")], reads=[NotFound("gone")])

    assert await carry_out(sender, make_write()) == Vanished()


async def test_writes_on_one_object_keep_their_order_and_build_on_each_other() -> None:
    sender = FakeSender(answers=[b"first", b"second"])
    results: list[Result] = []
    finished = asyncio.Event()

    def last(result: Result) -> None:
        results.append(result)
        finished.set()

    async with running(make_executor(sender)) as executor:
        executor.submit(WriteOrder(write=make_write(body=b"a"), on_result=results.append))
        executor.submit(
            WriteOrder(
                write=make_write(body=b"b"),
                on_result=last,
                rebuild=lambda raw: make_write(body=b"b on " + raw),
            )
        )
        await finished.wait()

    assert [write.body for write in sender.sent] == [b"a", b"b on first"]
    assert results == [Written(raw=b"first"), Written(raw=b"second")]


async def test_objects_go_beside_each_other_up_to_the_bound() -> None:
    sender = FakeSender(gate=asyncio.Event())
    results: list[Result] = []
    async with running(make_executor(sender, max_in_flight=4)) as executor:
        for number in range(10):
            executor.submit(WriteOrder(write=make_write(name=f"w{number}"), on_result=results.append))
        while sender.in_flight < 4:
            await asyncio.sleep(0)
        assert sender.gate is not None
        sender.gate.set()
        while len(results) < 10:
            await asyncio.sleep(0)

    assert sender.most_in_flight == 4
    assert executor.backlog == 0


async def test_lower_priority_numbers_go_first() -> None:
    sender = FakeSender()
    results: list[Result] = []
    executor = make_executor(sender, max_in_flight=1)
    executor.submit(WriteOrder(write=make_write(name="status"), on_result=results.append, priority=2))
    executor.submit(WriteOrder(write=make_write(name="admit"), on_result=results.append, priority=0))
    async with running(executor):
        while len(results) < 2:
            await asyncio.sleep(0)

    assert [write.name for write in sender.sent] == ["admit", "status"]


async def test_nothing_is_sent_while_the_lease_has_less_left_than_a_request_takes() -> None:
    sender = FakeSender()
    remaining = [1.9]
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    async with running(make_executor(sender, remaining=lambda: remaining[0])) as executor:
        executor.submit(WriteOrder(write=make_write(), on_result=done.set_result))
        for _ in range(20):
            await asyncio.sleep(0)
        assert sender.sent == []
        remaining[0] = 3.9
        await done

    assert len(sender.sent) == 1


async def test_a_leader_stopped_right_before_sending_checks_its_lease_again() -> None:
    """The step before the request is where a test stops the process: the lease is read after it."""
    sender = FakeSender()
    remaining = [3.9]

    def sleep_past_the_lease() -> None:
        remaining[0] = -1.0

    async with running(make_executor(sender, remaining=lambda: remaining[0])) as executor:
        executor.submit(
            WriteOrder(write=make_write(), on_result=lambda result: None, before=sleep_past_the_lease)
        )
        for _ in range(20):
            await asyncio.sleep(0)

    assert sender.sent == []


async def test_a_429_holds_everybody_back_as_long_as_the_server_asks() -> None:
    clock = FakeClock()
    answers: list[Answer] = [TooManyRequests("slow down", retry_after_seconds=7.0)]
    sender = FakeSender(answers=answers)
    executor = make_executor(sender, clock=clock, max_in_flight=1)
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)
        clock.at += seconds

    executor.sleep = note
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    async with running(executor):
        executor.submit(WriteOrder(write=make_write(), on_result=done.set_result))
        await done

    assert waits == [7.0]
    assert len(sender.sent) == 2


async def test_how_long_a_write_took_is_noted_from_its_queueing_to_its_answer() -> None:
    clock, noted = FakeClock(), list[tuple[Purpose, float]]()
    sender = FakeSender()

    def take_a_quarter(_: Write) -> None:
        clock.at += 0.25

    sender.on_send = take_a_quarter
    executor = make_executor(
        sender, clock=clock, note_duration=lambda purpose, seconds: noted.append((purpose, seconds))
    )
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    write = make_write()
    executor.submit(WriteOrder(write=write, on_result=done.set_result))
    # Waiting for a place in flight counts.
    clock.at += 2.0
    async with running(executor):
        await done

    assert noted == [(write.purpose, 2.25)]


async def test_a_busy_object_is_known_as_busy() -> None:
    sender = FakeSender(gate=asyncio.Event())
    async with running(make_executor(sender)) as executor:
        executor.submit(WriteOrder(write=make_write(), on_result=lambda result: None))

        assert executor.is_busy(ObjectTarget("Workload", "team", "x"))
        assert not executor.is_busy(ObjectTarget("Workload", "team", "y"))
