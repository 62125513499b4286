"""The HTTP server as its clients see it."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator

import aiohttp
import pytest

from api.http.errors import ListenError
from api.http.server import (
    HttpError,
    HttpServer,
    Request,
    Response,
    Route,
    Stream,
    json_response,
    text_response,
)

PATIENCE_SECONDS = 20.0


async def echo(request: Request) -> Response:
    return json_response(
        {
            "method": request.method,
            "path": request.path,
            "name": request.parameters.get("name"),
            "query": request.query,
            "kind": request.headers.get("content-type"),
            "size": len(request.body),
        }
    )


async def refuse(request: Request) -> Response:
    raise HttpError(422, f"{request.path} is not what was asked for")


async def fail(_: Request) -> Response:
    raise RuntimeError("a secret detail")


async def answer(_: Request) -> Response:
    return text_response("well\n")


ROUTES = [
    Route("GET", "/queues/{name}", echo),
    Route("POST", "/echo", echo),
    Route("POST", "/nodes", echo, max_body_bytes=64 << 20),
    Route("GET", "/refuse", refuse),
    Route("GET", "/fail", fail),
    Route("GET", "/healthz", answer),
]


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    async with HttpServer(ROUTES) as server:
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_a_handler_gets_all_of_the_request(server: HttpServer, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{server.url}/queues/a%2Fb?x=1&x=2&y=3") as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        got = await answer.json()

    assert got["name"] == "a/b"
    assert got["query"] == {"x": "1", "y": "3"}


async def test_a_body_of_many_megabytes_is_taken(server: HttpServer, session: aiohttp.ClientSession) -> None:
    """kube-scheduler sends 5,000 whole Nodes to an extender, 21 MiB."""
    async with session.post(f"{server.url}/nodes", data=io.BytesIO(b"x" * (21 << 20))) as answer:
        assert (await answer.json())["size"] == 21 << 20


async def test_text_is_marked_as_text(server: HttpServer, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{server.url}/healthz") as answer:
        assert (await answer.text(), answer.headers["Content-Type"]) == (
            "well\n",
            "text/plain; charset=utf-8",
        )


async def test_head_is_answered_where_get_is(server: HttpServer, session: aiohttp.ClientSession) -> None:
    async with session.head(f"{server.url}/healthz") as answer:
        assert (answer.status, await answer.read()) == (200, b"")


@pytest.mark.parametrize(
    ("method", "path", "want_status", "want_error"),
    [
        pytest.param("GET", "/refuse", 422, "/refuse is not what was asked for", id="refused by the handler"),
        pytest.param("GET", "/none", 404, "there is nothing at /none", id="no such path"),
        pytest.param("GET", "/echo", 405, "/echo does not take GET; it takes POST", id="no such method"),
        pytest.param("GET", "/fail", 500, "an internal error; the log says which", id="a fault of our own"),
    ],
)
async def test_errors_are_json(
    server: HttpServer,
    session: aiohttp.ClientSession,
    method: str,
    path: str,
    want_status: int,
    want_error: str,
) -> None:
    async with session.request(method, server.url + path) as answer:
        got = await answer.json()

    assert answer.status == want_status
    assert got == {"status": want_status, "error": want_error}


async def test_a_fault_of_our_own_is_logged_and_not_shown(
    server: HttpServer, session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "berth.http"):
        async with session.get(f"{server.url}/fail") as answer:
            assert "secret" not in await answer.text()

    (record,) = caplog.records
    assert record.getMessage() == "request_failed method=GET path=/fail"
    assert record.exc_info is not None


async def test_a_body_that_is_too_large_is_refused(
    server: HttpServer, session: aiohttp.ClientSession
) -> None:
    async with session.post(f"{server.url}/echo", data=io.BytesIO(b"x" * (2 << 20))) as answer:
        assert answer.status == 413
        assert (await answer.json())["error"] == "the request is larger than 1 MiB"


async def test_a_body_that_is_not_compressed_as_its_header_says_is_refused_without_a_traceback(
    server: HttpServer, session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    lie = {"Content-Encoding": "gzip"}
    async with session.post(f"{server.url}/echo", data=b"no gzip", headers=lie) as answer:
        refused = answer.status, await answer.json()
    async with session.post(f"{server.url}/echo", data=b"plain") as answer:
        later = answer.status

    assert refused == (400, {"status": 400, "error": "Failed to read request body"})
    assert later == 200
    assert caplog.records == []


async def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.server.BODY_SECONDS", 0.05)
    async with HttpServer(ROUTES) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        answer = await asyncio.wait_for(reader.readline(), 30.0)
        writer.close()

    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_caller_may_have_its_own_form_of_errors(session: aiohttp.ClientSession) -> None:
    def as_status(status: int, message: str) -> Response:
        return json_response({"kind": "Status", "code": status, "message": message}, status=status)

    async with (
        HttpServer(ROUTES, render_error=as_status) as server,
        session.get(f"{server.url}/none") as answer,
    ):
        assert (await answer.json())["kind"] == "Status"


async def test_a_handler_is_cancelled_when_its_caller_leaves() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def search(_: Request) -> Response:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Response()

    async with HttpServer([Route("GET", "/what-if", search)]) as server, aiohttp.ClientSession() as session:
        task = asyncio.create_task(session.get(f"{server.url}/what-if"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await began.wait()
            task.cancel()
            await cancelled.wait()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_stream_is_sent_as_it_comes(session: aiohttp.ClientSession) -> None:
    more = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await more.wait()
        yield b"data: 2\n\n"

    async def stream(_: Request) -> Stream:
        return Stream(chunks=chunks())

    async with HttpServer([Route("GET", "/s", stream)]) as server, session.get(f"{server.url}/s") as answer:
        async with asyncio.timeout(PATIENCE_SECONDS):
            first = await answer.content.readline()
            more.set()
            rest = await answer.content.read()

    assert (first, rest) == (b"data: 1\n", b"\ndata: 2\n\n")
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_taken_port_is_named_with_the_fix(server: HttpServer) -> None:
    with pytest.raises(
        ListenError, match=rf"cannot listen on 127\.0\.0\.1 port {server.port}: .*give a free port"
    ):
        await HttpServer(ROUTES, port=server.port).start()


async def test_an_impossible_port_is_named() -> None:
    with pytest.raises(ListenError, match="port 70000"):
        await HttpServer(ROUTES, port=70000).start()


async def test_after_stopping_the_port_is_closed(session: aiohttp.ClientSession) -> None:
    server = HttpServer(ROUTES)
    await server.start()
    await server.stop()

    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get(f"{server.url}/healthz")


@pytest.mark.parametrize(
    ("host", "want_url"),
    [
        pytest.param("127.0.0.1", "http://127.0.0.1:7", id="an address"),
        pytest.param("0.0.0.0", "http://127.0.0.1:7", id="every address"),
        pytest.param("::1", "http://[::1]:7", id="an IPv6 address"),
    ],
)
async def test_the_url_is_one_that_can_be_opened(host: str, want_url: str) -> None:
    assert HttpServer([], host=host, port=7).url == want_url
