"""The leader's plan on a replica that follows, so that every replica shows the same promises.

The version of the stored plan is checked once a second, which is one small call; the plan is read when
its version has changed. While the plan names Workloads that this replica has not seen yet, it is read
each time, because those rows cannot be shown before. What deleted Workloads used is read once a minute.
Unreadable rows are not reported here: the leader reports and rewrites them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from admission.controller.loop.control_loop import ControlLoop
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.engine.engine import Engine
from queues.reservations.plan import PLAN_TABLES, PlanStore, PlanTable, PlanVersion
from queues.reservations.reservations import ReservationError
from queues.store.plan_rows import read_rows

log = Log("berth.plan")

LOOK_SECONDS = 1.0
# The table may have 20,000 rows, and changes with every Workload that is deleted.
USAGE_SECONDS = 60.0


class PlanReader:
    """Shows the stored plan to a follower's control loop. `is_following`: whether another replica leads."""

    def __init__(
        self,
        store: PlanStore,
        engine: Engine,
        control_loop: ControlLoop,
        clock: Clock,
        *,
        is_following: Callable[[], bool],
    ) -> None:
        self._store = store
        self._engine = engine
        self._control_loop = control_loop
        self._clock = clock
        self._is_following = is_following
        # The version that is shown, and how many of its rows do not match what this replica knows.
        self._shown: PlanVersion | None = None
        self._untrue = 0
        self._is_silent = False
        # The version whose usage is shown, and when it is read next (Unix seconds).
        self._shown_usage: PlanVersion | None = None
        self._usage_due_at = 0.0

    async def run(self) -> None:
        """Check the stored plan every `LOOK_SECONDS` until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._is_following() or not self._control_loop.is_synced:
                # What was shown is outdated by the time this replica follows again: read the plan then.
                self._shown = None
            else:
                await self._look_guarded()

    async def _look_guarded(self) -> None:
        try:
            await self._look()
        except ReservationError as error:
            # What was shown last is still the best that is known. Warn once, not every second.
            if not self._is_silent:
                log.warning("plan-not-read", error=error)
            self._is_silent = True
        else:
            self._is_silent = False

    async def _look(self) -> None:
        state = await self._store.plan_state()
        is_usage_due = state.version != self._shown_usage and self._clock.now() >= self._usage_due_at
        is_shown = state.version == self._shown and not self._untrue and not is_usage_due
        if state.version is None or is_shown:
            return
        # Without the tables of learned run times: followers learn those from the same Workloads.
        stored = await self._store.read_plan((*PLAN_TABLES, *((PlanTable.USAGE,) if is_usage_due else ())))
        plan, _ = read_rows(stored)

        def show() -> int | None:
            # Checked inside the control loop: by then this replica may lead, with a plan of its own.
            if not self._is_following():
                return None
            now = self._clock.now()
            return self._engine.plan.adopt(plan, now=now, is_whole=True)

        untrue = await self._control_loop.ask(show)
        if untrue is not None:
            self._shown, self._untrue = stored.version, untrue
            if is_usage_due:
                self._shown_usage, self._usage_due_at = stored.version, self._clock.now() + USAGE_SECONDS
