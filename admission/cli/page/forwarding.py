"""A server on loopback that forwards to a controller, and adds the token of the user.

A browser sends no token of the cluster. This server does, for everyone who can reach it: it listens on
loopback alone, where `HttpServer` refuses requests that other sites in the browser make. The token goes to no
path above that of the controller.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from api.http.server import HttpError, HttpServer, Request, Response, Route, Stream

# Returns the value of the Authorization header, None for none.
Authorize = Callable[[], Awaitable[str | None]]
# What the page sends, and what it is answered with.
_SENT = ("accept", "accept-encoding", "content-type", "last-event-id")
_ANSWERED = (
    "Cache-Control",
    "Content-Encoding",
    "Content-Security-Policy",
    "Referrer-Policy",
    "Retry-After",
    "Vary",
    "X-Content-Type-Options",
)
_CONNECT_SECONDS = 10.0


class Forwarder:
    """Forwards requests to the controller at `url`."""

    def __init__(self, session: aiohttp.ClientSession, url: URL, authorize: Authorize) -> None:
        self._session = session
        self._url = url
        self._authorize = authorize

    def routes(self) -> list[Route]:
        """Return the routes: all paths."""
        return [Route(method, "/{path:.*}", self._forward) for method in ("GET", "POST")]

    async def _forward(self, request: Request) -> Response | Stream:
        _check_below(request.path)
        headers = {name: request.headers[name] for name in _SENT if name in request.headers}
        if authorization := await self._authorize():
            headers["authorization"] = authorization
        target = self._url.joinpath(quote(request.path.lstrip("/")), encoded=True)
        try:
            answer = await self._session.request(
                request.method,
                URL(f"{target}?{urlencode(request.query)}" if request.query else str(target), encoded=True),
                headers=headers,
                data=bytes(request.body) or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise HttpError(502, f"the controller at {self._url} does not answer: {error}") from error
        given = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
        content_type = answer.headers.get("Content-Type", "application/octet-stream")
        if content_type.startswith("text/event-stream"):
            return Stream(chunks=_chunks(answer), content_type=content_type, headers=given)
        async with answer:
            body = await answer.read()
        return Response(status=answer.status, body=body, content_type=content_type, headers=given)


def _check_below(path: str) -> None:
    """Raise HttpError for a path that would leave the controller's, which may be one of many on its host."""
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise HttpError(400, f"the path {path} must not contain . or ..")


async def _chunks(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with answer:
        try:
            async for chunk in answer.content.iter_any():
                yield chunk
        # The controller has ended or the connection was lost: the browser connects again.
        except aiohttp.ClientError:
            return


def verification(*, is_verified: bool, ca: str | None) -> ssl.SSLContext | bool:
    """Return what verifies a controller's certificate. Raises OSError or ssl.SSLError for the file."""
    return ssl.create_default_context(cafile=ca) if is_verified else False


@asynccontextmanager
async def forwarded(
    url: str, authorize: Authorize, *, port: int, is_verified: bool, ca: str | None = None
) -> AsyncIterator[str]:
    """Serve the controller's page on loopback until the end, and yield the address.

    `is_verified` False: the controller's certificate is not verified, for a way to it that is authenticated.
    `ca` is a PEM file with its authority. Raises ListenError, and OSError or ssl.SSLError for the file.
    """
    connector = aiohttp.TCPConnector(ssl=verification(is_verified=is_verified, ca=ca), limit=0)
    # A stream of changes has no end; everything else is answered or not connected.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        routes = Forwarder(session, URL(url), authorize).routes()
        async with HttpServer(routes, port=port) as server:
            yield f"{server.url}/"
