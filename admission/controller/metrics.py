"""Metrics: Kueue's names, labels and buckets where Kueue has them, `berth_*` for the rest.

Counters and histograms are fed from decisions and from what the executor reports. Gauges of queues are read
from the engine's views when Prometheus asks, so they cost nothing in between and cannot drift.
Source of names: Kueue, pkg/metrics/metrics.go.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

# Kueue's E14: 1 s, then 2.5 s doubling.
WAIT_BUCKETS = (1.0, *(2.5 * 2**i for i in range(13)))
LONG_WAIT_BUCKETS = (1.0, *(2.5 * 2**i for i in range(15)))


# The role of who watches and does not act.
FOLLOWER = "follower"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGauges:
    """Quota and use of one resource of a flavor, in base units. A limit that is not set is infinite."""

    flavor: str
    resource: str
    nominal: float
    reserved: float
    used: float
    borrowing_limit: float = inf
    lending_limit: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGauges:
    """One ClusterQueue as the gauges show it; `weighted_share` None where fair sharing is off."""

    name: str
    cohort: str
    pending_active: int
    pending_inadmissible: int
    reserving: int
    admitted: int
    status: str
    quotas: tuple[QuotaGauges, ...] = ()
    weighted_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueueGauges:
    """One LocalQueue as the gauges show it. `fair_usage` None: past usage does not decide its place."""

    namespace: str
    name: str
    pending: int
    reserving: int
    admitted: int
    is_active: bool
    cluster_queue: str = ""
    fair_usage: float | None = None


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._role = FOLLOWER
        self._gauges: list[Gauge] = []
        self._build = (version, f"{platform.system().lower()}/{platform.machine()}")
        counter, histogram, gauge = self.counter, self.histogram, self._gauge
        self.attempts = counter("kueue_admission_attempts", "Scheduling cycles with a head", ("result",))
        self.attempt_seconds = histogram(
            "kueue_admission_attempt_duration_seconds", "Duration of such a cycle", ("result",), None
        )
        self.preempted = counter(
            "kueue_preempted_workloads", "Preemptions", ("preempting_cluster_queue", "reason")
        )
        self.repeated_preemptions = counter(
            "berth_repeated_preemptions",
            "Preemptions of a Workload for one that it was evicted for before",
            ("preempting_cluster_queue",),
        )
        self.writes = counter("berth_writes", "Writes to the API server", ("purpose", "result"))
        self.write_seconds = histogram(
            "berth_write_duration_seconds", "A write, from queued to answered", ("purpose",), None
        )
        self.stumbles = counter("berth_stumbles", "Faults of our own that were caught and logged", ())
        self.unreadable = counter("berth_unreadable_objects", "Objects that could not be read", ("kind",))
        self.events_dropped = gauge("berth_events_dropped_total", "Events dropped under back-pressure", ())
        self.store_up = gauge("berth_store_up", "1 while Redis answers", ())
        self.leading = gauge("berth_leader", "1 while this process leads", ("shard",))
        self.unconfirmed = gauge("berth_unconfirmed_decisions", "Decisions sent and not yet seen back", ())
        self.cycle_paused = gauge("berth_cycle_paused", "1 while the cycle waits for confirmations", ())
        self.loop_lag = histogram(
            "berth_event_loop_lag_seconds",
            "How late the event loop wakes a sleeping task",
            (),
            (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0),
        )
        self.build_info = gauge("kueue_build_info", "1", ("git_version", "platform"))
        self.build_info.labels(self.role, *self._build).set(1)

    @property
    def role(self) -> str:
        """The replica_role label: leader, follower, or standalone."""
        return self._role

    @role.setter
    def role(self, role: str) -> None:
        """Counters keep what was counted in a former role; gauges of a former role would be untrue."""
        if role == self._role:
            return
        self._role = role
        for gauge in self._gauges:
            gauge.clear()
        self.build_info.labels(role, *self._build).set(1)

    def observe_queues(
        self,
        cluster_queues: Callable[[], Iterable[QueueGauges]],
        local_queues: Callable[[], Iterable[LocalQueueGauges]],
    ) -> None:
        """Read the queue gauges from these whenever the metrics are asked for."""
        self.registry.register(_QueueCollector(self, cluster_queues, local_queues))

    def render(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self.registry)

    def counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        """Return a new counter, whose first label is replica_role; `_total` is put behind its name."""
        return Counter(name, text, ("replica_role", *labels), registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        gauge = Gauge(name, text, ("replica_role", *labels), registry=self.registry)
        self._gauges.append(gauge)
        return gauge

    def histogram(
        self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...] | None
    ) -> Histogram:
        """Return a new histogram, whose first label is replica_role; `buckets` None: Prometheus' own."""
        all_labels = ("replica_role", *labels)
        if buckets is None:
            return Histogram(name, text, all_labels, registry=self.registry)
        return Histogram(name, text, all_labels, registry=self.registry, buckets=buckets)


class _QueueCollector(Collector):
    """Gauges made at scrape time from views."""

    def __init__(
        self,
        metrics: Metrics,
        cluster_queues: Callable[[], Iterable[QueueGauges]],
        local_queues: Callable[[], Iterable[LocalQueueGauges]],
    ) -> None:
        self._metrics = metrics
        self._cluster_queues = cluster_queues
        self._local_queues = local_queues

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: names are known only when queues exist."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families of all queues as they are now."""
        queues = tuple(self._cluster_queues())
        yield from self._of_cluster_queues(queues)
        yield from self._of_quotas(queues)
        yield from self._of_shares(queues)
        yield from self._of_local_queues(tuple(self._local_queues()))

    def _family(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, text, labels=("replica_role", *labels))

    def _of_cluster_queues(self, queues: tuple[QueueGauges, ...]) -> Iterator[GaugeMetricFamily]:
        role = self._metrics.role
        pending = self._family(
            "kueue_pending_workloads",
            "Waiting Workloads (active in the heap, or inadmissible)",
            "cluster_queue",
            "status",
        )
        reserving = self._family(
            "kueue_reserving_active_workloads", "With quota, not finished", "cluster_queue"
        )
        admitted = self._family("kueue_admitted_active_workloads", "Admitted, not finished", "cluster_queue")
        status = self._family("kueue_cluster_queue_status", "One-hot status", "cluster_queue", "status")
        for queue in queues:
            pending.add_metric((role, queue.name, "active"), queue.pending_active)
            pending.add_metric((role, queue.name, "inadmissible"), queue.pending_inadmissible)
            reserving.add_metric((role, queue.name), queue.reserving)
            admitted.add_metric((role, queue.name), queue.admitted)
            for word in ("pending", "active", "terminating"):
                status.add_metric((role, queue.name, word), float(word == queue.status))
        yield from (pending, reserving, admitted, status)

    def _of_quotas(self, queues: tuple[QueueGauges, ...]) -> Iterator[GaugeMetricFamily]:
        fields = ("cohort", "cluster_queue", "flavor", "resource")
        for name, text, amount in _QUOTA_FAMILIES:
            family = self._family(f"kueue_cluster_queue_{name}", text, *fields)
            for queue in queues:
                for quota in queue.quotas:
                    labels = (self._metrics.role, queue.cohort, queue.name, quota.flavor, quota.resource)
                    family.add_metric(labels, amount(quota))
            yield family

    def _of_shares(self, queues: tuple[QueueGauges, ...]) -> Iterator[GaugeMetricFamily]:
        family = self._family(
            "kueue_cluster_queue_weighted_share", "Dominant resource share", "cluster_queue", "cohort"
        )
        for queue in queues:
            if queue.weighted_share is not None:
                family.add_metric((self._metrics.role, queue.name, queue.cohort), queue.weighted_share)
        yield family

    def _of_local_queues(self, queues: tuple[LocalQueueGauges, ...]) -> Iterator[GaugeMetricFamily]:
        role = self._metrics.role
        pending = self._family(
            "kueue_local_queue_pending_workloads", "Waiting Workloads", "name", "namespace", "status"
        )
        reserving = self._family(
            "kueue_local_queue_reserving_active_workloads", "With quota", "name", "namespace"
        )
        admitted = self._family(
            "kueue_local_queue_admitted_active_workloads", "Admitted", "name", "namespace"
        )
        status = self._family("kueue_local_queue_status", "One-hot status", "name", "namespace", "active")
        for queue in queues:
            names = (role, queue.name, queue.namespace)
            pending.add_metric((*names, "active"), queue.pending)
            reserving.add_metric(names, queue.reserving)
            admitted.add_metric(names, queue.admitted)
            for word, is_so in (("True", queue.is_active), ("False", not queue.is_active)):
                status.add_metric((*names, word), float(is_so))
        yield from (pending, reserving, admitted, status)
        yield from self._of_past_usage(queues)

    def _of_past_usage(self, queues: tuple[LocalQueueGauges, ...]) -> Iterator[GaugeMetricFamily]:
        family = self._family(
            "kueue_local_queue_admission_fair_sharing_usage",
            "Past usage by weight",
            "name",
            "namespace",
            "cluster_queue",
        )
        for queue in queues:
            if queue.fair_usage is not None:
                labels = (self._metrics.role, queue.name, queue.namespace, queue.cluster_queue)
                family.add_metric(labels, queue.fair_usage)
        if family.samples:
            yield family


_QUOTA_FAMILIES: tuple[tuple[str, str, Callable[[QuotaGauges], float]], ...] = (
    ("nominal_quota", "Nominal quota", attrgetter("nominal")),
    ("borrowing_limit", "What may be borrowed at most", attrgetter("borrowing_limit")),
    ("lending_limit", "What is lent at most", attrgetter("lending_limit")),
    ("resource_reservation", "Quota reserved", attrgetter("reserved")),
    ("resource_usage", "Quota of admitted Workloads", attrgetter("used")),
)
