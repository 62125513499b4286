"""Sending of writes: every write of the controller passes here, bounded, ordered per object, under the lease.

Theory of operation. Writes on one object form a *lane* and are sent in order. Lanes run in parallel, as many
at a time as the server answers well (`in_flight_limit`): first admissions, then what frees quota, then all
other writes that start or stop something, then reports (`priorities`); of one priority the longest waiting
first. A lane has the priority of its most urgent order. A write that follows another in its lane is rebuilt
from the answer to the one before, so that the controller never conflicts with itself.

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

A lane that pauses between two attempts has no place: objects whose writes fail do not hold up the others.

A write that was given up, or refused at a later attempt, may still be stored by an earlier attempt.
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
import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.controller.writer.in_flight_limit import InFlightLimit
from admission.controller.writer.priorities import Priority
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
from admission.decisions.api_writes import Purpose, Verb, Write
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
class _Delivery:
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


# From when on the lane would be an admission's equal (monotonic seconds), a number, and the lane.
_Entry = tuple[float, int, ObjectTarget]


@dataclass(slots=True)
class _Lane:
    orders: deque[WriteOrder] = field(default_factory=deque)
    # The answer to the last write of this lane while more orders wait; b"" if there is none.
    latest: bytes = b""
    # The first order, once it has been tried.
    delivery: _Delivery | None = None
    # The priority of its most urgent order, and the entry in the heap; None while it is served or pauses.
    priority: Priority = Priority.REASON
    entry: _Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """The order has not ended: it is tried again after a pause."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLimits:
    """Never more than `max_in_flight` requests at a time."""

    max_in_flight: int = 128


