"""Carrying out: every write of the controller passes here, bounded, in order an object, under the lease.

Theory of operation. Writes on one object form a *lane* and are sent in turn; lanes run beside each other,
`max_in_flight` at a time, lower `priority` first. A write that follows another in its lane is rebuilt from
the answer of the one before, so that our own change is never a conflict.

Right before sending, the lease must have more left than the request may take: a leader that slept past its
lease sends nothing. The write carries the resourceVersion its decision saw: what is late all the same meets
409.

What comes back decides:

    2xx                  Written
    409                  read the object again; rebuild the write from it, or hand it back (Moot)
    404                  Vanished
    429                  everybody waits as long as the server asks, then the same write again
    no answer, 5xx       the same bytes again after a growing pause: had the first arrived, the second meets
                         409, and reading again shows that there is nothing left to do. Where the object can
                         be read and still not be written, it is Refused: a webhook that fails for one object
                         must not hold up the others
    any other 4xx        Refused

A write that was given up, or refused at the second try, may still be on its way from the first one: then
Refused says on which version it may land, and whoever counts on its not arriving has to move the object on.

A request that was sent is seen through, also when the term ends: cut off, it could still arrive when somebody
else leads.
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
from api.objects import NamedObject

# A write that meets this many conflicts in a row is given back: somebody else writes faster than we read.
MAX_CONFLICTS = 5
# After this many writes without an answer the object is read: does the server serve at all?
MAX_UNANSWERED = 4
# The pause after a write without an answer doubles from the first to the second.
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 5.0
# A 429 without Retry-After.
DEFAULT_RETRY_AFTER_SECONDS = 1.0

log = Log("berth.executor")


class ObjectTarget(NamedTuple):
    """The object a write is about; writes on one target keep their order."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The server took the write; `raw` is the object as it stands now (b"" after a delete)."""

    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Moot:
    """The object has moved on and the write was not sent (again); `raw` is the object as read."""

    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """The object, its namespace or its kind is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The server will not take this write.

    `may_land_on`: the version of the object on which an earlier sending may be stored all the same, "" where
    none is on its way.
    """

    error: KubeError
    may_land_on: str = ""


Result = Written | Moot | Vanished | Refused


@dataclass(slots=True, kw_only=True)
class WriteOrder:
    """One write and what belongs to it.

    `rebuild` makes the write anew from the object's present bytes, None when there is nothing left to do;
    without it a conflict ends the order as Moot. `before` and `after` mark the step for failpoints.
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
        """The lane of this order."""
        return ObjectTarget(self.write.kind, self.write.namespace, self.write.name)


class Sender(Protocol):
    """The four verbs of an API server as the executor needs them; raises KubeError alone."""

    async def send(self, write: Write, *, timeout_seconds: float) -> bytes:
        """Send one write and return the answer's object."""

    async def read(self, kind: str, namespace: str, name: str, *, timeout_seconds: float) -> bytes:
        """Return the object's bytes."""


@dataclass(slots=True)
class _Lane:
    orders: deque[WriteOrder] = field(default_factory=deque)
    # The answer to the last write of this lane while more orders wait; b"" when none.
    latest: bytes = b""


