"""A controller's extender in a child process: large requests do not hold up the process that leads."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from admission.controller.http import extender_process
from admission.controller.http.extender_process import ExtenderProcess
from admission.controller.http.extender_server import ExtenderOptions
from admission.controller.runtime.logs import LogSettings
from api.http.errors import ListenError
from tests.admission.controller.extending import A100, pod_object
from tests.embedded import EmbeddedCluster
from tests.steps import measured_steps

PATIENCE_SECONDS = 60.0
MOST_SECONDS = 0.05
# Empty nodes take the longest to read: 3 bytes each.
LARGE = b'{"pod":%s,"nodes":{"items":[%s{}]}}' % (
    json.dumps(pod_object(model=A100)).encode(),
    b"{}," * ((1 << 20) // 3),
)


@asynccontextmanager
async def running(
    kubeconfig: str, port: int = 0, *, on_refused: Callable[[str, int], None] = lambda _, __: None
) -> AsyncIterator[ExtenderProcess]:
    """Run one, and follow it until the block ends."""
    options = ExtenderOptions(kubeconfig=kubeconfig, port=port)
    logs = LogSettings(level="warning")
    async with ExtenderProcess(options, logs, on_refused=on_refused) as extender:
        following = asyncio.create_task(extender.run(), name="extender")
        try:
            yield extender
        finally:
            following.cancel()
            await asyncio.wait([following])


async def until(is_reached: Callable[[], Awaitable[bool]]) -> None:
    """Return once it is reached."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await is_reached():
            await asyncio.sleep(0.02)


async def post(url: str, body: bytes) -> int:
    """Return the status of a filter; 0 if nothing listens."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/filter", data=io.BytesIO(body)) as answer,
        ):
            await answer.read()
            return answer.status
    except aiohttp.ClientConnectionError:
        return 0


async def test_a_large_request_takes_no_time_of_the_process_that_leads(
    embedded_server: EmbeddedCluster,
) -> None:
    async with running(embedded_server.kubeconfig) as extender:
        await until(lambda: _is(extender.is_ready))
        with measured_steps() as steps:
            assert await post(extender.url, LARGE) == 200

    assert steps.longest_seconds < MOST_SECONDS, steps


async def test_a_child_that_is_killed_serves_again_at_the_same_url(
    embedded_server: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_process, "FIRST_PAUSE_SECONDS", 0.01)
    body = json.dumps({"Pod": pod_object(), "NodeNames": ["a"]}).encode()
    async with running(embedded_server.kubeconfig) as extender:
        await until(lambda: _is(extender.is_ready))
        url, first = extender.url, extender.pid
        assert first is not None

        os.kill(first, signal.SIGKILL)
        await until(lambda: _is(extender.pid != first))
        await until(lambda: _answers(url, body))

        assert extender.url == url
        # A replica does not leave its Service for an extender that is started again.
        assert extender.is_ready


async def test_what_the_child_refuses_is_counted_by_its_parent(embedded_server: EmbeddedCluster) -> None:
    counts = Counter[str]()

    def note(reason: str, count: int) -> None:
        counts[reason] += count

    async with running(embedded_server.kubeconfig, on_refused=note) as extender:
        await until(lambda: _is(extender.is_ready))
        for _ in range(3):
            assert await post(extender.url, b"{}") == 400
        await until(lambda: _is(counts["bad-request"] == 3))


async def test_a_child_ends_with_its_parent(embedded_server: EmbeddedCluster) -> None:
    async with running(embedded_server.kubeconfig) as extender:
        url = extender.url

    assert await post(url, b"{}") == 0


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Give a port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


async def test_a_port_that_is_taken_ends_the_start_with_its_number(
    embedded_server: EmbeddedCluster, taken_port: int
) -> None:
    with pytest.raises(ListenError, match=f"did not start: cannot listen on 127.0.0.1 port {taken_port}"):
        async with running(embedded_server.kubeconfig, taken_port):
            pass


async def test_a_server_that_cannot_be_reached_ends_the_start_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match=r"did not start: .*missing\.yaml"):
        async with running(str(tmp_path / "missing.yaml")):
            pass


async def test_a_child_that_says_nothing_ends_the_start_with_the_time_that_it_had(
    embedded_server: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extender_process, "START_SECONDS", 0.0)
    with pytest.raises(ListenError, match="did not start within 0 s: give the controller more CPU"):
        async with running(embedded_server.kubeconfig):
            pass


async def _is(value: bool) -> bool:
    return value


async def _answers(url: str, body: bytes) -> bool:
    return await post(url, body) == 200
