"""Taking over: what a leader does from winning the lease to its first decision, and when the store objects.

    lease won ─▶ list Workloads by quorum ─▶ judge what the store holds ─▶ decide until the lease ends
                      ▲                                                       │
                      └── FenceTooLow: raise our lease; NoFence: renew, seed ─┘

The list starts after the lease was won, so it shows whatever earlier leaders have written; the watch may lag
behind it, and keeps the newer of both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol

import msgspec

from admission.actions import Purpose, Verb, Write
from admission.controller.brain import Brain
from admission.controller.clock import Clock
from admission.controller.executor import Executor, Moot, Order, Refused, Result, Sender, Written
from admission.controller.failpoints import Failpoint
from admission.controller.logs import Log
from admission.controller.metrics import Metrics
from admission.controller.term import Hooks, Term, TermSettings
from admission.recovery import Verdict, is_known, judge
from api.keys import FENCE
from api.kube import resources
from api.kube.errors import KubeError, NotFound
from api.kube.lease import Leadership
from api.kube.listing import Reader, pages
from api.objects import WorkloadObject
from api.workload import Workload, WorkloadKey
from queues.reservations import (
    FenceTooLow,
    NoFence,
    QuotaReservation,
    ReservationError,
    ReservationId,
    ReservationStore,
)
from queues.store.resilient import ResilientStore, StoreState, StoreStatus

log = Log("berth.leader")

# How long a term that could not begin (store or API server silent) rests before the next try.
PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverSettings:
    """How this replica leads. `request_seconds` bounds a write: less than the lease outlives its deadline."""

    identity: str
    shard: str
    request_seconds: float
    max_in_flight: int
    max_unconfirmed: int
    max_unconfirmed_seconds: float
    awaits_pods: bool
    require_store: bool


class Lister(Protocol):
    """What a list is read with."""

    async def fetch_page(self, path: str, params: Mapping[str, str]) -> bytes:
        """Return one page; raises KubeError alone."""


class _StoreIsBack(Exception):
    """The store was lost when this leadership began, and is there now: what it holds has to be judged."""


class Takeover:
    """Leads: `lead` is what the elector runs while the lease is ours."""

    def __init__(
        self,
        client: Lister,
        sender: Sender,
        store: ReservationStore,
        brain: Brain,
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
        self._brain = brain
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._failpoint = failpoint
        self._wait_synced = wait_synced
        # Whether this leadership has decided without knowing what earlier ones had reserved.
        self._has_decided_blindly = False

    async def lead(self, leadership: Leadership) -> None:
        """Decide until cancelled; the store's objections are met by beginning again."""
        store = ResilientStore(
            self._store,
            require_store=self._settings.require_store,
            on_change=self._note_store,
            clock=self._clock.now,
        )
        self._has_decided_blindly = False
        self._show_role("leader")
        self._note_store(store.status())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(store.run(), name="store-watch")
                await self._wait_synced()
                while True:
                    await self._serve(leadership, store)
        finally:
            self._show_role("follower")

    async def _serve(self, leadership: Leadership, store: ResilientStore) -> None:
        """Lead one term; return when what ended it has been met and another term may begin."""
        try:
            try:
                await self._lead_term(leadership, store)
            except* (ReservationError, KubeError, _StoreIsBack) as group:
                ended_by = _first_leaf(group)
            _obey_cancellation()
            await self._meet(ended_by, leadership, store)
        except (ReservationError, KubeError) as error:
            log.warning("term-not-begun", error=error)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _meet(self, error: BaseException, leadership: Leadership, store: ResilientStore) -> None:
        """Do what the next term needs. Raises what could not be done: then it is tried again."""
        match error:
            case FenceTooLow():
                # The store knows leaders that the lease does not: who has decided since, nobody can tell.
                self._has_decided_blindly = True
                fence = await leadership.raise_fence(error.highest)
                log.warning("fence-raised", fence=fence, above=error.highest)
            case NoFence():
                # Only a lease renewed after the store's answer proves that nobody leads but us.
                await leadership.wait_renewed_after(self._clock.monotonic())
                await store.seed_fence(leadership.fence)
                log.info("fence-seeded", fence=leadership.fence)
            case _StoreIsBack():
                log.info("store-back", note="judging what earlier leaders left in it")
            case _:
                log.warning("term-ended", error=error)
                await asyncio.sleep(PAUSE_SECONDS)

    async def _lead_term(self, leadership: Leadership, store: ResilientStore) -> None:
        settings = self._settings
        executor = Executor(
            self._sender,
            self._clock,
            remaining_seconds=leadership.remaining_seconds,
            max_in_flight=settings.max_in_flight,
            timeout_seconds=settings.request_seconds,
        )
        knowledge = self._brain.knowledge
        term = Term(
            executor,
            store,
            self._clock,
            settings=TermSettings(
                identity=settings.identity,
                fence=leadership.fence,
                max_unconfirmed=settings.max_unconfirmed,
                max_unconfirmed_seconds=settings.max_unconfirmed_seconds,
                awaits_pods=settings.awaits_pods,
            ),
            hooks=Hooks(
                look_up=knowledge.look_up,
                to_workload=knowledge.to_workload,
                forget=self._brain.forget,
                forget_later=self._brain.forget_later,
                tell_later=self._brain.tell_later,
                finished=self._brain.finished,
            ),
            failpoint=self._failpoint,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(executor.run(), name="executor")
            try:
                await self._list_workloads()
                recovery = Recovery(
                    executor,
                    store,
                    leadership.fence,
                    self._brain.finished,
                    look_up=knowledge.look_up,
                    to_workload=knowledge.to_workload,
                    has_decided_blindly=self._has_decided_blindly,
                )
                await recovery.run()
                self._has_decided_blindly |= store.status().needs_recovery
                log.info("deciding", fence=leadership.fence, workloads=len(knowledge.workloads))
                await self._brain.begin(term)
            finally:
                self._brain.end()
                term.end()

    async def _list_workloads(self) -> None:
        """Let the brain take in all Workloads as the quorum has them; it has when this returns.

        One by one: thousands in one call would hold up the renewal of the lease.
        """
        taken = asyncio.Event()
        for raw in await self._read_quorum():
            self._brain.post(partial(self._brain.knowledge.see_raw, "Workload", raw))
        self._brain.post(taken.set)
        await taken.wait()

    async def _read_quorum(self) -> list[bytes]:
        """Return every Workload's bytes; none where the cluster does not serve the kind yet."""
        reader = Reader(WorkloadObject, resources.WORKLOADS)
        raws: list[bytes] = []
        try:
            async with aclosing(pages(self._client.fetch_page, resources.WORKLOADS.path(), {})) as stream:
                async for page in stream:
                    raws = [] if page.restarted else raws
                    raws += [reader.own_bytes(raw) for raw in page.items]
        except NotFound:
            return []
        return raws

    def _show_role(self, role: str) -> None:
        self._metrics.role = role
        self._metrics.leading.labels(role, self._settings.shard).set(float(role == "leader"))

    def _note_store(self, status: StoreStatus) -> None:
        """Show the store's state. One that is back, or empty, is met at once, not at the next decision."""
        self._metrics.store_up.labels(self._metrics.role).set(float(status.is_up))
        match status.state:
            case StoreState.UP if status.needs_recovery:
                self._brain.fail(_StoreIsBack())
            case StoreState.NEEDS_SEED:
                self._brain.fail(NoFence())
            case StoreState.LOST:
                log.warning("store-lost", reason=status.reason)


class _Settled(StrEnum):
    """What became of a reservation. KEPT: the cluster will not let it be given back, so it stays."""

    CONFIRMED = "confirmed"
    RELEASED = "released"
    KEPT = "kept"


class Recovery:
    """Carries out the verdicts on the reservations that were found.

    `look_up` returns a Workload as it stood in a list that began after the lease was won, or newer.
    `has_decided_blindly`: see `recovery.is_known`.
    """

    def __init__(
        self,
        executor: Executor,
        store: ReservationStore,
        fence: int,
        finished: Callable[[Write, Result], None],
        *,
        look_up: Callable[[WorkloadKey], tuple[Workload, bytes] | None],
        to_workload: Callable[[bytes], Workload | None],
        has_decided_blindly: bool = False,
    ) -> None:
        self._executor = executor
        self._store = store
        self._fence = fence
        self._finished = finished
        self._look_up = look_up
        self._to_workload = to_workload
        self._has_decided_blindly = has_decided_blindly

    async def run(self) -> None:
        """Make store and cluster agree. Raises what the store raises."""
        found = await self._store.live(fence=self._fence)
        outcomes = await asyncio.gather(*(self._settle(reservation) for reservation in found))
        settled: dict[_Settled, list[ReservationId]] = {outcome: [] for outcome in _Settled}
        for reservation, outcome in zip(found, outcomes, strict=True):
            settled[outcome].append(reservation.id)
        if confirmed := settled[_Settled.CONFIRMED]:
            await self._store.confirm(confirmed, fence=self._fence)
        if released := settled[_Settled.RELEASED]:
            await self._store.release(released, fence=self._fence)

    async def _settle(self, reservation: QuotaReservation) -> _Settled:
        """Carry out the verdict on one reservation."""
        seen = self._look_up(reservation.key)
        known = is_known(reservation, fence=self._fence, has_decided_blindly=self._has_decided_blindly)
        verdict = judge(reservation, seen[0] if seen is not None else None, is_known=known)
        log.info("recover", workload=reservation.key, verdict=verdict, fence=reservation.fence)
        match verdict:
            case Verdict.DROP:
                return _Settled.RELEASED
            case Verdict.CONFIRM:
                return _Settled.CONFIRMED
            case Verdict.REPLAY if await self._replay(reservation):
                return _Settled.CONFIRMED
            case _:
                return await self._fence_off(reservation)

    async def _replay(self, reservation: QuotaReservation) -> bool:
        """Send the same bytes again; return whether the cluster shows the admission now."""
        write = Write(
            verb=Verb.REPLACE,
            kind="Workload",
            namespace=reservation.key.namespace,
            name=reservation.key.name,
            subresource="status",
            body=reservation.write,
            uid=reservation.uid,
            resource_version=reservation.resource_version,
            purpose=Purpose.ADMIT,
        )
        result = await self._send(write, None)
        if isinstance(result, Written):
            return True
        # The old leader's patch, or our own whose answer was lost, may have been first.
        workload = self._to_workload(result.raw) if isinstance(result, Moot) else None
        return workload is not None and workload.uid == reservation.uid and workload.has_quota_reservation

    async def _fence_off(self, reservation: QuotaReservation) -> _Settled:
        """Write the Workload, so that a patch of the old leader that is still on its way meets 409."""
        body = msgspec.json.encode({"metadata": {"annotations": {FENCE: str(self._fence)}}})
        write = Write(
            verb=Verb.MERGE_PATCH,
            kind="Workload",
            namespace=reservation.key.namespace,
            name=reservation.key.name,
            body=body,
            purpose=Purpose.FENCE,
        )
        result = await self._send(write, lambda _: write)
        if isinstance(result, Refused):
            # This Workload waits until its reservation can be given back; the others go on.
            log.error("reservation-kept", workload=reservation.key, error=result.error)
            return _Settled.KEPT
        return _Settled.RELEASED

    async def _send(self, write: Write, rebuild: Callable[[bytes], Write | None] | None) -> Result:
        answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def on_result(result: Result) -> None:
            self._finished(write, result)
            with suppress(asyncio.InvalidStateError):
                answered.set_result(result)

        self._executor.submit(Order(write=write, on_result=on_result, rebuild=rebuild))
        return await answered


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _obey_cancellation() -> None:
    """Raise the cancellation that came while a TaskGroup was ending by an error; before 3.13 it is swallowed.

    Without it a leader that loses its lease in that moment would never stop leading, nor lead again.
    Source: https://github.com/python/cpython/issues/116720
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
