"""HTTP: the lists of /v1 and their items, and the OpenAPI document of all of /v1."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial

from admission.answers.items import Kind
from admission.controller.http import openapi
from admission.controller.queries.callers import Callers
from admission.controller.queries.service import BY_NAME, NAMESPACED, QueryService
from api.http.server import HttpError, Request, Response, Route, Stream, json_response


class QueryApi:
    """Serves the query service. `callers` says who sends a request."""

    def __init__(self, service: QueryService, callers: Callers) -> None:
        self._service = service
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            *self._lists(),
            Route("GET", openapi.EXPLANATION, self._explain),
            Route("POST", openapi.WHAT_IF, self._what_if),
            Route("GET", openapi.USAGE, self._usage),
            Route("GET", openapi.HEALTH, self._health),
            Route("GET", "/v1/openapi.json", self._openapi),
        ]

    def _lists(self) -> Iterator[Route]:
        for kind in Kind:
            yield Route("GET", openapi.list_path(kind), partial(self._list, kind))
            # A Workload by itself has more to show than its item: see `state_api`.
            if kind in BY_NAME - {Kind.WORKLOADS}:
                yield Route("GET", openapi.item_path(kind), partial(self._get, kind))

    async def _list(self, kind: Kind, request: Request) -> Response | Stream:
        caller = await self._callers.caller(request)
        query = {name: text for name, text in request.query.items() if name != openapi.WATCH}
        if not _is_true(request, openapi.WATCH):
            return json_response(await self._service.list(caller, kind, query))
        last = request.headers.get("last-event-id", "")
        # Proxies must pass events on as they come.
        headers = {"X-Accel-Buffering": "no"}
        return Stream(chunks=await self._service.watch(caller, kind, query, last), headers=headers)

    async def _get(self, kind: Kind, request: Request) -> Response:
        caller = await self._callers.caller(request)
        namespace = request.parameters["namespace"] if kind in NAMESPACED else ""
        return json_response(await self._service.get(caller, kind, request.parameters["name"], namespace))

    async def _explain(self, request: Request) -> Response:
        caller, named = await self._callers.caller(request), request.parameters
        with_help = _is_true(request, openapi.HELP)
        return json_response(
            await self._service.explain(caller, named["namespace"], named["name"], with_help=with_help)
        )

    async def _what_if(self, request: Request) -> Response:
        caller = await self._callers.caller(request)
        return json_response(await self._service.what_if(caller, request.body))

    async def _usage(self, request: Request) -> Response:
        caller = await self._callers.caller(request)
        return json_response(await self._service.usage(caller, request.query))

    async def _health(self, request: Request) -> Response:
        caller = await self._callers.caller(request)
        return json_response(await self._service.health(caller))

    async def _openapi(self, request: Request) -> Response:
        del request
        return json_response(self._document)

    @cached_property
    def _document(self) -> dict[str, object]:
        return openapi.document()


def _is_true(request: Request, name: str) -> bool:
    text = request.query.get(name, "false")
    if text not in _TRUTHS:
        raise HttpError(400, f"{name}={text[:64]!r}: expected true or false")
    return _TRUTHS[text]


_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
