"""Wiring: one controller built from its options, and its orderly start and end.

    connect ─▶ rights ─▶ no Kueue ─▶ store ─▶ listen ─▶ { informers, loop, events, lease, watchdog } ─▶ stop

Everything that runs is a named task of one group. The first task that fails ends the controller. A stop ends
the tasks in order: the lease is given back, queued Events are sent, the store is closed.
"""

from __future__ import annotations

import asyncio
import gc
import platform
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from admission.answers.health import ReplicaItem
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.cluster_state.node_pod_watch import NodePodWatch
from admission.controller.external_definitions import name_late_definitions
from admission.controller.gauges.collector import QueueCollector
from admission.controller.gauges.reader import GaugeReader, GaugeSettings
from admission.controller.heartbeat_watch import HeartbeatWatch
from admission.controller.http.checkpoint_reports import CheckpointReports
from admission.controller.http.health import Health
from admission.controller.http.listening import Port, listen
from admission.controller.http.plan_api import PlanApi
from admission.controller.http.port_certificates import PortCertificates, is_secure
from admission.controller.http.ports import ReadRoutes, SidePorts, extender_process, read_ports
from admission.controller.http.query_api import QueryApi
from admission.controller.http.state_api import StateApi, metrics_route
from admission.controller.integration_rights import with_permitted_integrations
from admission.controller.kinds import (
    WatchedKind,
    make_informer,
    make_listener,
    topology_kinds,
    watched_kinds,
)
from admission.controller.leadership.kueue_guard import refuse_beside_kueue
from admission.controller.leadership.lease_namespace import ensure_namespace
from admission.controller.leadership.open_store import open_store
from admission.controller.leadership.plan_reader import PlanReader
from admission.controller.leadership.takeover import Takeover, TakeoverSettings
from admission.controller.leadership.term_runner import TermRunner, TermRunnerSettings
from admission.controller.loop.control_loop import ControlLoop
from admission.controller.loop.status_writer import BoardKey, StatusWriter
from admission.controller.loop.watchdog import Watchdog
from admission.controller.metrics.labels import metric_labels
from admission.controller.metrics.measuring import measure
from admission.controller.metrics.placement_metrics import DomainCollector
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import FOLLOWER, Metrics
from admission.controller.older_definitions import report_older_definitions
from admission.controller.page.changes import Changes
from admission.controller.page.routes import PageRoutes
from admission.controller.queries.authorization import Authorization
from admission.controller.queries.callers import Callers, RateLimits, Rights, Viewers
from admission.controller.queries.service import QueryService
from admission.controller.runtime.clock import SystemClock
from admission.controller.runtime.config_file import ConfigFile
from admission.controller.runtime.events import EventReporter
from admission.controller.runtime.failpoints import Failpoint
from admission.controller.runtime.gc_freeze import keep_collector_off_what_lives_long, stop_collector
from admission.controller.runtime.identity import own_namespace, own_version
from admission.controller.runtime.large_reads import LargeReads
from admission.controller.runtime.logs import Log
from admission.controller.runtime.runtime import Runtime
from admission.controller.settings import Options, cluster_state_settings, reason_words
from admission.controller.writer.executor import ExecutorLimits
from admission.controller.writer.leader_term import TermSettings
from admission.controller.writer.observe_mode import ObserveMode
from admission.controller.writer.requests import KubeSender
from admission.controller.writer.write_order import ObjectTarget
from admission.engine.engine import Engine
from admission.engine.settings import engine_settings
from admission.hardware.settings import hardware_rules
from api.config.berth import ExtenderSettings
from api.config.external import external_kinds
from api.http.server import Route
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.events import EventLimits, EventRecorder
from api.kube.history import begin_again_when_restored
from api.kube.informer import Informer
from api.kube.leadership import LeaseTiming
from api.kube.lease import Elector, LeaseLock
from api.kube.report_budget import WriteLoad
from api.kube.resources import Resource
from queues.reservations.reservations import LoggedDecision, ReservationError
from queues.store.redis_store import RedisReservationStore

