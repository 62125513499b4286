"""The leader's plan in the store: read at takeover, written with each cycle that changed it.

    lease won ─▶ take over (read, check, adopt) ─▶ flush with every cycle
                                                      lost    nothing is forgotten; the next flush compares
                                                      gap     another version is there: rewrite all at once
                                                      watch   every few seconds: is it unchanged?

Promises, leases and expected starts are written before the admissions of their cycle are sent, so a leader
that dies has reported nothing that is not stored. There is one call per cycle, with the changed rows only; a
cycle that changed nothing makes none. Learned run times are written every few seconds: if they are lost, they
are learned again from the Workloads that still exist.

The leader's memory is authoritative for its plan, and the store is a copy for the next leader. So an
unreadable row is reported, counted and overwritten. Refusing to lead, as for an unreadable reservation, was
rejected: no quota depends on a promise, and the next cycle makes another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from admission.controller.loop.control_loop import ControlLoop
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.engine.engine import Engine
from admission.engine.restore_plan import stored_value
from queues.reservations.plan import (
    HISTORY_TABLES,
    PLAN_TABLES,
    PlanState,
    PlanTable,
    PlanValues,
    PlanVersion,
    PlanWrite,
    StoredPlan,
)
from queues.reservations.reservations import ReservationError
from queues.store.failover_store import FailoverStore
from queues.store.plan_rows import BadRow, read_rows, to_field, to_row

log = Log("berth.plan")

# How often learned run times are written, and how often the store is checked for the plan as it was left.
WATCH_SECONDS = 5.0
# How many rows of learned run times one call writes: a few hundred kB, a millisecond of Redis's time.
HISTORY_ROWS = 500

Fields = dict[str, bytes | None]


class PlanWriter:
    """Writes the plan during one leadership. `note` is called with each row that is ignored.

    `count` is called with the result of each write: `written`, or `rewritten` if the whole plan was rewritten
    because the store held another version.
    """

    def __init__(
        self,
        store: FailoverStore,
        engine: Engine,
        control_loop: ControlLoop,
        clock: Clock,
        *,
        note: Callable[[BadRow], None],
        count: Callable[[str], None],
    ) -> None:
        self._store = store
        self._engine = engine
        self._control_loop = control_loop
        self._clock = clock
        self._note = note
        self._count = count
        self._fence = 0
        self._number = 0
        # The version that the store should hold; None: the next write rewrites the whole plan.
        self._version: PlanVersion | None = None
        # The rows that the store should hold in the plan's tables.
        self._rows: dict[PlanTable, dict[str, bytes]] = {table: {} for table in PLAN_TABLES}
        # What has to be deleted: unreadable rows of learned run times, and keys that hold something
        # other than a table.
        self._garbage: dict[PlanTable, Fields] = {}
        self._foreign: tuple[PlanTable, ...] = ()
        # Whether the set of changed rows is unknown, so that all rows have to be compared.
        self._compares = True
        self._has_begun = False
        self._has_read = False
        self._writing = asyncio.Lock()
        self._woken = asyncio.Event()

    @property
    def _may_write(self) -> bool:
        # A write before the predecessor's plan was read would destroy it.
        return self._has_read and self._store.status().is_up

    def wake(self) -> None:
        """Check the stored plan at once: the store may have been away."""
        self._woken.set()

    # --- taking over ------------------------------------------------------------------------------

    async def take_over(self, fence: int) -> None:
        """Continue the plan that the store holds. Call it before the first cycle of each term.

        In the first term of a leadership the stored plan replaces what this replica knew as a follower. In
        later terms, a row that both have is kept as this leader has it. If the store is lost or was emptied,
        the plan that this replica last showed as a follower stays in force. Raises what the store raises.
        """
        self._fence = fence
        # Later terms of a leadership keep what this leader has promised since the first.
        is_whole = not self._has_begun
        async with self._writing:
            stored = await self._store.read_plan(tuple(PlanTable))
        plan, bad = read_rows(stored) if stored is not None else (PlanValues(), ())
        for one in bad:
            self._note(one)
        engine, now = self._engine, self._clock.now()
        # A follower's copy of the plan may be a second old, so the stored plan goes first. A store without a
        # plan was emptied, perhaps by the accident that ended the previous leader.
        is_whole &= stored is not None and stored.version is not None
        # Not under the lock, because the control loop may be waiting for it.
        untrue = await self._control_loop.ask(lambda: engine.plan.adopt(plan, now=now, is_whole=is_whole))
        self._has_begun = True
        if stored is not None:
            self._begin_chain(stored, plan, bad)
            counts = {table.value: len(plan.table(table)) for table in PlanTable}
            log.info("plan-taken-over", untrue=untrue, ignored=len(bad), **counts)

    def _begin_chain(self, stored: StoredPlan, plan: PlanValues, bad: tuple[BadRow, ...]) -> None:
        self._has_read = True
        self._foreign = stored.foreign
        # Versions continue from the last leader's. Under a foreign key no row can be written: the key has to
        # be deleted first, which a rewrite of the whole plan does.
        self._version = stored.version if not stored.foreign else None
        self._rows = {table: dict(stored.rows.get(table, {})) for table in PLAN_TABLES}
        self._compares = True
        self._garbage = {table: {} for table in HISTORY_TABLES}
        for row in bad:
            if row.field and row.table in self._garbage:
                self._garbage[row.table][row.field] = None
        for table in HISTORY_TABLES:
            entries, known = self._engine.plan.tables()[table], plan.table(table)
            # Mark only the rows that differ from the store.
            entries.take_changed()
            entries.mark(key for key, value in entries.items() if known.get(key) != value)
            entries.mark(key for key in known if key not in entries)

    # --- writing ----------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write the changed promises, leases and expected starts. Raises what the store raises."""
        tables = self._engine.plan.tables()
        has_news = self._compares or any(tables[table].has_changed for table in PLAN_TABLES)
        if not (has_news and self._may_write):
            return
        async with self._writing:
            changes = self._changes()
            # The store holds another version: read which one, and rewrite the whole plan in this flush.
            if changes and await self._send(changes) is False:
                self._lose_track(await self._store.plan_state())
                await self._send(self._changes())

    def _changes(self) -> dict[PlanTable, Fields]:
        """Return the rows that differ from the store's, or all rows if the whole plan is rewritten."""
        compares, self._compares = self._compares, False
        is_rewrite = self._version is None
        changes: dict[PlanTable, Fields] = {table: {} for table in self._foreign if is_rewrite}
        for table in PLAN_TABLES:
            entries, rows = self._engine.plan.tables()[table], self._rows[table]
            changed = entries.take_changed()
            # Taken from the table in any case, so that the next flush sees only later changes.
            if compares:
                changed = dict(entries)
            fields: Fields = {to_field(table, key): _row_of(value) for key, value in changed.items()}
            # Rows that only the store has are deleted.
            if compares and not is_rewrite:
                fields |= dict.fromkeys(rows.keys() - fields.keys())
            if not is_rewrite:
                # Rows that the store has already are not written again.
                fields = {field: row for field, row in fields.items() if rows.get(field) != row}
            if fields or is_rewrite:
                changes[table] = fields
        return changes

    async def _send(self, changes: Mapping[PlanTable, Fields]) -> bool | None:
        """Write these rows. Return False if the store holds another version, None if the store is lost."""
        before = self._version
        # Higher than any number of this fence in the store, which would otherwise take the write
        # for a late one.
        self._number = max(self._number, before.number if before is not None else 0) + 1
        version = PlanVersion(self._fence, self._number)
        is_done: bool | None = None
        try:
            write = PlanWrite(version=version, after=before, rows=changes)
            is_done = await self._store.write_plan(write, fence=self._fence)
        finally:
            # The rows were taken from the tables and are no longer marked, so after a failure all are
            # compared. Whether a call without an answer took effect, the next one learns from the version.
            self._compares |= not is_done
        if is_done:
            self._version = version
            self._note_written(changes, is_rewrite=before is None)
            self._count("rewritten" if before is None else "written")
        return is_done

    def _note_written(self, changes: Mapping[PlanTable, Fields], *, is_rewrite: bool) -> None:
        if is_rewrite:
            # After a rewrite of the whole plan the foreign keys hold tables again.
            self._foreign = ()
            self._rows = {table: {} for table in PLAN_TABLES}
        for table in PLAN_TABLES:
            rows = self._rows[table]
            for field, row in changes.get(table, {}).items():
                if row is None:
                    rows.pop(field, None)
                else:
                    rows[field] = row

    def _lose_track(self, found: PlanState | None) -> None:
        """Have the whole plan rewritten: the store was emptied, restored or rebuilt by something else."""
        log.warning("plan-rewritten", found=found, left=self._version.text if self._version else None)
        if found is not None and found.version is not None:
            # Within one fence the store accepts only higher numbers.
            self._number = max(self._number, found.version.number)
        self._version, self._compares = None, True
        for table in HISTORY_TABLES:
            # Learned run times are rewritten too, because the store may have lost any of them.
            entries = self._engine.plan.tables()[table]
            entries.mark(entries)

    # --- learned run times ------------------------------------------------------------------------

    async def _write_history(self) -> None:
        for table in HISTORY_TABLES:
            if garbage := self._garbage.pop(table, None):
                await self._send_history(table, garbage)
            entries = self._engine.plan.tables()[table]
            changed = list(entries.take_changed().items())
            # Counted chunk by chunk: rows that were not written stay marked, however this ends.
            written = 0
            try:
                while changed[written:]:
                    chunk = changed[written : written + HISTORY_ROWS]
                    rows: Fields = {to_field(table, key): _row_of(value) for key, value in chunk}
                    if not await self._send_history(table, rows):
                        return
                    written += HISTORY_ROWS
            finally:
                entries.mark(key for key, _ in changed[written:])

    async def _send_history(self, table: PlanTable, rows: Fields) -> bool:
        """Write rows of learned run times. Return False if the write is put off."""
        async with self._writing:
            # Without a version the whole plan is rewritten next, which deletes all other rows: written before
            # it, these rows would be lost.
            if self._version is None or not self._may_write:
                return False
            is_done = await self._send({table: rows})
            if is_done is False:
                self._lose_track(await self._store.plan_state())
                self.wake()
        return bool(is_done)

    # --- checking the store -----------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled, write learned run times and check that the store holds the plan as it was left."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._woken.wait()
            self._woken.clear()
            # The term handles errors of the store, such as a lost lead or a missing fence. Here they
            # only postpone the check.
            with suppress(ReservationError):
                await self._look()

    async def _look(self) -> None:
        if self._has_begun and not self._has_read:
            # The store was lost at takeover and is back, and no new term has read the plan since.
            await self.take_over(self._fence)
        if self._may_write:
            await self._check()
            await self.flush()
            await self._write_history()

    async def _check(self) -> None:
        """Compare version and table sizes with what was written last: rows may have been lost silently."""
        async with self._writing:
            state = await self._store.plan_state()
            # The store is lost, or the whole plan is going to be rewritten anyway.
            if state is None or self._version is None:
                return
            # The version is the same but rows are missing if a key was deleted by hand or evicted
            # from a full Redis.
            is_whole = all(state.sizes[table] == len(self._rows[table]) for table in PLAN_TABLES)
            if state.version != self._version or not is_whole:
                self._lose_track(state)


def _row_of(value: object) -> bytes | None:
    return None if value is None else to_row(stored_value(value))
