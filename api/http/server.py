"""HTTP server with routes given by the caller, and requests and responses as values.

aiohttp's server is only used in this module. A handler receives a `Request` with its whole body, and returns
a `Response` or, for a continuous answer, a `Stream`; it raises `HttpError` for a client error. Error
responses are JSON by default. A handler is cancelled when its client disconnects, so that no search
continues without a recipient.

What a client can make a server hold is bounded, whatever it sends:

    body            none with GET, HEAD and DELETE, otherwise `MAX_BODY_BYTES` or the route's own limit, and
                    `BODY_SECONDS`. The buffer grows as bytes arrive: an announced length takes no memory.
    all bodies      `MOST_BODY_BYTES` for a server, until their handlers have answered; beyond it 503.
    encodings       gzip and deflate, UTF-8. aiohttp decompresses in small pieces, so both bounds above hold
                    for what comes out, and for chunked bodies.
    idle            `IDLE_SECONDS` between two requests of a connection (aiohttp's keepalive_timeout).
    rejected body   `LINGERING_SECONDS` of it are read and dropped (aiohttp's lingering_time), so that the
                    client finishes sending and sees the answer.
    connections     how many, their headers and unread responses: `connections.py`.

aiohttp's own limit of a body, client_max_size, is the same for all routes and counts each body alone.

A plain server on loopback answers no browser that asks for another site (`api.wire.addressing`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from api.http.connections import Connections, Refusals, Tls
from api.http.errors import ListenError
from api.wire.addressing import is_loopback, refusal

log = logging.getLogger("berth.http")

# What a route takes that does not say otherwise.
MAX_BODY_BYTES = 1 << 20
# Two of the largest bodies at once, those of the scheduler extender (64 MiB).
MOST_BODY_BYTES = 128 << 20
# Enough for 64 MiB, and a limit for clients that announce a body and send nothing.
BODY_SECONDS = 30.0
# Longer than the 90 s of Go's clients, so that they close first and no request meets a closing connection.
IDLE_SECONDS = 120.0
# aiohttp's 10 s would let a client send bytes for nothing as long.
LINGERING_SECONDS = 2.0
# Reasons of requests that are refused by an answer, by its status, in words of metrics.
REFUSED_BY_ANSWER = {
    400: "bad-request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not-found",
    405: "method",
    408: "slow-body",
    409: "conflict",
    413: "large-body",
    415: "encoding",
    421: "other-host",
    422: "invalid",
    429: "too-many",
    503: "unavailable",
}
OTHER_REFUSAL = "error"
# Message for a body whose encoding does not match its header.
UNREADABLE_BODY = "Failed to read request body"
_WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE"})
_ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})


class HttpError(Exception):
    """Raised by a handler to respond with an error status, a message, and headers such as Retry-After."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request with its body. `parameters` are the braced parts of the route's path, decoded.

    If a query parameter or header occurs twice, the first is used; header names are in lower case.
    `client_name` is the common name of the client's certificate, if TLS requested one and verified it
    (`has_client_certificate`: it may have no common name);
    `client_address` is the peer address of the connection, which may be a proxy.
    """

    method: str
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | bytearray = b""
    client_name: str = ""
    has_client_certificate: bool = False
    client_address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A complete response."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A response whose chunks are sent as they are produced, until they end or the client disconnects."""

    chunks: AsyncIterator[bytes]
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response | Stream]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path, such as ("GET", "/v1/queues/{name}"); GET also serves HEAD.

    A body larger than `max_body_bytes` is rejected with 413. None: MAX_BODY_BYTES, and no body with
    GET and DELETE.
    """

    method: str
    path: str
    handler: Handler
    max_body_bytes: int | None = None


def json_response(value: object, *, status: int = 200) -> Response:
    """Return a response with a value as JSON; any value that msgspec can encode."""
    return Response(status=status, body=msgspec.json.encode(value))


def text_response(text: str, *, status: int = 200) -> Response:
    """Return a response with text in UTF-8."""
    return Response(status=status, body=text.encode(), content_type="text/plain; charset=utf-8")


def error_as_json(status: int, message: str) -> Response:
    """Return the default form of error responses.

    A caller may choose another one, such as a Kubernetes Status.
    """
    return json_response({"status": status, "error": message}, status=status)


class HttpServer:
    """Serves routes on one address. Call start() and stop(), or use it as `async with`.

    `port` 0 chooses any free port; after start(), `port` and `url` contain the actual one. `tls`
    may get new certificates while it serves (certificates.ServingTls). `render_error` creates the
    body of error responses. `on_refused` is called with the reason of each refused request or connection:
    those of `REFUSED_BY_ANSWER` and of `connections.py`. `is_for_all`: a proxy on this machine may ask for
    any site, and the server relies on it.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls | None = None,
        render_error: Callable[[int, str], Response] = error_as_json,
        on_refused: Callable[[str], None] = lambda _: None,
        is_for_all: bool = False,
    ) -> None:
        self.host = host
        self.port = port
        self._tls = tls
        self._render_error = render_error
        # With TLS a browser refuses the certificate, which has no name of another site.
        self._is_local = is_loopback(host) and tls is None and not is_for_all
        self._bodies = _Bodies()
        self._refusals = Refusals(on_refused)
        # The middleware covers all routes, so that every error has the form that the caller chose.
        app = web.Application(middlewares=[self._answer_errors])
        for route in routes:
            if route.method == "GET":
                app.router.add_get(route.path, self._adapted(route))
            else:
                app.router.add_route(route.method, route.path, self._adapted(route))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_ConnectionLog(log, self._refusals),
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGERING_SECONDS,
            shutdown_timeout=1.0,
        )
        self._connections: Connections | None = None

    @property
    def url(self) -> str:
        """The base URL; for a wildcard address, with the loopback address."""
        # A client cannot connect to a wildcard address.
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    async def start(self) -> None:
        """Start to listen. Raises ListenError if the address is in use or not local."""
        await self._runner.setup()
        assert self._runner.server is not None, "setup() has made it"
        self._connections = Connections(self._runner.server, self._refusals)
        try:
            # With port 0 the system chooses one.
            self.port = await self._connections.listen(self.host, self.port, self._tls)
        except (OSError, OverflowError) as error:
            await self.stop()
            raise ListenError(
                f"cannot listen on {self.host} port {self.port}: {error}; give a free port, or 0 for any"
            ) from error
        self._refusals.port = self.port

    async def stop(self) -> None:
        """Stop listening, give pending requests a second to complete, and close all connections."""
        if self._connections is not None:
            await self._connections.close()
        await self._runner.cleanup()
        if self._connections is not None:
            self._connections.abort()
        self._refusals.close()

    async def __aenter__(self) -> HttpServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @web.middleware
    async def _answer_errors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        assert self._connections is not None, "a request arrives after start()"
        self._connections.begin(request.protocol, request.content)
        try:
            _check_text(request)
            if self._is_local and (refused := refusal(request.headers)) is not None:
                raise HttpError(*refused)
            return await handler(request)
        except HttpError as error:
            self._refusals.note_answer(REFUSED_BY_ANSWER.get(error.status, OTHER_REFUSAL))
            answer = _whole(self._render_error(error.status, error.message))
            answer.headers.update(error.headers)
            # Set if the whole body was not read: the remaining bytes are not a request.
            if answer.headers.get("Connection") == "close":
                answer.force_close()
            return answer
        except web.HTTPException as error:
            self._refusals.note_answer(REFUSED_BY_ANSWER.get(error.status, OTHER_REFUSAL))
            answer = _whole(self._render_error(error.status, _sentence(error, request)))
            # HTTP requires this header in a 405 response.
            if "Allow" in error.headers:
                answer.headers["Allow"] = error.headers["Allow"]
            return answer
        # The only broad handler: an error in one request must neither end the process nor go unnoticed.
        except Exception:
            self._refusals.note_answer(OTHER_REFUSAL)
            log.exception("request_failed method=%s path=%s", request.method, request.path)
            return _whole(self._render_error(500, "an internal error; the log says which"))

    def _adapted(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        default = 0 if route.method in _WITHOUT_BODY else MAX_BODY_BYTES
        most = default if route.max_body_bytes is None else route.max_body_bytes

        async def handle(request: web.Request) -> web.StreamResponse:
            assert self._connections is not None, "a request arrives after start()"
            async with self._bodies.reading(request, most) as body:
                with self._connections.handling(request.protocol):
                    answer = await route.handler(_request(request, body))
            return await _streamed(request, answer) if isinstance(answer, Stream) else _whole(answer)

        return handle


class _ConnectionLog(logging.LoggerAdapter[logging.Logger]):
    """What aiohttp logs about connections; malformed requests are counted instead."""

    def __init__(self, logger: logging.Logger, refusals: Refusals) -> None:
        super().__init__(logger)
        self._refusals = refusals

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        # The second: what aiohttp drops of a body that was refused unread may be malformed, too.
        if isinstance(exc_info, (HttpProcessingError, web.RequestPayloadError)):
            self._refusals.count("malformed")
        else:
            super().exception(msg, *args, exc_info=exc_info, **kwargs)

    def debug(self, msg: object, *args: object, exc_info: Any = None, **kwargs: Any) -> None:
        # What begins with no method, such as TLS at a port without, aiohttp logs at this level.
        if isinstance(exc_info, HttpProcessingError):
            self._refusals.count("malformed")
        else:
            super().debug(msg, *args, exc_info=exc_info, **kwargs)


class _Bodies:
    """Reads the bodies of requests into buffers that share one budget."""

    def __init__(self) -> None:
        self._held_bytes = 0

    @asynccontextmanager
    async def reading(self, request: web.Request, most: int) -> AsyncIterator[bytearray]:
        """Give the body, whose bytes are taken from the budget until the end. Raises HttpError."""
        body = bytearray()
        try:
            try:
                await self._fill(body, request, most)
            except HttpError as error:
                # What follows on this connection is the rest of the body, not a request.
                raise HttpError(
                    error.status, error.message, headers={**error.headers, "Connection": "close"}
                ) from error.__cause__
            yield body
        finally:
            self._held_bytes -= len(body)

    async def _fill(self, body: bytearray, request: web.Request, most: int) -> None:
        _check_encoding(request)
        # Checked before reading if the length is announced; checked again below, in case it is missing.
        _refuse_larger(request.content_length or 0, most)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.content.iter_any():
                    _refuse_larger(len(body) + len(chunk), most)
                    self._take(len(chunk))
                    body += chunk
        except TimeoutError as error:
            raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:g} s") from error
        # The body is compressed in another way than its header says. Without feed_eof(), aiohttp would
        # continue to read for the next request, and log the same error again.
        except web.RequestPayloadError as error:
            request.content.feed_eof()
            raise HttpError(400, UNREADABLE_BODY) from error

    def _take(self, size: int) -> None:
        if self._held_bytes + size > MOST_BODY_BYTES:
            raise HttpError(
                503, "too many large requests at once; try again later", headers={"Retry-After": "1"}
            )
        self._held_bytes += size


