"""The execution of scripts in Redis: each is one transition and is sent at most twice.

The library's own retries are turned off; it would repeat a call ten times. A call that gets no answer within
half of 250 ms is sent once more on another connection, and then fails with StoreUnreachable. A repeat is
harmless: commits are identified by their request id, writes of the plan by their version, and the other
transitions state a result. The time that a caller waits for a free connection does not count, because it
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
from queues.store.access import StoreAccess, connection_options
from queues.store.faults import StoreLocation, to_reservation_error, unreachable, without_password
from queues.store.keys import Keys
from queues.store.seal import SIGNED, Seal

logger = logging.getLogger(__name__)

# Seconds per attempt. Two attempts without an answer, 250 ms together, mean that Redis is lost.
CALL_SECONDS = 0.125
# Extra time for a large call: a cycle of 1,000 Workloads is 8 MB, which Redis receives in 0.1 s on the same
# machine and in 0.8 s over a slow network.
BYTES_PER_SECOND = 10_000_000
# For calls that may take longer: a ping, because it opens the connections that later calls use, possibly with
# TLS over a long distance; and reading all reservations, or the whole plan.
SLOW_SECONDS = 2.0
# Calls in flight. The leader commits, confirms and probes; more calls at once would only queue up in Redis.
CONNECTIONS = 8

_URL_FORM = "a store's URL is redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss://… for TLS, or unix:///PATH"


def log_corrupt(error: CorruptValue) -> None:
    """Log a value that was dropped or overwritten because it is unreadable."""
    logger.warning("dropped=%s expected=%r", error.key, error.expected)


class RedisScripts:
    """Runs the scripts on one shard's keys. `client` must not retry; `from_url` creates such a client.

    `on_corrupt` is called for each value that is dropped or overwritten because it is unreadable.
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
        #: Called for each dropped value. May be replaced, for example to count such values.
        self.on_corrupt = on_corrupt
        #: Signs and checks values; without keys it does neither. To be replaced before the first call.
        self.seal = Seal()
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
        access: StoreAccess | None = None,
    ) -> Self:
        """Return the store at `url`, without connecting yet; `ping` shows whether it serves.

        Accepts redis://, rediss:// and unix:// with user, password, database, and the library's options in
        the query; `access` adds what is kept in files. `directory` marks an embedded Redis in messages.
        Raises BadStoreUrl.
        """
        place = StoreLocation(address=without_password(url), directory=directory)
        client = _to_client(url, place, access or StoreAccess())
        return cls(client, place=place, shard=shard, call_seconds=call_seconds, on_corrupt=on_corrupt)

    async def ping(self) -> None:
        """Return when Redis answers. Raises StoreUnreachable after 2 s."""
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
        """Run a script and return its answer, OK or DUP. Other answers are raised as errors."""
        # Only encoded values are counted: keys and numbers are a few bytes each.
        size = sum(len(argument) for argument in arguments if isinstance(argument, bytes))
        seconds = (seconds or self._call_seconds) + size / BYTES_PER_SECOND
        command = (len(keys), *keys, *arguments)
        async with self._connections:
            try:
                answer = await self._run_once(script, command, seconds=seconds)
            except StoreUnreachable:
                # A second attempt, because mostly one connection is lost and a new one works at once. If
                # that gets no answer either, Redis is lost.
                answer = await self._run_once(script, command, seconds=seconds)
        match answer:
            case [b"NOFENCE"]:
                raise NoFence
            case [b"FENCE", highest]:
                raise FenceTooLow(fence=fence, highest=self._open_fence(highest))
            case [b"CORRUPT", key, expected]:
                raise CorruptValue(key.decode(), expected=expected.decode())
        return answer

    def _fence(self, fence: int) -> bytes:
        """Return a fence as it is stored."""
        return self.seal.close(self._keys.fence, b"%d" % fence)

    def _open_fence(self, stored: bytes) -> int:
        """Return a stored fence. Raises CorruptValue for one that is not signed."""
        try:
            return int(self.seal.open(self._keys.fence, stored))
        except ValueError:
            raise CorruptValue(self._keys.fence, expected=SIGNED, is_unsigned=True) from None

    async def _run_once(self, script: lua.Script, command: Sequence[Any], *, seconds: float) -> list[bytes]:
        try:
            # By digest, because the text of a script is larger than most of its calls.
            answer = await self._send(("EVALSHA", script.digest, *command), seconds=seconds)
        except _ScriptUnknown:
            # A restarted or emptied Redis does not know the script. EVAL runs it and loads it again.
            answer = await self._send(("EVAL", script.source, *command), seconds=seconds)
        return list(answer)

    async def _send(self, command: Sequence[Any], *, seconds: float) -> Any:
        try:
            # A call cancelled here closes its connection, so a later call cannot receive its late answer.
            async with asyncio.timeout(seconds):
                return await self._execute(*command)
        except redis.exceptions.NoScriptError:
            raise _ScriptUnknown from None
        except TimeoutError as error:
            raise unreachable(self.place, f"nothing within {seconds * 1000:.0f} ms") from error
        except (redis.RedisError, OSError) as error:
            raise to_reservation_error(error, self.place) from error


class _ScriptUnknown(ReservationError):
    """Redis does not know the script of this digest. Never leaves this module."""


def _to_client(url: str, place: StoreLocation, access: StoreAccess) -> Redis:
    options: Mapping[str, Any] = {
        # RESP2: RESP3 has no advantage here, and several proxies do not support it.
        "protocol": 2,
        # The library's own retry would silently send a script again after a lost reply.
        "retry": Retry(NoBackoff(), 0),
        # The only time limit is asyncio.timeout around the whole call.
        "socket_timeout": None,
        "socket_connect_timeout": SLOW_SECONDS,
        "max_connections": CONNECTIONS,
    }
    try:
        _check_database(url)
        url, of_files = connection_options(url, access)
        # Blocking: a caller waits for a free connection instead of getting an error.
        pool = BlockingConnectionPool.from_url(url, **options, **of_files)
        # An unknown option only shows when a connection object is created; it is not opened here.
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError) as error:
        raise BadStoreUrl(f"{place.address!r} is no store's URL ({error}); {_URL_FORM}") from error
    return Redis.from_pool(pool)


def _check_database(url: str) -> None:
    # The library would silently use database 0 for anything that is not a number.
    parts = urlsplit(url)
    if parts.scheme != "unix" and not re.fullmatch(r"/?\d*", parts.path):
        raise ValueError(f"{parts.path!r} is no database number")
