"""Takeover: what a leader does from winning the lease to its first decision, and when the store refuses it.

    lease won ─▶ settle ─▶ list Workloads by quorum ─▶ judge the reservations ─▶ decide until the lease ends
                               ▲                                                      │
                               └─ FenceTooLow: raise our lease; NoFence: renew, seed ─┘

If the store cannot tell what the last leader was about to write (`queues.store.blindness`), and that leader
did not release its lease, the new one first waits until no such write can be stored any more. It then lists.

A leader that loses the store and decides without it notes that in its Lease before it decides: the store may
be back in the life that it was in, and would seem to show everything. The note stays until a leader has read
the store and written back what it lacked.

A leader that loses its lease and wins it back before any other process has led (`Leadership.continues`) does
not list. It keeps its FailoverStore, which remembers each reservation whose outcome is open, and continues
under a higher fence. Why that is safe, and what happens within a term, is in
`admission.controller.leadership.term_runner`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from admission.controller.leadership.plan_writer import PlanWriter
from admission.controller.leadership.term_runner import TermRunner
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from api.kube.errors import KubeError, first_leaf
from api.kube.leadership import Leadership
from queues.reservations.plan import Store
from queues.reservations.reservations import FenceTooLow, NoFence, ReservationError
from queues.store.blindness import is_blind
from queues.store.failover_store import FailoverStore, StoreState, StoreStatus
from queues.store.plan_rows import BadRow

log = Log("berth.leader")

# How long a replica rests before it retries a term that could not begin (store or API server silent).
PAUSE_SECONDS = 0.5
# How often a leader that waits looks whether the store has come back.
SETTLE_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverSettings:
    """How this replica leads. `shard` is a label of its metrics."""

    shard: str
    require_store: bool


class _StoreIsBack(Exception):
    """The store was lost when this leadership began and is back: its reservations have to be judged."""


class Takeover:
    """Leads: the elector runs `lead` while this replica holds the lease."""

    def __init__(
        self,
        terms: TermRunner,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        *,
        settings: TakeoverSettings,
        wait_synced: Callable[[], Awaitable[None]],
    ) -> None:
        """`wait_synced` returns once the informers have listed every kind."""
        self._terms = terms
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._wait_synced = wait_synced
        self._is_store_up = True
        # What the last leadership knew of the store and wrote to the plan; None before the first.
        self._led: tuple[FailoverStore, PlanWriter] | None = None
        self._leadership: Leadership | None = None

    async def lead(self, leadership: Leadership) -> None:
        """Decide until cancelled. If the store refuses a call, a new term begins."""
        if self._led is None or not leadership.continues:
            self._led = self._begin_leadership()
        store, plan_writer = self._led
        self._leadership = leadership
        self._show_role("leader")
        self._note_store(store.status())
        try:
            # Both tasks outlast terms: the store may be lost and return several times within one leadership.
            async with asyncio.TaskGroup() as group:
                group.create_task(store.run(), name="store-watch")
                group.create_task(plan_writer.run(), name="plan-watch")
                await self._wait_synced()
                while True:
                    await self._settle(leadership, store)
                    await self._serve(leadership, store, plan_writer)
        finally:
            self._show_role("follower")

    async def _settle(self, leadership: Leadership, store: FailoverStore) -> None:
        """Wait until no write of an earlier leader can be stored that the store does not tell of."""
        is_told = False
        while (left := leadership.settled_at - self._clock.monotonic()) > 0.0:
            status = store.status()
            # What was read once is in memory, whatever has become of the store since.
            if status.is_recovered:
                break
            # A leader that decided without the store has left nothing there, whatever the store shows.
            is_complete = status.is_up and not leadership.decides_without_store
            if is_complete and not await is_blind(self._store, fence=leadership.fence):
                break
            if not is_told:
                note = "nothing is admitted while writes may arrive that the store does not tell of"
                log.warning("settling", seconds=round(left), note=note)
            is_told = True
            await asyncio.sleep(min(left, SETTLE_LOOK_SECONDS))
        leadership.leaves_unanswered = False

    def _begin_leadership(self) -> tuple[FailoverStore, PlanWriter]:
        """Begin with nothing: another process may have led since an earlier leadership of this one."""
        self._terms.begin_leadership()
        # Its memory is about the fences of this leadership alone.
        store = FailoverStore(
            self._store,
            require_store=self._settings.require_store,
            on_change=self._note_store,
            may_decide_alone=self._may_decide_alone,
        )
        return store, self._terms.plan_writer(store, note=self._note_ignored, count=self._count_plan_write)

    async def _serve(self, leadership: Leadership, store: FailoverStore, plan_writer: PlanWriter) -> None:
        """Lead one term; return when its end has been handled and another term may begin."""
        try:
            try:
                await self._terms.run(leadership, store, plan_writer)
            # `except*`, because a TaskGroup wraps the error that ended it; the others in it are consequences.
            except* (ReservationError, KubeError, _StoreIsBack) as group:
                ended_by = first_leaf(group)
            # The error may mean that earlier leaders have done what is not known here.
            self._terms.list_again()
            # A lost lease and a lost store may come together. Cancellation goes first.
            _obey_cancellation()
            await self._meet(ended_by, leadership, store)
        except (ReservationError, KubeError) as error:
            log.warning("term-not-begun", error=error)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _meet(self, error: BaseException, leadership: Leadership, store: FailoverStore) -> None:
        """Prepare the next term. Raises if that fails; the term is then tried again."""
        match error:
            case FenceTooLow():
                # The store knows leaders that the lease does not, and their decisions are unknown.
                self._terms.note_unknown_leaders()
                # May raise Conflict: another replica holds the Lease, and the elector
                # soon ends this leadership.
                fence = await leadership.raise_fence(error.highest)
                log.warning("fence-raised", fence=fence, above=error.highest)
            case NoFence():
                # Only a lease renewed after the store's answer proves that no other replica leads.
                await leadership.wait_renewed_after(self._clock.monotonic())
                await store.seed_fence(leadership.fence)
                log.info("fence-seeded", fence=leadership.fence)
            case _StoreIsBack():
                log.info("recovering-again", note="judging what earlier leaders left in the store")
            case _:
                log.warning("term-ended", error=error)
                await asyncio.sleep(PAUSE_SECONDS)

    def _show_role(self, role: str) -> None:
        self._metrics.role = role
        self._metrics.leading.labels(role, self._settings.shard).set(float(role == "leader"))

    def _may_decide_alone(self) -> bool:
        """Return whether the Lease tells the next leader that the store lacks decisions; have it do so."""
        assert self._leadership is not None
        self._leadership.note_store(is_complete=False)
        return self._leadership.decides_without_store

    def _note_store(self, status: StoreStatus) -> None:
        """Report the store's state, and act on a change at once rather than at the next decision."""
        if self._leadership is not None and status.is_up and status.is_recovered and not status.unwritten:
            self._leadership.note_store(is_complete=True)
        self._metrics.note_store(is_up=status.is_up)
        if status.is_up and not self._is_store_up:
            log.info("store-back", unwritten=status.unwritten)
        self._is_store_up = status.is_up
        # The plan writer compares versions now instead of at its next check.
        if status.is_up and self._led is not None:
            self._led[1].wake()
        match status.state:
            # This leadership has never read its predecessor's reservations: end the term, so that the
            # next one recovers them.
            case StoreState.UP if status.needs_recovery:
                self._terms.fail(_StoreIsBack())
            # No decision may be made before a fence is seeded.
            case StoreState.NEEDS_SEED:
                self._terms.fail(NoFence())
            case StoreState.LOST:
                log.warning("store-lost", reason=status.reason)

    def _note_ignored(self, row: BadRow) -> None:
        log.warning("store-value-ignored", table=row.table, field=row.field, fault=row.fault, why=row.message)
        self._metrics.store_ignored.labels(self._metrics.role, row.table.value, row.fault.value).inc()

    def _count_plan_write(self, result: str) -> None:
        self._metrics.plan_writes.labels(self._metrics.role, result).inc()


def _obey_cancellation() -> None:
    """Raise the cancellation that came while a TaskGroup was ending by an error.

    Python before 3.13 swallows it. A leader that loses its lease at that moment would then never stop
    leading, nor lead again. Source: https://github.com/python/cpython/issues/116720
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
