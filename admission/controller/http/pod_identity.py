"""Who reports: a token becomes the pod that it was made for, and the object that controls the pod.

Both are asked of the API server, so both are remembered for a minute: a job that reports every few seconds
costs two reads a minute. A token that was refused is remembered too, for less, since a pod may be too new for
the server that was asked. A pod that is deleted can still report for the rest of that minute; it does so
about its own job alone.

Reviews cost the API server, and whoever reaches the port can ask for one with a forged token. So each address
has a budget of its own, and all together have one: an outsider that floods the port runs out of the first
before the second.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

import msgspec

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.token_bucket import TokenBuckets
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Invalid, KubeError, NotFound
from api.kube.resources import Resource
from api.objects import NamedObject, OwnerReference
from api.wire.pod_tokens import PodIdentity, TokenError, expires_at, read_review, review_body

REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
KNOWN_SECONDS = 60.0
REFUSED_SECONDS = 10.0
MOST_KNOWN = 20_000
# The program that reports waits for two seconds.
ASK_SECONDS = 1.5


class TooManyReviewsError(Exception):
    """The address, or all together, ask too often; `retry_after_seconds` says when to come again."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(f"too many tokens to review; come again in {retry_after_seconds:.0f} s")
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """A pod that may report, and what controls it."""

    pod: PodIdentity
    owner: OwnerReference | None


class PodIdentities:
    """Remembers who is behind which token, by the token's digest: tokens themselves are not kept."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, Reporter | TokenError]] = OrderedDict()
        self._by_address = TokenBuckets(per_second=2.0, burst=20.0)
        self._in_all = TokenBuckets(per_second=50.0, burst=200.0)

    async def identify(self, token: str, *, address: str) -> Reporter:
        """Return the pod of a token.

        Raises TokenError for one that is not accepted, TooManyReviewsError, and KubeError where the API
        server does not tell.
        """
        digest = hashlib.sha256(token.encode()).digest()
        until, found = self._known.get(digest, (0.0, None))
        if found is None or until <= self._clock.now():
            found = await self._look_up(token, address)
            self._remember(digest, token, found)
        if isinstance(found, TokenError):
            raise found
        return found

    async def _look_up(self, token: str, address: str) -> Reporter | TokenError:
        try:
            body = review_body(token, now=self._clock.now())
            self._check_budget(address)
            raw = await self._client.request("POST", REVIEWS.path(), body=body, timeout_seconds=ASK_SECONDS)
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
            raise TokenError(401, f"the pod {pod.namespace}/{pod.name} is another one by now")
        return metadata.controller

    def _check_budget(self, address: str) -> None:
        now = self._clock.monotonic()
        # In this order: who is stopped at the first takes nothing from the others.
        wait = self._by_address.take(address, now=now) or self._in_all.take("", now=now)
        if wait:
            raise TooManyReviewsError(wait)

    def _remember(self, digest: bytes, token: str, found: Reporter | TokenError) -> None:
        now = self._clock.now()
        if isinstance(found, TokenError):
            until = now + REFUSED_SECONDS
        else:
            until = min(now + KNOWN_SECONDS, expires_at(token))
        self._known[digest] = (until, found)
        self._known.move_to_end(digest)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
