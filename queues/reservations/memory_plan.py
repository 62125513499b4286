"""The stored plan as a value in memory: the model that Redis must agree with. See `PlanStore`."""

from __future__ import annotations

from collections.abc import Collection

from queues.reservations.plan import PlanState, PlanTable, PlanVersion, PlanWrite, StoredPlan
from queues.reservations.reservations import FenceTooLow, NoFence


class InMemoryPlanStore:
    """Tables, their version, and the fence that guards all that a store holds."""

    def __init__(self) -> None:
        #: The highest fence shown so far; None until somebody seeds one.
        self.fence: int | None = None
        self.version: PlanVersion | None = None
        self.tables: dict[PlanTable, dict[str, bytes]] = {table: {} for table in PlanTable}
        #: Tables whose key holds something that is no table.
        self.foreign: set[PlanTable] = set()

    async def write_plan(self, write: PlanWrite, *, fence: int) -> bool:
        """Apply a write whole, or not at all."""
        self._check_fence(fence)
        # The same write once more: its answer was lost, and it stands.
        if self.version == write.version:
            return True
        if not self._may_write(write):
            return False
        for table, rows in write.rows.items():
            if write.after is None:
                self.tables[table].clear()
                self.foreign.discard(table)
            for field, row in rows.items():
                if row is None:
                    self.tables[table].pop(field, None)
                else:
                    self.tables[table][field] = row
        self.version = write.version
        return True

    def _may_write(self, write: PlanWrite) -> bool:
        if write.after is not None:
            return self.version == write.after and not self.foreign.intersection(write.rows)
        # With `after` None nothing is built upon, so only the numbers of one leader can tell early
        # from late; a write of an older fence never comes this far.
        # One of its own fence that comes late must not undo what came after it.
        known = self.version
        return known is None or known.fence != write.version.fence or known.number < write.version.number

    async def read_plan(self, tables: Collection[PlanTable]) -> StoredPlan:
        """Return what is held of these tables."""
        foreign = tuple(table for table in tables if table in self.foreign)
        # A foreign key is no table to be read; it is named, so that somebody writes it anew.
        rows = {table: dict(self.tables[table]) for table in tables if table not in foreign}
        return StoredPlan(version=self.version, rows=rows, foreign=foreign)

    async def plan_state(self) -> PlanState:
        """Return the version and the sizes."""
        sizes = {table: -1 if table in self.foreign else len(rows) for table, rows in self.tables.items()}
        return PlanState(version=self.version, sizes=sizes)

    def flush_plan(self) -> None:
        """Lose all tables."""
        self.version = None
        self.foreign.clear()
        for rows in self.tables.values():
            rows.clear()

    def _check_fence(self, fence: int) -> None:
        if self.fence is None:
            raise NoFence
        if fence < self.fence:
            raise FenceTooLow(fence=fence, highest=self.fence)
        self.fence = fence
