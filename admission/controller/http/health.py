"""HTTP: whether a process is alive, and whether it knows all that it has to."""

from __future__ import annotations

from collections.abc import Callable

from api.http.server import Request, Response, Route, text_response


class Health:
    """/healthz and /readyz.

    `is_ready`: whether every cache has synced. `waiting_for`: those that have not. `is_stalled`: whether the
    process makes no progress, so that only a restart helps.
    """

    def __init__(
        self,
        is_ready: Callable[[], bool],
        waiting_for: Callable[[], list[str]],
        *,
        is_stalled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_ready = is_ready
        self._waiting_for = waiting_for
        self._is_stalled = is_stalled

    def routes(self) -> list[Route]:
        """Return the two routes."""
        return [Route("GET", "/healthz", self._healthz), Route("GET", "/readyz", self._readyz)]

    async def _healthz(self, request: Request) -> Response:
        del request
        if self._is_stalled():
            body = b"the control loop makes no progress"
            return Response(status=503, body=body, content_type="text/plain")
        return text_response("ok")

    async def _readyz(self, request: Request) -> Response:
        del request
        if self._is_ready():
            return text_response("ok")
        # All caches may have synced already, and only the control loop has yet to take in what they brought.
        missing = ", ".join(self._waiting_for()) or "the API server"
        return Response(status=503, body=f"waiting for {missing}".encode(), content_type="text/plain")
