"""The metrics of a process: Kueue's names, labels and buckets where Kueue has them, `berth_*` for the rest.

Counters and histograms are fed from decisions and from the executor's results. Gauges of queues are in
`admission.controller.gauges`, counters of Workloads in `workload_metrics`.
Source of names: Kueue, pkg/metrics/metrics.go.
"""

from __future__ import annotations

import platform
from typing import Any, TypeVar

import prometheus_client
from prometheus_client import (
    CollectorRegistry,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics import MetricWrapperBase

from admission.controller.metrics import exposition
from admission.controller.metrics.histogram import Histogram
from admission.decisions.api_writes import Event
from api.object_events import EventType
from api.reasons import PendingReason

# A series for the creation time of each series would double their number, and no dashboard uses it. The
# setting is global, because prometheus_client has none per registry.
disable_created_metrics()  # type: ignore[no-untyped-call]

# Kueue's buckets (its E14): 1 s, then 2.5 s doubling.
WAIT_BUCKETS = (1.0, *(2.5 * 2**i for i in range(13)))
LONG_WAIT_BUCKETS = (1.0, *(2.5 * 2**i for i in range(15)))

# From the two writes of a replacement to the minutes that a recovery may take.
RECOVERY_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)

# The role of a replica that watches and does not act.
FOLLOWER = "follower"

# Reasons of Events about Workloads that only wait.
_WAITING = frozenset(PendingReason) - {PendingReason.MISCONFIGURED}


Series = TypeVar("Series", bound="_QuickLabels")


class _QuickLabels(MetricWrapperBase):
    """Finds a series that exists without checking its labels again."""

    def labels(self: Series, *values: Any, **named: object) -> Series:
        """Return the series with these label values."""
        # The library converts every value under a lock, which costs more than the increment that follows.
        # What it has removed is not found here either.
        known: Any = self._metrics.get(values)
        return known or super().labels(*values, **named)


class Counter(_QuickLabels, prometheus_client.Counter):
    """A counter of the library."""


class Gauge(_QuickLabels, prometheus_client.Gauge):
    """A gauge of the library."""


