"""The executor: order an object, bounds, the lease right before sending, and every kind of answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from admission.controller.writer.delivery import MAX_UNANSWERED
from admission.controller.writer.executor import Executor, ExecutorLimits
from admission.controller.writer.priorities import Priority
from admission.controller.writer.write_order import (
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
from tests.integration.waiting import PATIENCE_SECONDS

FOREVER = float("inf")
UNANSWERED = [ServerError("failed calling webhook")] * MAX_UNANSWERED


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
    write_seconds: Callable[[], float] = lambda: FOREVER,
    note_duration: Callable[[Purpose, float], None] = lambda _purpose, _seconds: None,
    report_error: Callable[[], None] = lambda: None,
    max_in_flight: int = 32,
) -> Executor:
    """Return an executor, on a clock that does not move unless one is given."""
    return Executor(
        sender,
        clock or FakeClock(),
        write_seconds=write_seconds,
        note_duration=note_duration,
        report_error=report_error,
        limits=ExecutorLimits(max_in_flight=max_in_flight),
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


def object_at(version: str) -> bytes:
    """Return an object of this version."""
    return f'{{"metadata": {{"resourceVersion": "{version}", "uid": "u"}}}}'.encode()


async def test_a_write_whose_answer_was_lost_is_found_done() -> None:
    """The PUT was stored though its answer did not arrive: reading shows it, and nothing more is sent."""
    stored = object_at("8")
    sender = FakeSender(answers=[Timeout("no answer")], reads=[stored])

    assert await carry_out(sender, make_write(resource_version="7"), lambda raw: None) == Moot(raw=stored)
    assert len(sender.sent) == 1


async def test_a_write_that_is_stored_after_the_object_was_read_is_found_done() -> None:
    """The first PUT is stored between the read and the second, which meets 409."""
    stored = object_at("8")
    sender = FakeSender(answers=[Timeout("no answer"), Conflict("late")], reads=[object_at("7"), stored])
    write = make_write(resource_version="7")

    assert await carry_out(sender, write, lambda raw: None if raw == stored else write) == Moot(raw=stored)
    assert [sent.body for sent in sender.sent] == [b"1", b"1"]


async def test_a_write_without_an_answer_is_rebuilt_if_another_has_changed_the_object() -> None:
    sender = FakeSender(answers=[Timeout("no answer"), b"done"], reads=[object_at("8")])
    rebuilt = make_write(body=b"2", resource_version="8")

    result = await carry_out(sender, make_write(resource_version="7"), lambda raw: rebuilt)

    assert result == Written(raw=b"done")
    assert [write.body for write in sender.sent] == [b"1", b"2"]


async def test_a_create_without_an_answer_is_sent_again_while_there_is_no_object() -> None:
    sender = FakeSender(answers=[Timeout("no answer"), b"done"], reads=[NotFound("none")])

    assert await carry_out(sender, make_write(verb=Verb.CREATE)) == Written(raw=b"done")
    assert len(sender.sent) == 2


async def test_a_create_without_an_answer_that_is_there_is_handed_back() -> None:
    sender = FakeSender(answers=[Timeout("no answer")], reads=[object_at("8")])

    assert await carry_out(sender, make_write(verb=Verb.CREATE)) == Moot(raw=object_at("8"))


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
    sender = FakeSender(answers=[answer, b"done"], reads=[object_at("7")])

    assert await carry_out(sender, make_write(resource_version="7")) == Written(raw=b"done")
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
    found = f'{{"metadata": {{"resourceVersion": "7", {metadata}}}}}'.encode()
    sender = FakeSender(answers=[*UNANSWERED], reads=[found] * MAX_UNANSWERED)
    executor = make_executor(sender)
    executor.attempts.sleep = at_once
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    write = make_write(verb=verb, kind="Pod", uid="u")

    async with running(executor):
        executor.submit(WriteOrder(write=write, on_result=done.set_result))

        assert isinstance(await done, want)


async def at_once(seconds: float) -> None:
    """Take the place of the pauses between two attempts."""
    del seconds


def faulty(raw: bytes) -> Write | None:
    """Take the place of a `rebuild` with a bug."""
    raise RuntimeError(f"a bug over {raw!r}")


@pytest.mark.parametrize(
    ("read", "rebuild"),
    [
        pytest.param(object_at("7"), None, id="the object is as it was"),
        pytest.param(Forbidden("no"), None, id="the read is refused"),
        pytest.param(object_at("7"), faulty, id="a bug in its rebuild ends it"),
        pytest.param(b"not JSON", None, id="the object as read is broken"),
    ],
)
async def test_an_unanswered_write_may_still_be_stored_where(
    read: Answer, rebuild: Callable[[bytes], Write | None] | None
) -> None:
    executor = make_executor(FakeSender(answers=[*UNANSWERED], reads=[read] * MAX_UNANSWERED))
    executor.attempts.sleep = at_once
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    async with running(executor):
        write = make_write(resource_version="7")
        executor.submit(WriteOrder(write=write, on_result=done.set_result, rebuild=rebuild))
        result = await done

    assert isinstance(result, Refused)
    assert result.may_land_on == "7"


def _bug() -> None:
    raise RuntimeError("a bug")


async def test_a_write_may_be_stored_where_a_bug_ends_it_under_way() -> None:
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    async with running(make_executor(FakeSender())) as executor:
        write = make_write(resource_version="7")
        executor.submit(WriteOrder(write=write, on_result=done.set_result, after=_bug))
        result = await done

    assert isinstance(result, Refused)
    assert result.may_land_on == "7"


async def test_a_write_cannot_be_stored_where_its_last_attempt_met_a_conflict() -> None:
    sender = FakeSender(answers=[ServerError("boom"), Conflict("old")], reads=[object_at("7"), b"fresh"])
    executor = make_executor(sender)
    executor.attempts.sleep = at_once
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    write = make_write(resource_version="7")

    def faulty_later(raw: bytes) -> Write | None:
        return write if raw == object_at("7") else faulty(raw)

    async with running(executor):
        executor.submit(WriteOrder(write=write, on_result=done.set_result, rebuild=faulty_later))
        result = await done

    assert isinstance(result, Refused)
    assert result.may_land_on == ""


async def test_a_bug_over_one_result_is_reported_and_leaves_the_other_orders_alone() -> None:
    errors: list[BaseException | None] = []
    executor = make_executor(
        FakeSender(), report_error=lambda: errors.append(sys.exception()), max_in_flight=1
    )
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def fail(result: Result) -> None:
        raise RuntimeError(f"a bug over {result}")

    async with running(executor):
        executor.submit(WriteOrder(write=make_write("a"), on_result=fail))
        # One behind it in its lane, and one in another.
        executor.submit(WriteOrder(write=make_write("a"), on_result=fail))
        executor.submit(WriteOrder(write=make_write("b", purpose=Purpose.WAIT), on_result=done.set_result))
        assert await asyncio.wait_for(done, timeout=PATIENCE_SECONDS) == Written(raw=b"{}")

    assert [type(error) for error in errors] == [RuntimeError, RuntimeError]
    assert executor.backlog == 0


async def test_a_bug_in_building_a_write_is_reported() -> None:
    errors: list[BaseException | None] = []
    executor = make_executor(
        FakeSender(answers=[Conflict("old")], reads=[b"fresh"]),
        report_error=lambda: errors.append(sys.exception()),
    )
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    async with running(executor):
        executor.submit(WriteOrder(write=make_write(), on_result=done.set_result, rebuild=faulty))
        assert isinstance(await done, Refused)

    assert [type(error) for error in errors] == [RuntimeError]


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


@pytest.mark.parametrize(
    ("version", "seen", "rebuild", "want", "sent"),
    [
        pytest.param("7", "7", None, Written(raw=b"{}"), [b"1"], id="it is sent if nothing has changed"),
        pytest.param("7", "8", None, Moot(raw=b"seen"), [], id="it is not sent if the object has changed"),
        pytest.param("7", "8", lambda raw: None, Moot(raw=b"seen"), [], id="nor if nothing is left to do"),
        pytest.param(
            "7",
            "8",
            lambda raw: make_write(body=raw),
            Written(raw=b"{}"),
            [b"seen"],
            id="it is rebuilt if it applies",
        ),
        pytest.param("", "8", None, Written(raw=b"{}"), [b"1"], id="it is sent if it is for any version"),
        pytest.param("7", None, None, Written(raw=b"{}"), [b"1"], id="it is sent if the object is not known"),
    ],
)
async def test_a_write_whose_object_changed_while_it_waited(
    version: str,
    seen: str | None,
    rebuild: Callable[[bytes], Write | None] | None,
    want: Result,
    sent: list[bytes],
) -> None:
    sender = FakeSender()
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    async with running(make_executor(sender)) as executor:
        executor.submit(
            WriteOrder(
                write=make_write(resource_version=version),
                on_result=done.set_result,
                rebuild=rebuild,
                look_up=lambda: None if seen is None else (seen, b"seen"),
            )
        )
        assert await done == want

    assert [write.body for write in sender.sent] == sent


async def test_what_starts_workloads_goes_first_and_what_reports_last() -> None:
    sender = FakeSender()
    results: list[Result] = []
    executor = make_executor(sender, max_in_flight=1)
    purposes = [
        Purpose.WAIT,
        Purpose.QUEUE_STATUS,
        Purpose.START_JOB,
        Purpose.CREATE_WORKLOAD,
        Purpose.RELEASE,
        Purpose.EVICT,
        Purpose.ADMIT,
    ]
    for purpose in purposes:
        executor.submit(WriteOrder(write=make_write(purpose, purpose=purpose), on_result=results.append))
    async with running(executor):
        while len(results) < len(purposes):
            await asyncio.sleep(0)

    # Of one priority the longest waiting goes first.
    wanted = ["admit", "release", "evict", "start-job", "create-workload", "queue-status", "wait"]
    assert [write.name for write in sender.sent] == wanted


async def test_a_report_does_not_wait_for_ever() -> None:
    sender, clock = FakeSender(), FakeClock()
    results: list[Result] = []
    executor = make_executor(sender, clock=clock, max_in_flight=1)
    executor.submit(WriteOrder(write=make_write("a", purpose=Purpose.WAIT), on_result=results.append))
    clock.at += Priority.REASON + 0.1
    executor.submit(WriteOrder(write=make_write("b", purpose=Purpose.ADMIT), on_result=results.append))
    async with running(executor):
        while len(results) < 2:
            await asyncio.sleep(0)

    assert [write.purpose for write in sender.sent] == [Purpose.WAIT, Purpose.ADMIT]


async def test_an_admission_does_not_wait_behind_others_because_of_a_report_on_its_object() -> None:
    sender = FakeSender()
    results: list[Result] = []
    executor = make_executor(sender, max_in_flight=1)
    for name, purpose in (("a", Purpose.WAIT), ("b", Purpose.START_JOB), ("a", Purpose.ADMIT)):
        executor.submit(WriteOrder(write=make_write(name, purpose=purpose), on_result=results.append))
    async with running(executor):
        while len(results) < 3:
            await asyncio.sleep(0)

    assert [write.purpose for write in sender.sent] == [Purpose.WAIT, Purpose.ADMIT, Purpose.START_JOB]
    assert executor.backlog == 0


@pytest.mark.parametrize(
    ("purpose", "want"),
    [
        pytest.param(Purpose.ADMIT, True, id="an admission waits"),
        pytest.param(Purpose.START_JOB, True, id="a start waits"),
        pytest.param(Purpose.WAIT, False, id="only a report waits"),
    ],
)
async def test_it_is_behind_where(purpose: Purpose, want: bool) -> None:
    sender = FakeSender(gate=asyncio.Event())
    executor = make_executor(sender)
    executor.submit(WriteOrder(write=make_write(purpose=purpose), on_result=lambda _: None))
    assert executor.is_behind is want

    async with running(executor):
        while not sender.in_flight:
            await asyncio.sleep(0)
        assert executor.is_behind is want
        assert sender.gate is not None
        sender.gate.set()
        while executor.backlog:
            await asyncio.sleep(0)
        assert not executor.is_behind


async def test_nothing_is_sent_while_the_lease_leaves_a_write_too_little_time() -> None:
    sender = FakeSender()
    left = [0.0]
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    async with running(make_executor(sender, write_seconds=lambda: left[0])) as executor:
        executor.submit(WriteOrder(write=make_write(), on_result=done.set_result))
        for _ in range(20):
            await asyncio.sleep(0)
        assert sender.sent == []
        left[0] = 3.9
        await done

    assert len(sender.sent) == 1


async def test_a_write_may_take_as_long_as_the_lease_leaves_it() -> None:
    # The write was not stored: it is read again, then sent again.
    sender = FakeSender(answers=[Timeout("no answer")], reads=[object_at("7")])
    done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    async with running(
        make_executor(sender, write_seconds=lambda: 6.5 if sender.timeouts else 9.0)
    ) as executor:
        executor.submit(WriteOrder(write=make_write(resource_version="7"), on_result=done.set_result))
        await done

    assert sender.timeouts == [9.0, 6.5]


async def test_a_leader_stopped_right_before_sending_checks_its_lease_again() -> None:
    """The step before the request is where a test stops the process: the lease is read after it."""
    sender = FakeSender()
    left = [3.9]

    def sleep_past_the_lease() -> None:
        left[0] = 0.0

    async with running(make_executor(sender, write_seconds=lambda: left[0])) as executor:
        executor.submit(
            WriteOrder(write=make_write(), on_result=lambda result: None, before=sleep_past_the_lease)
        )
        for _ in range(20):
            await asyncio.sleep(0)

    assert sender.sent == []


async def sent_beside_a_rejected_write(*, max_in_flight: int) -> list[str]:
    """Let the server reject the first write for seven seconds. Return what is sent meanwhile."""
    clock = FakeClock()
    sender = FakeSender(answers=[TooManyRequests("slow down", retry_after_seconds=7.0)])
    executor = make_executor(sender, clock=clock, max_in_flight=max_in_flight)
    results: list[Result] = []
    passed = asyncio.Event()

    async def note(seconds: float) -> None:
        assert seconds == 7.0
        await passed.wait()

    executor.attempts.sleep = note
    async with running(executor):
        for name in "abcd":
            executor.submit(WriteOrder(write=make_write(name), on_result=results.append))
        for _ in range(50):
            await asyncio.sleep(0)
        before = [write.name for write in sender.sent]
        clock.at += 7.0
        passed.set()
        while len(results) < 4:
            await asyncio.sleep(0)
    assert len(sender.sent) == 5
    return before


async def test_a_429_holds_its_write_back_as_long_as_the_server_asks() -> None:
    assert await sent_beside_a_rejected_write(max_in_flight=2) == ["a", "b", "c", "d"]


async def test_429_to_all_that_may_be_in_flight_holds_all_writes_back() -> None:
    assert await sent_beside_a_rejected_write(max_in_flight=1) == ["a"]


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


_REFUSED, _BUSY = Forbidden("no", status=403), TooManyRequests("busy", status=429)


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        pytest.param([b"{}"], False, id="it was stored"),
        pytest.param([_REFUSED], False, id="it was refused"),
        pytest.param([_BUSY], False, id="the server was too busy for it"),
        pytest.param([Conflict("old")], False, id="the object had changed"),
        pytest.param([Timeout("late")], True, id="it had no answer"),
        pytest.param([ServerError("boom"), _BUSY], True, id="an attempt before it had no answer"),
        pytest.param([ServerError("boom"), Conflict("old")], False, id="an attempt before it was stored"),
        pytest.param([_BUSY, b"{}"], False, id="an attempt before it was turned away"),
    ],
)
async def test_once_the_last_request_is_answered_it_is_known_whether_it_may_still_be_stored(
    answers: list[Answer], want: bool
) -> None:
    sender = FakeSender(answers=answers, reads=[object_at("7")] * 2, gate=asyncio.Event())
    executor = make_executor(sender)
    executor.attempts.sleep = at_once
    last, sent = asyncio.Event(), len(answers)
    assert sender.gate is not None
    sender.gate.set()

    def note(write: Write) -> None:
        if len(sender.sent) == sent:
            assert sender.gate is not None
            sender.gate.clear()
            last.set()

    sender.on_send = note
    task = asyncio.create_task(executor.run())
    executor.submit(WriteOrder(write=make_write(resource_version="7"), on_result=lambda result: None))
    await last.wait()
    task.cancel()
    await asyncio.sleep(0)
    sender.gate.set()
    await asyncio.gather(task, return_exceptions=True)

    assert len(sender.sent) == sent
    assert executor.leaves_open is want
