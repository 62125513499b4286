"""Controllers on a cluster in memory: all of one replica but HTTP and the election, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from admission.controller.cluster_state.cluster_state import ClusterState, ClusterStateSettings
from admission.controller.kinds import WatchedKind, topology_kinds, watched_kinds
from admission.controller.leadership.plan_reader import PlanReader
from admission.controller.leadership.takeover import Takeover, TakeoverSettings
from admission.controller.leadership.term_runner import TermRunner, TermRunnerSettings
from admission.controller.loop.control_loop import ControlLoop
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.metrics.measuring import measure
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import FOLLOWER, Metrics
from admission.controller.runtime.events import EventReporter
from admission.controller.runtime.failpoints import Failpoint
from admission.controller.runtime.runtime import Runtime
from admission.controller.writer.executor import ExecutorLimits
from admission.controller.writer.leader_term import TermSettings
from admission.controller.writer.write_order import ObjectTarget
from admission.engine.engine import Engine
from admission.reconcile.workload.context import LifecycleSettings
from api.kube.errors import Conflict, Invalid
from api.kube.informer import Change, ChangeType
from api.kube.leadership import Leadership
from api.kube.lease import UNSETTLED_SECONDS
from api.kube.report_budget import WriteLoad
from queues.reservations.plan import PlanState, PlanTable, PlanWrite, Store, StoredPlan
from queues.reservations.reservations import (
    LoggedDecision,
    Lost,
    QuotaReservation,
    ReservationId,
    Reserved,
    ServerLife,
    StoreUnreachable,
)
from queues.store.clients import SLOW_SECONDS
from queues.store.redis_scripts import CALL_SECONDS
from tests.admission.controller.cluster import FakeCluster, Line, Object
from tests.admission.controller.fakes import FakeRecorder
from tests.admission.controller.virtualtime import VirtualLoop

T = TypeVar("T")

LEASE_SECONDS = 4.0
REQUEST_SECONDS = 1.5
# A Lease counts its transitions in 32 bits.
LARGEST_TRANSITIONS = 2**31 - 1


class StoreLine:
    """One client's way to the store: calls take a moment, and fail while the line or the store is away."""

    def __init__(self, model: Store, chance: random.Random) -> None:
        self.model = model
        self.is_away = False
        # How many of the next calls take effect though their answer is lost.
        self.lost = 0
        # A call takes effect half-way, whether its caller still waits or not.
        self.answers_after_seconds = 0.0
        self._chance = chance

    async def commit(
        self,
        reservations: Sequence[QuotaReservation],
        *,
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision] = (),
    ) -> tuple[Reserved | Lost, ...]:
        """Commit."""
        return await self._call(
            lambda: self.model.commit(reservations, fence=fence, request_id=request_id, log=log)
        )

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete what the cluster shows."""
        await self._call(lambda: self.model.confirm(ids, fence=fence))

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete what was withdrawn."""
        await self._call(lambda: self.model.release(ids, fence=fence))

    async def restore(
        self, held: Sequence[QuotaReservation], gone: Sequence[ReservationId], *, fence: int
    ) -> None:
        """Write back."""
        await self._call(lambda: self.model.restore(held, gone, fence=fence))

    async def live(self, *, fence: int) -> tuple[QuotaReservation, ...]:
        """Read all."""
        return await self._call(lambda: self.model.live(fence=fence), seconds=SLOW_SECONDS)

    async def highest_fence(self) -> int | None:
        """Read the fence."""
        return await self._call(self.model.highest_fence)

    async def life(self) -> ServerLife:
        """Read the life of the server."""
        return await self._call(self.model.life)

    async def vouch(self, life: str, *, fence: int) -> None:
        """Vouch for a life."""
        await self._call(lambda: self.model.vouch(life, fence=fence))

    async def seed_fence(self, fence: int) -> None:
        """Seed the fence."""
        await self._call(lambda: self.model.seed_fence(fence))

    async def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Read the log."""
        return await self._call(lambda: self.model.decisions(limit=limit))

    async def write_plan(self, write: PlanWrite, *, fence: int) -> bool:
        """Write to the plan."""
        return await self._call(lambda: self.model.write_plan(write, fence=fence))

    async def read_plan(self, tables: Collection[PlanTable]) -> StoredPlan:
        """Read the plan."""
        return await self._call(lambda: self.model.read_plan(tables), seconds=SLOW_SECONDS)

    async def plan_state(self) -> PlanState:
        """Look at the plan."""
        return await self._call(self.model.plan_state)

    async def ping(self) -> None:
        """Answer."""
        await self._call(self.model.ping)

    async def close(self) -> None:
        """Do nothing."""

    async def _call(self, call: Callable[[], Awaitable[T]], *, seconds: float = CALL_SECONDS) -> T:
        await asyncio.sleep(self._chance.uniform(0.0005, 0.002))
        if self.is_away:
            await asyncio.sleep(0.1)
            raise StoreUnreachable("the store is away")
        if self.answers_after_seconds:
            served = asyncio.ensure_future(self._serve_slowly(call))
            done, _ = await asyncio.wait([served], timeout=seconds)
            if not done:
                raise StoreUnreachable("the store did not answer in time")
            return served.result()
        answer = await call()
        if self.lost:
            self.lost -= 1
            raise StoreUnreachable("the answer was lost")
        await asyncio.sleep(self._chance.uniform(0.0005, 0.002))
        return answer

    async def _serve_slowly(self, call: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(self.answers_after_seconds / 2)
        answer = await call()
        await asyncio.sleep(self.answers_after_seconds / 2)
        return answer


@dataclass
class Lease:
    """The election's book: the highest number given so far, whether its holder gave it back, and its note."""

    number: int = 0
    is_released: bool = True
    decides_without_store: bool = False


