"""The leader's plan on a replica that follows: so that every replica shows the same promises.

A look a second costs one small call; the plan is read when its version is another one. Workloads that this
replica has yet to hear of keep it asking, for what is told of them cannot be shown before. What cannot be
read is not named here: the leader does, and writes it anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from admission.controller.loop.control_loop import ControlLoop
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from queues.reservations.plan import PLAN_TABLES, PlanStore, PlanVersion
from queues.reservations.reservations import ReservationError
from queues.store.plan_rows import read_rows

log = Log("berth.plan")

LOOK_SECONDS = 1.0


class PlanReader:
    """Shows the stored plan to a brain that does not act. `is_following`: whether another leads."""

    def __init__(
        self, store: PlanStore, control_loop: ControlLoop, clock: Clock, *, is_following: Callable[[], bool]
    ) -> None:
        self._store = store
        self._control_loop = control_loop
        self._clock = clock
        self._is_following = is_following
        # What is shown, and how much of it was not true of what is known here.
        self._shown: PlanVersion | None = None
        self._untrue = 0
        self._is_silent = False

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._is_following() or not self._control_loop.is_synced:
                # What was shown belongs to the time as a follower; whoever follows again reads anew.
                self._shown = None
            else:
                await self._look_guarded()

    async def _look_guarded(self) -> None:
        try:
            await self._look()
        except ReservationError as error:
            # What was shown last is the best that is known; told once, not every second.
            if not self._is_silent:
                log.warning("plan-not-read", error=error)
            self._is_silent = True
        else:
            self._is_silent = False

    async def _look(self) -> None:
        state = await self._store.plan_state()
        if state.version is None or (state.version == self._shown and not self._untrue):
            return
        # Without what was learned, which followers learn by themselves from the same Workloads.
        stored = await self._store.read_plan(PLAN_TABLES)
        plan, _ = read_rows(stored)

        def show() -> int | None:
            # A turn of the brain later this replica may lead, with a plan of its own.
            if not self._is_following():
                return None
            now = self._clock.now()
            return self._control_loop.cluster_state.engine.adopt_plan(plan, now=now, is_whole=True)

        untrue = await self._control_loop.ask(show)
        if untrue is not None:
            self._shown, self._untrue = stored.version, untrue
