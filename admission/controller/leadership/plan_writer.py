"""The leader's plan in the store: read when it takes over, written with each cycle that changed it.

    lease won ─▶ take over (read, check, adopt) ─▶ flush with every cycle
                                                      lost    nothing is forgotten; the next flush compares
                                                      gap     another version is there: written anew at once
                                                      watch   every few seconds: is it still as we left it?

Promises, leases and expected starts are written before the admissions of their cycle are sent, so that a
leader that dies leaves behind nothing that it has told and not stored. One call a cycle, of the changed rows
alone; a cycle that changed nothing makes none. What runs have taught is written every few seconds: lost, it
is learned again from the Workloads that are still there.

This process is right about its own plan, the store is a copy for whoever comes next. So a row that nobody can
read is named, counted and written over; rejected was to stop, as for a reservation that cannot be read: no
quota hangs on a promise, and the next cycle makes another.
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

# How often what was learned is written, and looked whether the store still holds the plan as we left it.
WATCH_SECONDS = 5.0
# Rows of what was learned in one call: a few hundred kB, a millisecond of Redis's time.
HISTORY_ROWS = 500

Fields = dict[str, bytes | None]


class PlanWriter:
    """One leadership's hand on the stored plan. `note` hears of each row that is ignored.

    `count` is told of each write: `written`, or `anew` where the store held another plan.
    """

    def __init__(
        self,
        store: FailoverStore,
        control_loop: ControlLoop,
        clock: Clock,
        *,
        note: Callable[[BadRow], None],
        count: Callable[[str], None],
    ) -> None:
        self._store = store
        self._control_loop = control_loop
        self._clock = clock
        self._note = note
        self._count = count
        self._fence = 0
        self._number = 0
        # The version that the store is believed to hold; None: the next write is anew.
        self._version: PlanVersion | None = None
        # The rows of the plan's tables that it is believed to hold.
        self._rows: dict[PlanTable, dict[str, bytes]] = {table: {} for table in PLAN_TABLES}
        # Rows of what was learned that nobody can read, and tables whose key holds something else: to go.
        self._garbage: dict[PlanTable, Fields] = {}
        self._foreign: tuple[PlanTable, ...] = ()
        # Whether what changed is not known any more, so that all rows have to be compared.
        self._compares = True
        self._has_begun = False
        self._has_read = False
        self._writing = asyncio.Lock()
        self._woken = asyncio.Event()

    @property
    def _engine(self) -> Engine:
        return self._control_loop.cluster_state.engine

    @property
    def _may_write(self) -> bool:
        # Before the predecessor's plan was read a write would wipe it out.
        return self._has_read and self._store.status().is_up

    def wake(self) -> None:
        """Look at once whether the store holds the plan: it may have been away."""
        self._woken.set()

    # --- taking over ------------------------------------------------------------------------------

    async def take_over(self, fence: int) -> None:
        """Go on with the plan that the store holds. To be called before the first cycle of each term.

        The first time in a leadership it replaces what this replica knew as a follower; later, what both have
        promised is kept as this leader has told it. With the store lost, or emptied, the plan that it last
        showed to this follower stands. Raises what the store raises.
        """
        self._fence = fence
        # The first term of this leadership takes the stored plan for its own; later
        # ones know better themselves.
        is_whole = not self._has_begun
        async with self._writing:
            stored = await self._store.read_plan(tuple(PlanTable))
        plan, bad = read_rows(stored) if stored is not None else (PlanValues(), ())
        for one in bad:
            self._note(one)
        engine, now = self._engine, self._clock.now()
        # A follower's picture of the plan may be a second old; what the store holds is what was promised. A
        # store in which nobody has written a plan was emptied, by the accident maybe that ended the leader.
        is_whole &= stored is not None and stored.version is not None
        # Not under the lock: the brain may be waiting for it.
        untrue = await self._control_loop.ask(lambda: engine.adopt_plan(plan, now=now, is_whole=is_whole))
        self._has_begun = True
        if stored is not None:
            self._begin_chain(stored, plan, bad)
            counts = {table.value: len(plan.table(table)) for table in PlanTable}
            log.info("plan-taken-over", untrue=untrue, ignored=len(bad), **counts)

    def _begin_chain(self, stored: StoredPlan, plan: PlanValues, bad: tuple[BadRow, ...]) -> None:
        self._has_read = True
        self._foreign = stored.foreign
        # The chain goes on where the last leader's ended; under a key that is no table nothing can be put.
        # What is no table has to go as a whole before rows can be put into it.
        self._version = stored.version if not stored.foreign else None
        self._rows = {table: dict(stored.rows.get(table, {})) for table in PLAN_TABLES}
        self._compares = True
        self._garbage = {table: {} for table in HISTORY_TABLES}
        for row in bad:
            if row.field and row.table in self._garbage:
                self._garbage[row.table][row.field] = None
        for table in HISTORY_TABLES:
            entries, known = self._engine.plan_tables()[table], plan.table(table)
            # Taken and marked anew: only what differs from the store is to be written.
            entries.take_changed()
            entries.mark(key for key, value in entries.items() if known.get(key) != value)
            entries.mark(key for key in known if key not in entries)

    # --- writing ----------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write what has changed of promises, leases and expected starts. Raises what the store raises."""
        tables = self._engine.plan_tables()
        has_news = self._compares or any(tables[table].has_changed for table in PLAN_TABLES)
        if not (has_news and self._may_write):
            return
        async with self._writing:
            changes = self._changes()
            # Another version is there: one look at what, and everything once more in the same flush.
            if changes and await self._send(changes) is False:
                self._lose_track(await self._store.plan_state())
                await self._send(self._changes())

    def _changes(self) -> dict[PlanTable, Fields]:
        """Return the rows that differ from what the store holds; where it is written anew, all there are."""
        compares, self._compares = self._compares, False
        is_anew = self._version is None
        changes: dict[PlanTable, Fields] = {table: {} for table in self._foreign if is_anew}
        for table in PLAN_TABLES:
            entries, rows = self._engine.plan_tables()[table], self._rows[table]
            changed = entries.take_changed()
            # Taken in any case, so that the next flush sees only what comes after this.
            if compares:
                changed = dict(entries)
            fields: Fields = {to_field(table, key): _row_of(value) for key, value in changed.items()}
            # Rows that the store holds and nobody knows any more are to go.
            if compares and not is_anew:
                fields |= dict.fromkeys(rows.keys() - fields.keys())
            if not is_anew:
                # What is there already is not written again.
                fields = {field: row for field, row in fields.items() if rows.get(field) != row}
            if fields or is_anew:
                changes[table] = fields
        return changes

    async def _send(self, changes: Mapping[PlanTable, Fields]) -> bool | None:
        """Write these rows. Returns False where the store holds another version, None where it is lost."""
        before = self._version
        # Higher than whatever the store has seen of this fence, or it would take the write for a late one.
        self._number = max(self._number, before.number if before is not None else 0) + 1
        version = PlanVersion(self._fence, self._number)
        is_done: bool | None = None
        try:
            write = PlanWrite(version=version, after=before, rows=changes)
            is_done = await self._store.write_plan(write, fence=self._fence)
        finally:
            # What was taken as changed is not marked any more. Whether a call without an answer took effect,
            # the version tells the next one.
            self._compares |= not is_done
        if is_done:
            self._version = version
            self._note_written(changes, is_anew=before is None)
            self._count("anew" if before is None else "written")
        return is_done

    def _note_written(self, changes: Mapping[PlanTable, Fields], *, is_anew: bool) -> None:
        if is_anew:
            # Written anew, those keys hold tables again.
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
        """Have everything written anew: the store was emptied, restored or rebuilt behind our back."""
        log.warning("plan-written-anew", found=found, left=self._version.text if self._version else None)
        if found is not None and found.version is not None:
            # Of one fence the store takes higher numbers alone.
            self._number = max(self._number, found.version.number)
        self._version, self._compares = None, True
        for table in HISTORY_TABLES:
            # All of what was learned too: the store may have lost any of it.
            entries = self._engine.plan_tables()[table]
            entries.mark(entries)

    # --- what was learned -------------------------------------------------------------------------

    async def _write_history(self) -> None:
        for table in HISTORY_TABLES:
            if garbage := self._garbage.pop(table, None):
                await self._send_history(table, garbage)
            entries = self._engine.plan_tables()[table]
            changed = list(entries.take_changed().items())
            # Counted as written chunk by chunk: what was not stays marked, whatever ends this.
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
        """Write rows of what was learned. Returns False where that has to wait."""
        async with self._writing:
            # A write anew would wipe out the table's other rows; it is for the plan to be written anew first.
            # Without a version nothing can be built upon, and rows would be put beside what is
            # about to be wiped.
            if self._version is None or not self._may_write:
                return False
            is_done = await self._send({table: rows})
            if is_done is False:
                self._lose_track(await self._store.plan_state())
                self.wake()
        return bool(is_done)

    # --- watching over it -------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled, write what was learned, and see whether the store holds the plan as we left it."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._woken.wait()
            self._woken.clear()
            # Whoever leads no longer, or has to seed the store, learns of it by other ways as well.
            with suppress(ReservationError):
                # Errors of the store are met by the term; here they only mean "not now".
                await self._look()

    async def _look(self) -> None:
        if self._has_begun and not self._has_read:
            # The store was lost when this leader took over, and is back without a word of the reservations.
            await self.take_over(self._fence)
        if self._may_write:
            await self._check()
            await self.flush()
            await self._write_history()

    async def _check(self) -> None:
        """Compare version and sizes with what was left there: rows may have been lost without a word."""
        async with self._writing:
            state = await self._store.plan_state()
            # Lost at the moment, or to be written anew already.
            if state is None or self._version is None:
                return
            # Equal versions and another number of rows: a key was deleted by hand, or evicted
            # from a full Redis.
            is_whole = all(state.sizes[table] == len(self._rows[table]) for table in PLAN_TABLES)
            if state.version != self._version or not is_whole:
                self._lose_track(state)


def _row_of(value: object) -> bytes | None:
    return None if value is None else to_row(stored_value(value))
