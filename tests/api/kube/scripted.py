"""An HTTP server on loopback that answers request after request as a test has scripted it.

It reproduces failures of a real API server: truncated lines, expired versions, silence, malformed responses.
The normal behaviour of a server is tested with the real one.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from api.kube.credentials import FixedCredentials
from api.kube.kubeconfig import Endpoint

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]

# How long a test waits for what must happen before it fails.
PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)


class ScriptedServer:
    """Answers with the next responder of the script, after its end with `otherwise` (by default: hang).

    A list of one object, by which an informer asks for the server's version before it goes on watching, is
    not part of the script: its answer shows `version`, by default none.
    """

    def __init__(self, otherwise: Responder | None = None) -> None:
        self.requests: list[Request] = []
        self.url = ""
        self.version = ""
        self.otherwise = otherwise or hang
        self._script: deque[Responder] = deque()
        self._arrived: asyncio.Queue[Request] = asyncio.Queue()
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)

    async def __aenter__(self) -> ScriptedServer:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def endpoint(self) -> Endpoint:
        """Return the way to this server for a client."""
        return Endpoint(server=self.url, origin="the test", credentials=FixedCredentials("Bearer secret"))

    def will(self, *responders: Responder) -> None:
        """Append to the script."""
        self._script.extend(responders)

    async def next_request(self) -> Request:
        """Return the next request that no call has returned yet, waiting for it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._arrived.get()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("limit") == "1":
            return await page([], self.version)(request)
        arrived = Request(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            headers=dict(request.headers),
            body=await request.read(),
        )
        self.requests.append(arrived)
        self._arrived.put_nowait(arrived)
        return await (self._script.popleft() if self._script else self.otherwise)(request)


async def hang(_: web.Request) -> web.StreamResponse:
    """Take the request and say nothing until the client leaves."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def cut(request: web.Request) -> web.StreamResponse:
    """Break the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def answer(body: object = None, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Responder:
    """Answer with JSON, or with the bytes given."""
    data = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()

    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(body=data, status=status, headers=headers)

    return respond


def refuse(status: int, reason: str = "", message: str = "refused", **headers: str) -> Responder:
    """Answer with a Status; underscores in header names become dashes."""
    body = {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message}
    return answer(body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})


def page(objects: Sequence[object], version: str = "10", token: str = "") -> Responder:
    """Answer with one page of a list."""
    metadata = {"resourceVersion": version} | ({"continue": token} if token else {})
    return answer({"kind": "List", "metadata": metadata, "items": list(objects)})


def watch(*chunks: bytes, then: str = "hang") -> Responder:
    """Stream these chunks, then "hang", "end" the watch as a server does, or "cut" the connection."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then == "hang":
            await asyncio.Event().wait()
        if then == "cut":
            assert request.transport is not None
            request.transport.abort()
        return response

    return respond


def event(type_: str, object_: object) -> bytes:
    """Return one line of a watch."""
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    """Return a BOOKMARK line."""
    return event("BOOKMARK", {"metadata": {"resourceVersion": version}})


def expired() -> bytes:
    """Return the ERROR line of a forgotten version."""
    return event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


def widget(
    name: str, version: str = "1", *, uid: str = "", size: object = 1, **more: object
) -> dict[str, object]:
    """Return an object of the tests' own kind."""
    metadata = {"namespace": "team", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": version}
    return {"metadata": metadata, "spec": {"size": size, **more}}


def write_kubeconfig(path: Path, server: str, *, user: str = "{}", cluster: str = "") -> str:
    """Write a kubeconfig of one context, its parts given as YAML flow mappings, and return its path."""
    path.write_text(
        f"current-context: main\n"
        f"contexts: [{{name: main, context: {{cluster: here, user: me}}}}]\n"
        f"clusters: [{{name: here, cluster: {{server: '{server}'{cluster}}}}}]\n"
        f"users: [{{name: me, user: {user}}}]\n"
    )
    return str(path)