def _check_text(request: web.Request) -> None:
    """Raise HttpError for bytes that are not UTF-8: what contains them cannot be sent back or hashed."""
    for text in (request.raw_path, *request.headers.values()):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise HttpError(400, "the request line and the headers must be UTF-8") from error


def _check_encoding(request: web.Request) -> None:
    """Raise HttpError for a body that is encoded in a way that no handler can read."""
    if not request.body_exists:
        return
    encoding = request.headers.get("Content-Encoding", "").lower()
    if encoding not in _ENCODINGS:
        raise HttpError(415, f"a body with Content-Encoding {encoding!r} cannot be read; send gzip or none")
    charset = (request.charset or "utf-8").lower()
    if charset not in _CHARSETS:
        raise HttpError(415, f"a body in {charset!r} cannot be read; send UTF-8")


def _refuse_larger(size: int, most: int) -> None:
    if size > most:
        if not most:
            raise HttpError(413, "a request of this method must not have a body")
        shown = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most} bytes"
        raise HttpError(413, f"the request is larger than {shown}")


def _request(request: web.Request, body: bytearray) -> Request:
    return Request(
        method=request.method,
        path=request.path,
        parameters=dict(request.match_info),
        query=_first_of_each(request.query.items()),
        headers=_first_of_each((name.lower(), value) for name, value in request.headers.items()),
        body=body,
        client_name=_client_name(request),
        has_client_certificate=bool(request.get_extra_info("peercert")),
        client_address=request.remote or "",
    )


def _client_name(request: web.Request) -> str:
    certificate = request.get_extra_info("peercert") or {}
    subject = dict(pair for pairs in certificate.get("subject", ()) for pair in pairs)
    return str(subject.get("commonName", ""))


def _first_of_each(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    first: dict[str, str] = {}
    for name, value in pairs:
        first.setdefault(name, value)
    return first


def _whole(answer: Response) -> web.Response:
    headers = {"Content-Type": answer.content_type, **answer.headers}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


async def _streamed(request: web.Request, answer: Stream) -> web.StreamResponse:
    headers = {"Content-Type": answer.content_type, "Cache-Control": "no-store", **answer.headers}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    async for chunk in answer.chunks:
        await response.write(chunk)
    return response


def _sentence(error: web.HTTPException, request: web.Request) -> str:
    """Return the message for a request that no handler received."""
    match error.status:
        case 404:
            return f"there is nothing at {request.path}"
        case 405:
            return f"{request.path} does not take {request.method}; it takes {error.headers.get('Allow')}"
        case _:
            return error.reason
