"""One order on its way to the API server: attempts under the lease, and what their answers mean.

Right before a write is sent, the lease says how long the write may take: as long as the lease lasts. A slow
server therefore gets all the time that is safe, and a leader that was suspended past its lease sends nothing.
The write carries the resourceVersion that its decision saw, so a write that arrives late meets 409.

The answer decides what happens next:

    2xx                  Written
    409                  read the object; rebuild the write from it, or end as Moot
    404                  Vanished
    429                  the lane waits as long as the server asks, then the same write is sent again. All
                         lanes wait once the server has rejected as many in a row as may be in flight
    no answer, 5xx       after a growing pause the object is read. If the write was stored, the order ends as
                         Moot. If the object is unchanged, the same bytes are sent again; if the first attempt
                         is stored meanwhile, the second meets 409. After some attempts without an answer the
                         order ends as Refused, since a webhook may fail for this object for ever
    any other 4xx        Refused

A write that was given up, or refused at a later attempt, may still be stored by an earlier attempt.
Refused then names the version on which that can happen, and a caller that relies on the write not being
stored has to move the object to a newer version.

A request that was sent is awaited even when the term ends: a request that is cut off could still be stored
after another replica has become the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.controller.writer.in_flight_limit import InFlightLimit
from admission.controller.writer.write_order import (
    Moot,
    ObjectTarget,
    Refused,
    Result,
    Sender,
    Vanished,
    WriteOrder,
    Written,
)
from admission.decisions.api_writes import Verb, Write
from api.kube.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    ServerError,
    Timeout,
    TooManyRequests,
    Unreachable,
)
from api.objects.common import NamedObject

# An order that meets this many conflicts in a row is refused: another client writes faster than we can read.
MAX_CONFLICTS = 5
# An order whose write gets this many times no answer, while the object can be read, is refused.
MAX_UNANSWERED = 4
# The pause after a request without an answer doubles from the first to the second.
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 5.0
# How long a read may take. It needs no lease.
READ_SECONDS = 10.0
# A 429 without Retry-After.
DEFAULT_RETRY_AFTER_SECONDS = 1.0

log = Log("berth.executor")


@dataclass(slots=True)
class Delivery:
    """An order that has been tried: the write as built last, and what its attempts have met."""

    order: WriteOrder
    write: Write
    # The object where it has changed since the write was built, until that is built again from it: as the
    # previous order of the lane was answered, or as the watch shows it.
    latest: bytes
    conflicts: int = 0
    unanswered: int = 0
    pause: float = FIRST_RETRY_SECONDS
    # A conflict or a missing answer since which the object has not been read.
    error: KubeError | None = None
    # The version on which an attempt may still be stored, "" if none can be. It is kept here, because it
    # belongs to the result however the order ends, also by a bug.
    may_land_on: str = ""
    # Whether an attempt has no answer, so that it may still be stored.
    is_open: bool = False
    # When the last request was sent (monotonic seconds).
    sent_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """The order has not ended: it is tried again after a pause."""

    seconds: float


class Attempts:
    """Tries orders, one attempt after another, until each has a result.

    `write_seconds` returns how long a write that is sent now may take, 0 if the lease allows none.
    `has_backlog` returns whether orders wait because as many requests as allowed are in flight.
    `report_error` reports a bug of this controller; it is called from within an `except` block.
    """

    def __init__(
        self,
        sender: Sender,
        clock: Clock,
        *,
        limit: InFlightLimit,
        write_seconds: Callable[[], float],
        has_backlog: Callable[[], bool],
        report_error: Callable[[], None],
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._limit = limit
        self._write_seconds = write_seconds
        self._has_backlog = has_backlog
        self._report_error = report_error
        # How many requests in a row got 429, and until when none is sent because of that.
        self._rejected = 0
        self._paused_until = 0.0
        # The only place where a write waits by itself. Tests replace it and do not wait, since the real clock
        # would drift from theirs.
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def result_of(self, delivery: Delivery) -> Result | Again:
        """Try an order. Every error becomes a result, so that none ends the executor."""
        try:
            return await self._try(delivery)
        # 404 to the write itself, or to a read.
        except NotFound:
            return Vanished()
        except KubeError as error:
            return Refused(error=error, may_land_on=delivery.may_land_on)
        except Exception as error:
            self.note_bug(delivery.order)
            fault = KubeError(f"a fault of our own: {error!r}")
            return Refused(error=fault, may_land_on=delivery.may_land_on)

    def note_bug(self, order: WriteOrder) -> None:
        """Report a bug and the write that it affects. Call it from within the `except` block."""
        log.error("executor-error", target="/".join(order.target), purpose=order.write.purpose)
        self._report_error()

    async def read(self, target: ObjectTarget) -> bytes:
        """Return the object's bytes as soon as the server answers. Raises NotFound and other refusals."""
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                return await self._sender.read(*target, timeout_seconds=READ_SECONDS)
            except TooManyRequests as error:
                await self.sleep(error.retry_after_seconds or DEFAULT_RETRY_AFTER_SECONDS)
            except (Unreachable, ServerError):
                await self.sleep(pause)
                pause = min(2 * pause, LAST_RETRY_SECONDS)

    async def wait_until_allowed(self) -> None:
        """Return once no 429 is pending and the lease leaves a request enough time."""
        while True:
            wait = self._paused_until - self._clock.monotonic()
            if wait <= 0 and self._write_seconds() > 0:
                return
            # Another task renews the lease. Polling for it is cheap.
            await self.sleep(wait if wait > 0 else FIRST_RETRY_SECONDS)

    async def _try(self, delivery: Delivery) -> Result | Again:
        """Send the write until there is an answer that ends the order, or a pause is needed.

        Raises KubeError if the server refuses the write or a read of the object.
        """
        latest, delivery.latest = delivery.latest, b""
        rebuild = delivery.order.rebuild
        # It would only meet a conflict: this write was built from older bytes.
        if latest:
            write = rebuild(latest) if rebuild is not None else None
            if write is None:
                return Moot(raw=latest)
            delivery.write = write
        while True:
            try:
                if delivery.error is not None and (ended := await self._read_again(delivery, delivery.error)):
                    return ended
                return Written(raw=await self._sent(delivery))
            # Nothing was sent. Wait until the lease is renewed or the term is cancelled.
            except _LeaseTooShort:
                continue
            except (Conflict, AlreadyExists) as error:
                # The object has another version now. Earlier attempts carry an older one, so they can
                # only fail.
                delivery.error, delivery.may_land_on = error, ""
                delivery.conflicts += 1
            except TooManyRequests as error:
                seconds = error.retry_after_seconds or DEFAULT_RETRY_AFTER_SECONDS
                self._note_rejection(delivery, seconds)
                return _again(delivery, seconds)
            except (Unreachable, ServerError) as error:
                self._note_no_answer(delivery, error)
                return _again(delivery, error.retry_after_seconds or 0.0)

    def _note_rejection(self, delivery: Delivery, seconds: float) -> None:
        now = self._clock.monotonic()
        self._rejected += 1
        # A server that takes some is busy. One that takes none is not to be asked by every lane in turn.
        if self._rejected >= self._limit.allowed:
            self._rejected = 0
            self._paused_until = max(self._paused_until, now + seconds)
        self._limit.note_overload(delivery.sent_at, now)

    def _note_no_answer(self, delivery: Delivery, error: Unreachable | ServerError) -> None:
        """Note that a request had no answer. Whether a write was stored is then unknown."""
        if isinstance(error, Timeout):
            self._limit.note_overload(delivery.sent_at, self._clock.monotonic())
        # Otherwise it was a read: an error that is set is cleared before the write is sent.
        if delivery.error is None:
            delivery.error = error
            delivery.unanswered += 1
            delivery.may_land_on = delivery.write.resource_version
        target = "/".join(delivery.order.target)
        log.warning("write-unanswered", target=target, error=error, retry_in=delivery.pause)

    async def _read_again(self, delivery: Delivery, error: KubeError) -> Result | None:
        """Read the object after a conflict or a missing answer. Return the order's result, None to send it.

        Sending the same bytes again is safe: if they were stored meanwhile, they meet 409.
        """
        order, write = delivery.order, delivery.write
        delivery.sent_at = self._clock.monotonic()
        try:
            raw = await self._sender.read(*order.target, timeout_seconds=READ_SECONDS)
        except NotFound:
            if write.verb is not Verb.CREATE or isinstance(error, AlreadyExists):
                raise
            # The create has not been stored.
            raw = b""
        delivery.error = None
        has_moved_on = bool(raw) and (
            isinstance(error, Conflict | AlreadyExists) or _has_moved_on(write, raw)
        )
        rebuilt = order.rebuild(raw) if raw and order.rebuild is not None else None
        if has_moved_on:
            delivery.may_land_on, delivery.is_open = "", False
        if rebuilt is None and (has_moved_on or (raw and order.rebuild is not None)):
            return Moot(raw=raw)
        if delivery.conflicts >= MAX_CONFLICTS or delivery.unanswered >= MAX_UNANSWERED:
            return Refused(error=error, may_land_on=delivery.may_land_on)
        if has_moved_on and rebuilt is not None:
            delivery.write = rebuilt
        return None

    async def _sent(self, delivery: Delivery) -> bytes:
        """Send a write as soon as that is allowed and return the answer. Raises as `_send` does."""
        order = delivery.order
        # Checked before each attempt, the first included: the lease may be short by now.
        await self.wait_until_allowed()
        if order.before is not None:
            order.before()
        delivery.sent_at = self._clock.monotonic()
        try:
            raw = await self._send(delivery)
            if order.after is not None:
                order.after()
        except (KubeError, _LeaseTooShort):
            raise
        # A bug of ours while the request was under way: the server may have stored it.
        except Exception:
            delivery.may_land_on = delivery.write.resource_version
            raise
        self._rejected = 0
        now = self._clock.monotonic()
        self._limit.note_answer(delivery.sent_at, now, has_backlog=self._has_backlog())
        return raw

    async def _send(self, delivery: Delivery) -> bytes:
        request = asyncio.ensure_future(self._send_in_time(delivery.write))
        try:
            # Shielded: a request that is cut off may still be stored when another replica leads already.
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            # This takes at most the request's own timeout, and the lease is valid for longer than that.
            await asyncio.wait([request])
            raise
        finally:
            delivery.is_open = _is_open(request, was_open=delivery.is_open)

    async def _send_in_time(self, write: Write) -> bytes:
        # Checked in the same step that hands the request to the network: the process may have been suspended
        # since the last check, and another replica may hold the lease by now.
        seconds = self._write_seconds()
        if seconds <= 0:
            raise _LeaseTooShort
        # Renewals that succeed meanwhile do not extend it: the request ends before the lease known now does.
        return await self._sender.send(write, timeout_seconds=seconds)


