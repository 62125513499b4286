"""Who may read /v1 and /metrics: the user of a bearer token, if RBAC allows it.

As controller-runtime and kube-rbac-proxy protect metrics: the API server reviews the token (TokenReview) and
then whether its user may `get` the path (SubjectAccessReview, `nonResourceURLs` of a ClusterRole). The path
is the first part of the request's, /v1 or /metrics: one role gives all of it, and each user causes two
reviews a minute however much it reads. Answers are cached for a bounded time and number. While the API server
does not answer, those that are cached go on reading.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from math import ceil

import msgspec

from admission.controller.http.review_budget import ReviewBudget, TooManyReviewsError
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.expiring_cache import ExpiringCache
from api.http.server import HttpError, Request, Response, Route, Stream
from api.kube.client import Body, KubeClient
from api.kube.errors import Invalid, KubeError
from api.kube.resources import Resource
from api.wire.access_reviews import Action, User, access_review, read_allowed, read_user, token_review
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


class Authorization:
    """Reviews requests, and caches the answers by the token's digest. Tokens themselves are not stored."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._budget = ReviewBudget(clock)
        # The empty user is that of a token which is not accepted.
        self._users = ExpiringCache[bytes, User](MOST_KNOWN)
        self._rights = ExpiringCache[tuple[bytes, Action], bool](MOST_KNOWN)

    def guarded(self, route: Route) -> Route:
        """Return the route for those alone who may `get` the first part of its path."""

        async def handle(request: Request) -> Response | Stream:
            await self._check(request)
            return await route.handler(request)

        return replace(route, handler=handle)

    async def _check(self, request: Request) -> None:
        """Raise HttpError: 401 without a valid token, 403 without the right, 429 and 503 if unknown."""
        action = Action("get", f"/{request.path.split('/')[1]}")
        try:
            token = bearer_token(request.headers.get("authorization", ""), whose="a token of the cluster")
            digest = hashlib.sha256(token.encode()).digest()
            user = await self._user(digest, token, request.client_address)
            is_allowed = await self._is_allowed(digest, user, action, request.client_address)
        except TokenError as error:
            headers = {"WWW-Authenticate": "Bearer"}
            raise HttpError(error.status, str(error), headers=headers) from error
        except TooManyReviewsError as error:
            headers = {"Retry-After": str(ceil(error.retry_after_seconds))}
            raise HttpError(429, str(error), headers=headers) from error
        except (KubeError, msgspec.DecodeError) as error:
            message = f"the API server does not say who may {action}: {error}"
            raise HttpError(503, message, headers={"Retry-After": "1"}) from error
        if not is_allowed:
            raise HttpError(
                403, f"{user.username} may not {action}; a ClusterRole gives it under nonResourceURLs"
            )

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
        try:
            return read_user(await self._ask(TOKEN_REVIEWS, token_review(token), address))
        except Invalid:
            return None

    async def _is_allowed(self, digest: bytes, user: User, action: Action, address: str) -> bool:
        is_allowed = self._rights.get((digest, action), now=self._clock.monotonic())
        if is_allowed is None:
            is_allowed = read_allowed(await self._ask(ACCESS_REVIEWS, access_review(user, action), address))
            self._rights.put((digest, action), is_allowed, until=self._until(is_allowed))
        return is_allowed

    async def _ask(self, kind: Resource, body: bytes, address: str) -> bytes:
        self._budget.take(address)
        return await self._client.request("POST", kind.path(), body=Body(body), timeout_seconds=ASK_SECONDS)

    def _until(self, is_accepted: bool) -> float:
        return self._clock.monotonic() + (ALLOWED_SECONDS if is_accepted else REFUSED_SECONDS)
