"""One term, from its beginning to its end: list, recover, decide.

    list Workloads by quorum ─▶ judge the reservations ─▶ take over the plan ─▶ decide until the term ends

The list starts after the lease was won, so it shows whatever earlier leaders have written. The watch may lag
behind it; of each object the newer version is kept.

A term *continues* the last one of this process if that ended because the lease was lost, and no other process
has led between them. Then it does not list. The list has to show what takes quota and is not known here, and
only a leader's writes take quota:

- **Another leader's** writes: there was none. The Lease shows that: this process read every state of it onto
  which it wrote, each was its own claim, and Redis has seen no higher fence (`api.kube.lease`).
- **Own writes with an answer** are known from the answer, whether the watch shows them or not.
- **Own writes without an answer** were being sent when the last term ended: at most as many as may be in
  flight. Their Workloads are read again by quorum, which shows those that were stored.
- **Own starts that may still be stored** by a delayed request: their Jobs are moved to another version
  (`stray_starts`), as are those that another leader may have been starting.
- **Own admissions that may still be stored** by a delayed request have an open reservation, in Redis and in
  the memory of the FailoverStore. It is judged like one that another leader left: replayed onto the same
  version, so that only one of the writes can be stored, or fenced off before the quota is given back.

All else that changes comes by the watch, late or not, as it does within a term. So the last term must have
known the cluster (it listed, or continued one that did), and the watch of Workloads must be connected.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.cluster_state.queued_objects import target_of
from admission.controller.leadership.plan_writer import PlanWriter
from admission.controller.leadership.recover_reservations import (
    KnownState,
    RecoveredReservation,
    ReservationRecovery,
)
from admission.controller.leadership.stray_starts import StrayStarts
from admission.controller.loop.control_loop import ControlLoop
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.logs import Log
from admission.controller.runtime.runtime import Runtime
from admission.controller.writer.dispatch import Hooks
from admission.controller.writer.executor import Executor, ExecutorLimits
from admission.controller.writer.in_flight_limit import InFlightLimit
from admission.controller.writer.leader_term import LeaderTerm, TermSettings
from admission.controller.writer.term_reservations import TermIdentity, TermReservations
from admission.controller.writer.write_order import ObjectTarget, Sender
from admission.decisions.api_writes import Purpose, Write
from admission.decisions.decision import Admit
from admission.reconcile.decision_writes import admit_write
from api.kube.errors import NotFound
from api.kube.leadership import Leadership
from api.kube.lease import UNSETTLED_SECONDS
from api.workload import Workload
from queues.reservations.reservations import StoreUnreachable
from queues.store.failover_store import FailoverStore
from queues.store.plan_rows import BadRow

log = Log("berth.leader")


@dataclass(frozen=True, slots=True, kw_only=True)
class TermRunnerSettings:
    """How this replica leads. `identity` names it in the decision log."""

    identity: str
    executor: ExecutorLimits
    term: TermSettings


class LeaderApi(Sender, Protocol):
    """What a leader asks of the API server."""

    async def list_all(self, kind: str) -> list[bytes]:
        """Return the bytes of every object of a kind, read by quorum; [] if the kind is not served.

        Raises only KubeError.
        """


class TermRunner:
    """Runs terms one after another, each with its own executor."""

    def __init__(
        self,
        api: LeaderApi,
        control_loop: ControlLoop,
        cluster_state: ClusterState,
        runtime: Runtime,
        metrics: Metrics,
        *,
        settings: TermRunnerSettings,
        is_watching: Callable[[], bool],
    ) -> None:
        """`is_watching` returns whether the watch of Workloads is connected."""
        self._api = api
        self._is_watching = is_watching
        self._control_loop = control_loop
        self._cluster_state = cluster_state
        self._runtime = runtime
        self._settings = settings
        self._metrics = metrics
        # Whether this leadership has decided without knowing the reservations of earlier ones.
        self._decided_without_store = False
        # The objects whose writes had no answer when the last term ended; None if it did not know the
        # cluster.
        self._unanswered: frozenset[ObjectTarget] | None = None
        # Until then (monotonic seconds) a write of an earlier term may still be stored.
        self._settled_at = 0.0
        self._marks = itertools.count(1)

    def begin_leadership(self) -> None:
        """Begin another leadership, which has decided nothing yet and knows nothing of the cluster."""
        self._decided_without_store = False
        self.list_again()

    def list_again(self) -> None:
        """Have the next term list: it does not continue the last one."""
        self._unanswered = None

    def plan_writer(
        self, store: FailoverStore, *, note: Callable[[BadRow], None], count: Callable[[str], None]
    ) -> PlanWriter:
        """Return what writes the plan during one leadership. `note` and `count` as in `PlanWriter`."""
        engine, clock = self._cluster_state.engine, self._runtime.clock
        return PlanWriter(store, engine, self._control_loop, clock, note=note, count=count)

    def fail(self, error: Exception) -> None:
        """End the present term with this error. Does nothing if there is no term."""
        self._control_loop.fail(error)

    def note_unknown_leaders(self) -> None:
        """Note that the store knows leaders whose decisions are unknown to this one."""
        self._decided_without_store = True

    async def run(self, leadership: Leadership, store: FailoverStore, plan_writer: PlanWriter) -> None:
        """Lead one term; ends only by an error or by cancellation."""
        # What is unknown of the cluster; None: everything.
        unknown = self._unanswered if self._is_watching() else None
        self._unanswered = None
        # One executor per term: orders of an old term must never be sent under a new fence.
        executor = Executor(
            self._api,
            self._runtime.clock,
            write_seconds=leadership.write_seconds,
            note_duration=lambda *duration: self._note_write(executor.in_flight_limit, *duration),
            report_error=self._control_loop.report_error,
            limits=self._settings.executor,
        )
        term = self._make_term(executor, store, plan_writer, leadership.fence)
        try:
            async with asyncio.TaskGroup() as group:
                # The executor runs during recovery too, which sends writes of its own.
                group.create_task(executor.run(), name="executor")
                try:
                    # In this order: what the cluster shows, what the store holds, what was
                    # promised; only then decide.
                    await self._learn(executor, unknown, leadership)
                    unknown = frozenset()
                    kept = await self._recover(executor, store, leadership)
                    await plan_writer.take_over(leadership.fence)
                    log.info(
                        "deciding",
                        fence=leadership.fence,
                        workloads=len(self._cluster_state.workloads),
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
        finally:
            leadership.leaves_unanswered |= executor.leaves_open
            if executor.leaves_open:
                self._settled_at = self._runtime.clock.monotonic() + UNSETTLED_SECONDS
            # The executor has ended, and awaited the requests that it had sent.
            if unknown is not None:
                self._unanswered = unknown | executor.unanswered

    def _make_term(
        self, executor: Executor, store: FailoverStore, plan_writer: PlanWriter, fence: int
    ) -> LeaderTerm:
        control_loop, cluster_state = self._control_loop, self._cluster_state
        reservations = TermReservations(
            store,
            self._runtime,
            TermIdentity(identity=self._settings.identity, fence=fence),
            flush_plan=plan_writer.flush,
        )
        return LeaderTerm(
            executor,
            reservations,
            self._runtime,
            settings=self._settings.term,
            hooks=Hooks(
                look_up=cluster_state.look_up,
                to_workload=cluster_state.to_workload,
                forget=control_loop.forget,
                forget_later=control_loop.forget_later,
                withdraw=control_loop.withdraw,
                withdraw_later=control_loop.withdraw_later,
                call_later=control_loop.call_later,
                report_later=control_loop.report_later,
                finished=control_loop.take_answer,
                report_error=control_loop.report_error,
            ),
        )

    async def _recover(
        self, executor: Executor, store: FailoverStore, leadership: Leadership
    ) -> tuple[RecoveredReservation, ...]:
        """Make store and cluster agree; return the reservations that still have to be fenced off."""
        control_loop, cluster_state = self._control_loop, self._cluster_state

        def adopt(workload: Workload, always: bool) -> Awaitable[Admit | None]:
            engine, now = cluster_state.engine, self._runtime.clock.now()
            return control_loop.ask(lambda: engine.adopt(workload, now=now, always=always))

        def render(decision: Admit, raw: bytes) -> Write:
            awaits_pods = self._settings.term.awaits_pods
            write = admit_write(decision, raw, now=self._runtime.clock.now(), awaits_pods=awaits_pods)
            # The leader that decided may have sent the Events.
            return replace(write, events=())

        state = KnownState(
            look_up=cluster_state.look_up,
            to_workload=cluster_state.to_workload,
            adopt=adopt,
            forget=control_loop.forget,
            render=render,
            finished=control_loop.take_answer,
        )
        without_store = self._decided_without_store
        kept = await ReservationRecovery(
            executor, store, state, fence=leadership.fence, decided_without_store=without_store
        ).run()
        status = store.status()
        # It was lost just now, before it told what may still be written: the next term waits for that.
        if status.needs_recovery and leadership.settled_at > self._runtime.clock.monotonic():
            raise StoreUnreachable(f"{status.reason}; what the last leader was to write is not known yet")
        # A store that is lost now may hold reservations that have not been judged; decisions from here on
        # are made without them.
        self._decided_without_store |= status.needs_recovery
        return kept

    async def _learn(
        self, executor: Executor, unknown: frozenset[ObjectTarget] | None, leadership: Leadership
    ) -> None:
        """Read by quorum the objects whose state is unknown, and return once they have been taken in.

        Jobs that an earlier term may still start are written instead, which shows them as well.

        They are posted one by one: thousands of them in one call would delay the renewal of the lease.
        """
        # Before they are read: decisions of an earlier term count only if the cluster shows them.
        self._control_loop.forget_all()
        now = self._runtime.clock.monotonic()
        # Until then a write may be stored that an earlier leader, or an earlier term of this one, has sent.
        settled_at = max(leadership.settled_at, self._settled_at)
        if unknown is None:
            await self._take(("Workload", raw) for raw in await self._api.list_all("Workload"))
            # A list of all Jobs would take as long again.
            unknown = await self._control_loop.ask(lambda: _jobs_to_read(self._cluster_state))
        else:
            log.info("continuing", note="no other process has led since the last term", read=len(unknown))
        queued = self._cluster_state.queued
        targets = sorted(target for target in unknown if target.kind == "Workload" or target.kind in queued)
        strays = StrayStarts(executor, self._runtime.clock)
        answers = await asyncio.gather(
            *(
                strays.fence_off(target, self._next_mark(leadership.fence), until=settled_at)
                if target.kind in queued and settled_at > now
                else self._read(executor, target)
                for target in targets
            )
        )
        await self._take((target.kind, raw) for target, raw in zip(targets, answers, strict=True))

    def _next_mark(self, fence: int) -> str:
        """Return a value that no Job has been marked with: a fence belongs to one process."""
        return f"{fence}.{next(self._marks)}"

    async def _take(self, found: Iterable[tuple[str, bytes]]) -> None:
        """Have the control loop take in objects, each a kind and its bytes, and return once it has."""
        for kind, raw in found:
            if raw:
                self._control_loop.post(partial(self._cluster_state.see_raw, kind, raw))
        # Calls are made in order, so once this one is answered all objects have been taken in.
        await self._control_loop.ask(lambda: None)

    async def _read(self, executor: Executor, target: ObjectTarget) -> bytes:
        """Return an object's bytes; b"" if it is gone, which the watch will show."""
        try:
            return await executor.read(target)
        except NotFound:
            return b""

    def _note_write(self, limit: InFlightLimit, purpose: Purpose, seconds: float) -> None:
        metrics, role = self._metrics, self._metrics.role
        metrics.write_seconds.labels(role, purpose).observe(seconds)
        metrics.in_flight_limit.labels(role).set(limit.allowed)
        metrics.api_latency.labels(role).set(limit.latency_seconds)


def _jobs_to_read(state: ClusterState) -> frozenset[ObjectTarget]:
    """Return the Jobs that another leader may have started although no watch shows it yet.

    Quota must not be given back while they run.
    """
    owners = (seen.metadata.controller for seen in state.workloads if seen.value.is_admitted)
    jobs = (state.queued.by_uid(owner.uid) for owner in owners if owner is not None)
    return frozenset(target_of(job.value) for job in jobs if job is not None and job.value.is_suspended)
