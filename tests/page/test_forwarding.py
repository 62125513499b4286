"""`berth page`: what it forwards to the controller, with whose token, and to whom it answers."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from admission.cli.common.errors import UnreachableError, WrongUsageError
from admission.cli.page.forwarding import forwarded
from admission.cli.page.port_forward import Target, port_forward
from api.http.server import HttpServer, Request, Response, Route, Stream, json_response
from tests.integration.waiting import PATIENCE_SECONDS


class Controller:
    """A controller that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def routes(self) -> list[Route]:
        """Return its routes."""
        return [
            Route("GET", "/changes", self._stream),
            Route("GET", "/{path:.*}", self._answer),
            Route("POST", "/what-if", self._answer),
        ]

    async def _answer(self, request: Request) -> Response:
        self.asked.append(request)
        if request.path == "/compressed":
            return Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
        return json_response({"path": request.path, "body": bytes(request.body).decode()}, status=203)

    async def _stream(self, request: Request) -> Stream:
        self.asked.append(request)

        async def chunks() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            await asyncio.Event().wait()

        return Stream(chunks=chunks())


async def token() -> str:
    """Return the user's authorization."""
    return "Bearer own"


@pytest.fixture
def controller() -> Controller:
    """Return the controller behind `address`."""
    return Controller()


@pytest.fixture
async def address(controller: Controller) -> AsyncIterator[str]:
    """Serve a controller and its page on this machine."""
    async with (
        HttpServer(controller.routes()) as server,
        forwarded(server.url, token, port=0, is_verified=True) as found,
    ):
        yield found


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """Return a browser's stand-in."""
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


async def test_requests_get_the_users_token_and_keep_path_query_and_body(
    controller: Controller, address: str, client: aiohttp.ClientSession
) -> None:
    url = address + "workloads/team-a/a%3Fb?namespace=team%20a&status=x%26y"
    async with client.get(url, headers={"Authorization": "Bearer other"}) as answer:
        assert (answer.status, (await answer.json())["path"]) == (203, "/workloads/team-a/a?b")
    async with client.post(address + "what-if", data={"manifests": "kind: Job"}) as answer:
        assert (await answer.json())["body"] == "manifests=kind%3A+Job"

    get, post = controller.asked
    assert get.headers["authorization"] == "Bearer own"
    assert get.query == {"namespace": "team a", "status": "x&y"}
    assert post.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_a_compressed_answer_is_passed_on_as_it_is(address: str, client: aiohttp.ClientSession) -> None:
    async with client.get(address + "compressed") as answer:
        assert (answer.headers["Content-Encoding"], await answer.read()) == ("gzip", b"\x1f\x8b")


async def test_a_stream_is_passed_on_while_it_lasts(
    controller: Controller, address: str, client: aiohttp.ClientSession
) -> None:
    async with client.get(address + "changes", headers={"Last-Event-ID": "a-1"}) as answer:
        assert await answer.content.readany() == b"data: 1\n\n"

    assert controller.asked[0].headers["last-event-id"] == "a-1"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:80"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=["a name that leads here", "a form of another site", "a link"],
)
async def test_other_sites_in_the_browser_get_nothing(
    controller: Controller, address: str, client: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    async with client.get(address, headers=headers) as answer:
        assert answer.status in (403, 421)

    assert controller.asked == []


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_the_page_itself_and_an_entered_address_are_forwarded(
    address: str, client: aiohttp.ClientSession, site: str
) -> None:
    async with client.get(address, headers={"Sec-Fetch-Site": site}) as answer:
        assert answer.status == 203


@pytest.mark.parametrize(
    "path", ["..%2fother%2flog", "%2e%2e/other", "queues/..%2F..%2Fother", "./x", "../other"]
)
async def test_the_token_leaves_no_path_of_the_controller(
    controller: Controller, client: aiohttp.ClientSession, path: str
) -> None:
    async with (
        HttpServer(controller.routes()) as server,
        forwarded(f"{server.url}/berth", token, port=0, is_verified=True) as address,
        client.get(URL(address + path, encoded=True)) as answer,
    ):
        assert answer.status == 400

    assert controller.asked == []


async def test_a_controller_below_a_path_is_reached(
    controller: Controller, client: aiohttp.ClientSession
) -> None:
    async with (
        HttpServer(controller.routes()) as server,
        forwarded(f"{server.url}/berth", token, port=0, is_verified=True) as address,
        client.get(URL(address + "queues/a%2F..b", encoded=True)) as answer,
    ):
        assert (await answer.json())["path"] == "/berth/queues/a/..b"


async def test_a_controller_that_is_gone_is_said_to_be() -> None:
    async with (
        forwarded("http://127.0.0.1:1", token, port=0, is_verified=True) as address,
        aiohttp.ClientSession() as client,
        client.get(address) as answer,
    ):
        assert answer.status == 502
        assert "the controller at http://127.0.0.1:1 does not answer" in (await answer.json())["error"]


def kubectl(folder: Path, script: str) -> None:
    """Put a kubectl of this shell script onto PATH's folder."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


async def test_kubectl_forwards_a_port_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "noted"
    kubectl(
        tmp_path,
        f'echo $$ "$@" > {noted}; echo "Forwarding from 127.0.0.1:4711 -> 8090"; exec sleep 100',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    async with port_forward(Target(namespace="berth-system", context="prod")) as forwarding:
        pid, _, command = noted.read_text().strip().partition(" ")
        assert forwarding.port == 4711
    assert command == (
        "--context prod port-forward --namespace berth-system --address 127.0.0.1"
        " deployment/berth-controller :8090"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), signal.SIG_DFL)


async def test_the_command_ends_with_kubectl(tmp_path: Path) -> None:
    kubeconfig, file = tmp_path / "kubeconfig", tmp_path / "token"
    kubeconfig.write_text(KUBECONFIG)
    file.write_text("own\n")
    kubectl(
        tmp_path,
        'echo "Forwarding from 127.0.0.1:4711 -> 8090"; head -c 300000 /dev/zero; sleep 1;'
        ' echo "error: lost connection to pod" >&2; exit 1',
    )
    command = ("page", "--kubeconfig", str(kubeconfig), "--token-file", str(file), "--no-browser")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "admission.cli", *command),
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()

    assert stdout.startswith(b"PAGE=")
    assert process.returncode == 3
    assert b"kubectl port-forward has ended: error: lost connection to pod; start the command" in stderr


async def test_what_kubectl_refuses_is_said_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, 'echo "Error: pods is forbidden" >&2; exit 1')
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(UnreachableError, match="pods is forbidden; give the --url"):
        async with port_forward(Target(namespace="berth-system")):
            pass


async def test_without_kubectl_the_url_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(WrongUsageError, match="kubectl is not installed"):
        async with port_forward(Target(namespace="berth-system")):
            pass


async def test_the_command_prints_the_address_and_ends_by_a_signal(
    controller: Controller, tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    kubeconfig, file = tmp_path / "kubeconfig", tmp_path / "token"
    kubeconfig.write_text(KUBECONFIG)
    file.write_text("own\n")
    async with HttpServer(controller.routes()) as server:
        command = ("page", "--kubeconfig", str(kubeconfig), "--url", server.url, "--token-file", str(file))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "admission.cli", *command, "--no-browser"), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode().strip()
        async with client.get(line.removeprefix("PAGE=")) as answer:
            assert answer.status == 203
        process.send_signal(signal.SIGINT)

        assert await process.wait() == 130
    assert controller.asked[0].headers["authorization"] == "Bearer own"


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