class FakeLeadership(Leadership):
    """One time of leading, renewed without fail until it is said to have ended."""

    def __init__(
        self, lease: Lease, fence: int, loop: VirtualLoop, *, continues: bool, is_cut: Callable[[], bool]
    ) -> None:
        self._lease = lease
        self._is_cut = is_cut
        self._fence = fence
        self._continues = continues
        self._loop = loop
        self.is_over = False
        self.settled_at = 0.0 if lease.is_released else loop.monotonic() + UNSETTLED_SECONDS
        self.leaves_unanswered = self.settled_at > 0.0
        lease.number, lease.is_released = fence, False

    @property
    def decides_without_store(self) -> bool:
        """Return what the lease says."""
        return self._lease.decides_without_store

    def note_store(self, *, is_complete: bool) -> None:
        """Note it after the time of a request, unless that is cut off or the lease is another's by then."""
        self._loop.call_later(0.005, self._note, not is_complete)

    def _note(self, without_store: bool) -> None:
        if not self.is_over and not self._is_cut() and self._lease.number == self._fence:
            self._lease.decides_without_store = without_store

    def remaining_seconds(self) -> float:
        """Return what is left of the lease."""
        return -1.0 if self.is_over else LEASE_SECONDS - 0.5

    def write_seconds(self) -> float:
        """Return how long a write may take."""
        return 0.0 if self.is_over else REQUEST_SECONDS

    async def wait_renewed_after(self, instant: float) -> None:
        """Renew at once; never where the lease is another's."""
        await asyncio.sleep(0.005)
        if self.is_over:
            await asyncio.Event().wait()

    async def raise_fence(self, above: int) -> int:
        """Raise the fence."""
        await asyncio.sleep(0.005)
        if self.is_over:
            raise Conflict("the lease is another's", status=409)
        if above >= LARGEST_TRANSITIONS:
            raise Invalid("spec.leaseTransitions: Invalid value", status=422)
        self._fence = self._lease.number = max(self._fence, above + 1)
        return self._fence


def _term_settings(name: str) -> TermRunnerSettings:
    return TermRunnerSettings(
        identity=name,
        executor=ExecutorLimits(max_in_flight=4),
        term=TermSettings(max_unconfirmed=6),
    )


