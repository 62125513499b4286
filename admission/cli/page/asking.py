"""A client of /v1: asks a controller with the user's token, and turns what it refuses into one sentence."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from admission.cli.common.errors import CommandError, NotHoldingError, UnreachableError, WrongUsageError
from admission.cli.page.forwarding import verification
from admission.cli.page.reaching import Way, way_to_controller

# Longer than the controller looks for an answer.
_SECONDS = 45.0


class Queries:
    """Asks a controller. Every method raises a CommandError with the sentence that the controller says."""

    def __init__(self, session: aiohttp.ClientSession, way: Way) -> None:
        self._session = session
        self._way = way

    async def list(self, kind: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return a page of a list: items, total, hidden, continue."""
        return await self._ask("GET", f"v1/{kind}", query)

    async def usage(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return what Workloads have used: by, since, until, items."""
        return await self._ask("GET", "v1/usage", query)

    async def explain(self, namespace: str, name: str, *, with_help: bool) -> dict[str, Any]:
        """Return what becomes of a Workload, or of the Workload of a Job."""
        path = f"v1/workloads/{_part(namespace)}/{_part(name)}/explanation"
        return await self._ask("GET", path, {"help": "true" if with_help else "false"})

    async def what_if(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return what would happen if objects were submitted, changed or removed."""
        return await self._ask("POST", "v1/what-if", {}, body=msgspec.json.encode(question))

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str], *, body: bytes | None = None
    ) -> dict[str, Any]:
        url = f"{self._way.url.rstrip('/')}/{path}"
        headers = {"Content-Type": "application/json"}
        if authorization := await self._way.authorize():
            headers["Authorization"] = authorization
        try:
            async with self._session.request(
                method, url, params=query, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status, raw = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            raise UnreachableError(f"the controller at {self._way.url} does not answer: {reason}") from error
        found = _decoded(raw)
        if status != 200:
            raise _error(status, found.get("error") or f"it answered {url} with status {status}")
        return found


def _part(name: str) -> str:
    """Return a part of a path. Raises WrongUsageError for what would lead elsewhere."""
    if not name or "/" in name or name in (".", ".."):
        raise WrongUsageError(f"{name!r} is no name of a namespace or Workload")
    return name


def _decoded(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        # Another server, such as a proxy in between. Its status says enough.
        return {}


def _error(status: int, sentence: str) -> CommandError:
    if status == 404:
        return NotHoldingError(sentence)
    return WrongUsageError(sentence) if status == 400 else UnreachableError(sentence)


@asynccontextmanager
async def queries(way: Way) -> AsyncIterator[Queries]:
    """Yield a client. Raises OSError or ssl.SSLError for the file of the authority."""
    connector = aiohttp.TCPConnector(ssl=verification(is_verified=way.is_verified, ca=way.ca))
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Queries(session, way)


@asynccontextmanager
async def controller_of(arguments: argparse.Namespace) -> AsyncIterator[tuple[Queries, Way]]:
    """Yield a client of the controller that the flags of `way_flags` lead to, and the way to it.

    Raises a CommandError that says what is missing, such as a right, kubectl or a token.
    """
    async with AsyncExitStack() as stack:
        way = await stack.enter_async_context(way_to_controller(arguments))
        yield await stack.enter_async_context(queries(way)), way
