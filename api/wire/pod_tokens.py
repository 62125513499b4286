"""A pod's token: what it says of itself before anybody has checked it, and what a TokenReview finds.

A token is believed for nothing until the API server has reviewed it. Its unchecked claims serve two ends:
what is plainly no pod's token, or has run out, costs the API server no review; and they tell which audience
to review it for. A token made for Berth (a projected volume with `audience: berth.dev`) is the better one,
since whoever gets hold of it can do nothing else with it; the pod's ordinary token is taken as well, as it is
there without any change to a manifest.
Source: Kubernetes, authentication.k8s.io/v1 and the claims of bound ServiceAccount tokens.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

import msgspec

AUDIENCE = "berth.dev"
# A ServiceAccount's token is about 1 KiB.
MAX_TOKEN_BYTES = 8192
_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_ACCOUNT = "system:serviceaccount:"


class TokenError(Exception):
    """The token does not do: the HTTP status (401 not believed, 403 not a pod's), and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """A pod, as the API server vouches for it."""

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


def bearer_token(header: str) -> str:
    """Return the token of an Authorization header. Raises TokenError for none."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise TokenError(401, "send the pod's own token: Authorization: Bearer <token>")
    return token.strip()


def review_body(token: str, *, now: float) -> bytes:
    """Return the TokenReview that checks this token.

    Raises TokenError for what no API server would accept: no JWT, no ServiceAccount's, or one that has run
    out. For whom it was made is up to the review, which is asked for one audience only: with both, a token
    for one of them would tell nothing about the other.
    """
    claims = _claims(token)
    if claims is None or not claims.sub.startswith(_ACCOUNT):
        raise TokenError(401, "this is no token of a ServiceAccount")
    if claims.exp <= now:
        raise TokenError(401, "the token has run out; read it anew from its file before each report")
    # RFC 7519: `aud` is one text or a list of them.
    audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    spec = {"token": token, **({"audiences": [AUDIENCE]} if AUDIENCE in audiences else {})}
    return msgspec.json.encode(
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    )


def expires_at(token: str) -> float:
    """Return until when the token says that it holds, in Unix seconds; 0 where it does not say."""
    claims = _claims(token)
    return 0.0 if claims is None else claims.exp


def read_review(raw: bytes) -> PodIdentity:
    """Return the pod that the API server found behind a token. Raises TokenError."""
    try:
        status = msgspec.json.decode(raw, type=_Review).status
    except msgspec.DecodeError as error:
        raise TokenError(401, f"the API server's review of the token cannot be read: {error}") from error
    # `authenticated` alone may stand without a user in what a broken webhook authenticator answers.
    if not status.authenticated or status.user is None:
        raise TokenError(401, "the API server does not accept the token")
    # A token that is not bound to a pod has no such claims: a ServiceAccount's long-lived secret, say.
    extra = status.user.extra or {}
    name, uid = extra.get(_POD_NAME) or [], extra.get(_POD_UID) or []
    namespace = status.user.username.removeprefix(_ACCOUNT).partition(":")[0]
    if not (status.user.username.startswith(_ACCOUNT) and name and uid):
        raise TokenError(
            403, f"the token of {status.user.username} is not bound to a pod; send the pod's own"
        )
    return PodIdentity(namespace=namespace, name=name[0], uid=uid[0])


def _claims(token: str) -> _Claims | None:
    """Return what the token says of itself, unchecked; None where it is no JWT."""
    parts = token.split(".")
    # Three parts and no more: an encrypted token (JWE) has five and tells nothing.
    if len(parts) != 3 or len(token) > MAX_TOKEN_BYTES:
        return None
    try:
        # JWTs come without padding, which Python's decoder demands.
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(payload, type=_Claims)
    # A token is a stranger's text: 8 KiB hold JSON nested deeper than the reader follows.
    except (binascii.Error, ValueError, RecursionError):
        return None