class Replica:
    """One controller. `start` it; `lead` and `stop_leading` are what the elector would call."""

    def __init__(
        self,
        name: str,
        cluster: FakeCluster,
        store: Store,
        lease: Lease,
        loop: VirtualLoop,
        *,
        seed: int = 0,
        require_store: bool = False,
        with_pods: bool = False,
    ) -> None:
        """`with_pods`: pods are queued themselves."""
        chance = random.Random(f"{name} {seed}")
        self.name = name
        self.line = Line(cluster, loop, chance)
        self.store = StoreLine(store, chance)
        self.recorder = FakeRecorder()
        self.metrics = Metrics(version="test")
        settings = ClusterStateSettings(
            lifecycle=LifecycleSettings(pods_ready=None), with_pods=with_pods, gives_up_pods=True
        )
        self.cluster_state = ClusterState(Engine(), loop, settings)
        series = QueueSeries()
        events = EventReporter(self.recorder, monotonic=loop.monotonic, observe=self.metrics.count_warning)
        observer = measure(self.cluster_state, self.metrics, events, series, monotonic=loop.monotonic)
        load = WriteLoad()
        self.board = StatusWriter(self.cluster_state.engine, load, with_share=False, is_busy=self._is_busy)
        self.control_loop = ControlLoop(self.cluster_state, self.board, observer, events, loop, load)
        self.reader = PlanReader(
            self.store,
            self.cluster_state.engine,
            self.control_loop,
            loop,
            is_following=lambda: self.metrics.role == FOLLOWER,
        )
        self.leadership: FakeLeadership | None = None
        self._lease = lease
        self._loop = loop
        kinds = (*watched_kinds(self.cluster_state, self.board, series), *topology_kinds(self.cluster_state))
        # Pods are watched twice where they are queued: all of them, and those that a queue has marked.
        self._kinds: dict[str, list[WatchedKind]] = {}
        for kind in kinds:
            self._kinds.setdefault(kind.resource.kind, []).append(kind)
        self._known: dict[tuple[str, str, str], Any] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.is_watching = True
        terms = TermRunner(
            self.line,
            self.control_loop,
            self.cluster_state,
            Runtime(clock=self._loop, failpoint=Failpoint(None)),
            self.metrics,
            settings=_term_settings(self.name),
            is_watching=lambda: self.is_watching,
        )
        self.takeover = Takeover(
            terms,
            self.store,
            self._loop,
            self.metrics,
            settings=TakeoverSettings(shard="test", require_store=require_store),
            wait_synced=_at_once,
        )
        self._leading: asyncio.Task[None] | None = None
        for obj in cluster.objects.values():
            self._hear(ChangeType.ADDED, obj)
        self.line.watch(self._hear)

    @property
    def is_leading(self) -> bool:
        """Whether it leads, or believes so."""
        return self._leading is not None

    def start(self) -> None:
        """Run the control loop; what the cluster holds is known already."""
        self.control_loop.is_synced = True
        self._tasks.append(self._loop.create_task(self.control_loop.run()))
        self._tasks.append(self._loop.create_task(self.reader.run()))

    def lead(self, fence: int, *, continues: bool = False) -> None:
        """Lead with this fence. `continues`: no other replica has led since this one did."""
        assert self._leading is None
        self.leadership = FakeLeadership(
            self._lease, fence, self._loop, continues=continues, is_cut=lambda: self.line.faults.is_cut
        )
        self._leading = self._loop.create_task(self.takeover.lead(self.leadership))

    def stop_leading(self) -> None:
        """Stop, and return when all that was sent has been answered."""
        assert self._leading is not None
        self._leading.cancel()
        self._loop.run_until_complete(asyncio.wait([self._leading]))
        assert self._leading.cancelled(), self._leading.exception()
        self._leading = None
        assert self.leadership is not None
        if not self.leadership.is_over:
            self._lease.is_released = not self.leadership.leaves_unanswered

    def crash(self) -> None:
        """Die: nothing more is sent or received, what is on its way arrives."""
        self.line.faults.is_cut = self.store.is_away = True
        if self._leading is not None:
            self.stop_leading()
            self._lease.is_released = False
        for task in self._tasks:
            task.cancel()
        self.recorder.events.clear()

    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """Return what runs of it."""
        leading = () if self._leading is None else (self._leading,)
        return (*self._tasks, *leading)

    def check(self) -> None:
        """Raise AssertionError where the replica has failed, or caught an error, or its state is wrong."""
        for task in self._tasks:
            assert not task.done(), f"{self.name}: a task has ended: {task}"
        if self._leading is not None:
            assert not self._leading.done(), f"{self.name} ended leading by itself: {self._leading}"
        assert self.errors() == 0, f"{self.name} caught an error"
        self.cluster_state.engine.validate()

    def errors(self) -> float:
        """Return how often a fault of our own was caught."""
        metric = self.metrics.registry.get_sample_value
        roles = ("leader", "follower")
        return sum(metric("berth_control_loop_errors_total", {"replica_role": role}) or 0.0 for role in roles)

    def _is_busy(self, key: tuple[str, str, str]) -> bool:
        return self.control_loop.is_busy(ObjectTarget(*key))

    def _hear(self, type_: ChangeType, obj: Object) -> None:
        """Do as an informer does."""
        metadata = obj["metadata"]
        key = obj["kind"], metadata.get("namespace", ""), metadata["name"]
        raw = msgspec.json.encode(obj)
        previous = self._known.pop(key, None)
        for kind in self._kinds[obj["kind"]]:
            value = msgspec.json.decode(raw, type=kind.wire)
            if type_ is not ChangeType.DELETED:
                self._known[key] = value
            if _is_selected(kind, metadata):
                change = Change(type_, value, previous, raw if kind.keeps_raw else None)
                self.control_loop.post(partial(kind.take, change))


def _is_selected(kind: WatchedKind, metadata: Object) -> bool:
    label, _, value = kind.params.get("labelSelector", "").partition("=")
    return not label or (metadata.get("labels") or {}).get(label) == value


async def _at_once() -> None:
    return None
