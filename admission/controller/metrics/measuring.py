"""Connects the metrics with what they measure, which does not know them."""

from __future__ import annotations

import time
from collections.abc import Callable

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.metrics.decision_recorder import DecisionRecorder
from admission.controller.metrics.eviction_metrics import EvictionMetrics
from admission.controller.metrics.object_metrics import ObjectMetrics
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.metrics.workload_metrics import WorkloadMetrics
from admission.controller.runtime.events import EventReporter


def measure(
    cluster_state: ClusterState,
    metrics: Metrics,
    events: EventReporter,
    series: QueueSeries,
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> DecisionRecorder:
    """Measure the objects of this cluster from now on. Return the observer for its control loop."""
    engine, observers = cluster_state.engine, cluster_state.observers
    decision_recorder = DecisionRecorder(metrics, events, series, monotonic=monotonic)
    workloads = WorkloadMetrics(metrics, series, cohorts_above=engine.queues.cohorts_above)
    evictions = EvictionMetrics(
        metrics,
        events,
        series,
        saved_at=cluster_state.pending_evictions.saved_before_end,
        price_of=engine.nodes.device_price,
    )
    objects = ObjectMetrics(
        metrics,
        jobs=cluster_state.queued,
        seconds_since_fault=cluster_state.nodes.seconds_since_fault,
    )
    observers.workload_changed.extend((workloads.observe, evictions.observe, objects.observe))
    observers.pod_ungated.append(objects.note_ungated)
    observers.object_unreadable.append(objects.note_unreadable)
    return decision_recorder
