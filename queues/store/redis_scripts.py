"""The execution of scripts in Redis: each is one transition and is sent at most twice.

The library's own retries are turned off; it would repeat a call ten times. A call that gets no answer within
half of 250 ms is sent once more on another connection, and then fails with StoreUnreachable. Time in which
this process did not run does not count (`queues.store.answer_time`), nor does the time that a caller waits
for a free connection: neither says anything about Redis. A repeat is harmless: commits are identified by
their request id, writes of the plan by their version, and the other transitions state a result.

A write that replicas or disks must have (`queues.store.replication`) is followed by WAIT or WAITAOF on the
same connection. If they do not, that is like a call without an answer: StoreUnreachable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import redis
from redis.asyncio import Redis

from queues.reservations.reservations import (
    CorruptValue,
    FenceTooLow,
    NoFence,
    ReservationError,
    StoreUnreachable,
)
from queues.store import lua
from queues.store.access import StoreAccess
from queues.store.answer_time import answer_within
from queues.store.clients import CONNECTIONS, SLOW_SECONDS, to_client
from queues.store.faults import StoreLocation, to_reservation_error, unreachable, without_password
from queues.store.keys import Keys
from queues.store.replication import ACKNOWLEDGE_SECONDS, Replication
from queues.store.seal import SIGNED, Seal

logger = logging.getLogger(__name__)

# Seconds per attempt. Two attempts without an answer, 250 ms together, mean that Redis is lost.
CALL_SECONDS = 0.125
# Extra time for a large call: a cycle of 1,000 Workloads is 8 MB, which Redis receives in 0.1 s on the same
# machine and in 0.8 s over a slow network.
BYTES_PER_SECOND = 10_000_000

# Sends one command and returns its answer. The library gives this method no types.
Execute = Callable[..., Awaitable[Any]]


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
        self._execute: Execute = client.execute_command
        self._keys = Keys(shard)
        self._call_seconds = call_seconds
        self._connections = asyncio.Semaphore(CONNECTIONS)
        #: Called for each dropped value. May be replaced, for example to count such values.
        self.on_corrupt = on_corrupt
        #: Signs and checks values; without keys it does neither. To be replaced before the first call.
        self.seal = Seal()
        #: What Redis must do with a write before it counts. To be replaced before the first call.
        self.replication = Replication()
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

        `queues.store.clients` lists the forms of URLs, which may have the library's options in the query;
        `access` adds what is kept in files. `directory` marks an embedded Redis in messages.
        Raises BadStoreUrl.
        """
        place = StoreLocation(address=without_password(url), directory=directory)
        client = to_client(url, place, access or StoreAccess(), shard=shard)
        return cls(client, place=place, shard=shard, call_seconds=call_seconds, on_corrupt=on_corrupt)

    async def ping(self) -> None:
        """Return when Redis answers and has its replicas. Raises StoreUnreachable after 2 s for either."""
        async with self._one_connection() as execute:
            await self._send(("PING",), seconds=SLOW_SECONDS, execute=execute)
            if self.replication:
                await self._wait_acknowledged(execute)

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
        is_write: bool = False,
    ) -> list[bytes]:
        """Run a script and return its answer, OK or DUP. Other answers are raised as errors.

        With `is_write`, under `fence`, returns once the write counts (`replication`).
        """
        # Only encoded values are counted: keys and numbers are a few bytes each.
        size = sum(len(argument) for argument in arguments if isinstance(argument, bytes))
        seconds = (seconds or self._call_seconds) + size / BYTES_PER_SECOND
        command = (len(keys), *keys, *arguments)
        async with self._connections:
            attempt = self._run_acknowledged if is_write and self.replication else self._run_once
            try:
                answer = await attempt(script, command, seconds=seconds)
            except _NotAcknowledged:
                raise
            except StoreUnreachable:
                # A second attempt, because mostly one connection is lost and a new one works at once. If
                # that gets no answer either, Redis is lost.
                answer = await attempt(script, command, seconds=seconds)
        return self._checked(answer, fence=fence)

    def _checked(self, answer: list[bytes], *, fence: int = 0) -> list[bytes]:
        """Return an answer, OK or DUP. Raises what the others mean for a caller with `fence`."""
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

    async def _run_once(
        self, script: lua.Script, command: Sequence[Any], *, seconds: float, execute: Execute | None = None
    ) -> list[bytes]:
        try:
            # By digest, because the text of a script is larger than most of its calls.
            answer = await self._send(("EVALSHA", script.digest, *command), seconds=seconds, execute=execute)
        except _ScriptUnknown:
            # A restarted or emptied Redis does not know the script. EVAL runs it and loads it again.
            answer = await self._send(("EVAL", script.source, *command), seconds=seconds, execute=execute)
        return list(answer)

    async def _run_acknowledged(
        self, script: lua.Script, command: Sequence[Any], *, seconds: float
    ) -> list[bytes]:
        """Run a script that writes, and return its answer once its write counts."""
        async with self._one_connection() as execute:
            answer = await self._run_once(script, command, seconds=seconds, execute=execute)
            if answer[0] not in (b"OK", b"DUP"):
                return answer
            # WAIT is about the last write of its connection, and a repeated commit writes nothing. The first
            # argument of each script that writes is the caller's fence, which this writes.
            fence = command[1 + command[0]]
            touch = (2, self._keys.fence, self._keys.reservations, fence, 0)
            await self._run_once(lua.RESTORE, touch, seconds=seconds, execute=execute)
            await self._wait_acknowledged(execute)
        return answer

    async def _wait_acknowledged(self, execute: Execute) -> None:
        """Return once the writes of this connection count. Raises StoreUnreachable if they do not."""
        seconds = ACKNOWLEDGE_SECONDS + self._call_seconds
        answer = await self._send(self.replication.command, seconds=seconds, execute=execute)
        if lack := self.replication.lacks(answer):
            raise _NotAcknowledged(
                f"{self.place} does not keep writes as asked ({lack}): start its replicas, "
                "or ask for fewer with --redis-replicas"
            )

    @asynccontextmanager
    async def _one_connection(self) -> AsyncIterator[Execute]:
        """Give what sends commands on one connection, which is opened by the first of them."""
        one = self._client.client()
        try:
            yield one.execute_command
        finally:
            await one.aclose()

    async def _send(self, command: Sequence[Any], *, seconds: float, execute: Execute | None = None) -> Any:
        try:
            # A call cancelled here closes its connection, so a later call cannot receive its late answer.
            async with answer_within(seconds):
                return await (execute or self._execute)(*command)
        except redis.exceptions.NoScriptError:
            raise _ScriptUnknown from None
        except TimeoutError as error:
            raise unreachable(self.place, f"nothing within {seconds * 1000:.0f} ms") from error
        except (redis.RedisError, OSError) as error:
            raise to_reservation_error(error, self.place) from error


class _NotAcknowledged(StoreUnreachable):
    """Redis answered, and replicas or disks lack the write. A repeated call would find the same."""


class _ScriptUnknown(ReservationError):
    """Redis does not know the script of this digest. Never leaves this module."""
