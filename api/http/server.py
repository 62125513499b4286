"""HTTP server with routes given by the caller, and requests and responses as values.

aiohttp's server is only used in this module. A handler receives a `Request` with its whole body, and returns
a `Response` or, for a continuous answer, a `Stream`; it raises `HttpError` for a client error. Error
responses are JSON by default. A handler is cancelled when its client disconnects, so that no search
continues without a recipient.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

log = logging.getLogger("berth.http")

# A scheduler extender receives all nodes at once: 5,000 of them are 21 MiB. aiohttp's default is 1 MiB.
MAX_BODY_BYTES = 64 << 20
# Timeout for a whole body: enough for 64 MiB, and a limit for clients that announce a body and send nothing.
BODY_SECONDS = 30.0
# Message for a body whose encoding does not match its header.
UNREADABLE_BODY = "Failed to read request body"


class HttpError(Exception):
    """Raised by a handler to respond with an error status, a message, and headers such as Retry-After."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


class ListenError(Exception):
    """The server cannot listen on the address; the message names it and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request with its body. `parameters` are the braced parts of the route's path, decoded.

    If a query parameter or header occurs twice, the first is used; header names are in lower case.
    `client_name` is the common name of the client's certificate, if TLS requested one and verified it;
    `client_address` is the peer address of the connection, which may be a proxy.
    """

    method: str
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | bytearray = b""
    client_name: str = ""
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

    A body larger than `max_body_bytes` (None: MAX_BODY_BYTES) is rejected with 413 before it is read.
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
    body of error responses.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        render_error: Callable[[int, str], Response] = error_as_json,
    ) -> None:
        self.host = host
        self.port = port
        self._tls = tls
        self._render_error = render_error
        # The middleware covers all routes, so that every error has the form that the caller chose.
        app = web.Application(middlewares=[self._answer_errors])
        for route in routes:
            if route.method == "GET":
                app.router.add_get(route.path, _adapted(route))
            else:
                app.router.add_route(route.method, route.path, _adapted(route))
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)

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
        try:
            await web.TCPSite(self._runner, self.host, self.port, ssl_context=self._tls).start()
        except (OSError, OverflowError) as error:
            await self._runner.cleanup()
            raise ListenError(
                f"cannot listen on {self.host} port {self.port}: {error}; give a free port, or 0 for any"
            ) from error
        # Read from the socket, because with port 0 the system chooses one.
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening, give pending requests a second to complete, and close all connections."""
        await self._runner.cleanup()

    async def __aenter__(self) -> HttpServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @web.middleware
    async def _answer_errors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except HttpError as error:
            answer = _whole(self._render_error(error.status, error.message))
            answer.headers.update(error.headers)
            # The handler sets this if it has not read the whole body: the remaining bytes are not a request.
            if answer.headers.get("Connection") == "close":
                answer.force_close()
            return answer
        except web.HTTPException as error:
            answer = _whole(self._render_error(error.status, _sentence(error, request)))
            # HTTP requires this header in a 405 response.
            if "Allow" in error.headers:
                answer.headers["Allow"] = error.headers["Allow"]
            return answer
        # The only broad handler: an error in one request must neither end the process nor go unnoticed.
        except Exception:
            log.exception("request_failed method=%s path=%s", request.method, request.path)
            return _whole(self._render_error(500, "an internal error; the log says which"))


def _adapted(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        answer = await route.handler(
            Request(
                method=request.method,
                path=request.path,
                parameters=dict(request.match_info),
                query=_first_of_each(request.query.items()),
                headers=_first_of_each((name.lower(), value) for name, value in request.headers.items()),
                body=await _body(request, route.max_body_bytes or MAX_BODY_BYTES),
                client_name=_client_name(request),
                client_address=request.remote or "",
            )
        )
        return await _streamed(request, answer) if isinstance(answer, Stream) else _whole(answer)

    return handle


async def _body(request: web.Request, most: int) -> bytearray:
    """Return the body, read into one buffer of the announced length.

    aiohttp's own read() grows a buffer and copies it, which takes three times the CPU at 16 MiB, all of it in
    the kernel for new pages.
    """
    length = request.content_length or 0
    # Checked before reading if the length is announced; checked again below, in case it is missing or wrong.
    _refuse_larger(length, most)
    body, size = bytearray(length), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.content.iter_any():
                _refuse_larger(size + len(chunk), most)
                body[size : size + len(chunk)] = chunk
                size += len(chunk)
    # A client that announces a body and does not send it would otherwise occupy the buffer indefinitely.
    except TimeoutError as error:
        raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:g} s") from error
    # The body is compressed in another way than its header says. Without feed_eof(), aiohttp would continue
    # to read for the next request, and log the same error again.
    except web.RequestPayloadError as error:
        request.content.feed_eof()
        raise HttpError(400, UNREADABLE_BODY, headers={"Connection": "close"}) from error
    del body[size:]
    return body


def _refuse_larger(size: int, most: int) -> None:
    if size > most:
        shown = f"{most >> 20} MiB" if most >= 1 << 20 else f"{most} bytes"
        raise HttpError(413, f"the request is larger than {shown}")


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
