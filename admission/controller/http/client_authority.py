"""Clients that prove who they are by a TLS certificate: kube-apiserver as front proxy, kube-scheduler."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from api.http.server import Handler, HttpError, Request, Response, Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuthority:
    """Whose certificates are accepted: `authority` is PEM; without names every name is allowed."""

    authority: str
    allowed_names: tuple[str, ...] = ()

    def is_allowed(self, name: str) -> bool:
        """Return whether a certificate with this common name, signed by the authority, is accepted."""
        return not self.allowed_names or name in self.allowed_names

    def require(self, context: ssl.SSLContext) -> None:
        """Accept only clients with a certificate of the authority.

        Raises ValueError if it is not valid PEM.
        """
        self._load(context)
        context.verify_mode = ssl.CERT_REQUIRED

    def request(self, context: ssl.SSLContext) -> None:
        """Accept clients without a certificate, too, for routes that are not `guarded`. Raises ValueError."""
        self._load(context)
        context.verify_mode = ssl.CERT_OPTIONAL

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(cadata=self.authority)
        except ssl.SSLError as error:
            raise ValueError(f"the authority of client certificates cannot be read: {error}") from error

    def guarded(self, handler: Handler) -> Handler:
        """Return a handler for clients with an allowed name: 401 without a certificate, 403 with another."""

        async def handle(request: Request) -> Response | Stream:
            if not request.has_client_certificate:
                raise HttpError(401, "a client certificate is required")
            # The authority may sign certificates for other clients, too.
            if not self.is_allowed(request.client_name):
                raise HttpError(
                    403, f"{request.client_name or 'a client without a name'} may not call this API"
                )
            return await handler(request)

        return handle
