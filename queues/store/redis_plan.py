"""The plan in Redis: `PlanStore` on three scripts, with one hash for each table."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from queues.reservations.plan import PlanState, PlanTable, PlanVersion, PlanWrite, StoredPlan, to_plan_version
from queues.reservations.reservations import CorruptValue
from queues.store import lua
from queues.store.clients import SLOW_SECONDS
from queues.store.plan_rows import UNSIGNED
from queues.store.redis_scripts import RedisScripts
from queues.store.seal import NotSigned

TABLES = tuple(PlanTable)


class RedisPlan(RedisScripts):
    """The tables of one shard. See `PlanStore` for the contract."""

    async def write_plan(self, write: PlanWrite, *, fence: int) -> bool:
        """Apply a write as a whole; False where the version differs or a table holds a foreign value."""
        tables = list(write.rows)
        keys = (self._keys.fence, self._keys.plan, *map(self._keys.table, tables))
        # The version is passed as text: Redis compares it and never parses it.
        arguments: list[Any] = [
            self._fence(fence),
            write.after.text if write.after else "",
            write.version.text,
        ]
        for table in tables:
            put = [
                (field, self.seal.close(self._keys.row(table, field), row))
                for field, row in write.rows[table].items()
                if row is not None
            ]
            dropped = [field for field, row in write.rows[table].items() if row is None]
            arguments += [len(put), len(dropped)]
            arguments += [part for field, row in put for part in (_to_bytes(field), row)]
            arguments += map(_to_bytes, dropped)
        try:
            answer = await self._run(lua.PLAN_WRITE, keys, arguments, fence=fence, is_write=True)
        except CorruptValue as error:
            # A table can be replaced: the next write of the whole plan overwrites the foreign value.
            if error.key in (self._keys.fence, self._keys.plan):
                raise
            self.on_corrupt(error)
            return False
        # GAP: the store has another version than this write builds upon.
        return answer[0] != b"GAP"

    async def read_plan(self, tables: Collection[PlanTable]) -> StoredPlan:
        """Return the content of these tables."""
        # A small call first shows quickly whether Redis answers. The large one then gets more time.
        await self.plan_state()
        # One script, so that version and tables are of the same instant.
        keys = (self._keys.plan, *map(self._keys.table, tables))
        _, version, *parts = await self._run(lua.PLAN_READ, keys, [], seconds=SLOW_SECONDS)
        stream = iter(parts)
        found = {table: _read_rows(stream) for table in tables}
        return StoredPlan(
            version=_to_version(version),
            rows={table: self._open(table, rows) for table, rows in found.items() if rows is not None},
            foreign=tuple(table for table, rows in found.items() if rows is None),
        )

    def _open(self, table: PlanTable, rows: dict[str, bytes]) -> dict[str, bytes]:
        """Return the rows without their signatures; UNSIGNED in place of a row that has none."""
        opened = {}
        for field, stored in rows.items():
            try:
                opened[field] = self.seal.open(self._keys.row(table, field), stored)
            except NotSigned:
                opened[field] = UNSIGNED
        return opened

    async def plan_state(self) -> PlanState:
        """Return the version and the number of rows of each table; -1 for a foreign one."""
        keys = (self._keys.plan, *map(self._keys.table, TABLES))
        _, version, *sizes = await self._run(lua.PLAN_STATE, keys, [])
        return PlanState(version=_to_version(version), sizes=dict(zip(TABLES, map(int, sizes), strict=True)))


def _read_rows(stream: Iterator[bytes]) -> dict[str, bytes] | None:
    """Consume one table of the answer and return its rows; None for a key of another type."""
    count = int(next(stream))
    if count < 0:
        return None
    return {_to_text(next(stream)): next(stream) for _ in range(count)}


def _to_version(text: bytes) -> PlanVersion | None:
    return to_plan_version(text.decode(errors="replace"))


# Berth's own fields are ASCII. Foreign bytes must survive too, so that such a field can
# be reported and deleted.
def _to_text(field: bytes) -> str:
    return field.decode(errors="surrogateescape")


def _to_bytes(field: str) -> bytes:
    return field.encode(errors="surrogateescape")
