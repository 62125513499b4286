"""Sending of writes: every write of the controller passes here, bounded, ordered per object, under the lease.

Theory of operation. Writes on one object form a *lane* and are sent in order. Lanes run in parallel, at most
`max_in_flight` at a time, lower `priority` first. A write that follows another in its lane is rebuilt from
the answer to the one before, so that the controller never conflicts with itself.

Right before a write is sent, the lease must have more time left than the request may take. A leader that was
suspended past its lease therefore sends nothing. The write carries the resourceVersion that its decision saw,
so a write that arrives late meets 409.

The answer decides what happens next:

    2xx                  Written
    409                  read the object again; rebuild the write from it, or end as Moot
    404                  Vanished
    429                  all lanes wait as long as the server asks, then the same write is sent again
    no answer, 5xx       the same bytes are sent again after a growing pause. If the first attempt was
                         stored, the second meets 409, and reading the object shows that nothing is left
                         to do. If the object can be read but still not written, the order ends as Refused:
                         a webhook that fails for one object must not hold up the others
    any other 4xx        Refused

A write that was given up, or refused at its second attempt, may still be stored by an earlier attempt.
Refused then names the version on which that can happen, and a caller that relies on the write not being
stored has to move the object to a newer version.

A bug of ours ends one order as Refused, with that version, and is logged and counted. A bug in `on_result` is
too; what the caller has not settled then stays as it was, so an admission keeps its quota. No other order is
affected.

A request that was sent is awaited even when the term ends: a request that is cut off could still be stored
after another replica has become the leader.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.decisions.api_writes import Purpose, Verb, Write
from api.kube.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from api.objects.common import NamedObject

# An order that meets this many conflicts in a row is refused: another client writes faster than we can read.
MAX_CONFLICTS = 5
# After this many attempts without an answer the object is read, to learn whether the server answers at all.
MAX_UNANSWERED = 4
# The pause after a write without an answer doubles from the first to the second.
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 5.0
# A 429 without Retry-After.
DEFAULT_RETRY_AFTER_SECONDS = 1.0

log = Log("berth.executor")


class ObjectTarget(NamedTuple):
    """The object of a write. Writes on one target are sent in the order in which they were submitted."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The server stored the write. `raw` is the object as it is now (b"" after a delete)."""

    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Moot:
    """The object has changed and the write no longer applies. `raw` is the object as read."""

    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """The object, its namespace or its kind is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The server does not accept this write.

    `may_land_on` is the version of the object on which an earlier attempt may still be stored, "" if
    no attempt can be.
    """

    error: KubeError
    may_land_on: str = ""


Result = Written | Moot | Vanished | Refused


@dataclass(slots=True, kw_only=True)
class WriteOrder:
    """One write, its callbacks and its priority.

    `rebuild` builds the write again from the object's present bytes, None when there is nothing left to do.
    Without `rebuild` a conflict ends the order as Moot. `before` and `after` mark the step for failpoints.
    """

    write: Write
    on_result: Callable[[Result], None]
    rebuild: Callable[[bytes], Write | None] | None = None
    priority: int = 0
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    queued_at: float = 0.0

    @property
    def target(self) -> ObjectTarget:
        """Return the object that is written, which names the lane of this order."""
        return ObjectTarget(self.write.kind, self.write.namespace, self.write.name)


class Sender(Protocol):
    """The verbs of the API server that the executor needs. Both methods raise only KubeError."""

    async def send(self, write: Write, *, timeout_seconds: float) -> bytes:
        """Send one write and return the object in the answer."""

    async def read(self, kind: str, namespace: str, name: str, *, timeout_seconds: float) -> bytes:
        """Return the object's bytes."""


@dataclass(slots=True)
class _Lane:
    orders: deque[WriteOrder] = field(default_factory=deque)
    # The answer to the last write of this lane while more orders wait; b"" if there is none.
    latest: bytes = b""


