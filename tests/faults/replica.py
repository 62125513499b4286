"""One replica of the controller: everything but HTTP and Events, on the clocks of a process of its own."""

from __future__ import annotations

import asyncio
import contextvars
import traceback
from dataclasses import dataclass
from typing import Any

from admission.controller.cluster_state.cluster_state import ClusterState, ClusterStateSettings
from admission.controller.kinds import make_informer, watched_kinds
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
from admission.controller.writer.requests import KubeSender
from admission.controller.writer.write_order import ObjectTarget
from admission.engine.engine import Engine
from admission.reconcile.workload.context import LifecycleSettings
from api.kube import resources
from api.kube.errors import first_leaf
from api.kube.history import ClusterRestored
from api.kube.informer import Informer
from api.kube.leadership import LeaseTiming
from api.kube.lease import Elector, LeaseLock
from api.kube.report_budget import WriteLoad
from queues.reservations.reservations import ReservationError
from queues.store.faults import StoreLocation
from queues.store.redis_store import RedisReservationStore
from tests.admission.controller.fakes import FakeRecorder
from tests.admission.controller.virtualtime import EPOCH
from tests.faults.apiserver import ApiServer
from tests.faults.client import ModelClient
from tests.faults.loop import PROCESS, ShuffledLoop
from tests.faults.redis import ModelRedis

TIMING = LeaseTiming()


class _WatchedLoop(ControlLoop):
    """The control loop, which also says which faults of its own it has caught."""

    caught: tuple[str, ...] = ()

    def report_error(self) -> None:
        """Keep where the error came from."""
        self.caught = (*self.caught, traceback.format_exc())
        super().report_error()


@dataclass
class ReplicaClock:
    """The clocks of one machine. `rate`: how many of its seconds pass in one, by its monotonic clock."""

    loop: ShuffledLoop
    wall_offset: float = 0.0
    rate: float = 1.0

    def now(self) -> float:
        """Return Unix seconds as this machine has them."""
        return EPOCH + self.loop.passed + self.wall_offset

    def monotonic(self) -> float:
        """Return seconds since some time."""
        return self.loop.passed * self.rate


class Replica:
    """One process, from its start to its end; a restarted one is another."""

    def __init__(
        self, name: str, machine: int, server: ApiServer, store: ModelRedis, clock: ReplicaClock
    ) -> None:
        """`machine` is the number of the machine that it runs on."""
        loop = clock.loop
        self.name = name
        self.machine = machine
        self.clock = clock
        self.client = ModelClient(server, loop, name)
        self._loop = loop
        self._tasks: list[asyncio.Task[Any]] = []
        self._leading: asyncio.Task[None] | None = None
        location = StoreLocation(address="model")
        self._store = RedisReservationStore(store.client_of(name), place=location, shard="test")
        self.metrics = Metrics(version="test")
        settings = ClusterStateSettings(lifecycle=LifecycleSettings(pods_ready=None))
        self.cluster_state = ClusterState(Engine(), clock, settings)
        series, load = QueueSeries(), WriteLoad()
        events = EventReporter(FakeRecorder(), monotonic=clock.monotonic, observe=self.metrics.count_warning)
        observer = measure(self.cluster_state, self.metrics, events, series, monotonic=clock.monotonic)
        board = StatusWriter(self.cluster_state.engine, load, with_share=False, is_busy=self._is_busy)
        self.control_loop = _WatchedLoop(self.cluster_state, board, observer, events, clock, load)
        self._informers: list[Informer[Any]] = [
            make_informer(self.client, kind, self.control_loop, self.cluster_state, _ignore)
            for kind in watched_kinds(self.cluster_state, board, series)
        ]

    def start(self) -> None:
        """Start all tasks in the process's own context."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self.name)
        context.run(self._start)

    def _start(self) -> None:
        reader = PlanReader(
            self._store,
            self.cluster_state.engine,
            self.control_loop,
            self.clock,
            is_following=lambda: self.metrics.role == FOLLOWER,
        )
        self._leading = self._loop.create_task(self._lead(), name="leader")
        running = (*(one.run() for one in self._informers), self.control_loop.run(), self._settle())
        self._tasks = [self._loop.create_task(one) for one in (*running, reader.run())]

    def stop(self) -> None:
        """End in order, as at SIGTERM: the lease is given back."""
        if self._leading is not None:
            self._leading.cancel()

    @property
    def has_stopped(self) -> bool:
        """Whether the leader's task has ended after `stop`."""
        return self._leading is None or self._leading.done()

    @property
    def is_leading(self) -> bool:
        """Whether it leads, or believes so."""
        return self.metrics.role != FOLLOWER

    def kill(self) -> None:
        """Die between two steps."""
        self._loop.kill(self.name)
        self.client.stop_listening()

    def has_met_restore(self) -> bool:
        """Return whether it has noticed that etcd was restored from a backup, which ends it."""
        tasks = [*self._tasks, *([] if self._leading is None else [self._leading])]
        return any(task.done() and not task.cancelled() and _is_restore(task.exception()) for task in tasks)

    def failure(self) -> str | None:
        """Return what is wrong with the process itself; None if nothing is."""
        for task in self._tasks:
            if task.done() and task.get_name() != "settle" and not task.cancelled() and task.exception():
                return f"{self.name}: a task ended by {task.exception()!r}"
        leading = self._leading
        if leading is not None and leading.done() and not leading.cancelled():
            return f"{self.name}: the leader's task ended by {leading.exception()!r}"
        if self.control_loop.caught:
            return f"{self.name} caught an error of its own: {self.control_loop.caught[0]}"
        return None

    async def _settle(self) -> None:
        await self._wait_synced()
        await self.control_loop.ask(lambda: None)
        self.control_loop.is_synced = True
        self.control_loop.post(lambda: None)

    async def _wait_synced(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()

    async def _lead(self) -> None:
        terms = TermRunner(
            KubeSender(self.client),
            self.control_loop,
            self.cluster_state,
            Runtime(clock=self.clock, failpoint=Failpoint(None)),
            self.metrics,
            settings=TermRunnerSettings(
                identity=self.name, executor=ExecutorLimits(max_in_flight=4), term=TermSettings()
            ),
            is_watching=self._is_watching,
        )
        takeover = Takeover(
            terms,
            self._store,
            self.clock,
            self.metrics,
            settings=TakeoverSettings(shard="test", require_store=False),
            wait_synced=self._wait_synced,
        )
        lock = LeaseLock(name="berth-test", namespace="berth-system", identity=self.name)
        elector = Elector(
            self.client,
            lock,
            TIMING,
            highest_known_fence=self._highest_fence,
            on_error=lambda _: None,
            clock=self.clock.monotonic,
        )
        await elector.run(takeover.lead)

    async def _highest_fence(self) -> int:
        try:
            return await self._store.highest_fence() or 0
        except ReservationError:
            return 0

    def _is_watching(self) -> bool:
        own = (one for one in self._informers if one.resource is resources.WORKLOADS)
        return all(informer.last_error is None for informer in own)

    def _is_busy(self, key: tuple[str, str, str]) -> bool:
        return self.control_loop.is_busy(ObjectTarget(*key))


def _is_restore(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        error = first_leaf(error)
    return isinstance(error, ClusterRestored)


def _ignore(*_: object) -> None:
    """Ignore a watch that failed: the faults make many."""
