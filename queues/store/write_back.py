"""What a store that was lost lacks: reservations and log entries that are in memory and not yet in Redis.

Reservations are recorded by id and not as a list of calls, because Redis needs only the present state of
each. The log is expendable, so only its latest entries are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from uuid import uuid4

from queues.reservations.memory_reservations import InMemoryReservationStore
from queues.reservations.plan import Store
from queues.reservations.reservations import LoggedDecision, ReservationId

# How many log entries of decisions made without the store are kept. Older ones are dropped;
# the log is expendable.
LOG_BACKLOG = 2_000


class WriteBack:
    """The ids and log entries that `store` lacks of what `memory` holds."""

    def __init__(self, store: Store, memory: InMemoryReservationStore) -> None:
        self._store = store
        self._memory = memory
        #: Ids whose reservation in Redis may differ from that in memory.
        self._unwritten: set[ReservationId] = set()
        self._log: deque[LoggedDecision] = deque(maxlen=LOG_BACKLOG)
        self._writing = asyncio.Lock()

    def __len__(self) -> int:
        """Return for how many Workloads the reservation has yet to be written."""
        return len(self._unwritten)

    def note(self, ids: Iterable[ReservationId]) -> None:
        """Record that Redis may differ from memory in these reservations."""
        self._unwritten.update(ids)

    def note_all(self) -> None:
        """Record that Redis lacks everything that memory holds."""
        self._unwritten.update(self._memory.reservations)

    def log(self, entries: Iterable[LoggedDecision]) -> None:
        """Keep log entries of decisions made without the store."""
        self._log.extend(entries)

    def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Return the last `limit` log entries that were not written, newest first."""
        return tuple(reversed(self._log))[:limit]

    async def write(self, fence: int, *, always: bool = False) -> None:
        """Write to Redis what it lacks. `always`: call it even where that is nothing, as a probe.

        Raises what the store raises, and then keeps everything for the next attempt.
        """
        if not (self._unwritten or always):
            return
        async with self._writing:
            # Repeated while changes arrive during the call. At the end Redis holds what memory holds then.
            while self._unwritten or always:
                await self._write_once(fence)
                always = False
            await self._write_log(fence)

    async def _write_once(self, fence: int) -> None:
        # Changes during the call go into the new set, and are written in the next round.
        ids, self._unwritten = self._unwritten, set()
        reservations = self._memory.reservations
        held = [reservations[id_] for id_ in sorted(ids) if id_ in reservations]
        gone = [id_ for id_ in sorted(ids) if id_ not in reservations]
        try:
            await self._store.restore(held, gone, fence=fence)
        except BaseException:
            self._unwritten |= ids
            raise

    async def _write_log(self, fence: int) -> None:
        # As above: decisions made during the call belong to the next one.
        entries, self._log = self._log, deque(maxlen=LOG_BACKLOG)
        if not entries:
            return
        try:
            # A new id each time: entries whose answer is lost are logged twice, which is acceptable.
            await self._store.commit((), fence=fence, request_id=f"log-{uuid4()}", log=tuple(entries))
        except BaseException:
            self._log = deque((*entries, *self._log), maxlen=LOG_BACKLOG)
            raise
