"""The identity of a reporter: from a token to the pod that it was issued for, and the pod's controller.

Both are requested from the API server and cached for a minute, so a job that reports every few seconds
costs two reads a minute. A rejected token is cached too, but for a shorter time, since the pod may be too
new for the server that was asked. A deleted pod can still report for the rest of that minute, but only
about its own job.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from admission.controller.queries.authorization import TOKEN_REVIEWS
from admission.controller.queries.review_budget import ReviewBudget
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.expiring_cache import ExpiringCache
from api.kube import resources
from api.kube.client import Body, KubeClient
from api.kube.errors import Invalid, KubeError, NotFound
from api.objects.common import NamedObject, OwnerReference
from api.wire.pod_tokens import PodIdentity, TokenError, expires_at, read_review, review_body

KNOWN_SECONDS = 60.0
REFUSED_SECONDS = 10.0
MOST_KNOWN = 20_000
# The reporting program waits for two seconds.
ASK_SECONDS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """A pod that may report, and the object that controls it."""

    pod: PodIdentity
    owner: OwnerReference | None


class PodIdentities:
    """Caches which pod a token belongs to, by the token's digest. Tokens themselves are not stored."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known = ExpiringCache[bytes, Reporter | TokenError](MOST_KNOWN)
        self._budget = ReviewBudget(clock)

    async def identify(self, token: str, *, address: str) -> Reporter:
        """Return the pod of a token.

        Raises TokenError for a rejected token, TooManyReviewsError, and KubeError if the API
        server does not answer.
        """
        digest = hashlib.sha256(token.encode()).digest()
        found = self._known.get(digest, now=self._clock.now())
        if found is None:
            found = await self._look_up(token, address)
            self._remember(digest, token, found)
        if isinstance(found, TokenError):
            raise found
        return found

    async def _look_up(self, token: str, address: str) -> Reporter | TokenError:
        try:
            body = Body(review_body(token, now=self._clock.now()))
            self._budget.take(address)
            raw = await self._client.request(
                "POST", TOKEN_REVIEWS.path(), body=body, timeout_seconds=ASK_SECONDS
            )
            pod = read_review(raw)
            return Reporter(pod=pod, owner=await self._owner(pod))
        except TokenError as error:
            return error
        except Invalid:
            return TokenError(401, "the API server cannot read the token")

    async def _owner(self, pod: PodIdentity) -> OwnerReference | None:
        try:
            raw = await self._client.request(
                "GET", resources.PODS.path(pod.namespace, pod.name), timeout_seconds=ASK_SECONDS
            )
            metadata = msgspec.json.decode(raw, type=NamedObject).metadata
        except NotFound as error:
            raise TokenError(401, f"the pod {pod.namespace}/{pod.name} is gone") from error
        except msgspec.DecodeError as error:
            raise KubeError(f"the pod {pod.namespace}/{pod.name} cannot be read: {error}") from error
        if metadata.uid != pod.uid:
            raise TokenError(401, f"the pod {pod.namespace}/{pod.name} was replaced by another of its name")
        return metadata.controller

    def _remember(self, digest: bytes, token: str, found: Reporter | TokenError) -> None:
        now = self._clock.now()
        if isinstance(found, TokenError):
            until = now + REFUSED_SECONDS
        else:
            until = min(now + KNOWN_SECONDS, expires_at(token))
        self._known.put(digest, found, until=until)
