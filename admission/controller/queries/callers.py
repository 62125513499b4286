"""Callers: who asks, what they may see, and how often they may ask.

A caller on a port for all of this machine (`TRUSTED`) sees everything. Others present a token of the cluster.
Its user sees everything with the right to `get` the non-resource URL /v1, or to list Workloads in all
namespaces; otherwise it sees the namespaces in which it may list Workloads. The API server answers both, and
its answers are cached for a minute (`Authorization`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from admission.answers.sight import EVERYTHING, Sight
from admission.controller.queries.authorization import Authorization, Identity
from admission.controller.queries.running import Running
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.token_bucket import TokenBuckets
from api.http.server import HttpError, Request
from api.wire.access_reviews import Action, ResourceAction

_GROUP, _RESOURCE = "kueue.x-k8s.io", "workloads"
# For how many namespaces the API server is asked for one caller, before the caller has to name its own.
MOST_NAMESPACES = 100
# For how many of these at once: a hundred round trips take long, and a hundred connections are too many.
ASKED_AT_ONCE = 8
_HINT = "a Role or ClusterRole gives that right"

# So that one user's watches leave room for those of others.
MOST_WATCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks. `identity` None: anyone who can reach a port that is open to all of this machine.

    `name` is for limits and messages.
    """

    name: str
    identity: Identity | None = None


TRUSTED = Caller(name="this machine")


class Callers:
    """Says who sends a request. `is_open`: the port is open to all of this machine, so no token is needed."""

    def __init__(self, authorization: Authorization, *, is_open: bool) -> None:
        self._authorization = authorization
        self._is_open = is_open

    async def caller(self, request: Request) -> Caller:
        """Return who calls. Raises HttpError: 401 without a valid token, 429 and 503 if that is unknown."""
        if self._is_open:
            return TRUSTED
        identity = await self._authorization.identify(request)
        return Caller(name=identity.user.username, identity=identity)


class Rights:
    """Says what callers may see, as the API server decides."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization

    async def sight(self, caller: Caller, namespaces: Collection[str]) -> Sight:
        """Return what the caller may see of the namespaces. Raises HttpError: 429, 503 if that is unknown."""
        identity = caller.identity
        if identity is None or await self._sees_all(identity):
            return EVERYTHING
        answers = {one: self._authorization.known(identity, _list_in(one)) for one in namespaces}
        answers |= await self._ask(identity, sorted(one for one, known in answers.items() if known is None))
        return Sight(namespaces=frozenset(one for one, is_seen in answers.items() if is_seen))

    async def _ask(self, identity: Identity, namespaces: Sequence[str]) -> dict[str, bool]:
        """Return of each namespace whether the user may list its Workloads. Raises HttpError."""
        place = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(namespace: str) -> bool:
            async with place:
                return await self._may(identity, _list_in(namespace))

        tasks = [asyncio.create_task(ask(one), name=f"review-{one}") for one in namespaces]
        try:
            return dict(zip(namespaces, await asyncio.gather(*tasks), strict=True))
        finally:
            # The first error ends the request, and with it the other reviews.
            for task in tasks:
                task.cancel()

    async def require(self, caller: Caller, namespaces: Collection[str], *, named: str = "") -> Sight:
        """Return the same. Raises HttpError, 403 if the caller may see none of them.

        `named` are those that the caller has named itself, as a text. No others may be in the sentence, nor
        their number: it is the same for what does not exist and for what is hidden.
        """
        is_too_many = len(namespaces) > MOST_NAMESPACES and not await self.sees_all(caller)
        if not is_too_many:
            sight = await self.sight(caller, namespaces)
            if sight.sees_all or sight.namespaces:
                return sight
        if named and not is_too_many:
            raise HttpError(403, f"{caller.name} may not {_list_in(named)}; {_HINT}")
        raise HttpError(
            403,
            f"{caller.name} may not {_list_in('')}, or in any; {_HINT}, and of more than {MOST_NAMESPACES}"
            " namespaces yours have to be named with namespace=",
        )

    async def require_all(self, caller: Caller, namespaces: Collection[str]) -> None:
        """Raise HttpError, 403 if there is one that the caller may not see. The caller has named them all."""
        sight = await self.require(caller, namespaces, named=",".join(sorted(namespaces)))
        hidden = next((one for one in sorted(namespaces) if not sight.sees(one)), None)
        if hidden is not None:
            raise HttpError(403, f"{caller.name} may not {_list_in(hidden)}; {_HINT}")

    async def sees_all(self, caller: Caller) -> bool:
        """Return whether the caller may see everything."""
        return caller.identity is None or await self._sees_all(caller.identity)

    async def _sees_all(self, identity: Identity) -> bool:
        return await self._may(identity, Action("get", "/v1")) or await self._may(identity, _list_in(""))

    async def _may(self, identity: Identity, action: Action | ResourceAction) -> bool:
        return await self._authorization.is_allowed(identity, action)


def _list_in(namespace: str) -> ResourceAction:
    return ResourceAction("list", _GROUP, _RESOURCE, namespace)


class See(Protocol):
    """Returns what the sender of a request may see of some namespaces. Raises HttpError."""

    async def __call__(self, request: Request, namespaces: Collection[str]) -> Sight: ...


class Viewers:
    """Says what the senders of requests may see, and how often."""

    def __init__(self, callers: Callers, rights: Rights, limits: RateLimits) -> None:
        self._callers = callers
        self._rights = rights
        self._limits = limits

    async def see(self, request: Request, namespaces: Collection[str]) -> Sight:
        """Return what the sender may see. Raises HttpError: 401, 403, 429, 503."""
        caller = await self._callers.caller(request)
        self._limits.take_read(caller)
        return await self._rights.require(caller, namespaces, named=request.parameters.get("namespace", ""))


class RateLimits:
    """How often a caller may ask: lists and single objects, and questions that are tried on the engine.

    Of these, each caller has one at a time: one may take as long as all others wait.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reads = TokenBuckets(per_second=20.0, burst=100.0)
        self._trials = TokenBuckets(per_second=2.0, burst=20.0)
        self._running_trials = Running(
            most=1, sentence="{} has an explanation or what-if question that is not answered yet", seconds=3
        )
        self._running_watches = Running(
            most=MOST_WATCHES, sentence=f"{{}} watches {MOST_WATCHES} pages already; list instead", seconds=10
        )

    def take_read(self, caller: Caller) -> None:
        """Count one read. Raises HttpError, 429."""
        self._take(self._reads, caller)

    @contextmanager
    def trial(self, caller: Caller) -> Iterator[None]:
        """Count one question that is tried on the engine, and that it runs. Raises HttpError, 429."""
        self._take(self._trials, caller)
        with self._running_trials.one(caller.name):
            yield

    def require_room_for_watch(self, caller: Caller) -> None:
        """Raise HttpError, 429, if the caller may not watch one page more."""
        if caller.identity is not None:
            self._running_watches.require_room(caller.name)

    @contextmanager
    def watch(self, caller: Caller) -> Iterator[None]:
        """Count one watch while it lasts. Raises HttpError, 429.

        A port that is open to all of this machine does not tell users apart.
        """
        if caller.identity is None:
            yield
            return
        with self._running_watches.one(caller.name):
            yield

    def _take(self, buckets: TokenBuckets, caller: Caller) -> None:
        wait = buckets.take(caller.name, now=self._clock.monotonic())
        if wait:
            seconds = ceil(wait)
            raise HttpError(
                429,
                f"{caller.name} asks too often; retry in {seconds} s",
                headers={"Retry-After": str(seconds)},
            )