class Executor:
    """Sends orders during one term of leadership. A new term has a new executor.

    `write_seconds` returns how long a write that is sent now may take, 0 if the lease allows none.
    `note_duration` is called with the purpose of each write that has ended, and the seconds from `submit` to
    its last answer. `report_error` reports a bug of this controller; it is called from within an `except`
    block.
    """

    def __init__(
        self,
        sender: Sender,
        clock: Clock,
        *,
        write_seconds: Callable[[], float],
        note_duration: Callable[[Purpose, float], None],
        report_error: Callable[[], None],
        limits: ExecutorLimits,
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._write_seconds = write_seconds
        self._note_duration = note_duration
        self._report_error = report_error
        self._limits = limits
        self.in_flight_limit = InFlightLimit(limits.max_in_flight)
        self._lanes: dict[ObjectTarget, _Lane] = {}
        # Heap of lanes by priority and age. An entry that is not that of its lane is outdated.
        self._ready: list[_Entry] = []
        self._sequence = itertools.count()
        # Each worker has one request in flight.
        self._workers = 0
        # How many lanes wait for a place or have one, and do more than report.
        self._acting = 0
        self._group: asyncio.TaskGroup | None = None
        # How many requests in a row got 429, and until when none is sent because of that.
        self._rejected = 0
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
        lane = self._lanes.setdefault(order.target, _Lane())
        lane.orders.append(order)
        # A lane with several orders waits already, unless it has a place or pauses. Its priority may rise: an
        # admission does not wait behind other lanes because of a report before it in its own.
        if len(lane.orders) == 1 or (lane.entry is not None and order.priority < lane.priority):
            self._enqueue(order.target, lane)

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return whether a write on the object is queued or in flight."""
        # A lane stays in `_lanes` until its last order has ended.
        return target in self._lanes

    @property
    def is_behind(self) -> bool:
        """Return whether writes that do more than report wait for a place or for their answer.

        Those that pause because their object fails do not count: that may go on for days.
        """
        return self._acting > 0

    @property
    def backlog(self) -> int:
        """Return how many objects have a write queued or in flight."""
        return len(self._lanes)

    @property
    def unanswered(self) -> frozenset[ObjectTarget]:
        """Return the objects that a write was being sent to, once `run` has ended: what it did is unknown."""
        return frozenset(target for target, lane in self._lanes.items() if lane.delivery is not None)

    @property
    def leaves_open(self) -> bool:
        """Return whether a write may still be stored once `run` has ended, because it had no answer."""
        return any(lane.delivery is not None and lane.delivery.is_open for lane in self._lanes.values())

    async def run(self) -> None:
        """Send orders until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for _ in self._ready:
                    self._use_free_place()
                await asyncio.Event().wait()
            finally:
                # A group that ends takes no tasks. What is submitted from now on is never sent.
                self._group = None

    def _enqueue(self, target: ObjectTarget, lane: _Lane) -> None:
        if lane.entry is not None:
            self._acting -= not lane.priority.is_report
        lane.priority = min(order.priority for order in lane.orders)
        self._acting += not lane.priority.is_report
        lane.entry = self._clock.monotonic() + lane.priority, next(self._sequence), target
        heapq.heappush(self._ready, lane.entry)
        self._use_free_place()

    def _use_free_place(self) -> None:
        if self._group is not None and self._workers < self.in_flight_limit.allowed:
            self._workers += 1
            self._group.create_task(self._work(), name="executor-worker")

    async def _work(self) -> None:
        """Send orders, one at a time, until there are none or too many workers."""
        # Without a step of the event loop between two orders: it takes long while the control loop decides.
        while self._workers <= self.in_flight_limit.allowed and (target := await self._next()) is not None:
            await self._serve(target, self._lanes[target])
            # The server may take more by now.
            if self._ready:
                self._use_free_place()
        self._workers -= 1

    async def _next(self) -> ObjectTarget | None:
        """Take the most urgent lane from the heap as soon as it may be sent; None if there is none."""
        while self._ready:
            # Before the choice, since a more urgent one may come meanwhile.
            await self._wait_until_allowed()
            if self._ready:
                entry = heapq.heappop(self._ready)
                lane = self._lanes.get(entry[2])
                if lane is not None and lane.entry is entry:
                    return entry[2]
        return None

    async def _serve(self, target: ObjectTarget, lane: _Lane) -> None:
        """Try the first order of a lane."""
        lane.entry = None
        delivery = lane.delivery
        if delivery is None:
            order = lane.orders[0]
            # Without `rebuild` it is not known whether the previous order has changed anything.
            latest = lane.latest if order.rebuild is not None else b""
            delivery = lane.delivery = _Delivery(order, order.write, latest or _changed(order))
        result = await self._result(delivery)
        self._acting -= not lane.priority.is_report
        if not isinstance(result, _Again):
            self._close(target, lane, result)
            self._report(delivery.order, result)
        elif self._group is not None:
            # The lane pauses, and its place is another's.
            self._group.create_task(self._rest(target, lane, result.seconds), name="executor-pause")

    async def _rest(self, target: ObjectTarget, lane: _Lane, seconds: float) -> None:
        await self.sleep(seconds)
        self._enqueue(target, lane)

    async def _result(self, delivery: _Delivery) -> Result | _Again:
        """Try an order. Every error becomes a result, so that none ends the executor."""
        try:
            return await self._try(delivery)
        # 404 to the write itself, or to a read.
        except NotFound:
            return Vanished()
        except KubeError as error:
            return Refused(error=error, may_land_on=delivery.may_land_on)
        except Exception as error:
            self._note_bug(delivery.order)
            fault = KubeError(f"a fault of our own: {error!r}")
            return Refused(error=fault, may_land_on=delivery.may_land_on)

    def _close(self, target: ObjectTarget, lane: _Lane, result: Result) -> None:
        lane.orders.popleft()
        lane.delivery = None
        # The next order of this lane is rebuilt from this answer, so it does not conflict with this write.
        lane.latest = result.raw if isinstance(result, Written | Moot) else b""
        if lane.orders:
            self._enqueue(target, lane)
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

    async def _try(self, delivery: _Delivery) -> Result | _Again:
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
                self.conflicts += 1
            except TooManyRequests as error:
                seconds = error.retry_after_seconds or DEFAULT_RETRY_AFTER_SECONDS
                self._note_rejection(delivery, seconds)
                return _again(delivery, seconds)
            except (Unreachable, ServerError) as error:
                self._note_no_answer(delivery, error)
                return _again(delivery, error.retry_after_seconds or 0.0)

    def _note_rejection(self, delivery: _Delivery, seconds: float) -> None:
        now = self._clock.monotonic()
        self._rejected += 1
        # A server that takes some is busy. One that takes none is not to be asked by every lane in turn.
        if self._rejected >= self.in_flight_limit.allowed:
            self._rejected = 0
            self._paused_until = max(self._paused_until, now + seconds)
        self.in_flight_limit.note_overload(delivery.sent_at, now)

    def _note_no_answer(self, delivery: _Delivery, error: Unreachable | ServerError) -> None:
        """Note that a request had no answer. Whether a write was stored is then unknown."""
        self.retries += 1
        if isinstance(error, Timeout):
            self.in_flight_limit.note_overload(delivery.sent_at, self._clock.monotonic())
        # Otherwise it was a read: an error that is set is cleared before the write is sent.
        if delivery.error is None:
            delivery.error = error
            delivery.unanswered += 1
            delivery.may_land_on = delivery.write.resource_version
        target = "/".join(delivery.order.target)
        log.warning("write-unanswered", target=target, error=error, retry_in=delivery.pause)

    async def _read_again(self, delivery: _Delivery, error: KubeError) -> Result | None:
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

    async def _sent(self, delivery: _Delivery) -> bytes:
        """Send a write as soon as that is allowed and return the answer. Raises as `_send` does."""
        order = delivery.order
        # Checked before each attempt, the first included: the lease may be short by now.
        await self._wait_until_allowed()
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
        has_backlog = bool(self._ready) and self._workers >= self.in_flight_limit.allowed
        self.in_flight_limit.note_answer(delivery.sent_at, self._clock.monotonic(), has_backlog=has_backlog)
        return raw

    async def _send(self, delivery: _Delivery) -> bytes:
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
        self.sent += 1
        # Renewals that succeed meanwhile do not extend it: the request ends before the lease known now does.
        return await self._sender.send(write, timeout_seconds=seconds)

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

    async def _wait_until_allowed(self) -> None:
        """Return once no 429 is pending and the lease leaves a request enough time."""
        while True:
            wait = self._paused_until - self._clock.monotonic()
            if wait <= 0 and self._write_seconds() > 0:
                return
            # Another task renews the lease. Polling for it is cheap.
            await self.sleep(wait if wait > 0 else FIRST_RETRY_SECONDS)


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


def _changed(order: WriteOrder) -> bytes:
    """Return the object as last seen if it has changed while its write waited, b"" otherwise."""
    seen = order.look_up() if order.look_up is not None else None
    # A write on any version stays as it is.
    return seen[1] if seen is not None and order.write.resource_version not in ("", seen[0]) else b""


def _again(delivery: _Delivery, at_least: float) -> _Again:
    """Return the order's next pause, which is longer than the one before."""
    pause, delivery.pause = delivery.pause, min(2 * delivery.pause, LAST_RETRY_SECONDS)
    return _Again(seconds=max(pause, at_least))


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
