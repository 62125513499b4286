"""A pod's token: its unverified claims, and the result of a TokenReview.

A token is trusted only after the API server has reviewed it. Its unverified claims have two uses: a
text that is obviously not the token of a pod, or an expired one, needs no review; and they name the
audience to review it for. A token made for Berth (a projected volume with `audience: berth.dev`) is
preferable, since it is useless anywhere else if it leaks. The pod's ordinary token is accepted too,
because it exists without any change to a manifest. Source: Kubernetes, authentication.k8s.io/v1 and the
claims of bound ServiceAccount tokens.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

import msgspec

AUDIENCE = "berth.dev"
# The token of a ServiceAccount has about 1 KiB.
MAX_TOKEN_BYTES = 8192
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_ACCOUNT = "system:serviceaccount:"


class TokenError(Exception):
    """A token is rejected: the HTTP status (401 not authenticated, 403 not bound to a pod), and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """A pod, as authenticated by the API server."""

    namespace: str
    name: str
    uid: str


class _Claims(msgspec.Struct):
    aud: str | list[str] = ""
    exp: float = 0.0
    sub: str = ""


class _User(msgspec.Struct):
    username: str = ""
    extra: dict[str, list[str]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _User | None = None
    audiences: list[str] | None = None
    error: str = ""


class _Review(msgspec.Struct):
    status: _Status


def bearer_token(header: str, *, whose: str = "the pod's own token") -> str:
    """Return the token of an Authorization header. Raises TokenError if there is none: send `whose`."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise TokenError(401, f"send {whose}: Authorization: Bearer <token>")
    return token.strip()


def review_body(token: str, *, now: float) -> bytes:
    """Return the TokenReview for this token.

    Raises TokenError for a text that no API server would accept: not a JWT, not the token of a
    ServiceAccount, or expired. The review verifies the audience. It names a single audience, because with two
    audiences the answer for a token with one of them would not say which one it has.
    """
    claims = _claims(token)
    if claims is None or not claims.sub.startswith(_ACCOUNT):
        raise TokenError(401, "this is no token of a ServiceAccount")
    if claims.exp <= now:
        raise TokenError(401, "the token has expired; read it again from its file before each report")
    # RFC 7519: `aud` is a string or a list of strings.
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    spec = {"token": token, **({"audiences": [AUDIENCE]} if AUDIENCE in audiences else {})}
    return msgspec.json.encode(
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    )


def expires_at(token: str) -> float:
    """Return the expiration time that the token claims, in Unix seconds; 0 if it claims none."""
    claims = _claims(token)
    return 0.0 if claims is None else claims.exp


def read_review(raw: bytes) -> PodIdentity:
    """Return the pod that the API server has identified by a token. Raises TokenError."""
    try:
        status = msgspec.json.decode(raw, type=_Review).status
    except msgspec.DecodeError as error:
        raise TokenError(401, f"the API server's review of the token cannot be read: {error}") from error
    # A broken webhook authenticator may return `authenticated` without a user.
    if not status.authenticated or status.user is None:
        raise TokenError(401, "the API server does not accept the token")
    # A token that is not bound to a pod, such as that of a long-lived secret, has no such claims.
    extra = status.user.extra or {}
    name, uid = extra.get(_POD_NAME) or [], extra.get(_POD_UID) or []
    namespace = status.user.username.removeprefix(_ACCOUNT).partition(":")[0]
    if not (status.user.username.startswith(_ACCOUNT) and name and uid):
        raise TokenError(
            403, f"the token of {status.user.username} is not bound to a pod; send the pod's own"
        )
    return PodIdentity(namespace=namespace, name=name[0], uid=uid[0])


def _claims(token: str) -> _Claims | None:
    """Return the unverified claims of the token, or None if it is not a JWT."""
    parts = token.split(".")
    # A signed JWT has exactly three parts; an encrypted token (JWE) has five and cannot be read.
    if len(parts) != 3 or len(token) > MAX_TOKEN_BYTES:
        return None
    try:
        # JWTs have no padding, which Python's decoder requires.
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(payload, type=_Claims)
    # The token is untrusted: 8 KiB have room for JSON nested deeper than the parser can follow.
    except (binascii.Error, ValueError, RecursionError):
        return None
