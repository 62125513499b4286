"""Objects whose requests fail, and pauses that are too long to wait for: other objects are written on."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

import pytest
from aiohttp import web

from admission.controller.writer.executor import Executor, ExecutorLimits
from admission.controller.writer.in_flight_limit import FIRST_IN_FLIGHT
from admission.controller.writer.requests import KubeSender
from admission.controller.writer.write_order import Result, WriteOrder, Written
from admission.decisions.api_writes import Write
from api.kube.client import KubeClient
from api.kube.errors import MAX_RETRY_AFTER_SECONDS, ServerError, error_of_answer
from tests.admission.controller.fakes import FakeClock, FakeSender, make_write
from tests.admission.controller.virtualtime import VirtualLoop, virtual_loop
from tests.admission.controller.writer.test_executor import make_executor, running
from tests.api.kube.scripted import ScriptedServer, answer, refuse
from tests.integration.waiting import PATIENCE_SECONDS

BAD = [f"bad-{number}" for number in range(FIRST_IN_FLIGHT)]
GOOD = [f"good-{number}" for number in range(2 * FIRST_IN_FLIGHT)]
LONG_SECONDS = 600.0
# The longest pause after a request without an answer, and the first ones, which are shorter.
LAST_PAUSE_SECONDS, FIRST_TRIES = 5.0, 10


class TroubledSender(FakeSender):
    """Fails every write and read of the objects in `failing`, and holds back each name in `held` once."""

    def __init__(self, *, failing: Iterable[str] = (), held: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.failing = set(failing)
        self.held = dict(held or {})
        self.tries = Counter[str]()

    async def send(self, write: Write, *, timeout_seconds: float) -> bytes:
        """Answer 5xx or 429 where that is asked, else store."""
        self.tries[write.name] += 1
        if write.name in self.failing:
            raise error_of_answer(500, b"failed calling webhook")
        if (seconds := self.held.pop(write.name, None)) is not None:
            raise error_of_answer(429, b"", retry_after=seconds)
        return await super().send(write, timeout_seconds=timeout_seconds)

    async def read(self, kind: str, namespace: str, name: str, *, timeout_seconds: float) -> bytes:
        """Answer 5xx, or the object as it is."""
        self.tries[name] += 1
        if name in self.failing:
            raise ServerError("etcd has no leader", status=503)
        return b'{"metadata": {"resourceVersion": "7", "uid": "u"}}'


def submit(loop: VirtualLoop, sender: FakeSender, names: list[str]) -> tuple[Executor, dict[str, Result]]:
    """Run an executor on the loop, with a write for each name. Return it and its results."""
    executor = make_executor(sender, clock=loop, max_in_flight=FIRST_IN_FLIGHT)  # type: ignore[arg-type]
    results: dict[str, Result] = {}
    task = loop.create_task(executor.run())
    assert not task.done()
    for name in names:
        order = make_write(name, resource_version="7")
        executor.submit(WriteOrder(write=order, on_result=partial(results.__setitem__, name)))
    return executor, results


def test_as_many_objects_as_may_be_in_flight_answer_5xx_to_reads_and_writes_and_others_go_on() -> None:
    with virtual_loop() as loop:
        sender = TroubledSender(failing=BAD)
        executor, results = submit(loop, sender, [*BAD, *GOOD])
        loop.run_for(0.01)
        assert set(results) == set(GOOD)
        # What fails is no reason to hold back reports.
        assert not executor.is_behind

        loop.run_for(LONG_SECONDS)
        assert executor.backlog == len(BAD)
        # They are asked every few seconds, and no more often.
        most = LONG_SECONDS / LAST_PAUSE_SECONDS + FIRST_TRIES
        assert max(sender.tries[name] for name in BAD) <= most

        sender.failing.clear()
        loop.run_for(2 * LAST_PAUSE_SECONDS)
        assert executor.backlog == 0
        assert results == dict.fromkeys([*GOOD, *BAD], Written(raw=b"{}"))


@pytest.mark.parametrize("seconds", ["86400", "inf"])
def test_one_429_that_asks_for_a_day_or_for_ever_holds_its_own_write_for_half_a_minute(seconds: str) -> None:
    with virtual_loop() as loop:
        sender = TroubledSender(held={"held": seconds})
        executor, results = submit(loop, sender, ["held", *GOOD])
        loop.run_for(0.01)
        assert set(results) == set(GOOD)

        loop.run_for(MAX_RETRY_AFTER_SECONDS)
        assert results["held"] == Written(raw=b"{}")
        assert executor.backlog == 0


@pytest.mark.parametrize("seconds", ["86400", "inf"])
def test_a_server_that_asks_all_to_wait_for_a_day_is_asked_again_after_half_a_minute(seconds: str) -> None:
    with virtual_loop() as loop:
        sender = TroubledSender(held=dict.fromkeys([*BAD, *GOOD], seconds))
        executor, results = submit(loop, sender, [*BAD, *GOOD])
        loop.run_for(0.01)
        assert results == {}
        assert sender.tries.total() == FIRST_IN_FLIGHT

        sender.held.clear()
        loop.run_for(MAX_RETRY_AFTER_SECONDS)
        assert executor.backlog == 0
        assert set(results) == {*BAD, *GOOD}


async def submit_over_http(server: ScriptedServer, names: list[str]) -> tuple[dict[str, Result], set[float]]:
    """Send a write for each name by a client; pauses take no time. Return the results and the pauses."""
    results: dict[str, Result] = {}
    pauses = set[float]()
    async with KubeClient(server.endpoint) as client:
        executor = Executor(
            KubeSender(client),
            FakeClock(),
            write_seconds=lambda: 5.0,
            note_duration=lambda _purpose, _seconds: None,
            report_error=lambda: None,
            limits=ExecutorLimits(max_in_flight=FIRST_IN_FLIGHT),
        )
        ended = asyncio.Event()

        async def pause(seconds: float) -> None:
            pauses.add(seconds)
            await asyncio.sleep(0)

        def note(name: str, result: Result) -> None:
            results[name] = result
            if len(results) == len(names):
                ended.set()

        executor.attempts.sleep = pause
        async with running(executor), asyncio.timeout(PATIENCE_SECONDS):
            for name in names:
                order = make_write(name, resource_version="7")
                executor.submit(WriteOrder(write=order, on_result=partial(note, name)))
            await ended.wait()
    return results, pauses


class Troubled:
    """Answers of an API server that fails for objects named bad-* until the others are stored.

    It fails each of them at least once when it is written, and twice when it is read.
    """

    def __init__(self) -> None:
        self.stored = set[str]()
        self.failed = Counter[tuple[str, str]]()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        (name,) = re.findall(r"/workloads/([^/]+)", request.path)
        if name.startswith("bad") and not (self.stored >= set(GOOD) and self.failed[name, "GET"] >= 2):
            self.failed[name, request.method] += 1
            return await refuse(503 if request.method == "GET" else 500)(request)
        if request.method == "PUT":
            self.stored.add(name)
        version = "8" if name in self.stored else "7"
        return await answer({"metadata": {"name": name, "uid": "u", "resourceVersion": version}})(request)


async def test_over_http_objects_that_answer_5xx_wait_until_the_others_are_stored() -> None:
    troubled = Troubled()
    async with ScriptedServer(otherwise=troubled) as server:
        results, _ = await submit_over_http(server, [*BAD, *GOOD])

    assert set(troubled.failed) == {(name, method) for name in BAD for method in ("PUT", "GET")}
    assert {type(result) for result in results.values()} == {Written}
    assert troubled.stored == {*BAD, *GOOD}


@pytest.mark.parametrize("seconds", ["86400", "inf"])
async def test_over_http_no_pause_is_longer_than_half_a_minute(seconds: str) -> None:
    stored = answer({"metadata": {"name": "x", "uid": "u", "resourceVersion": "8"}})
    async with ScriptedServer(otherwise=stored) as server:
        server.will(refuse(429, "TooManyRequests", Retry_After=seconds))
        results, pauses = await submit_over_http(server, ["held", *GOOD])

    assert pauses == {MAX_RETRY_AFTER_SECONDS}
    assert {type(result) for result in results.values()} == {Written}
