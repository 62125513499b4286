"""Takeover: what a leader does from winning the lease to its first decision, and when the store refuses it.

    lease won ─▶ list Workloads by quorum ─▶ judge the reservations ─▶ decide until the lease ends
                     ▲                                                      │
                     └─ FenceTooLow: raise our lease; NoFence: renew, seed ─┘

The list starts after the lease was won, so it shows whatever earlier leaders have written. The watch may lag
behind it; of each object the newer version is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from admission.controller.leadership.plan_writer import PlanWriter
from admission.controller.leadership.recover_reservations import KnownState, RecoveredReservation, Recovery
from admission.controller.loop.control_loop import ControlLoop
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.failpoints import Failpoint
from admission.controller.runtime.logs import Log
from admission.controller.writer.dispatch import Hooks
from admission.controller.writer.executor import Executor, ExecutorLimits, Sender
from admission.controller.writer.leader_term import LeaderTerm, TermSettings
from admission.controller.writer.term_reservations import TermIdentity, TermReservations
from admission.decisions.api_writes import Purpose
from admission.decisions.decision import DecisionId
from api.kube import resources
from api.kube.errors import KubeError, NotFound
from api.kube.lease import Leadership
from api.kube.listing import Reader, pages
from api.objects import WorkloadObject
from api.workload import Workload
from queues.reservations.plan import Store
from queues.reservations.reservations import FenceTooLow, NoFence, ReservationError
from queues.store.failover_store import FailoverStore, StoreState, StoreStatus
from queues.store.plan_rows import BadRow

log = Log("berth.leader")

# How long a replica rests before it retries a term that could not begin (store or API server silent).
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverSettings:
    """How this replica leads.

    A write takes at most `request_seconds`, which must be less than the time from the deadline of the lease
    to its end.
    """

    identity: str
    shard: str
    request_seconds: float
    max_in_flight: int
    max_unconfirmed: int
    max_unconfirmed_seconds: float
    awaits_pods: bool
    require_store: bool


class Lister(Protocol):
    """Reads lists from the API server, page by page."""

    async def fetch_page(self, path: str, params: Mapping[str, str]) -> bytes:
        """Return one page. Raises only KubeError."""


class _StoreIsBack(Exception):
    """The store was lost when this leadership began and is back: its reservations have to be judged."""


class Takeover:
    """Leads: the elector runs `lead` while this replica holds the lease."""

    def __init__(
        self,
        client: Lister,
        sender: Sender,
        store: Store,
        control_loop: ControlLoop,
        clock: Clock,
        metrics: Metrics,
        *,
        settings: TakeoverSettings,
        failpoint: Failpoint,
        wait_synced: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._sender = sender
        self._store = store
        self._control_loop = control_loop
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._failpoint = failpoint
        self._wait_synced = wait_synced
        # Whether this leadership has decided without knowing the reservations of earlier ones.
        self._has_decided_blindly = False
        self._is_store_up = True
        # Writes the stored plan while this replica leads; None for a follower.
        self._plan_writer: PlanWriter | None = None

    # One FailoverStore per leadership, because its memory is about this fence.
    async def lead(self, leadership: Leadership) -> None:
        """Decide until cancelled. If the store refuses a call, a new term begins."""
        store = FailoverStore(
            self._store,
            require_store=self._settings.require_store,
            on_change=self._note_store,
            clock=self._clock.now,
        )
        self._plan_writer = plan_writer = PlanWriter(
            store, self._control_loop, self._clock, note=self._note_ignored, count=self._count_plan_write
        )
        self._has_decided_blindly = False
        self._show_role("leader")
        self._note_store(store.status())
        try:
            # Both tasks outlast terms: the store may be lost and return several times within one leadership.
            async with asyncio.TaskGroup() as group:
                group.create_task(store.run(), name="store-watch")
                group.create_task(plan_writer.run(), name="plan-watch")
                await self._wait_synced()
                while True:
                    await self._serve(leadership, store)
        # A follower has no plan writer: only the leader writes the plan.
        finally:
            self._plan_writer = None
            self._show_role("follower")

    async def _serve(self, leadership: Leadership, store: FailoverStore) -> None:
        """Lead one term; return when its end has been handled and another term may begin."""
        try:
            try:
                await self._lead_term(leadership, store)
            # `except*`, because a TaskGroup wraps the error that ended it; the others in it are consequences.
            except* (ReservationError, KubeError, _StoreIsBack) as group:
                ended_by = _first_leaf(group)
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
                self._has_decided_blindly = True
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

    async def _lead_term(self, leadership: Leadership, store: FailoverStore) -> None:
        """List, recover, decide; ends only by an error or by cancellation."""
        plan_writer = self._plan_writer
        assert plan_writer is not None, "a leader has a PlanWriter"
        # One executor per term: orders of an old term must never be sent under a new fence.
        executor = Executor(
            self._sender,
            self._clock,
            remaining_seconds=leadership.remaining_seconds,
            note_duration=self._note_write_duration,
            report_error=self._control_loop.report_error,
            limits=ExecutorLimits(
                max_in_flight=self._settings.max_in_flight, timeout_seconds=self._settings.request_seconds
            ),
        )
        term = self._make_term(executor, store, plan_writer, leadership.fence)
        async with asyncio.TaskGroup() as group:
            # The executor runs during recovery too, which sends writes of its own.
            group.create_task(executor.run(), name="executor")
            try:
                # In this order: what the cluster shows, what the store holds, what was
                # promised; only then decide.
                await self._list_workloads()
                kept = await self._recover(executor, store, leadership.fence)
                await plan_writer.take_over(leadership.fence)
                log.info(
                    "deciding",
                    fence=leadership.fence,
                    workloads=len(self._control_loop.cluster_state.workloads),
                )
                ended = self._control_loop.begin(term)
                # The term keeps trying to fence off the reservations that could not be released.
                for one in kept:
                    self._control_loop.call_later(
                        one.decision, partial(term.fence_off, one.decision, one.may_land_on)
                    )
                # Ends by an error that the control loop sets, or by cancellation.
                await ended
            finally:
                self._control_loop.end()
                term.end()

    def _make_term(
        self, executor: Executor, store: FailoverStore, plan_writer: PlanWriter, fence: int
    ) -> LeaderTerm:
        settings, control_loop = self._settings, self._control_loop
        reservations = TermReservations(
            store,
            self._clock,
            TermIdentity(identity=settings.identity, fence=fence),
            failpoint=self._failpoint,
            flush_plan=plan_writer.flush,
        )
        return LeaderTerm(
            executor,
            reservations,
            self._clock,
            settings=TermSettings(
                max_unconfirmed=settings.max_unconfirmed,
                max_unconfirmed_seconds=settings.max_unconfirmed_seconds,
                awaits_pods=settings.awaits_pods,
            ),
            hooks=Hooks(
                look_up=control_loop.cluster_state.look_up,
                to_workload=control_loop.cluster_state.to_workload,
                forget=control_loop.forget,
                forget_later=control_loop.forget_later,
                call_later=control_loop.call_later,
                tell_later=control_loop.tell_later,
                finished=control_loop.finished,
                report_error=control_loop.report_error,
            ),
            failpoint=self._failpoint,
        )

    async def _recover(
        self, executor: Executor, store: FailoverStore, fence: int
    ) -> tuple[RecoveredReservation, ...]:
        """Make store and cluster agree; return the reservations that still have to be fenced off."""
        control_loop, cluster_state = self._control_loop, self._control_loop.cluster_state

        def adopt(workload: Workload, always: bool) -> Awaitable[DecisionId | None]:
            engine, now = cluster_state.engine, self._clock.now()
            return control_loop.ask(lambda: engine.adopt(workload, now=now, always=always))

        state = KnownState(
            look_up=cluster_state.look_up,
            to_workload=cluster_state.to_workload,
            adopt=adopt,
            forget=control_loop.forget,
            finished=control_loop.finished,
        )
        blindly = self._has_decided_blindly
        kept = await Recovery(executor, store, state, fence=fence, has_decided_blindly=blindly).run()
        # A store that is lost now may hold reservations that have not been judged; decisions from here on
        # are made without them.
        self._has_decided_blindly |= store.status().needs_recovery
        return kept

    async def _list_workloads(self) -> None:
        """List all Workloads by quorum and return once the control loop has taken them in.

        They are posted one by one: thousands of them in one call would delay the renewal of the lease.
        """
        # Before the list: decisions of an earlier term count only if the list shows them.
        self._control_loop.forget_all()
        for raw in await self._read_quorum():
            self._control_loop.post(partial(self._control_loop.cluster_state.see_raw, "Workload", raw))
        # Calls are made in order, so once this one is answered all objects have been taken in.
        await self._control_loop.ask(lambda: None)

    async def _read_quorum(self) -> list[bytes]:
        """Return every Workload's bytes; none if the cluster does not serve the kind yet."""
        reader = Reader(WorkloadObject, resources.WORKLOADS)
        raws: list[bytes] = []
        try:
            async with aclosing(pages(self._client.fetch_page, resources.WORKLOADS.path(), {})) as stream:
                async for page in stream:
                    # The list was restarted: the earlier pages are of another moment.
                    raws = [] if page.restarted else raws
                    raws += [reader.own_bytes(raw) for raw in page.items]
        except NotFound:
            return []
        return raws

    def _show_role(self, role: str) -> None:
        self._metrics.role = role
        self._metrics.leading.labels(role, self._settings.shard).set(float(role == "leader"))

    def _note_write_duration(self, purpose: Purpose, seconds: float) -> None:
        self._metrics.write_seconds.labels(self._metrics.role, purpose).observe(seconds)

    def _note_store(self, status: StoreStatus) -> None:
        """Report the store's state, and act on a change at once rather than at the next decision."""
        self._metrics.store_up.labels(self._metrics.role).set(float(status.is_up))
        if status.is_up and not self._is_store_up:
            log.info("store-back", unwritten=status.unwritten)
        self._is_store_up = status.is_up
        # The plan writer compares versions now instead of at its next check.
        if status.is_up and self._plan_writer is not None:
            self._plan_writer.wake()
        match status.state:
            # This leadership has never read its predecessor's reservations: end the term, so that the
            # next one recovers them.
            case StoreState.UP if status.needs_recovery:
                self._control_loop.fail(_StoreIsBack())
            # No decision may be made before a fence is seeded.
            case StoreState.NEEDS_SEED:
                self._control_loop.fail(NoFence())
            case StoreState.LOST:
                log.warning("store-lost", reason=status.reason)

    def _note_ignored(self, row: BadRow) -> None:
        log.warning("store-value-ignored", table=row.table, field=row.field, fault=row.fault, why=row.message)
        self._metrics.store_ignored.labels(self._metrics.role, row.table.value, row.fault.value).inc()

    def _count_plan_write(self, result: str) -> None:
        self._metrics.plan_writes.labels(self._metrics.role, result).inc()


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    # Nested groups: the first leaf is the error that started it.
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _obey_cancellation() -> None:
    """Raise the cancellation that came while a TaskGroup was ending by an error.

    Python before 3.13 swallows it. A leader that loses its lease at that moment would then never stop
    leading, nor lead again. Source: https://github.com/python/cpython/issues/116720
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
