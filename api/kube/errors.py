"""The errors of requests to an API server, with one class per case that callers handle differently.

    KubeError
    ├── InvalidKubeconfig       the configuration of the connection is invalid (nothing was sent)
    ├── Unreachable             no response: refused, reset, not trusted; a write may have happened
    │   └── Timeout             no response in time; a write may have happened
    ├── Unauthorized            401
    ├── Forbidden               403
    ├── NotFound                404
    ├── AlreadyExists           409 for a create
    ├── Conflict                409 for anything else: the resourceVersion is outdated
    ├── Gone                    410: the resourceVersion or continue token has expired
    ├── Invalid                 any other 4xx: the request itself is invalid, and must not be repeated
    ├── TooManyRequests         429
    └── ServerError             5xx, a redirect, or a malformed response; a write may have happened

Errors of aiohttp and of kubernetes_asyncio never leave this package.
"""

from __future__ import annotations

import msgspec

# A longer wait that a server asks for counts as this: what a proxy says by mistake must not stop anything for
# hours.
MAX_RETRY_AFTER_SECONDS = 30.0

# Maximum length of a foreign response (such as a proxy's HTML page) that a message quotes.
MAX_QUOTED_CHARACTERS = 300


class KubeError(Exception):
    """A request that did not succeed.

    `status` is the HTTP status, None if there was no response. `reason` is the server's machine-readable
    reason ("AlreadyExists"), "" if it gave none. `message` is one sentence for people. `retry_after_seconds`
    is the time that the server asks to wait, at most MAX_RETRY_AFTER_SECONDS; None if it does not say.
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
    """The kubeconfig is missing or malformed, or refers to something that does not exist.

    Its sentence names the file and the fix. No request was sent.
    """


class Unreachable(KubeError):
    """The server did not respond. Whether a write happened is unknown.

    Also raised by a client that has been closed. A caller that has sent a write has to read before it writes
    again.
    """


class Timeout(Unreachable):
    """The server did not respond in time. Whether a write happened is unknown."""


class Unauthorized(KubeError):
    """The server does not accept the credentials (401)."""


class Forbidden(KubeError):
    """The user is not permitted to do this (403)."""


class NotFound(KubeError):
    """The object, its namespace, or its kind does not exist (404)."""


class AlreadyExists(KubeError):
    """An object of this name already exists (409, reason AlreadyExists)."""


class Conflict(KubeError):
    """The object has changed since the resourceVersion that was sent (409).

    Read the object again and decide again whether the write still applies; sending the same write again
    repeats the conflict.
    """


class Gone(KubeError):
    """The resourceVersion or continue token has expired on the server (410).

    A list or a watch has to start again from the beginning.
    """


class Invalid(KubeError):
    """The request itself is rejected (400, 405, 413, 415, 422 and other 4xx).

    Sending the same request again gives the same answer. The message is the server's and names the field.
    """


class TooManyRequests(KubeError):
    """The server or the budget of an eviction requests a delay (429); see `retry_after_seconds`.

    Nothing was stored. Raised as well for the eviction of a pod that a PodDisruptionBudget protects.
    """


class ServerError(KubeError):
    """The server failed (5xx) or its response is malformed. Whether a write happened is unknown."""


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
    """Return the error for a response with HTTP `status`.

    The message is that of the `Status` object in `body`; the beginning of any other body is quoted (an old
    proxy, a plain "404 page not found"). `retry_after` is the value of the header; a date counts as absent,
    since no API server sends one.
    """
    read = _read_status(body)
    details_seconds = read.details.retry_after_seconds if read.details else None
    return _class_of(status, read.reason)(
        read.message or _quoted(status, body),
        status=status,
        reason=read.reason,
        # The header takes precedence: a proxy sends it with a body that is not a Status.
        retry_after_seconds=_seconds(retry_after) or _seconds(details_seconds) or None,
    )


def error_of_event(raw: bytes | msgspec.Raw) -> KubeError:
    """Return the error in an ERROR event of a watch, whose object is a `Status`.

    410 is the usual one: the version from which the watch was to continue has expired.
    """
    body = bytes(raw)
    # A Status without a code must not be mistaken for success.
    return error_of_answer(_read_status(body).code or 500, body)


def malformed(what: str, error: Exception) -> ServerError:
    """Return the error for a response that should be a `what` but cannot be decoded."""
    return ServerError(f"the answer is no {what}: {error}", status=200, reason="MalformedAnswer")


def _class_of(status: int, reason: str) -> type[KubeError]:
    """Return the class of an error by HTTP status and reason."""
    # 409 has two meanings: a create of an existing object, and a write with an outdated version.
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if status in _CLASS_OF_STATUS:
        return _CLASS_OF_STATUS[status]
    return Invalid if 400 <= status < 500 else ServerError


def _read_status(body: bytes) -> _Status:
    """Return the Status in a body, an empty one where the body is something else."""
    try:
        return _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Status()


def _quoted(status: int, body: bytes) -> str:
    """Return the beginning of a body that is no Status, such as the page of a proxy."""
    # Truncated before it is decoded, because an HTML page may have megabytes.
    text = " ".join(body[: 4 * MAX_QUOTED_CHARACTERS].decode("utf-8", "replace").split())
    return f"HTTP {status}: {text[:MAX_QUOTED_CHARACTERS]}" if text else f"HTTP {status}"


def _seconds(retry_after: str | float | None) -> float:
    try:
        # In this order, because every comparison with NaN is false.
        return min(MAX_RETRY_AFTER_SECONDS, max(0.0, float(retry_after or 0)))
    except ValueError:
        return 0.0


def first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended a TaskGroup, also through nested ones; the others are consequences."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
