"""One port: what it serves, where and how."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from api.http.certificates import ServingTls
from api.http.server import HttpServer, Response, Route, error_as_json

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One address to serve on. `name` identifies it in the output that lists the URLs.

    `is_for_all`: it is plain and open on purpose, whatever its address and whatever name it is asked by.
    """

    name: str
    number: int
    host: str
    routes: list[Route]
    tls: ServingTls | None = None
    render_error: Callable[[int, str], Response] = error_as_json
    is_for_all: bool = False


async def listen(
    stack: AsyncExitStack, port: Port, *, on_refused: Callable[[str, str], None] = lambda _, __: None
) -> str:
    """Serve on the port until the stack ends. Return its URL. Raises ListenError.

    `on_refused` is called with the name of the port and the reason for each request that is refused.
    """
    server = HttpServer(
        port.routes,
        host=port.host,
        port=port.number,
        tls=port.tls,
        render_error=port.render_error,
        on_refused=partial(on_refused, port.name),
        is_for_all=port.is_for_all,
    )
    return (await stack.enter_async_context(server)).url