log = Log("berth.controller")

# How long Events that are still queued may delay a stop.
DRAIN_SECONDS = 2.0


async def run_controller(
    options: Options,
    *,
    on_listening: Callable[[Mapping[str, str]], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run a controller until `stop` is set or this is cancelled.

    If the cluster is restored from a backup, another controller begins in place of the one that knew the lost
    history: nothing that it has learned or decided is kept, and as a new leader it judges the reservations.

    `on_listening` is called with the URLs by port name once all ports of a controller listen. Raises
    KubeError, ReservationError, ListenError, LiveKueue and ValueError at the start, each with a one-sentence
    message.
    """
    until = stop or asyncio.Event()

    async def run() -> None:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(await KubeClient.connect(options.kubeconfig))
            controller = Controller(client, await with_permitted_integrations(client, options))
            await controller.prepare(stack)
            urls = await controller.listen(stack)
            if on_listening is not None:
                on_listening(urls)
            await controller.run(until)

    await begin_again_when_restored(run)


# All parts are connected here and nowhere else, so that each can be tested with others in
# place of its neighbours.
class Controller:
    """One replica. Its parts are built and connected here; what they do is in their own modules."""

    def __init__(self, client: KubeClient, options: Options) -> None:
        config = options.config
        self._client = client
        self._options = options
        self._clock = SystemClock()
        self._namespace = own_namespace(options.namespace)
        # Unique per process: two replicas on one host, or one that was restarted, must not be mixed up.
        self._identity = f"{platform.node()}_{uuid4()}"
        self._failpoint = Failpoint(options.failpoint)
        self._metrics = Metrics(version=own_version())
        self._load = WriteLoad()
        self._recorder = self._event_recorder()
        events = EventReporter(self._recorder, observe=self._metrics.count_warning)
        series = QueueSeries(metric_labels(config))
        engine = Engine(engine_settings(config))
        self._cluster_state = ClusterState(
            engine, self._clock, cluster_state_settings(config, namespace=self._namespace)
        )
        decision_recorder = measure(self._cluster_state, self._metrics, events, series)
        board = self._status_board(engine)
        self._control_loop = ControlLoop(
            self._cluster_state, board, decision_recorder, events, self._clock, self._load
        )
        self._watchdog = Watchdog(
            self._control_loop.progress,
            self._metrics,
            deadline_seconds=config.berth.execution.progress_deadline_seconds,
        )
        kinds = watched_kinds(self._cluster_state, board, series)
        self._informers = [self._informer(kind) for kind in kinds]
        self._node_pod_watch = NodePodWatch(client, self._note_watch_error)
        self._heartbeat_watch = HeartbeatWatch(
            client, self._cluster_state.nodes.heartbeats, self._control_loop, self._note_watch_error
        )
        self._reads = LargeReads(self._clock)
        self._queue_gauges = self._queue_collector(series)
        self._domain_gauges = DomainCollector(self._metrics, engine.nodes.domain_usages, self._reads)
        self._extender = extender_process(options, partial(self._metrics.count_refused, "extender"))
        self._store: RedisReservationStore | None = None
        self._reports = CheckpointReports(
            client,
            self._clock,
            self._cluster_state,
            events,
            is_ready=lambda: self._control_loop.is_synced,
            observe=self._metrics.count_checkpoint_report,
        )
        self._certificates = PortCertificates(client, self._clock, options, namespace=self._namespace)
        self._side_ports = SidePorts(
            client,
            self._cluster_state,
            options,
            certificates=self._certificates,
            reads=self._reads,
            is_ready=lambda: self._control_loop.is_synced,
        )

    def _event_recorder(self) -> EventRecorder:
        events = self._options.config.berth.events
        return EventRecorder(
            self._client,
            self._load,
            instance=self._identity,
            limits=EventLimits(events_per_second=events.per_second, burst=events.burst),
        )

    def _status_board(self, engine: Engine) -> StatusWriter:
        return StatusWriter(
            engine,
            self._load,
            with_share=self._options.config.kueue.fair_sharing is not None,
            with_checks=self._options.config.berth.provisioning_requests,
            is_busy=self._is_busy,
            fault_of=self._cluster_state.inspection.sentence,
        )

    def _informer(self, kind: WatchedKind) -> Informer[Any]:
        return make_informer(
            self._client, kind, self._control_loop, self._cluster_state, self._note_watch_error
        )

    def _queue_collector(self, series: QueueSeries) -> QueueCollector:
        config = self._options.config.kueue
        settings = GaugeSettings(
            with_quotas=config.metrics.enable_cluster_queue_resources,
            with_shares=config.fair_sharing is not None,
        )
        reader = GaugeReader(self._cluster_state, series.labels, settings=settings)
        statistics = self._cluster_state.engine.tally
        return QueueCollector(
            self._metrics, reader, self._clock, reads=self._reads, series=series, statistics=statistics
        )

    # --- the start --------------------------------------------------------------------------------

    async def prepare(self, stack: AsyncExitStack) -> None:
        """Log the configuration, check the cluster and open the store."""
        for sentence in (*self._options.config.warnings, *self._options.config.unused()):
            log.warning("configuration", note=sentence)
        log.info("starting", server=self._client.server, server_version=await self._client.server_version())
        await report_older_definitions(self._client)
        if self._options.observe:
            await self._side_ports.prepare()
            return
        await refuse_beside_kueue(self._client, now=self._clock.now())
        await ensure_namespace(self._client, self._namespace)
        await self._side_ports.prepare()
        self._store = await stack.enter_async_context(open_store(self._client, self._options, self._metrics))

    async def listen(self, stack: AsyncExitStack) -> Mapping[str, str]:
        """Serve HTTP. Return the URLs by port name."""
        urls = {}
        stack.push_async_callback(self._side_ports.close)
        read_ports = self._read_ports()
        stack.callback(self._queries.close)
        for port in (*read_ports, *self._side_ports.ports()):
            if port.number >= 0:
                # -1 means off.
                urls[port.name] = await listen(stack, port, on_refused=self._metrics.count_refused)
        if self._extender is not None:
            urls["extender"] = (await stack.enter_async_context(self._extender)).url
        return urls

    def _read_ports(self) -> tuple[Port, Port]:
        """Return the ports that people and Prometheus read."""
        authorization = Authorization(self._client, self._clock)
        routes = ReadRoutes(
            health=self._health().routes(),
            state=self._state_routes(authorization),
            # In observe mode no checkpoint reports are stored: the leader does that.
            reports=[] if self._options.observe else self._reports.routes(),
            metrics=[metrics_route(self._metrics, self._queue_gauges, self._domain_gauges)],
        )
        return read_ports(self._options, routes, certificates=self._certificates, authorization=authorization)

    def _state_routes(self, authorization: Authorization) -> list[Route]:
        """Return the routes of /v1 and of the page, which say by themselves what each caller may see."""
        callers = Callers(authorization, is_open=not is_secure(self._options))
        rights, limits = Rights(authorization), RateLimits(self._clock)
        decisions = self._decisions if self._store is not None else None
        service = QueryService(
            self._cluster_state, self._clock, rights, limits, decisions=decisions, replica=self._replica
        )
        see = Viewers(callers, rights, limits).see
        self._queries = service
        # Both count the same, the service first.
        changes = Changes(service.behind)
        observers = self._cluster_state.observers
        for observed in (observers.workload_changed, observers.spec_changed, observers.spec_gone):
            observed.append(changes.note)
        return [
            *PageRoutes(service, callers.caller, self._clock, changes=changes).routes(),
            *QueryApi(service, callers).routes(),
            *StateApi(self._cluster_state, self._reads, see).routes(),
            *PlanApi(self._cluster_state, self._reads, see).routes(),
        ]

    async def _decisions(self, limit: int) -> tuple[LoggedDecision, ...]:
        assert self._store is not None, "asked only where there is a store"
        return await self._store.decisions(limit=limit)

    def _replica(self) -> ReplicaItem:
        failed = [one.resource.plural for one in self._informers if one.last_error is not None]
        return ReplicaItem(
            name=platform.node(),
            role=self._metrics.role,
            version=own_version(),
            waiting_for=tuple(self._unsynced()),
            failed_watches=tuple(sorted(failed)),
            is_store_up=self._metrics.is_store_up,
        )

    def _health(self) -> Health:
        return Health(
            lambda: self._control_loop.is_synced and not self._unsynced(),
            self._unsynced,
            is_stalled=lambda: self._watchdog.is_stalled,
        )

    def _unsynced(self) -> list[str]:
        own = [informer.resource.plural for informer in self._informers if not informer.synced.is_set()]
        # For placement by topology nodes and pods are awaited before the first
        # decision; `is_synced` covers that.
        is_waiting = self._extender is not None and not self._extender.is_ready
        return [*own, *(["the scheduler extender"] if is_waiting else ())]

    # --- the run ----------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Run all tasks until `stop` is set."""
        # A collection of a large old generation stops the event loop for hundreds of milliseconds. Reference
        # counting frees nearly everything, and `_settle` freezes the rest.
        stop_collector()
        try:
            async with asyncio.TaskGroup() as group:
                background = [
                    group.create_task(informer.run(), name=f"watch-{informer.resource.plural}")
                    for informer in self._informers
                ]
                control_loop = group.create_task(self._control_loop.run(), name="control-loop")
                background += [
                    control_loop,
                    group.create_task(self._watchdog.run(control_loop), name="watchdog"),
                    group.create_task(self._settle(), name="first-sync"),
                    group.create_task(self._watch_nodes_and_pods(), name="watch-nodes-and-pods"),
                    group.create_task(self._heartbeat_watch.run(), name="heartbeats"),
                ]
                if not self._options.observe:
                    background.append(group.create_task(self._reports.run(), name="checkpoint-reports"))
                background += [
                    group.create_task(running, name=name)
                    for part in (self._certificates, self._side_ports)
                    for name, running in part.tasks()
                ]
                if (path := self._options.config_file) is not None:
                    file = ConfigFile(Path(path), self._take_hardware_rules)
                    background.append(group.create_task(file.run(), name="configuration"))
                kinds = external_kinds(self._options.config.berth)
                late = name_late_definitions(self._client, kinds)
                background.append(group.create_task(late, name="late-definitions"))
                if self._extender is not None:
                    background.append(group.create_task(self._extender.run(), name="extender"))
                if self._store is not None:
                    reader = PlanReader(
                        self._store,
                        self._cluster_state.engine,
                        self._control_loop,
                        self._clock,
                        is_following=lambda: self._metrics.role == FOLLOWER,
                    )
                    background.append(group.create_task(reader.run(), name="plan-reader"))
                if self._options.config.berth.events.per_second > 0 and not self._options.observe:
                    background.append(group.create_task(self._recorder.run(), name="events"))
                leading = group.create_task(self._act(), name="leader")
                await stop.wait()
                log.info("stopping")
                # The leader goes first, so that the lease is given back while everything else still runs.
                leading.cancel()
                await asyncio.wait([leading])
                # Give the Events of the last decisions a moment to be sent.
                await self._recorder.drain(DRAIN_SECONDS)
                for task in background:
                    task.cancel()
        finally:
            # A controller may begin in place of this one: what this one has frozen is garbage then.
            gc.unfreeze()
            gc.enable()

    async def _settle(self) -> None:
        """Wait for the first lists, then freeze what they brought: it lives long, and forms no garbage."""
        for informer in self._informers:
            await informer.synced.wait()
        await self._take_in()
        # Pods and nodes are watched only if a flavor has a topology. Nothing may be placed
        # before they are known.
        if self._cluster_state.nodes.needed.is_set():
            await self._node_pod_watch.is_connected.wait()
            await self._take_in()
        keep_collector_off_what_lives_long()
        # The control loop begins to decide once this flag is set.
        self._control_loop.is_synced = True
        self._control_loop.post(lambda: None)
        log.info("synced", workloads=len(self._cluster_state.workloads), jobs=len(self._cluster_state.queued))

    async def _take_in(self) -> None:
        """Wait until the control loop has taken in what the informers have brought so far."""
        taken = asyncio.Event()
        self._control_loop.post(taken.set)
        await taken.wait()

    async def _watch_nodes_and_pods(self) -> None:
        """Watch pods and nodes once a flavor names a topology."""
        known_nodes = self._cluster_state.nodes
        await known_nodes.needed.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node_pod_watch.run(), name="watch-nodes-and-pods")
            pods, nodes = (
                make_listener(kind, self._control_loop, self._cluster_state)
                for kind in topology_kinds(self._cluster_state)
            )
            await self._node_pod_watch.connect(pods=pods, nodes=nodes)
            self._control_loop.post(known_nodes.note_synced)

    def _take_hardware_rules(self, settings: ExtenderSettings) -> None:
        """Bind admission by these settings; the extender's process reads the file itself."""
        take = self._cluster_state.engine.objects.set_hardware_rules
        rules = hardware_rules(settings)
        self._control_loop.post(lambda: take(rules, now=self._clock.now()))

    async def _wait_synced(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()

    async def _act(self) -> None:
        if self._options.observe:
            await self._wait_synced()
            self._metrics.role = "standalone"
            # Ends with the process: observe mode has no term that could be lost.
            await self._control_loop.begin(ObserveMode(self._clock, self._control_loop.forget))
            return
        config = self._options.config
        lease = config.lease
        assert self._store is not None
        takeover = Takeover(
            self._term_runner(),
            self._store,
            self._clock,
            self._metrics,
            settings=TakeoverSettings(shard=config.berth.shard, require_store=self._options.require_store),
            wait_synced=self._wait_synced,
        )
        elector = Elector(
            self._client,
            LeaseLock(name=f"berth-{config.berth.shard}", namespace=self._namespace, identity=self._identity),
            LeaseTiming(
                duration_seconds=lease.duration_seconds,
                renew_seconds=lease.renew_seconds,
                deadline_seconds=lease.deadline_seconds,
            ),
            highest_known_fence=self._highest_fence,
        )
        await elector.run(takeover.lead)

    def _term_runner(self) -> TermRunner:
        config = self._options.config
        execution = config.berth.execution
        settings = TermRunnerSettings(
            identity=self._identity,
            executor=ExecutorLimits(max_in_flight=execution.max_in_flight),
            term=TermSettings(
                max_unconfirmed=execution.max_unconfirmed,
                max_unconfirmed_seconds=execution.max_unconfirmed_seconds,
                awaits_pods=config.kueue.wait_for_pods_ready is not None,
                words=reason_words(config),
            ),
        )
        return TermRunner(
            KubeSender(self._client),
            self._control_loop,
            self._cluster_state,
            Runtime(clock=self._clock, failpoint=self._failpoint),
            self._metrics,
            settings=settings,
            is_watching=self._is_watching,
        )

    def _is_watching(self) -> bool:
        """Return whether the watch of Workloads is connected."""
        own = (informer for informer in self._informers if informer.resource is resources.WORKLOADS)
        return all(informer.last_error is None for informer in own)

    async def _highest_fence(self) -> int:
        assert self._store is not None
        try:
            return await self._store.highest_fence() or 0
        except ReservationError:
            # An unreachable store must not keep us from leading. A fence that is too low is raised later.
            return 0

    def _is_busy(self, key: BoardKey) -> bool:
        return self._control_loop.is_busy(ObjectTarget(*key))

    def _note_watch_error(self, resource: Resource, error: Exception | None) -> None:
        if error is not None:
            log.warning("watch-failed", resource=resource.plural, error=error)
