"""HTTP: whether the agent works, when it last did, and what is wrong on its node."""

from __future__ import annotations

import asyncio

from admission.node_agent.shell.faults import Faults
from api.http.server import Request, Response, Route, json_response


class Health:
    """/healthz and /readyz; both say the faults.

    /healthz fails when no turn has ended for `patience_seconds` plus the time that one may take, so that only
    a restart helps. /readyz fails while the GPUs cannot be read.
    """

    # Two calls of nvidia-smi and one of the kubelet, all at their limits.
    _LONGEST_TURN_SECONDS = 150.0

    def __init__(self, faults: Faults, *, patience_seconds: float) -> None:
        self._faults = faults
        self._patience_seconds = patience_seconds + self._LONGEST_TURN_SECONDS
        self._ended_at = asyncio.get_running_loop().time()
        self._is_ready = False

    def turn_ended(self, *, is_ready: bool) -> None:
        """Note that everything was read and written once; `is_ready`: the GPUs answered."""
        self._ended_at = asyncio.get_running_loop().time()
        self._is_ready = is_ready

    def routes(self) -> list[Route]:
        """Return the two routes."""
        return [Route("GET", "/healthz", self._healthz), Route("GET", "/readyz", self._readyz)]

    async def _healthz(self, request: Request) -> Response:
        del request
        return self._response(is_well=self._idle_seconds() < self._patience_seconds)

    async def _readyz(self, request: Request) -> Response:
        del request
        return self._response(is_well=self._is_ready)

    def _idle_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._ended_at

    def _response(self, *, is_well: bool) -> Response:
        found = {"secondsSinceTurn": round(self._idle_seconds(), 1), "faults": self._faults.sentences}
        return json_response(found, status=200 if is_well else 503)
