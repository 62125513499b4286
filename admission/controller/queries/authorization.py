"""Who calls, and what may they do: the user of a bearer token, and what RBAC allows it.

As controller-runtime and kube-rbac-proxy protect metrics: the API server reviews the token (TokenReview) and
then what its user may do (SubjectAccessReview). /metrics takes the right to `get` that path
(`nonResourceURLs` of a ClusterRole); what the queries of /v1 take is said in
`admission.controller.queries.callers`. Answers are cached for a bounded time and number. While the API server
does not answer, those that are cached go on reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TypeVar

import msgspec

from admission.controller.queries.review_budget import ReviewBudget, TooManyReviewsError
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.expiring_cache import ExpiringCache
from api.http.server import HttpError, Request, Response, Route, Stream
from api.kube.client import Body, KubeClient
from api.kube.errors import Invalid, KubeError
from api.kube.resources import Resource
from api.wire.access_reviews import (
    Action,
    ResourceAction,
    User,
    access_review,
    read_allowed,
    read_user,
    token_review,
)
from api.wire.pod_tokens import MAX_TOKEN_BYTES, TokenError, bearer_token

TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
# A user that loses its rights reads on for as long, as with controller-runtime.
ALLOWED_SECONDS = 60.0
# A role that was given a moment ago counts soon.
REFUSED_SECONDS = 10.0
MOST_KNOWN = 10_000
ASK_SECONDS = 5.0
# A list without a namespace asks for 102 at once. One user cannot take all that users share (200).
_REVIEWS_PER_SECOND, _MOST_REVIEWS_AT_ONCE = 20.0, 120.0
# Enough to read two namespaces, however much others ask.
_ASSURED_REVIEWS = 4.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The user of a token that the API server has accepted, and the digest of that token."""

    user: User
    digest: bytes = field(repr=False)


class Authorization:
    """Reviews requests, and caches the answers by the token's digest. Tokens themselves are not stored."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens = ReviewBudget(clock)
        self._actions = ReviewBudget(
            clock, per_second=_REVIEWS_PER_SECOND, burst=_MOST_REVIEWS_AT_ONCE, assured=_ASSURED_REVIEWS
        )
        # The empty user is that of a token which is not accepted.
        self._users = ExpiringCache[bytes, User](MOST_KNOWN)
        self._rights = ExpiringCache[tuple[bytes, Action | ResourceAction], bool](MOST_KNOWN)

    def guarded(self, route: Route) -> Route:
        """Return the route for those alone who may `get` the first part of its path."""

        async def handle(request: Request) -> Response | Stream:
            action = Action("get", f"/{request.path.split('/')[1]}")
            identity = await self.identify(request)
            if not await self.is_allowed(identity, action):
                raise HttpError(
                    403,
                    f"{identity.user.username} may not {action};"
                    " a ClusterRole gives it under nonResourceURLs",
                )
            return await route.handler(request)

        return replace(route, handler=handle)

    async def identify(self, request: Request) -> Identity:
        """Return who calls. Raises HttpError: 401 without a valid token, 429 and 503 if that is unknown."""
        try:
            token = bearer_token(request.headers.get("authorization", ""), whose="a token of the cluster")
            digest = hashlib.sha256(token.encode()).digest()
            user = await _known(self._user(digest, token, request.client_address), "whose the token is")
        except TokenError as error:
            headers = {"WWW-Authenticate": "Bearer"}
            raise HttpError(error.status, str(error), headers=headers) from error
        return Identity(user=user, digest=digest)

    async def is_allowed(self, identity: Identity, action: Action | ResourceAction) -> bool:
        """Return whether the user may do that. Raises HttpError: 429 and 503 if that is unknown."""
        is_allowed = self.known(identity, action)
        if is_allowed is None:
            is_allowed = await _known(self._review_action(identity.user, action), f"who may {action}")
            self._rights.put((identity.digest, action), is_allowed, until=self._until(is_allowed))
        return is_allowed

    def known(self, identity: Identity, action: Action | ResourceAction) -> bool | None:
        """Return whether the user may do that as far as it is cached, None if it is not."""
        return self._rights.get((identity.digest, action), now=self._clock.monotonic())

    async def _user(self, digest: bytes, token: str, address: str) -> User:
        """Return the user of the token. Raises TokenError."""
        user = self._users.get(digest, now=self._clock.monotonic())
        if user is None:
            user = await self._review_token(token, address) or User()
            self._users.put(digest, user, until=self._until(bool(user.username)))
        if not user.username:
            raise TokenError(401, "the API server does not accept the token")
        return user

    async def _review_token(self, token: str, address: str) -> User | None:
        if len(token) > MAX_TOKEN_BYTES:
            return None
        self._tokens.take(address)
        try:
            return read_user(await self._ask(TOKEN_REVIEWS, token_review(token)))
        except Invalid:
            return None

    async def _review_action(self, user: User, action: Action | ResourceAction) -> bool:
        self._actions.take(user.username)
        return read_allowed(await self._ask(ACCESS_REVIEWS, access_review(user, action)))

    async def _ask(self, kind: Resource, body: bytes) -> bytes:
        return await self._client.request("POST", kind.path(), body=Body(body), timeout_seconds=ASK_SECONDS)

    def _until(self, is_accepted: bool) -> float:
        return self._clock.monotonic() + (ALLOWED_SECONDS if is_accepted else REFUSED_SECONDS)


async def _known(review: Awaitable[T], what: str) -> T:
    """Return the result of a review. Raises HttpError where the API server does not give it."""
    try:
        return await review
    except TooManyReviewsError as error:
        raise HttpError(
            429, str(error), headers={"Retry-After": str(ceil(error.retry_after_seconds))}
        ) from error
    except (KubeError, msgspec.DecodeError) as error:
        message = f"the API server does not say {what}: {error}"
        raise HttpError(503, message, headers={"Retry-After": "1"}) from error