class Metrics:
    """All metrics of one process, in a registry of their own. A new process is a follower."""

    def __init__(self, *, version: str) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._role = FOLLOWER
        self._is_store_up: bool | None = None
        self._gauges: list[Gauge] = []
        self._add_cycle_metrics()
        self._add_time_metrics()
        self._add_write_metrics()
        self._add_process_metrics()
        self._note_build(version)
        ProcessCollector(registry=self.registry)

    def _add_cycle_metrics(self) -> None:
        """Add the metrics of cycles: decisions and what follows from them."""
        counter, histogram, gauge = self.counter, self.histogram, self._gauge
        self.attempts = counter("kueue_admission_attempts", "Scheduling cycles with a head", ("result",))
        self.attempt_seconds = histogram(
            "kueue_admission_attempt_duration_seconds", "Duration of such a cycle", ("result",), None
        )
        self.misplaced = counter("berth_misplaced_pods", "Pods bound outside of their domains", ())
        self.unconfirmed = gauge("berth_unconfirmed_decisions", "Decisions sent and not yet confirmed", ())
        self.cycle_paused = gauge("berth_cycle_paused", "1 while the cycle waits for confirmations", ())

    def _add_time_metrics(self) -> None:
        """Add the metrics of time: promises, estimates, and how accurate they were."""
        counter, histogram = self.counter, self.histogram
        self.promises = counter(
            "berth_promises", "Promised starts, by what became of them", ("cluster_queue", "event")
        )
        self.promise_moves = counter(
            "berth_promise_moves", "Promised starts that moved later, by cause", ("cluster_queue", "cause")
        )
        self.promise_error = histogram(
            "berth_promise_error_seconds",
            "How far from its first promise a Workload started",
            ("cluster_queue",),
            (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0),
        )
        self.backfilled = counter(
            "berth_backfilled_workloads", "Workloads started ahead of promised ones", ("cluster_queue",)
        )
        self.start_estimates = counter(
            "berth_start_estimates",
            "Starts by the side of the interval of their first estimate: early, inside or late",
            ("side",),
        )
        self.start_error = histogram(
            "berth_start_estimate_error_seconds",
            "How far from its first expected start a Workload started",
            (),
            (60.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0),
        )
        self.estimate_ratio = histogram(
            "berth_runtime_estimate_ratio",
            "Measured run time divided by the estimate",
            ("source",),
            (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 5.0, 10.0),
        )

    def _add_write_metrics(self) -> None:
        """Add the metrics of reads, writes, Events and the store."""
        counter, histogram, gauge = self.counter, self.histogram, self._gauge
        self.writes = counter("berth_writes", "Writes to the API server", ("purpose", "result"))
        self.write_seconds = histogram(
            "berth_write_duration_seconds", "A write, from queued to answered", ("purpose",), None
        )
        self.in_flight_limit = gauge("berth_writes_in_flight_limit", "Writes that may be in flight", ())
        self.api_latency = gauge(
            "berth_api_latency_seconds", "Moving average of the API server's time for a write", ()
        )
        self.checkpoint_reports = counter(
            "berth_checkpoint_reports", "Reports to /v1/checkpoints", ("result",)
        )
        self.refused = counter(
            "berth_http_requests_refused", "Requests and connections that were refused", ("port", "reason")
        )
        self.unreadable = counter("berth_unreadable_objects", "Objects that could not be read", ("kind",))
        self.warnings = counter("berth_warnings", "Warning Events about faults, by reason", ("reason",))
        self.events_sent = counter("berth_events_sent", "Requests to the API server with Events", ())
        self.events_dropped = counter("berth_events_dropped", "Events dropped under back-pressure", ())
        self.store_up = gauge("berth_store_up", "1 while Redis answers", ())
        self.store_ignored = counter(
            "berth_store_ignored_values", "Values in Redis that cannot be read", ("table", "fault")
        )
        self.plan_writes = counter(
            "berth_store_plan_writes", "Writes of the plan to Redis, by whether all of it", ("result",)
        )

    def _add_process_metrics(self) -> None:
        """Add the metrics of the process itself."""
        counter, histogram, gauge = self.counter, self.histogram, self._gauge
        self.control_loop_errors = counter(
            "berth_control_loop_errors", "Errors in Berth's own code that were caught", ()
        )
        self.turn_age = gauge(
            "berth_control_loop_unfinished_seconds", "How long the control loop has finished no turn", ()
        )
        self.leading = gauge("berth_leader", "1 while this process leads", ("shard",))
        self.loop_lag = histogram(
            "berth_event_loop_lag_seconds",
            "How late the event loop wakes a sleeping task",
            (),
            (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0),
        )

    @property
    def role(self) -> str:
        """The value of the label `replica_role`: leader, follower or standalone."""
        return self._role

    @role.setter
    def role(self, role: str) -> None:
        """Set the role. Counters keep the counts of the former role; gauges are cleared."""
        if role == self._role:
            return
        self._role = role
        self._is_store_up = None
        # A follower that shows a leader's last gauges would look like a second leader.
        for gauge in self._gauges:
            gauge.clear()

    @property
    def is_follower(self) -> bool:
        """Return whether this replica watches and does not act: the leader counts the same changes."""
        return self._role == FOLLOWER

    @property
    def is_store_up(self) -> bool | None:
        """Whether Redis answers, as the leader has seen it last; None for other replicas."""
        return self._is_store_up

    def note_store(self, *, is_up: bool) -> None:
        """Show whether Redis answers."""
        self._is_store_up = is_up
        self.store_up.labels(self.role).set(float(is_up))

    def count_warning(self, event: Event) -> None:
        """Count an Event that was sent, if it is a Warning about a fault."""
        # Like Kueue, waiting Workloads get Warnings too, but waiting is no fault.
        if event.type is EventType.WARNING and event.reason not in _WAITING:
            self.warnings.labels(self.role, event.reason).inc()

    def count_checkpoint_report(self, result: str) -> None:
        """Count a report to /v1/checkpoints by what became of it."""
        self.checkpoint_reports.labels(self.role, result).inc()

    def count_refused(self, port: str, reason: str, count: int = 1) -> None:
        """Count requests or connections that a port refused."""
        self.refused.labels(self.role, port, reason).inc(count)

    def _note_build(self, version: str) -> None:
        """Serve Kueue's labels of the build. The commit is part of the version, the runtime is Python's."""
        labels = {
            "git_version": version,
            "git_commit": "",
            "build_date": "",
            "go_version": "",
            "compiler": f"{platform.python_implementation()} {platform.python_version()}",
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
        Gauge("kueue_build_info", "1", tuple(labels), registry=self.registry).labels(**labels).set(1)

    def render(self) -> bytes:
        """Return the text in Prometheus' exposition format."""
        return exposition.render(self.registry)

    def counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        """Return a new counter whose first label is replica_role. `_total` is appended to its name."""
        return Counter(name, text, ("replica_role", *labels), registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        gauge = Gauge(name, text, ("replica_role", *labels), registry=self.registry)
        self._gauges.append(gauge)
        return gauge

    def histogram(
        self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...] | None
    ) -> Histogram:
        """Return a new histogram whose first label is replica_role. `buckets` None: Prometheus' default."""
        all_labels = ("replica_role", *labels)
        if buckets is None:
            return Histogram(name, text, all_labels, registry=self.registry)
        return Histogram(name, text, all_labels, registry=self.registry, buckets=buckets)