@dataclass(slots=True)
class _Delivery:
    """One order while a worker sends it: the write as built last, and what its attempts have met."""

    order: WriteOrder
    write: Write
    conflicts: int = 0
    unanswered: int = 0
    pause: float = FIRST_RETRY_SECONDS
    # The version on which an attempt may still be stored, "" if none can be. It is kept here, because it
    # belongs to the result however the order ends, also by a bug.
    may_land_on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLimits:
    """At most `max_in_flight` requests at a time, of which each may take `timeout_seconds`."""

    max_in_flight: int = 32
    timeout_seconds: float = 2.0


class Executor:
    """Sends orders during one term of leadership. A new term has a new executor.

    `remaining_seconds` returns how long the lease is still valid. `note_duration` is called with the purpose
    of each write that has ended, and the seconds from `submit` to its last answer. `report_error` reports a
    bug of this controller; it is called from within an `except` block.
    """

    def __init__(
        self,
        sender: Sender,
        clock: Clock,
        *,
        remaining_seconds: Callable[[], float],
        note_duration: Callable[[Purpose, float], None],
        report_error: Callable[[], None],
        limits: ExecutorLimits,
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._remaining_seconds = remaining_seconds
        self._note_duration = note_duration
        self._report_error = report_error
        self._limits = limits
        self._lanes: dict[ObjectTarget, _Lane] = {}
        # Heap of lanes by priority, then by age. A lane is in it at most once, for its first order.
        self._ready: asyncio.PriorityQueue[tuple[int, int, ObjectTarget]] = asyncio.PriorityQueue()
        self._sequence = itertools.count()
        self._paused_until = 0.0
        # The only place where the executor waits by itself. Tests replace it and do not wait, since the real
        # clock would drift from theirs.
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self.sent = 0
        self.conflicts = 0
        self.retries = 0

    def submit(self, order: WriteOrder) -> None:
        """Queue an order behind the others on the same object. `on_result` is called with its result."""
        order.queued_at = self._clock.monotonic()
        lane = self._lanes.get(order.target)
        if lane is None:
            lane = self._lanes[order.target] = _Lane()
            # Only a new lane is put into the heap: one that has orders is in it already, or held by a worker.
            self._ready.put_nowait((order.priority, next(self._sequence), order.target))
        lane.orders.append(order)

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return whether a write on the object is queued or in flight."""
        # A lane that a worker holds stays in `_lanes` until its last order has ended.
        return target in self._lanes

    @property
    def backlog(self) -> int:
        """Return how many objects have a write queued or in flight."""
        return len(self._lanes)

    async def run(self) -> None:
        """Send orders until cancelled."""
        async with asyncio.TaskGroup() as group:
            # Each worker has one request in flight, so the number of workers is the only bound needed.
            for number in range(self._limits.max_in_flight):
                group.create_task(self._worker(), name=f"executor-{number}")

    async def _worker(self) -> None:
        while True:
            _, _, target = await self._ready.get()
            lane = self._lanes[target]
            order = lane.orders[0]
            result = await self._result(_Delivery(order, order.write), lane.latest)
            self._close(target, lane, result)
            self._report(order, result)

    async def _result(self, delivery: _Delivery, latest: bytes) -> Result:
        """Carry out an order. Every error becomes a result, so that none ends the worker."""
        try:
            return await self._carry_out(delivery, latest)
        # 404 to the write itself, or to a read.
        except NotFound:
            return Vanished()
        # Raised by a read: `_carry_out` turns all other errors of the write itself into results.
        except KubeError as error:
            return Refused(error=error, may_land_on=delivery.may_land_on)
        # A bug in one order must not end the worker, for the rest of the term would have one fewer.
        except Exception as error:
            self._note_bug(delivery.order)
            fault = KubeError(f"a fault of our own: {error!r}")
            return Refused(error=fault, may_land_on=delivery.may_land_on)

    def _close(self, target: ObjectTarget, lane: _Lane, result: Result) -> None:
        lane.orders.popleft()
        # The next order of this lane is rebuilt from this answer, so it does not conflict with this write.
        lane.latest = result.raw if isinstance(result, Written | Moot) else b""
        if lane.orders:
            self._ready.put_nowait((lane.orders[0].priority, next(self._sequence), target))
        else:
            # Before `on_result` is called: it may submit the next order on this object.
            del self._lanes[target]

    def _report(self, order: WriteOrder, result: Result) -> None:
        self._note_duration(order.write.purpose, self._clock.monotonic() - order.queued_at)
        try:
            order.on_result(result)
        # A bug in the handling of one result must not end the TaskGroup, and with it the term. An admission
        # is then neither confirmed nor released: it keeps its quota, since quota held too long is better than
        # quota given twice, and the next leader judges its reservation.
        except Exception:
            self._note_bug(order)

    def _note_bug(self, order: WriteOrder) -> None:
        """Report a bug and the write that it affects. Call it from within the `except` block."""
        log.error("executor-error", target="/".join(order.target), purpose=order.write.purpose)
        self._report_error()

    async def _carry_out(self, delivery: _Delivery, latest: bytes) -> Result:
        order = delivery.order
        # The previous order changed the object, and this write was built from older bytes.
        if latest and order.rebuild is not None and (moot := _rebuild(delivery, latest)) is not None:
            return moot
        while True:
            try:
                return Written(raw=await self._sent(delivery))
            # Nothing was sent. Wait until the lease is renewed or the term is cancelled.
            except _LeaseTooShort:
                continue
            except (Conflict, AlreadyExists) as error:
                ended = await self._after_conflict(delivery, error)
            # The server is overloaded, which is not about this object: all lanes wait, then the
            # same write is sent.
            except TooManyRequests as error:
                self._pause(error.retry_after_seconds or DEFAULT_RETRY_AFTER_SECONDS)
                continue
            except (Unreachable, ServerError) as error:
                ended = await self._after_no_answer(delivery, error)
            # `_result` reports it as Vanished, like a 404 to a read.
            except NotFound:
                raise
            except KubeError as error:
                return Refused(error=error, may_land_on=delivery.may_land_on)
            # A bug of ours while the request was under way: the server may have stored it.
            except Exception:
                delivery.may_land_on = delivery.write.resource_version
                raise
            if ended is not None:
                return ended

    async def _after_conflict(self, delivery: _Delivery, error: KubeError) -> Result | None:
        """Rebuild the write from the object as it is. Return the order's result, None to send it again."""
        # The object has another version now. Earlier attempts carry an older one, so they can only fail.
        delivery.conflicts, delivery.may_land_on = delivery.conflicts + 1, ""
        self.conflicts += 1
        moot = _rebuild(delivery, await self._read_again(delivery.order.target))
        if moot is not None:
            return moot
        return Refused(error=error) if delivery.conflicts >= MAX_CONFLICTS else None

    async def _after_no_answer(self, delivery: _Delivery, error: Unreachable | ServerError) -> Result | None:
        """Wait before the same bytes are sent again. Return the order's result, None to send them.

        Whether the write was stored is unknown. Sending the same bytes again is safe: if it was stored, they
        meet 409.
        """
        target, pause = "/".join(delivery.order.target), delivery.pause
        self.retries += 1
        delivery.unanswered, delivery.may_land_on = delivery.unanswered + 1, delivery.write.resource_version
        log.warning("write-unanswered", target=target, error=error, retry_in=pause)
        # Every few attempts, check whether the server answers at all and refuses only this write.
        if delivery.unanswered % MAX_UNANSWERED == 0:
            ended = await self._give_up(delivery, error)
            if ended is not None:
                return ended
        await self.sleep(max(pause, error.retry_after_seconds or 0.0))
        delivery.pause = min(2 * pause, LAST_RETRY_SECONDS)
        return None

    async def _sent(self, delivery: _Delivery) -> bytes:
        """Send a write as soon as that is allowed and return the answer. Raises as `_send` does."""
        order = delivery.order
        # Checked before each attempt, the first included: the order may have waited long for a worker.
        await self._wait_until_allowed()
        if order.before is not None:
            order.before()
        raw = await self._send(delivery.write)
        if order.after is not None:
            order.after()
        return raw

    async def _give_up(self, delivery: _Delivery, error: KubeError) -> Result | None:
        """Return how an order whose writes get no answer ends; None if a read gets no answer either.

        Raises KubeError if the server refuses the read.
        """
        order, write = delivery.order, delivery.write
        try:
            raw = await self._sender.read(*order.target, timeout_seconds=self._limits.timeout_seconds)
        # The server is down: this order waits with all others.
        except (TooManyRequests, Unreachable, ServerError):
            return None
        except NotFound:
            # 404 to a create means that its namespace is gone, 404 to an update that the object is.
            return Refused(error=error) if write.verb is Verb.CREATE else Vanished()
        has_moved_on = order.rebuild(raw) is None if order.rebuild is not None else _has_arrived(write, raw)
        return Moot(raw=raw) if has_moved_on else Refused(error=error, may_land_on=delivery.may_land_on)

    async def _send(self, write: Write) -> bytes:
        request = asyncio.ensure_future(self._send_in_time(write))
        try:
            # Shielded: a request that is cut off may still be stored when another replica leads already.
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            # This takes at most the request's own timeout, and the lease is valid for longer than that.
            await asyncio.wait([request])
            if not request.cancelled():
                request.exception()
            raise

    async def _send_in_time(self, write: Write) -> bytes:
        # Checked in the same step that hands the request to the network: the process may have been suspended
        # since the last check, and another replica may hold the lease by now.
        if self._remaining_seconds() <= self._limits.timeout_seconds:
            raise _LeaseTooShort
        self.sent += 1
        # The lease was found valid for longer than this timeout, so the request ends before the lease does.
        return await self._sender.send(write, timeout_seconds=self._limits.timeout_seconds)

    async def _read_again(self, target: ObjectTarget) -> bytes:
        # A pause of its own: a failed read does not lengthen the pause between attempts to write.
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                return await self._sender.read(*target, timeout_seconds=self._limits.timeout_seconds)
            except TooManyRequests as error:
                await self.sleep(error.retry_after_seconds or DEFAULT_RETRY_AFTER_SECONDS)
            except (Unreachable, ServerError):
                await self.sleep(pause)
                pause = min(2 * pause, LAST_RETRY_SECONDS)

    async def _wait_until_allowed(self) -> None:
        """Return once no 429 is pending and the lease is valid for longer than one request takes."""
        while True:
            wait = self._paused_until - self._clock.monotonic()
            # `>` and not `>=`: if they were equal, the request would end at the same instant as the lease.
            if wait <= 0 and self._remaining_seconds() > self._limits.timeout_seconds:
                return
            # Another task renews the lease. Polling for it is cheap.
            await self.sleep(wait if wait > 0 else FIRST_RETRY_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)


class _LeaseTooShort(Exception):
    """Nothing was sent: the lease ends before the request would."""


def _rebuild(delivery: _Delivery, raw: bytes) -> Moot | None:
    """Build the write again from the object as it is now. Return Moot if there is nothing to rebuild."""
    rebuild = delivery.order.rebuild
    write = rebuild(raw) if rebuild is not None else None
    if write is None:
        return Moot(raw=raw)
    delivery.write = write
    return None


def _has_arrived(write: Write, raw: bytes) -> bool:
    """Return whether a write without `rebuild` was stored although its answer was lost."""
    metadata = msgspec.json.decode(raw, type=NamedObject).metadata
    # A delete and an eviction carry no version: they are done once the object is gone or is being deleted.
    if write.verb in (Verb.DELETE, Verb.EVICT):
        return metadata.deletion_timestamp is not None or metadata.uid != write.uid
    return metadata.resource_version != write.resource_version
