"""HTTP in the words of this package: routes given by the caller, requests and responses as values.

aiohttp's server stays in here. A handler gets a `Request` with its body read, and returns a `Response` or,
for what goes on, a `Stream`; it raises `HttpError` for what the caller did wrong. Every error answer is JSON.
A handler is cancelled when its caller has left, so that no search runs on for nobody.
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

# A scheduler extender is sent all nodes at once: 5,000 of them are 21 MiB. aiohttp's default is 1 MiB.
MAX_BODY_BYTES = 64 << 20
# Time for a body to arrive whole: generous for 64 MiB, and an end for who announces one and sends nothing.
BODY_SECONDS = 30.0
# The sentence for a body that is not encoded as its header says.
UNREADABLE_BODY = "Failed to read request body"


class HttpError(Exception):
    """What a handler raises to answer with an error status, one sentence, and headers such as Retry-After."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}


class ListenError(Exception):
    """The address cannot be listened on; the message names it and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request with its body. `parameters` are the braced parts of the route's path, decoded.

    Of a query parameter or header given twice the first counts; header names are lower-case. `client_name` is
    the common name of the client's certificate, where TLS asked for one and has checked it; `client_address`
    is where the connection comes from, which may be a proxy.
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
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An answer whose chunks are sent as they come, until they end or the caller leaves."""

    chunks: AsyncIterator[bytes]
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response | Stream]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path, such as ("GET", "/v1/queues/{name}"); GET answers HEAD as well.

    A larger body than `max_body_bytes` (None: MAX_BODY_BYTES) is refused with 413 before it is read.
    """

    method: str
    path: str
    handler: Handler
    max_body_bytes: int | None = None


def json_response(value: object, *, status: int = 200) -> Response:
    """Return a value as JSON: anything that msgspec encodes."""
    return Response(status=status, body=msgspec.json.encode(value))


def text_response(text: str, *, status: int = 200, content_type: str = "text/plain") -> Response:
    """Return text as UTF-8."""
    return Response(status=status, body=text.encode(), content_type=f"{content_type}; charset=utf-8")


def error_as_json(status: int, message: str) -> Response:
    """Return how errors are answered unless the caller has another form (a Kubernetes Status, say)."""
    return json_response({"status": status, "error": message}, status=status)


class HttpServer:
    """Serves routes on one address. start() and stop() it, or use it as `async with`.

    `port` 0 takes any free one; `port` and `url` tell which after start(). `tls` may be given new
    certificates while it serves (certificates.ServingTls). `render_error` forms error answers.
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
        # Around all routes, so that whatever goes wrong is answered in the caller's own form.
        app = web.Application(middlewares=[self._answer_errors])
        for route in routes:
            if route.method == "GET":
                app.router.add_get(route.path, _adapted(route))
            else:
                app.router.add_route(route.method, route.path, _adapted(route))
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)

    @property
    def url(self) -> str:
        """Return the base URL; of a wildcard address the loopback one."""
        # A wildcard is no address to call.
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises ListenError where the address is taken or not ours."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port, ssl_context=self._tls).start()
        except (OSError, OverflowError) as error:
            await self._runner.cleanup()
            raise ListenError(
                f"cannot listen on {self.host} port {self.port}: {error}; give a free port, or 0 for any"
            ) from error
        # Asked of the socket: with 0 the system has chosen.
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening, give requests under way a second to end, and close all connections."""
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
            # Said by a handler whose request was left half read: what follows on the line is not a request.
            if answer.headers.get("Connection") == "close":
                answer.force_close()
            return answer
        except web.HTTPException as error:
            answer = _whole(self._render_error(error.status, _sentence(error, request)))
            # Part of what a 405 says, by HTTP.
            if "Allow" in error.headers:
                answer.headers["Allow"] = error.headers["Allow"]
            return answer
        # The one broad handler: a fault in one request must not end the process, nor hide.
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
    """Return the body, gathered in one buffer of the length that was announced.

    aiohttp's own read() lets a buffer grow and copies it: at 16 MiB three times the CPU, all of it spent by
    the kernel on fresh pages.
    """
    length = request.content_length or 0
    # Before a byte is read where the length is announced; below for those who announce none, or another.
    _refuse_larger(length, most)
    body, size = bytearray(length), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.content.iter_any():
                _refuse_larger(size + len(chunk), most)
                body[size : size + len(chunk)] = chunk
                size += len(chunk)
    # Whoever announces a body and does not send it would keep its buffer for as long as it likes.
    except TimeoutError as error:
        raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:g} s") from error
    # Compressed, and not as the header says. Were it not said that nothing more comes, aiohttp would go on
    # reading for the next request's sake, and log the same error as its own.
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
    """Return what was wrong with a request that no handler saw."""
    match error.status:
        case 404:
            return f"there is nothing at {request.path}"
        case 405:
            return f"{request.path} does not take {request.method}; it takes {error.headers.get('Allow')}"
        case _:
            return error.reason
