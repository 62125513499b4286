"""A Lease in memory, and lines to it that are slow, late or broken, for elections in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import msgspec

from api.kube.client import Body, Connection, KubeClient
from api.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Timeout


class LeaseTable:
    """The one Lease of a server, with optimistic concurrency as the real one has it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self._version = 0

    @property
    def spec(self) -> dict[str, Any]:
        """Return the spec as stored."""
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def restore(self, lease: dict[str, Any]) -> None:
        """Return to an earlier state of the Lease, as etcd does that is restored from a backup."""
        self.lease, self._version = lease, int(lease["metadata"]["resourceVersion"])

    def serve(self, method: str, body: bytes) -> bytes:
        """Carry out one request; raises what an API server answers."""
        if method == "GET":
            return msgspec.json.encode(self._found())
        sent = msgspec.json.decode(body, type=dict[str, Any])
        if method == "POST":
            if self.lease is not None:
                raise AlreadyExists("it is there", status=409)
        elif sent["metadata"]["resourceVersion"] != self._found()["metadata"]["resourceVersion"]:
            raise Conflict("it has another version", status=409)
        self._version += 1
        self.lease = {**sent, "metadata": {**sent["metadata"], "resourceVersion": str(self._version)}}
        return msgspec.json.encode(self.lease)

    def _found(self) -> dict[str, Any]:
        if self.lease is None:
            raise NotFound("there is none", status=404)
        return self.lease


class LeaseLine:
    """One candidate's way to the Lease. A request is carried out after half its time, even if given up.

    `seconds`: how long a request takes. `late`: how long the next ones take instead, None for one that is
    carried out and never answered. `fault`: asked at each request; the error that it returns is the answer.
    `is_silent`: nothing arrives.
    """

    def __init__(self, table: LeaseTable) -> None:
        self.seconds = 0.0
        self.late: deque[float | None] = deque()
        self.fault: Callable[[], KubeError | None] = lambda: None
        self.is_silent = False
        self._table = table

    @property
    def client(self) -> KubeClient:
        """Return this as the client that an elector expects."""
        return cast(KubeClient, self)

    async def request(
        self, method: str, path: str, *, body: Body | None = None, timeout_seconds: float, lane: Connection
    ) -> bytes:
        """Send one request, as the client does."""
        assert lane is Connection.LEASES, f"{method} {path} would wait for other requests"
        if (error := self.fault()) is not None:
            await asyncio.sleep(self.seconds)
            raise error
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        taken = self.late.popleft() if self.late else self.seconds
        if not self.is_silent:
            loop.call_later((taken or 0.0) / 2, self._arrive, method, body, taken, answered)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await answered
        except TimeoutError as silence:
            raise Timeout("no answer") from silence

    def _arrive(
        self, method: str, body: Body | None, taken: float | None, answered: asyncio.Future[bytes]
    ) -> None:
        try:
            answer: bytes | KubeError = self._table.serve(method, body.data if body is not None else b"")
        except KubeError as error:
            answer = error
        if taken is not None:
            asyncio.get_running_loop().call_later(taken / 2, _answer, answered, answer)


def _answer(answered: asyncio.Future[bytes], answer: bytes | KubeError) -> None:
    if answered.done():
        return
    if isinstance(answer, KubeError):
        answered.set_exception(answer)
    else:
        answered.set_result(answer)
