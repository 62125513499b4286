"""What clients that mean harm can make a server hold, wait for and log: raw sockets against small bounds."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import ssl
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from api.http.certificates import ServingTls, renewed
from api.http.server import HttpServer, Request, Response, Route, json_response

PATIENCE_SECONDS = 20.0
SHORT_SECONDS = 0.05
FULL_GET = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_GET = b"GET /small HTTP/1.1\r\nHost:"


async def answer(request: Request) -> Response:
    return json_response({"size": len(request.body), "query": request.query})


ROUTES = [
    Route("GET", "/small", answer),
    Route("GET", "/named/{name}", answer),
    Route("DELETE", "/small", answer),
    Route("POST", "/small", answer),
    Route("POST", "/large", answer, max_body_bytes=64 << 20),
]


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    async with HttpServer(ROUTES) as server:
        yield server


class Client:
    """One connection, as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers (names in lower case) and body of the next response."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in head[1:-2])}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(head[0].split()[1]), headers, body

    async def is_closed(self) -> bool:
        """Wait for the end of the connection; return whether nothing was received before it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[HttpServer], Awaitable[Client]]]:
    clients: list[Client] = []

    async def connect(server: HttpServer) -> Client:
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", server.port)))
        return clients[-1]

    yield connect
    for client in clients:
        client.writer.transport.abort()


Connect = Callable[[HttpServer], Awaitable[Client]]


async def until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_reached():
            await asyncio.sleep(0.001)


def refused(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """Return what was logged as refused, by reason."""
    counts = Counter[str]()
    for message in caplog.messages:
        assert message.startswith("requests_refused port=")
        pairs = (one.split("=") for one in message.split()[2:])
        counts.update({reason: int(count) for reason, count in pairs})
    return counts


# --- bodies --------------------------------------------------------------------------------------


async def test_an_announced_length_takes_no_memory(server: HttpServer, connect: Connect) -> None:
    head = b"POST /large HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67108864\r\n\r\n{"
    tracemalloc.start()
    try:
        for _ in range(14):
            await (await connect(server)).send(head)
        await until(lambda: server._bodies._held_bytes == 14)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 << 20


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"Content-Length: 700000\r\n\r\n", id="of an announced length"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\naae60\r\n", id="in chunks"),
    ],
)
async def test_the_bodies_of_all_connections_share_one_budget(
    server: HttpServer, connect: Connect, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr("api.http.server.MOST_BODY_BYTES", 1 << 20)
    part = b"POST /large HTTP/1.1\r\nHost: localhost\r\n" + head + b"x" * 600_000
    first, second, third = [await connect(server) for _ in range(3)]
    await first.send(part)
    await until(lambda: server._bodies._held_bytes == 600_000)

    await second.send(part)
    status, headers, body = await second.answer()
    assert (status, headers["retry-after"]) == (503, "1")
    assert b"too many large requests at once" in body

    first.writer.transport.abort()
    await until(lambda: server._bodies._held_bytes == 0)
    await third.send(
        b"POST /large HTTP/1.1\r\nHost: localhost\r\nContent-Length: 600000\r\n\r\n" + b"x" * 600_000
    )
    assert (await third.answer())[0] == 200
    assert server._bodies._held_bytes == 0


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"Content-Length: 1\r\n\r\nx", id="announced"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", id="in chunks"),
    ],
)
async def test_a_method_without_a_body_takes_none(
    server: HttpServer, connect: Connect, method: str, rest: bytes
) -> None:
    client = await connect(server)
    await client.send(f"{method} /small HTTP/1.1\r\nHost: localhost\r\n".encode() + rest)

    line = await asyncio.wait_for(client.reader.readline(), PATIENCE_SECONDS)
    assert line.startswith(b"HTTP/1.1 413 ")


async def test_a_chunked_body_is_bounded_as_it_arrives(server: HttpServer, connect: Connect) -> None:
    client = await connect(server)
    await client.send(b"POST /small HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    await client.send(b"100001\r\n" + b"x" * 0x100001)

    status, _, body = await client.answer()
    assert (status, b"larger than 1 MiB" in body) == (413, True)


async def test_a_compressed_body_is_bounded_by_what_comes_out(server: HttpServer, connect: Connect) -> None:
    bomb = gzip.compress(bytes(8 << 20))
    head = (
        "POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(bomb)}\r\n\r\n"
    )
    client = await connect(server)
    await client.send(head.encode() + bomb)

    assert (await client.answer())[0] == 413
    assert server._bodies._held_bytes == 0


# --- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"G", HALF_GET], ids=["nothing", "one byte", "half a header"])
async def test_half_sent_requests_are_closed_with_one_log_line_a_minute(
    connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("api.http.connections.HEADER_SECONDS", SHORT_SECONDS)
    async with HttpServer(ROUTES) as server:
        clients = [await connect(server) for _ in range(20)]
        for client in clients:
            await client.send(sent)
        assert all([await client.is_closed() for client in clients])

    # One at once, the other as the server stops.
    assert len(caplog.records) == 2
    assert refused(caplog) == {"slow-header": 20}


async def test_a_later_request_that_is_half_sent_is_closed(
    connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.http.connections.HEADER_SECONDS", SHORT_SECONDS)
    async with HttpServer(ROUTES) as server:
        client = await connect(server)
        await client.send(FULL_GET[:-2])
        # The end of the header in a packet of its own.
        await client.send(FULL_GET[-2:])
        assert (await client.answer())[0] == 200
        await client.send(HALF_GET)
        assert await client.is_closed()

    assert refused(caplog) == {"slow-header": 1}


async def test_a_header_deadline_does_not_end_a_request_that_is_handled(
    connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.http.connections.HEADER_SECONDS", SHORT_SECONDS)
    slow = asyncio.Event()

    async def wait(_: Request) -> Response:
        await slow.wait()
        return Response()

    async with HttpServer([Route("GET", "/small", wait), *ROUTES[1:]]) as server:
        handled, closed = await connect(server), await connect(server)
        await handled.send(FULL_GET)
        await closed.send(HALF_GET)
        # Its deadline began later, and is over.
        assert await closed.is_closed()
        slow.set()
        assert (await handled.answer())[0] == 200


async def test_the_sum_of_all_header_lines_is_bounded(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    line = b"X-Remote-Group: " + b"g" * 8000 + b"\r\n"
    async with HttpServer(ROUTES) as server:
        few, many = await connect(server), await connect(server)
        await few.send(FULL_GET[:-2] + line * 4 + b"\r\n")
        assert (await few.answer())[0] == 200
        many.writer.write(FULL_GET[:-2] + line * 12)
        assert await many.is_closed()

    assert refused(caplog) == {"large-header": 1}


async def test_an_idle_connection_is_closed_without_a_log_line(
    connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.http.server.IDLE_SECONDS", SHORT_SECONDS)
    async with HttpServer(ROUTES) as server:
        client = await connect(server)
        await client.send(FULL_GET)
        assert (await client.answer())[0] == 200
        assert await client.is_closed()

    assert caplog.records == []


async def test_a_new_connection_replaces_the_one_that_waits_longest(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("api.http.connections.MOST_CONNECTIONS", 4)
    async with HttpServer(ROUTES) as server:
        clients = [await connect(server) for _ in range(4)]
        for client in reversed(clients):
            await client.send(FULL_GET)
            assert (await client.answer())[0] == 200
        new = await connect(server)
        await new.send(FULL_GET)

        assert (await new.answer())[0] == 200
        assert await clients[3].is_closed()
        for client in clients[:3]:
            await client.send(FULL_GET)
            assert (await client.answer())[0] == 200

    assert refused(caplog) == {"made-room": 1}


async def test_a_request_that_is_handled_is_not_ended_for_a_new_connection(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("api.http.connections.MOST_CONNECTIONS", 2)
    slow, begun = asyncio.Event(), Counter[str]()

    async def wait(request: Request) -> Response:
        begun["all"] += 1
        await slow.wait()
        return Response()

    async with HttpServer([Route("GET", "/small", wait)]) as server:
        clients = [await connect(server) for _ in range(2)]
        for client in clients:
            await client.send(FULL_GET)
        await until(lambda: begun["all"] == 2)
        assert await (await connect(server)).is_closed()
        slow.set()
        for client in clients:
            assert (await client.answer())[0] == 200

    assert refused(caplog) == {"too-many-connections": 1}


async def test_silent_tls_clients_count_and_do_not_lock_others_out(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("api.http.connections.MOST_CONNECTIONS", 2)
    made = renewed(None, ["127.0.0.1"], now=time.time())
    async with HttpServer(ROUTES, tls=ServingTls(made.leaf)) as server:
        silent = [await connect(server) for _ in range(2)]
        trust = ssl.create_default_context(cadata=made.trusted.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
        client = Client(reader, writer)
        await client.send(FULL_GET)
        assert (await client.answer())[0] == 200
        assert await silent[0].is_closed()
        writer.transport.abort()


async def test_a_tls_handshake_is_bounded_in_time(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("api.http.connections.HEADER_SECONDS", SHORT_SECONDS)
    tls = ServingTls(renewed(None, ["127.0.0.1"], now=time.time()).leaf)
    async with HttpServer(ROUTES, tls=tls) as server:
        silent, plain = await connect(server), await connect(server)
        await plain.send(FULL_GET)
        assert await silent.is_closed()
        await plain.is_closed()

    assert refused(caplog) == {"tls-handshake": 2}


async def test_a_response_that_is_not_read_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("api.http.connections.STALLED_SECONDS", SHORT_SECONDS)

    async def large(_: Request) -> Response:
        return Response(body=bytes(32 << 20))

    async with HttpServer([Route("GET", "/small", large)]) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(FULL_GET)
            await until(lambda: bool(caplog.records))

    assert refused(caplog) == {"unread-response": 1}


# --- what cannot be read -------------------------------------------------------------------------


def post(*headers: bytes, body: bytes = b"{}") -> bytes:
    lines = [b"POST /small HTTP/1.1", b"Host: localhost", *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("sent", "want_status"),
    [
        pytest.param(post(b"Content-Encoding: compress"), 415, id="an unknown encoding"),
        pytest.param(post(b"Content-Encoding: gzip, gzip"), 415, id="two encodings"),
        pytest.param(post(b"Content-Encoding: gzip"), 400, id="no gzip"),
        pytest.param(post(b"Content-Encoding: br"), 400, id="an encoding without its library"),
        pytest.param(post(b"Content-Type: application/json; charset=utf-16"), 415, id="a charset"),
        pytest.param(post(b"Content-Type: text/plain; charset=no\xff"), 400, id="bytes in a header"),
        pytest.param(b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, id="bytes in the path"),
        pytest.param(b"GET /%ff%fe%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, id="percent-encoded bytes"),
        pytest.param(
            b"GET /%0d%0aX:%20y HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, id="a percent-encoded line end"
        ),
        pytest.param(b"GET /small HTTP/7.3\r\nHost: localhost\r\n\r\n", 400, id="an unknown version"),
        pytest.param(b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1", 400, id="TLS to a port without it"),
        pytest.param(
            b"GET /small HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", 400, id="NUL in a header"
        ),
        pytest.param(b"GET /small HTTP/1.1\r\n" + b"a" * 9000 + b": b\r\n\r\n", 400, id="a long name"),
        pytest.param(
            b"POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400, id="a bad length"
        ),
        pytest.param(
            b"POST /small HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            id="a bad chunk",
        ),
    ],
)
async def test_what_cannot_be_read_is_refused_with_a_sentence_and_without_a_traceback(
    connect: Connect, caplog: pytest.LogCaptureFixture, sent: bytes, want_status: int
) -> None:
    caplog.set_level(logging.INFO)
    async with HttpServer(ROUTES) as server:
        client = await connect(server)
        await client.send(sent)
        status, _, body = await client.answer()

    assert status == want_status
    assert len(body) > 10
    assert [one for one in caplog.records if one.exc_info] == []
    assert refused(caplog).keys() <= {"malformed"}


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param(b"/small?x=%ff&y=%zz", 200, id="in the query"),
        pytest.param(b"/named/%ff", 200, id="in the path"),
        pytest.param(b"/named/%ed%b2%80", 200, id="an encoded surrogate"),
    ],
)
async def test_bad_percent_encoding_reaches_a_handler_as_text(
    server: HttpServer, connect: Connect, path: bytes, want: int
) -> None:
    client = await connect(server)
    await client.send(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert (await client.answer())[0] == want


async def test_each_refusal_is_reported_with_its_reason(connect: Connect) -> None:
    reasons = list[str]()
    async with HttpServer(ROUTES, on_refused=reasons.append) as server:
        for request in (
            b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"PUT /small HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n",
            b"nonsense\r\n\r\n",
        ):
            client = await connect(server)
            await client.send(request)
            await client.answer()

    assert reasons == ["not-found", "method", "large-body", "malformed"]


async def test_a_malformed_body_that_is_refused_unread_leaves_no_traceback(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reasons = list[str]()
    head = (
        b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: deflate\r\nContent-Length: 6\r\n\r\n"
    )
    async with HttpServer(ROUTES, on_refused=reasons.append) as server:
        client = await connect(server)
        await client.send(head + b"abcdef")
        status, _, _ = await client.answer()
        await until(lambda: "malformed" in reasons)

    assert status == 404
    assert [one for one in caplog.records if one.exc_info] == []
