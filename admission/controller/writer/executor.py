"""Sending of writes: every write of the controller passes here, bounded, ordered per object, under the lease.

Theory of operation. Writes on one object are sent in order (`lanes`). Lanes run in parallel, as many at a
time as the server answers well (`in_flight_limit`). What becomes of one write is told by `delivery`. A lane
that pauses between two attempts has no place: objects whose writes fail do not hold up the others.

A bug of ours ends one order as Refused, with the version on which it may still be stored, and is logged and
counted. A bug in `on_result` is too; what the caller has not settled then stays as it was, so an admission
keeps its quota. No other order is affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from admission.controller.runtime.clock import Clock
from admission.controller.writer.delivery import Again, Attempts
from admission.controller.writer.in_flight_limit import InFlightLimit
from admission.controller.writer.lanes import Lane, Lanes
from admission.controller.writer.write_order import ObjectTarget, Result, Sender, WriteOrder
from admission.decisions.api_writes import Purpose


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
        self._clock = clock
        self._note_duration = note_duration
        self.in_flight_limit = InFlightLimit(limits.max_in_flight)
        self._lanes = Lanes(clock)
        self.attempts = Attempts(
            sender,
            clock,
            limit=self.in_flight_limit,
            write_seconds=write_seconds,
            has_backlog=self._has_backlog,
            report_error=report_error,
        )
        # Each worker has one request in flight.
        self._workers = 0
        self._group: asyncio.TaskGroup | None = None

    def submit(self, order: WriteOrder) -> None:
        """Queue an order behind the others on the same object. `on_result` is called with its result."""
        if self._lanes.add(order):
            self._use_free_place()

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return whether a write on the object is queued or in flight."""
        return target in self._lanes

    @property
    def is_behind(self) -> bool:
        """Return whether writes that do more than report wait for a place or for their answer.

        Those that pause because their object fails do not count: that may go on for days.
        """
        return self._lanes.is_behind

    @property
    def backlog(self) -> int:
        """Return how many objects have a write queued or in flight."""
        return len(self._lanes)

    @property
    def unanswered(self) -> frozenset[ObjectTarget]:
        """Return the objects that a write was being sent to, once `run` has ended: what it did is unknown."""
        return frozenset(self._lanes.tried)

    @property
    def leaves_open(self) -> bool:
        """Return whether a write may still be stored once `run` has ended, because it had no answer."""
        return any(delivery.is_open for delivery in self._lanes.tried.values())

    async def run(self) -> None:
        """Send orders until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for _ in range(self._lanes.ready):
                    self._use_free_place()
                await asyncio.Event().wait()
            finally:
                # A group that ends takes no tasks. What is submitted from now on is never sent.
                self._group = None

    async def read(self, target: ObjectTarget) -> bytes:
        """Return the object's bytes as soon as the server answers. Raises NotFound and other refusals."""
        return await self.attempts.read(target)

    def _has_backlog(self) -> bool:
        return self._lanes.ready > 0 and self._workers >= self.in_flight_limit.allowed

    def _use_free_place(self) -> None:
        if self._group is not None and self._workers < self.in_flight_limit.allowed:
            self._workers += 1
            self._group.create_task(self._work(), name="executor-worker")

    async def _work(self) -> None:
        """Send orders, one at a time, until there are none or too many workers."""
        # Without a step of the event loop between two orders: it takes long while the control loop decides.
        while self._workers <= self.in_flight_limit.allowed and (lane := await self._next()) is not None:
            await self._serve(lane)
            # The server may take more by now.
            if self._lanes.ready:
                self._use_free_place()
        self._workers -= 1

    async def _next(self) -> Lane | None:
        """Take the most urgent lane as soon as it may be sent; None if there is none."""
        while self._lanes.ready:
            # Before the choice, since a more urgent one may come meanwhile.
            await self.attempts.wait_until_allowed()
            if self._lanes.ready and (lane := self._lanes.take()) is not None:
                return lane
        return None

    async def _serve(self, lane: Lane) -> None:
        """Try the first order of a lane."""
        delivery = lane.first()
        result = await self.attempts.result_of(delivery)
        self._lanes.give_up_place(lane)
        if not isinstance(result, Again):
            # Before `on_result` is called: it may submit the next order on this object.
            if self._lanes.end_first(lane, result):
                self._use_free_place()
            self._report(delivery.order, result)
        elif self._group is not None:
            # The lane pauses, and its place is another's.
            self._group.create_task(self._rest(lane, result.seconds), name="executor-pause")

    async def _rest(self, lane: Lane, seconds: float) -> None:
        await self.attempts.sleep(seconds)
        self._lanes.make_ready(lane)
        self._use_free_place()

    def _report(self, order: WriteOrder, result: Result) -> None:
        self._note_duration(order.write.purpose, self._clock.monotonic() - order.queued_at)
        try:
            order.on_result(result)
        # A bug in the handling of one result must not end the TaskGroup, and with it the term. An admission
        # is then neither confirmed nor released: it keeps its quota, since quota held too long is better than
        # quota given twice, and the next leader judges its reservation.
        except Exception:
            self.attempts.note_bug(order)
