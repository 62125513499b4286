"""Wiring: one controller from its options, and its orderly start and end.

    connect ─▶ refuse beside Kueue ─▶ store ─▶ listen ─▶ { informers, brain, events, election, lag } ─▶ stop

Everything that runs is a named task of one group; the first that fails ends the controller, a stop ends them
in order: the lease is given back, events under way are sent, the store is closed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import uuid4

import msgspec

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.cluster_state.node_pod_watch import NodePodWatch
from admission.controller.gauges.collector import QueueCollector
from admission.controller.gauges.reader import GaugeReader, GaugeSettings
from admission.controller.http.checkpoint_reports import CheckpointReports
from admission.controller.http.plan_api import PlanApi
from admission.controller.http.ports import Port, SidePorts, listen
from admission.controller.http.state_api import Health, StateApi, metrics_route
from admission.controller.kinds import WatchedKind, ground_kinds, make_informer, make_listener, watched_kinds
from admission.controller.leadership.kueue_guard import refuse_beside_kueue
from admission.controller.leadership.plan_reader import PlanReader
from admission.controller.leadership.takeover import Takeover, TakeoverSettings
from admission.controller.loop.control_loop import ControlLoop
from admission.controller.loop.status_writer import BoardKey, StatusWriter
from admission.controller.metrics.decision_recorder import DecisionRecorder
from admission.controller.metrics.labels import MetricLabels, metric_labels
from admission.controller.metrics.placement_metrics import DomainCollector
from admission.controller.metrics.registry import FOLLOWER, Metrics
from admission.controller.runtime.clock import SystemClock
from admission.controller.runtime.failpoints import Failpoint
from admission.controller.runtime.gc_freeze import keep_collector_off_what_lives_long
from admission.controller.runtime.logs import Log
from admission.controller.settings import Options, knowledge_settings
from admission.controller.writer.executor import ObjectTarget
from admission.controller.writer.observe_mode import ObserveMode
from admission.controller.writer.requests import KubeSender
from admission.engine.engine import Engine
from admission.engine.settings import engine_settings
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import AlreadyExists, Forbidden, KubeError
from api.kube.events import EventRecorder
from api.kube.informer import Informer
from api.kube.lease import Elector
from api.kube.resources import Resource
from queues.reservations.reservations import LoggedDecision, ReservationError
from queues.store.embedded import EmbeddedRedis
from queues.store.redis_store import RedisReservationStore

log = Log("berth.controller")

DEFAULT_NAMESPACE = "berth-system"
NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
# How often the event loop's lag is sampled; often enough to see a stall of 50 ms, too seldom to cause one.
LAG_SAMPLE_SECONDS = 0.25
# How long events still queued may hold up a stop.
DRAIN_SECONDS = 2.0


async def run_controller(
    options: Options,
    *,
    on_listening: Callable[[Mapping[str, str]], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run a controller until `stop` is set or this is cancelled.

    `on_listening` is told the URLs by name once all listen. Raises KubeError, ReservationError, ListenError,
    LiveKueue and ValueError at the start, each one sentence.
    """
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await KubeClient.connect(options.kubeconfig))
        controller = Controller(client, options)
        await controller.prepare(stack)
        urls = await controller.listen(stack)
        if on_listening is not None:
            on_listening(urls)
        await controller.run(stop or asyncio.Event())


# Everything is wired here and nowhere else, so that each part can be tested with others in the
# place of its own.
class Controller:
    """One replica. Its parts are made here and told of each other; what they do stands in their modules."""

    def __init__(self, client: KubeClient, options: Options) -> None:
        config = options.config
        self._client = client
        self._options = options
        self._clock = SystemClock()
        self._namespace = own_namespace(options.namespace)
        # Unique per process: two replicas on one host, and a restarted one, must not be taken for each other.
        self._identity = f"{platform.node()}_{uuid4()}"
        self._failpoint = Failpoint(options.failpoint)
        self._metrics = Metrics(version=own_version())
        self._recorder = self._event_recorder()
        labels = metric_labels(config)
        self._decision_recorder = DecisionRecorder(self._recorder, self._metrics, labels=labels)
        engine = Engine(engine_settings(config))
        self._cluster_state = ClusterState(
            engine,
            self._decision_recorder,
            self._clock,
            knowledge_settings(config, namespace=self._namespace),
            labels=labels,
        )
        board = self._status_board(engine)
        self._control_loop = ControlLoop(self._cluster_state, board, self._decision_recorder, self._clock)
        self._informers = [self._informer(kind) for kind in watched_kinds(self._cluster_state, board)]
        self._ground = NodePodWatch(client, self._note_watch_error)
        self._queue_gauges = self._queue_collector(labels)
        self._domain_gauges = DomainCollector(self._metrics, engine.domain_usages, self._clock)
        self._store: RedisReservationStore | None = None
        self._reports = CheckpointReports(
            client,
            self._clock,
            self._cluster_state,
            self._decision_recorder,
            self._metrics,
            is_ready=lambda: self._control_loop.is_synced,
        )
        self._side_ports = SidePorts(
            client,
            self._clock,
            self._cluster_state,
            options,
            namespace=self._namespace,
            is_ready=lambda: self._control_loop.is_synced,
            watch=self._ground,
        )

    def _event_recorder(self) -> EventRecorder:
        events = self._options.config.berth.events
        return EventRecorder(
            self._client, instance=self._identity, events_per_second=events.per_second, burst=events.burst
        )

    def _status_board(self, engine: Engine) -> StatusWriter:
        return StatusWriter(
            engine,
            with_share=self._options.config.kueue.fair_sharing is not None,
            is_busy=self._is_busy,
            fault_of=self._cluster_state.inspection.sentence,
        )

    def _informer(self, kind: WatchedKind) -> Informer[Any]:
        return make_informer(
            self._client, kind, self._control_loop, self._cluster_state, self._note_watch_error
        )

    def _queue_collector(self, labels: MetricLabels) -> QueueCollector:
        config = self._options.config.kueue
        settings = GaugeSettings(
            with_quotas=config.metrics.enable_cluster_queue_resources,
            with_shares=config.fair_sharing is not None,
        )
        reader = GaugeReader(cluster_state=self._cluster_state, labels=labels, settings=settings)
        return QueueCollector(self._metrics, reader, self._clock, drop=self._decision_recorder.drop_series)

    # --- the start --------------------------------------------------------------------------------

    async def prepare(self, stack: AsyncExitStack) -> None:
        """Look at the cluster and open the store."""
        for sentence in (*self._options.config.warnings, *self._options.config.unused()):
            log.warning("configuration", note=sentence)
        log.info("starting", server=self._client.server, server_version=await self._client.server_version())
        if self._options.observe:
            await self._side_ports.prepare()
            return
        await refuse_beside_kueue(self._client, now=self._clock.now())
        await self._ensure_namespace()
        await self._side_ports.prepare()
        self._store = await stack.enter_async_context(self._open_store())

    async def _ensure_namespace(self) -> None:
        """Make the namespace of the lease, where it is missing and we may."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        try:
            await self._client.get(resources.NAMESPACES, self._namespace)
        except KubeError as error:
            # 403: without the right to read namespaces it may exist all the same; then the create says so.
            if error.status not in (403, 404):
                raise
            try:
                await self._client.create(resources.NAMESPACES, msgspec.json.encode(body))
            except AlreadyExists:
                return
            except Forbidden as refused:
                raise self._without_rights(refused) from refused

    def _without_rights(self, refused: Forbidden) -> Forbidden:
        """Return the refusal to make our namespace with what is to be done about it."""
        message = (
            f"{self._client.server} lets us neither see nor make the namespace {self._namespace}"
            f" ({refused.message}); make it, and bind the roles of deploy/rbac.yaml to this user"
        )
        return Forbidden(message, status=refused.status, reason=refused.reason)

    @asynccontextmanager
    async def _open_store(self) -> AsyncIterator[RedisReservationStore]:
        shard = self._options.config.berth.shard
        if self._options.redis_url is None:
            async with EmbeddedRedis() as embedded:
                embedded_store = await embedded.start(self._options.store_directory, shard=shard)
                # Also where there is no server to be found: then what is stored ends with this
                # process, and a warning has said so.
                if embedded.url is not None:
                    log.info("embedded-store", url=embedded.url)
                yield embedded_store
            return
        store = RedisReservationStore.from_url(self._options.redis_url, shard=shard)
        try:
            await self._greet(store)
            yield store
        finally:
            await store.close()

    async def _greet(self, store: RedisReservationStore) -> None:
        """A store that cannot be had ends the start: later it may be lost, now it is most likely misspelt."""
        await store.ping()

    async def listen(self, stack: AsyncExitStack) -> Mapping[str, str]:
        """Serve HTTP; return the URLs by name."""
        urls = {}
        for port in (*self._own_ports(), *self._side_ports.ports()):
            if port.number >= 0:
                # -1 is off.
                urls[port.name] = await listen(stack, port)
        return urls

    def _own_ports(self) -> tuple[Port, Port]:
        """Return the ports for people: the page's, and that of metrics."""
        options, health = self._options, self._health().routes()
        plan = PlanApi(self._cluster_state, self._decisions if self._store is not None else None)
        state = [*StateApi(self._cluster_state).routes(), *plan.routes(), *self._side_ports.state_routes()]
        # An observer stores no reports: whoever leads does.
        if not options.observe:
            state += self._reports.routes()
        measures = metrics_route(self._metrics, self._queue_gauges, self._domain_gauges)
        return (
            Port(name="http", number=options.http_port, host=options.bind, routes=[*health, *state]),
            Port(name="metrics", number=options.metrics_port, host=options.bind, routes=[*health, measures]),
        )

    async def _decisions(self, limit: int) -> tuple[LoggedDecision, ...]:
        assert self._store is not None, "asked only where there is a store"
        return await self._store.decisions(limit=limit)

    def _health(self) -> Health:
        return Health(lambda: self._control_loop.is_synced and not self._unsynced(), self._unsynced)

    def _unsynced(self) -> list[str]:
        own = [informer.resource.plural for informer in self._informers if not informer.synced.is_set()]
        # For placement alone they are waited for before the first decision, which `is_synced` tells.
        return [*own, *(self._ground.unsynced() if self._side_ports.needs_ground else ())]

    # --- the run ----------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set."""
        # Collections of a large old generation stop the loop for hundreds of milliseconds;
        # refcounts free nearly everything, and `_settle` freezes the rest.
        gc.disable()
        try:
            async with asyncio.TaskGroup() as group:
                background = [
                    group.create_task(informer.run(), name=f"watch-{informer.resource.plural}")
                    for informer in self._informers
                ]
                background += [
                    group.create_task(self._control_loop.run(), name="brain"),
                    group.create_task(self._watch_lag(), name="loop-lag"),
                    group.create_task(self._settle(), name="first-sync"),
                    group.create_task(self._watch_ground(), name="watch-ground"),
                ]
                if not self._options.observe:
                    background.append(group.create_task(self._reports.run(), name="checkpoint-reports"))
                background += [
                    group.create_task(running, name=name) for name, running in self._side_ports.tasks()
                ]
                if self._store is not None:
                    reader = PlanReader(
                        self._store,
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
                # In order: leading first, so that the lease is given back while everything else still runs.
                leading.cancel()
                await asyncio.wait([leading])
                # What was decided last is worth a moment.
                await self._recorder.drain(DRAIN_SECONDS)
                for task in background:
                    task.cancel()
        finally:
            gc.enable()

    async def _settle(self) -> None:
        """Wait for the first lists; what they brought lives long, so the collector need not look at it."""
        for informer in self._informers:
            await informer.synced.wait()
        await self._take_in()
        # Pods and nodes are only watched where a flavor has a topology, and then nothing may be
        # placed before they are known.
        if self._cluster_state.ground.is_needed.is_set():
            await self._ground.is_told.wait()
            await self._take_in()
        keep_collector_off_what_lives_long()
        # The brain begins to decide by this flag alone.
        self._control_loop.is_synced = True
        self._control_loop.post(lambda: None)
        log.info("synced", workloads=len(self._cluster_state.workloads), jobs=len(self._cluster_state.jobs))

    async def _take_in(self) -> None:
        """Wait until the brain has taken in what the informers have brought so far."""
        taken = asyncio.Event()
        self._control_loop.post(taken.set)
        await taken.wait()

    async def _watch_ground(self) -> None:
        """Watch pods and nodes for the extender, and for the brain from when a flavor names a topology."""
        ground = self._cluster_state.ground
        async with asyncio.TaskGroup() as group:
            if not self._side_ports.needs_ground:
                await ground.is_needed.wait()
            group.create_task(self._ground.run(), name="watch-nodes-and-pods")
            await ground.is_needed.wait()
            pods, nodes = (
                make_listener(kind, self._control_loop, self._cluster_state)
                for kind in ground_kinds(self._cluster_state)
            )
            await self._ground.tell(pods=pods, nodes=nodes)
            self._control_loop.post(ground.note_synced)

    async def _wait_synced(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()

    async def _act(self) -> None:
        if self._options.observe:
            await self._wait_synced()
            self._metrics.role = "standalone"
            # Ends with the process: an observer has no term that could be lost.
            await self._control_loop.begin(ObserveMode(self._clock, self._control_loop.forget))
            return
        config = self._options.config
        lease, execution = config.lease, config.berth.execution
        assert self._store is not None
        takeover = Takeover(
            self._client,
            KubeSender(self._client),
            self._store,
            self._control_loop,
            self._clock,
            self._metrics,
            settings=TakeoverSettings(
                identity=self._identity,
                shard=config.berth.shard,
                # What the lease has left when its renewal has failed: a write that takes
                # longer could outlive it.
                request_seconds=lease.duration_seconds - lease.deadline_seconds,
                max_in_flight=execution.max_in_flight,
                max_unconfirmed=execution.max_unconfirmed,
                max_unconfirmed_seconds=execution.max_unconfirmed_seconds,
                awaits_pods=config.kueue.wait_for_pods_ready is not None,
                require_store=self._options.require_store,
            ),
            failpoint=self._failpoint,
            wait_synced=self._wait_synced,
        )
        elector = Elector(
            self._client,
            name=f"berth-{config.berth.shard}",
            namespace=self._namespace,
            identity=self._identity,
            lease_seconds=lease.duration_seconds,
            renew_seconds=lease.renew_seconds,
            deadline_seconds=lease.deadline_seconds,
            highest_known_fence=self._highest_fence,
        )
        await elector.run(takeover.lead)

    async def _highest_fence(self) -> int:
        assert self._store is not None
        try:
            return await self._store.highest_fence() or 0
        except ReservationError:
            # A store that cannot be asked must not keep us from leading; the fence is raised later
            # where it is too low.
            return 0

    async def _watch_lag(self) -> None:
        """Measure how late the loop wakes us: what holds it up holds up the lease as well."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_SAMPLE_SECONDS
            await asyncio.sleep(LAG_SAMPLE_SECONDS)
            self._metrics.loop_lag.labels(self._metrics.role).observe(max(0.0, loop.time() - due))

    def _is_busy(self, key: BoardKey) -> bool:
        return self._control_loop.is_busy(ObjectTarget(*key))

    def _note_watch_error(self, resource: Resource, error: Exception | None) -> None:
        if error is not None:
            log.warning("watch-failed", resource=resource.plural, error=error)


def own_namespace(given: str | None) -> str:
    """Return the namespace of leases: the given one, else the pod's own, else berth-system."""
    if given:
        return given
    try:
        with open(NAMESPACE_FILE, encoding="utf-8") as file:
            return file.read().strip() or DEFAULT_NAMESPACE
    except OSError:
        # The downward API's variable, where the account is not mounted.
        return os.environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE


def own_version() -> str:
    """Return the installed version; "dev" from a checkout that was not installed."""
    try:
        return version("berth-queue")
    except PackageNotFoundError:
        return "dev"
