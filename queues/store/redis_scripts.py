"""Scripts run in Redis: each a transition, each sent at most twice.

The library would repeat a call ten times by itself; it is told not to. Here a call that is not answered in
half of 250 ms is sent once more, on another connection, and then given up with StoreUnreachable. A repeat
does no harm: commits are known by their request id, writes of the plan by their version, and the other
transitions say what shall be. The time a caller waits for one of our own connections does not count, for it
says nothing about Redis.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import urlsplit

import redis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from queues.reservations.reservations import (
    BadStoreUrl,
    CorruptValue,
    FenceTooLow,
    NoFence,
    ReservationError,
    StoreUnreachable,
)
from queues.store import lua
from queues.store.faults import StoreLocation, to_reservation_error, unreachable, without_password
from queues.store.keys import Keys

logger = logging.getLogger(__name__)

# Two calls unanswered in 250 ms mean that Redis is lost.
CALL_SECONDS = 0.125
# What a large call gets on top: a cycle of 1,000 Workloads is 8 MB, which Redis takes in 0.1 s on the same
# machine and a slow network in 0.8 s.
BYTES_PER_SECOND = 10_000_000
# What may take longer: a ping, because it opens the connections that later calls find ready, over TLS and a
# long way; and reading all reservations, or the whole plan.
SLOW_SECONDS = 2.0
# Calls in flight. The leader commits, confirms and probes: more than a few at once only queue up in Redis.
CONNECTIONS = 8

_URL_FORM = "a store's URL is redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss://… for TLS, or unix:///PATH"


def log_corrupt(error: CorruptValue) -> None:
    """Report a value that was dropped, in the log."""
    logger.warning("dropped=%s expected=%r", error.key, error.expected)


class RedisScripts:
    """The scripts of one shard's keys. `client` is used as it is; `from_url` makes one that repeats nothing.

    `on_corrupt` hears of each value that is dropped or written over because it cannot be read.
    """

    def __init__(
        self,
        client: Redis,
        *,
        place: StoreLocation,
        shard: str = "default",
        call_seconds: float = CALL_SECONDS,
        on_corrupt: Callable[[CorruptValue], None] = log_corrupt,
    ) -> None:
        self._client = client
        # The library gives this method no types.
        self._execute: Callable[..., Awaitable[Any]] = client.execute_command
        self._keys = Keys(shard)
        self._call_seconds = call_seconds
        self._connections = asyncio.Semaphore(CONNECTIONS)
        #: Hears of what is dropped; whoever counts such values may take its place.
        self.on_corrupt = on_corrupt
        #: Where the store is, for messages.
        self.place = place

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        shard: str = "default",
        call_seconds: float = CALL_SECONDS,
        directory: str | None = None,
        on_corrupt: Callable[[CorruptValue], None] = log_corrupt,
    ) -> Self:
        """Return what is at `url`, without connecting yet: `ping` tells whether it serves.

        redis://, rediss:// and unix://, with user, password, database and the library's options in the query.
        `directory` marks an embedded Redis, for messages. Raises BadStoreUrl.
        """
        place = StoreLocation(address=without_password(url), directory=directory)
        client = _to_client(url, place)
        return cls(client, place=place, shard=shard, call_seconds=call_seconds, on_corrupt=on_corrupt)

    async def ping(self) -> None:
        """Return when Redis answers; within 2 s, and longer than that is StoreUnreachable."""
        await self._send(("PING",), seconds=SLOW_SECONDS)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose(close_connection_pool=True)

    async def _run(
        self,
        script: lua.Script,
        keys: Sequence[str],
        arguments: Sequence[Any],
        *,
        fence: int = 0,
        seconds: float | None = None,
    ) -> list[bytes]:
        """Run a script and return its answer, OK or DUP; raise what its other answers mean."""
        # Only what is large is counted: texts are a few bytes each.
        size = sum(len(argument) for argument in arguments if isinstance(argument, bytes))
        seconds = (seconds or self._call_seconds) + size / BYTES_PER_SECOND
        command = (len(keys), *keys, *arguments)
        async with self._connections:
            try:
                answer = await self._run_once(script, command, seconds=seconds)
            except StoreUnreachable:
                # Once more, since a lost connection is mostly one connection's: a new one answers
                # at once. A second silence is Redis's.
                answer = await self._run_once(script, command, seconds=seconds)
        match answer:
            case [b"NOFENCE"]:
                raise NoFence
            case [b"FENCE", highest]:
                raise FenceTooLow(fence=fence, highest=int(highest))
            case [b"CORRUPT", key, expected]:
                raise CorruptValue(key.decode(), expected=expected.decode())
        return answer

    async def _run_once(self, script: lua.Script, command: Sequence[Any], *, seconds: float) -> list[bytes]:
        try:
            # By digest: the text of a script is larger than most of its calls.
            answer = await self._send(("EVALSHA", script.digest, *command), seconds=seconds)
        except _ScriptUnknown:
            # A restarted or emptied Redis has forgotten it. EVAL runs it and makes it known again.
            answer = await self._send(("EVAL", script.source, *command), seconds=seconds)
        return list(answer)

    async def _send(self, command: Sequence[Any], *, seconds: float) -> Any:
        try:
            # A call that is cancelled here closes its connection, so no late answer meets a later call.
            async with asyncio.timeout(seconds):
                return await self._execute(*command)
        except redis.exceptions.NoScriptError:
            raise _ScriptUnknown from None
        except TimeoutError as error:
            raise unreachable(self.place, f"nothing within {seconds * 1000:.0f} ms") from error
        except (redis.RedisError, OSError) as error:
            raise to_reservation_error(error, self.place) from error


class _ScriptUnknown(ReservationError):
    """Redis does not have the script of this digest; never leaves this module."""


def _to_client(url: str, place: StoreLocation) -> Redis:
    options: Mapping[str, Any] = {
        # RESP3 gains nothing here, and several proxies do not speak it.
        "protocol": 2,  # spoken by every Redis, and by proxies
        # The library's own retry sends a script again after a lost reply, without anybody noticing.
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,  # asyncio.timeout around the whole call is the only time limit
        "socket_connect_timeout": SLOW_SECONDS,
        "max_connections": CONNECTIONS,
    }
    try:
        _check_database(url)
        # Blocking: a caller waits for a connection instead of meeting an error that says nothing about Redis.
        pool = BlockingConnectionPool.from_url(url, **options)
        # An option that does not exist shows only when a connection is made (not yet opened).
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError) as error:
        raise BadStoreUrl(f"{place.address!r} is no store's URL ({error}); {_URL_FORM}") from error
    return Redis.from_pool(pool)


def _check_database(url: str) -> None:
    # The library takes what is no number for database 0.
    parts = urlsplit(url)
    if parts.scheme != "unix" and not re.fullmatch(r"/?\d*", parts.path):
        raise ValueError(f"{parts.path!r} is no database number")