class Executor:
    """Sends orders during one term of leadership; a new term has a new executor.

    `remaining_seconds` returns what is left of the lease; `note_duration` is called with the purpose of each
    write that has ended and its seconds from `submit` to the last answer.
    """

    def __init__(
        self,
        sender: Sender,
        clock: Clock,
        *,
        remaining_seconds: Callable[[], float],
        note_duration: Callable[[Purpose, float], None],
        max_in_flight: int = 32,
        timeout_seconds: float = 2.0,
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._remaining_seconds = remaining_seconds
        self._note_duration = note_duration
        self._max_in_flight = max_in_flight
        self._timeout_seconds = timeout_seconds
        self._lanes: dict[ObjectTarget, _Lane] = {}
        # Heap of lanes by priority, then by age; a lane stands in it once, for its first order.
        self._ready: asyncio.PriorityQueue[tuple[int, int, ObjectTarget]] = asyncio.PriorityQueue()
        self._sequence = itertools.count()
        self._paused_until = 0.0
        # Replaced by tests, which do not wait.
        # Two clocks would drift in tests; this is the only thing here that waits by itself.
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self.sent = 0
        self.conflicts = 0
        self.retries = 0

    def submit(self, order: WriteOrder) -> None:
        """Queue an order behind those on the same object."""
        order.queued_at = self._clock.monotonic()
        lane = self._lanes.get(order.target)
        if lane is None:
            lane = self._lanes[order.target] = _Lane()
            # A lane that has orders is in the heap already, or in the hands of a worker.
            self._ready.put_nowait((order.priority, next(self._sequence), order.target))
        lane.orders.append(order)

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return whether a write on the object is queued or in flight."""
        # In a worker's hands a lane still stands in `_lanes`: that is what busy means.
        return target in self._lanes

    @property
    def backlog(self) -> int:
        """How many objects have a write queued or in flight."""
        return len(self._lanes)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            # So many workers, so many requests in flight: no other bound is needed.
            for number in range(self._max_in_flight):
                group.create_task(self._worker(), name=f"executor-{number}")

    async def _worker(self) -> None:
        while True:
            _, _, target = await self._ready.get()
            lane = self._lanes[target]
            order = lane.orders[0]
            try:
                result = await self._carry_out(order, lane)
            # Both raised from reading again: the object went away meanwhile.
            except NotFound:
                result = Vanished()
            except KubeError as error:
                result = Refused(error=error)
            # One order's fault must not end the worker, and with it an in-flight place for the
            # rest of the term.
            except Exception as error:
                log.exception("executor-stumbled", target="/".join(target), purpose=order.write.purpose)
                result = Refused(error=KubeError(f"a fault of our own: {error!r}"))
            self._close(target, lane, order, result)

    def _close(self, target: ObjectTarget, lane: _Lane, order: WriteOrder, result: Result) -> None:
        lane.orders.popleft()
        # For the next order of this lane: rebuilt from our own answer it meets no conflict with ourselves.
        lane.latest = result.raw if isinstance(result, Written | Moot) else b""
        if lane.orders:
            self._ready.put_nowait((lane.orders[0].priority, next(self._sequence), target))
        else:
            # Before the result is told: whoever hears of it may submit the next order on this object.
            del self._lanes[target]
        self._note_duration(order.write.purpose, self._clock.monotonic() - order.queued_at)
        order.on_result(result)

    async def _carry_out(self, order: WriteOrder, lane: _Lane) -> Result:
        write = order.write
        # The order before changed the object; this write was made from older bytes.
        if lane.latest and order.rebuild is not None:
            rebuilt = _rebuilt(order, lane.latest)
            if isinstance(rebuilt, Moot):
                return rebuilt
            write = rebuilt
        conflicts, unanswered, pause, may_land_on = 0, 0, FIRST_RETRY_SECONDS, ""
        while True:
            try:
                return Written(raw=await self._sent(order, write))
            # Nothing was sent; wait until the lease is renewed, or the term is cancelled.
            except _LeaseTooShort:
                continue
            except (Conflict, AlreadyExists) as error:
                # Another version stands there, so earlier sendings, which name an older one, can only fail.
                conflicts, may_land_on = conflicts + 1, ""
                self.conflicts += 1
                rebuilt = _rebuilt(order, await self._read_again(order.target))
                if isinstance(rebuilt, Moot):
                    return rebuilt
                if conflicts >= MAX_CONFLICTS:
                    return Refused(error=error)
                write = rebuilt
            # The server is busy, not the object: all lanes wait, and this one sends the same again.
            except TooManyRequests as error:
                self._pause(error.retry_after_seconds or DEFAULT_RETRY_AFTER_SECONDS)
            except (Unreachable, ServerError) as error:
                # Whether it was stored nobody knows. The same bytes again are safe: stored, they meet 409.
                self.retries += 1
                unanswered, may_land_on = unanswered + 1, write.resource_version
                log.warning("write-unanswered", target="/".join(order.target), error=error, retry_in=pause)
                # Every few tries: does the server answer at all, and only not this write?
                if unanswered % MAX_UNANSWERED == 0:
                    ended = await self._give_up(order, write, error)
                    if ended is not None:
                        return ended
                await self.sleep(max(pause, error.retry_after_seconds or 0.0))
                pause = min(2 * pause, LAST_RETRY_SECONDS)
            # Told by the worker, like that of a read.
            except NotFound:
                raise
            except KubeError as error:
                return Refused(error=error, may_land_on=may_land_on)

    async def _sent(self, order: WriteOrder, write: Write) -> bytes:
        """Return the answer to a write, sent once that is allowed. Raises as `_send` does."""
        # Asked before each sending, the first too: waiting for a place in flight may have taken long.
        await self._wait_until_allowed()
        if order.before is not None:
            order.before()
        raw = await self._send(write)
        if order.after is not None:
            order.after()
        return raw

    async def _give_up(self, order: WriteOrder, write: Write, error: KubeError) -> Result | None:
        """Return how an order ends whose writes get no answer; None while reading gets none either."""
        try:
            raw = await self._sender.read(*order.target, timeout_seconds=self._timeout_seconds)
        except (TooManyRequests, Unreachable, ServerError):
            return None
        # Reading gets no answer either: the server is away, and this order waits with all others.
        except NotFound:
            # A create meets 404 where its namespace is gone, an update where its object is.
            return Refused(error=error) if order.write.verb is Verb.CREATE else Vanished()
        has_moved_on = order.rebuild(raw) is None if order.rebuild is not None else _has_arrived(write, raw)
        return Moot(raw=raw) if has_moved_on else Refused(error=error, may_land_on=write.resource_version)

    async def _send(self, write: Write) -> bytes:
        request = asyncio.ensure_future(self._send_in_time(write))
        try:
            # Shielded: a request that is cut off may still reach the server when somebody else leads already.
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            # At most for the request's own timeout, which the lease outlasts.
            await asyncio.wait([request])
            if not request.cancelled():
                request.exception()
            raise

    async def _send_in_time(self, write: Write) -> bytes:
        # Looked at by the very step that hands the request to the network: the process may have been
        # stopped since it was last allowed, and the lease be another's by now.
        if self._remaining_seconds() <= self._timeout_seconds:
            raise _LeaseTooShort
        self.sent += 1
        # With the remaining time of the lease checked, the request ends before the lease does.
        return await self._sender.send(write, timeout_seconds=self._timeout_seconds)

    async def _read_again(self, target: ObjectTarget) -> bytes:
        # Its own pause: reading again is not the write's failure.
        pause = FIRST_RETRY_SECONDS
        while True:
            try:
                return await self._sender.read(*target, timeout_seconds=self._timeout_seconds)
            except TooManyRequests as error:
                await self.sleep(error.retry_after_seconds or DEFAULT_RETRY_AFTER_SECONDS)
            except (Unreachable, ServerError):
                await self.sleep(pause)
                pause = min(2 * pause, LAST_RETRY_SECONDS)

    async def _wait_until_allowed(self) -> None:
        """Return once no 429 holds us back and the lease outlasts one request."""
        while True:
            wait = self._paused_until - self._clock.monotonic()
            # `>` and not `>=`: equal would end the request with the lease.
            if wait <= 0 and self._remaining_seconds() > self._timeout_seconds:
                return
            # The lease is renewed by another task; looking again soon costs nothing, since we hold nothing.
            await self.sleep(wait if wait > 0 else FIRST_RETRY_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._paused_until = max(self._paused_until, self._clock.monotonic() + seconds)


class _LeaseTooShort(Exception):
    """Nothing was sent: the lease does not outlast the request."""


def _rebuilt(order: WriteOrder, raw: bytes) -> Write | Moot:
    """Return the write made anew from the object as it is now; Moot: nothing left to do, or not ours to."""
    fresh = order.rebuild(raw) if order.rebuild is not None else None
    return fresh if fresh is not None else Moot(raw=raw)


def _has_arrived(write: Write, raw: bytes) -> bool:
    """Return whether a write that is not rebuilt has been stored, though its answer was lost."""
    metadata = msgspec.json.decode(raw, type=NamedObject).metadata
    # These name no version: whatever has become of the object meanwhile, it is to go.
    if write.verb in (Verb.DELETE, Verb.EVICT):
        return metadata.deletion_timestamp is not None or metadata.uid != write.uid
    return metadata.resource_version != write.resource_version
