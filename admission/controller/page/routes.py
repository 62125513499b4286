"""The routes of the page: its screens, its files, and the stream that tells it of changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from admission.controller.page import screens
from admission.controller.page.assets import asset_route, read_assets
from admission.controller.page.changes import Changes
from admission.controller.page.manifests import MOST_FORM_BYTES
from admission.controller.page.rendering import Templates
from admission.controller.page.screens import Asked, ScreenOf
from admission.controller.queries.callers import Caller
from admission.controller.queries.service import QueryService
from admission.controller.runtime.clock import Clock
from api.http.server import HttpError, Request, Response, Route, Stream

# Returns who asks. Raises HttpError for a caller that is not known.
CallerOf = Callable[[Request], Awaitable[Caller]]

_SCREENS: dict[str, ScreenOf] = {
    "/": screens.work,
    "/workloads/{namespace}/{name}": screens.workload,
    "/queues": screens.queues,
    "/queues/{name}": screens.queue,
    "/cohorts": screens.cohorts,
    "/racks": screens.racks,
    "/calendar": screens.calendar,
    "/decisions": screens.decisions,
    "/health": screens.health,
    "/what-if": screens.what_if,
}


class PageRoutes:
    """Serves the page to callers, each with its own rights."""

    def __init__(self, service: QueryService, caller_of: CallerOf, clock: Clock, *, changes: Changes) -> None:
        self._service = service
        self._changes = changes
        self._caller_of = caller_of
        self._clock = clock
        self._assets = read_assets()
        self._templates = Templates(self._assets)

    def routes(self) -> list[Route]:
        """Return all routes. They authenticate by themselves: what is refused is a page as well."""
        return [
            asset_route(self._assets),
            Route("GET", "/changes", self._stream),
            *(Route("GET", path, self._handler(screen)) for path, screen in _SCREENS.items()),
            Route("POST", "/what-if", self._handler(screens.what_if), MOST_FORM_BYTES),
        ]

    async def _stream(self, request: Request) -> Stream:
        caller = await self._caller_of(request)
        return self._changes.stream(request, None if caller.identity is None else caller.name)

    def _handler(self, screen: ScreenOf) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            # Before the state is read: what changes after this is told to the page.
            now, seen = self._clock.now(), self._changes.id
            try:
                caller = await self._caller_of(request)
                asked = Asked(service=self._service, caller=caller, request=request, now=now)
                shown = await screen(asked)
            except HttpError as error:
                return self._refused(request, error, now)
            page = {"title": shown.title, "current": shown.current, "is_live": shown.is_live, "seen": seen}
            return self._templates.render(
                shown.template, request, now=now, status=shown.status, values={**page, **shown.values}
            )

        return handle

    def _refused(self, request: Request, error: HttpError, now: float) -> Response:
        title = HTTPStatus(error.status).phrase
        values = {"title": title, "current": "", "is_live": False, "message": error.message}
        answer = self._templates.render("error.html", request, now=now, status=error.status, values=values)
        headers = {**answer.headers, **error.headers}
        return Response(
            status=answer.status, body=answer.body, content_type=answer.content_type, headers=headers
        )
