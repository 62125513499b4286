"""A store in memory that can be made to fail, as Redis fails."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from queues.reservations.memory_reservations import InMemoryReservationStore
from queues.reservations.plan import PlanState, PlanTable, PlanWrite, StoredPlan
from queues.reservations.reservations import (
    LoggedDecision,
    Lost,
    QuotaReservation,
    ReservationError,
    ReservationId,
    Reserved,
    ServerLife,
)


class FaultyStore:
    """The model behind a line that may be cut: while `fault` is set every call raises it.

    With `takes_effect` a commit raises all the same, but has taken effect: its reply was lost. With `pings`
    such a store answers pings, as one does that only refuses to write.
    """

    def __init__(self) -> None:
        self.model = InMemoryReservationStore()
        self.fault: ReservationError | None = None
        self.takes_effect = False
        self.pings = False
        self.commits = 0
        self.pinged = 0

    async def commit(
        self,
        reservations: Sequence[QuotaReservation],
        *,
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision] = (),
    ) -> tuple[Reserved | Lost, ...]:
        """Commit, or fail."""
        self.commits += 1
        if self.takes_effect:
            await self.model.commit(reservations, fence=fence, request_id=request_id, log=log)
        self._fail()
        answers = await self.model.commit(reservations, fence=fence, request_id=request_id, log=log)
        for _ in range(self.commits, 20):  # the reply is on its way, and those of later commits overtake it
            await asyncio.sleep(0)
        return answers

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete, or fail."""
        self._fail()
        await self.model.confirm(ids, fence=fence)

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete, or fail."""
        self._fail()
        await self.model.release(ids, fence=fence)

    async def restore(
        self, held: Sequence[QuotaReservation], gone: Sequence[ReservationId], *, fence: int
    ) -> None:
        """Write back, or fail."""
        self._fail()
        await self.model.restore(held, gone, fence=fence)

    async def live(self, *, fence: int) -> tuple[QuotaReservation, ...]:
        """Read, or fail."""
        self._fail()
        return await self.model.live(fence=fence)

    async def highest_fence(self) -> int | None:
        """Read, or fail."""
        self._fail()
        return self.model.fence

    async def life(self) -> ServerLife:
        """Read, or fail."""
        self._fail()
        return await self.model.life()

    async def vouch(self, life: str, *, fence: int) -> None:
        """Note, or fail."""
        self._fail()
        await self.model.vouch(life, fence=fence)

    async def seed_fence(self, fence: int) -> None:
        """Seed, or fail."""
        self._fail()
        await self.model.seed_fence(fence)

    async def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Read, or fail."""
        self._fail()
        return await self.model.decisions(limit=limit)

    async def write_plan(self, write: PlanWrite, *, fence: int) -> bool:
        """Write, or fail."""
        if self.takes_effect:
            await self.model.write_plan(write, fence=fence)
        self._fail()
        return await self.model.write_plan(write, fence=fence)

    async def read_plan(self, tables: Collection[PlanTable]) -> StoredPlan:
        """Read, or fail."""
        self._fail()
        return await self.model.read_plan(tables)

    async def plan_state(self) -> PlanState:
        """Read, or fail."""
        self._fail()
        return await self.model.plan_state()

    async def ping(self) -> None:
        """Answer, or fail."""
        self.pinged += 1
        if not self.pings:
            self._fail()

    async def close(self) -> None:
        """Do nothing."""

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault
