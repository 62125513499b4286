"""The stored plan in memory: the model that Redis must agree with. See `PlanStore` for the contract."""

from __future__ import annotations

from collections.abc import Collection

from queues.reservations.plan import PlanState, PlanTable, PlanVersion, PlanWrite, StoredPlan
from queues.reservations.reservations import FenceTooLow, NoFence


class InMemoryPlanStore:
    """The tables, their version, and the fence that guards the whole store."""

    def __init__(self) -> None:
        #: The highest fence that a caller has presented; None until a leader seeds one.
        self.fence: int | None = None
        self.version: PlanVersion | None = None
        self.tables: dict[PlanTable, dict[str, bytes]] = {table: {} for table in PlanTable}
        #: Tables whose key holds a value of another type.
        self.foreign: set[PlanTable] = set()

    async def write_plan(self, write: PlanWrite, *, fence: int) -> bool:
        """Apply a write as a whole or not at all; see `PlanStore.write_plan`."""
        self._check_fence(fence)
        # The same write again: it was applied, and its reply was lost.
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
        # With `after` None the write depends on no earlier version, so only the numbers of one leader show
        # which write is later. A write with an older fence was refused before. A late write of the same
        # fence must not undo a later one.
        known = self.version
        return known is None or known.fence != write.version.fence or known.number < write.version.number

    async def read_plan(self, tables: Collection[PlanTable]) -> StoredPlan:
        """Return the rows of these tables, and which of them are foreign."""
        foreign = tuple(table for table in tables if table in self.foreign)
        # A foreign key cannot be read as a table. It is reported, so that the leader writes the table again.
        rows = {table: dict(self.tables[table]) for table in tables if table not in foreign}
        return StoredPlan(version=self.version, rows=rows, foreign=foreign)

    async def plan_state(self) -> PlanState:
        """Return the version and the number of rows of each table; -1 for a foreign one."""
        sizes = {table: -1 if table in self.foreign else len(rows) for table, rows in self.tables.items()}
        return PlanState(version=self.version, sizes=sizes)

    def flush_plan(self) -> None:
        """Drop all tables and the version."""
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
