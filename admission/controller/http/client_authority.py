"""Clients that prove who they are by a TLS certificate: kube-apiserver as front proxy, kube-scheduler."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from admission.controller.runtime.logs import Log
from api.http.certificates import ServingTls
from api.http.server import Handler, HttpError, Request, Response, Stream
from api.kube.errors import KubeError

log = Log("berth.clients")

# As for certificates in files: the kubelet updates a mounted Secret up to a minute after it has changed.
LOOK_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuthority:
    """Whose certificates are accepted: `authority` is PEM; without names every name is allowed."""

    authority: str
    allowed_names: tuple[str, ...] = ()

    def is_allowed(self, name: str) -> bool:
        """Return whether a certificate with this common name, signed by the authority, is accepted."""
        return not self.allowed_names or name in self.allowed_names

    def check(self) -> None:
        """Raise ValueError if the authority is not valid PEM."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=self.authority)
        except ssl.SSLError as error:
            raise ValueError(f"the authority of client certificates cannot be read: {error}") from error


class Clients:
    """The clients of one port. Whose certificates are accepted can change while it serves.

    Without `is_required` clients without a certificate are accepted, too, for routes that are not `guarded`.
    """

    def __init__(self, authority: ClientAuthority, tls: ServingTls, *, is_required: bool) -> None:
        self._tls = tls
        self._is_required = is_required
        self._authority: ClientAuthority | None = None
        self.accept(authority)

    def accept(self, authority: ClientAuthority) -> None:
        """Accept certificates of this authority alone on new connections.

        Raises ValueError if it is not valid PEM; then the former one stays in force.
        """
        if authority == self._authority:
            return
        authority.check()
        self._tls.accept_clients(authority.authority, is_required=self._is_required)
        if self._authority is not None:
            log.info("client-authority-renewed")
        self._authority = authority

    async def follow(self, find: Callable[[], Awaitable[ClientAuthority | None]]) -> None:
        """Ask regularly what is accepted now, until cancelled. None changes nothing.

        What cannot be read or used is logged once, and the former authority stays in force.
        """
        complained = ""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if (found := await find()) is not None:
                    self.accept(found)
                complained = ""
            except (KubeError, OSError, ValueError) as error:
                if str(error) != complained:
                    log.warning("client-authority-not-renewed", error=error)
                complained = str(error)

    def guarded(self, handler: Handler) -> Handler:
        """Return a handler for clients with an allowed name: 401 without a certificate, 403 with another."""

        async def handle(request: Request) -> Response | Stream:
            if not request.has_client_certificate:
                raise HttpError(401, "a client certificate is required")
            # The authority may sign certificates for other clients, too.
            if self._authority is None or not self._authority.is_allowed(request.client_name):
                raise HttpError(
                    403, f"{request.client_name or 'a client without a name'} may not call this API"
                )
            return await handler(request)

        return handle