class _LeaseTooShort(Exception):
    """Nothing was sent: the lease leaves a request too little time."""


def _is_open(request: asyncio.Future[bytes], *, was_open: bool) -> bool:
    """Return whether a write may still be stored after this attempt. `was_open`: after those before it."""
    error = None if request.cancelled() else request.exception()
    if isinstance(error, Conflict | AlreadyExists):
        return False
    # A refusal of this attempt says nothing of one that had no answer.
    if isinstance(error, KubeError | _LeaseTooShort) and not isinstance(error, Unreachable | ServerError):
        return was_open
    return request.cancelled() or error is not None


def _again(delivery: Delivery, at_least: float) -> Again:
    """Return the order's next pause, which is longer than the one before."""
    pause, delivery.pause = delivery.pause, min(2 * delivery.pause, LAST_RETRY_SECONDS)
    return Again(seconds=max(pause, at_least))


def _has_moved_on(write: Write, raw: bytes) -> bool:
    """Return whether the object is no longer as the write saw it: the write was stored, or cannot be."""
    metadata = msgspec.json.decode(raw, type=NamedObject).metadata
    if write.verb is Verb.CREATE:
        return True
    # A delete and an eviction carry no version: they are done once the object is gone or is being deleted.
    if write.verb in (Verb.DELETE, Verb.EVICT):
        return metadata.deletion_timestamp is not None or metadata.uid != write.uid
    # Nothing can be told of a write on any version.
    return write.resource_version not in ("", metadata.resource_version)
