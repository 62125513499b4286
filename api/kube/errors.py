"""What can go wrong when talking to an API server, one class per case that someone handles differently.

    KubeError
    ├── InvalidKubeconfig       the configuration of the connection cannot be used (nothing was sent)
    ├── Unreachable             no answer: refused, reset, not trusted; a write may have happened
    │   └── Timeout             no answer in time; a write may have happened
    ├── Unauthorized            401
    ├── Forbidden               403
    ├── NotFound                404
    ├── AlreadyExists           409 for a create
    ├── Conflict                409 for anything else: the resourceVersion is old
    ├── Gone                    410: the resourceVersion or continue token is forgotten
    ├── Invalid                 any other 4xx: the request itself is at fault, sending it again is no use
    ├── TooManyRequests         429
    └── ServerError             5xx, a redirect, or an answer that cannot be read; a write may have happened

Errors of aiohttp and of kubernetes_asyncio never leave this package.
"""

from __future__ import annotations

import msgspec

# Caps how much of a foreign answer (a proxy's HTML page, say) is quoted in a message.
MAX_QUOTED_CHARACTERS = 300


class KubeError(Exception):
    """A request that did not succeed.

    `status` is the HTTP status, None where there was no answer. `reason` is the server's word for machines
    ("AlreadyExists"), "" where it gave none. `message` is one sentence for people.
    `retry_after_seconds` is how long the server asks to be left alone, None where it does not say.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class InvalidKubeconfig(KubeError):
    """The kubeconfig is missing, broken, or names something that is not there."""


class Unreachable(KubeError):
    """The server gave no answer. Whether a write happened is unknown."""


class Timeout(Unreachable):
    """The server gave no answer in time. Whether a write happened is unknown."""


class Unauthorized(KubeError):
    """The server does not know who we are (401)."""


class Forbidden(KubeError):
    """We may not do this (403)."""


class NotFound(KubeError):
    """The object, its namespace, or its kind does not exist (404)."""


class AlreadyExists(KubeError):
    """An object of this name was there before (409, reason AlreadyExists)."""


class Conflict(KubeError):
    """The object has changed since the resourceVersion that was sent (409)."""


class Gone(KubeError):
    """The server no longer knows this resourceVersion or continue token (410)."""


class Invalid(KubeError):
    """The request itself is refused (400, 405, 413, 415, 422 and other 4xx)."""


class TooManyRequests(KubeError):
    """The server or an eviction's budget asks to wait (429); see `retry_after_seconds`."""


class ServerError(KubeError):
    """The server failed (5xx) or its answer cannot be read. Whether a write happened is unknown."""


_CLASS_OF_STATUS: dict[int, type[KubeError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: TooManyRequests,
}


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float = 0.0


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_status_decoder = msgspec.json.Decoder(_Status)


def error_of_answer(status: int, body: bytes, *, retry_after: str | None = None) -> KubeError:
    """Return the error that an answer with HTTP `status` stands for.

    The message is that of the `Status` object in `body`; where the body is something else (an old proxy, a
    plain "404 page not found"), its beginning is quoted. `retry_after` is the header's text; a
    date in it is taken as absent, since no API server sends one.
    """
    told = _read_status(body)
    details_seconds = told.details.retry_after_seconds if told.details else 0.0
    return _class_of(status, told.reason)(
        told.message or _quoted(status, body),
        status=status,
        reason=told.reason,
        # The header first: a proxy sends it with a body that is no Status.
        retry_after_seconds=_seconds(retry_after) or details_seconds or None,
    )


def error_of_event(raw: bytes | msgspec.Raw) -> KubeError:
    """Return the error that an ERROR event of a watch carries: its object is a `Status`."""
    body = bytes(raw)
    # A Status without a code must not pass for a success.
    return error_of_answer(_read_status(body).code or 500, body)


def malformed(what: str, error: Exception) -> ServerError:
    """Return the error for an answer that should have been `what` and cannot be decoded."""
    return ServerError(f"the answer is no {what}: {error}", status=200, reason="MalformedAnswer")


def _class_of(status: int, reason: str) -> type[KubeError]:
    # One status for two cases: a create that lost against another, and a write onto an old version.
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if status in _CLASS_OF_STATUS:
        return _CLASS_OF_STATUS[status]
    return Invalid if 400 <= status < 500 else ServerError


def _read_status(body: bytes) -> _Status:
    try:
        return _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Status()


def _quoted(status: int, body: bytes) -> str:
    # Cut before it is decoded: an HTML page of megabytes is of no use here.
    text = " ".join(body[: 4 * MAX_QUOTED_CHARACTERS].decode("utf-8", "replace").split())
    return f"HTTP {status}: {text[:MAX_QUOTED_CHARACTERS]}" if text else f"HTTP {status}"


def _seconds(retry_after: str | None) -> float:
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:
        return 0.0
