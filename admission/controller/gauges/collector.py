"""Serves the gauges of queues and cohorts, and ends the series of those that are gone.

    /metrics ─▶ refresh: snapshots, in slices, on the event loop ─▶ text, in a thread

As in Kueue, the counters of a ClusterQueue, LocalQueue or Cohort end when it is deleted, and those of queues
when one of their custom labels changes: the series would otherwise stay forever. They are served once more
after a deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from admission.controller.gauges.families import (
    CLUSTER_QUEUE_FAMILIES,
    COHORT_FAMILIES,
    LOCAL_QUEUE_FAMILIES,
    Family,
)
from admission.controller.gauges.reader import (
    CohortGauges,
    GaugeReader,
    LocalQueueGauges,
    QueueGauges,
    QueueSnapshots,
)
from admission.controller.metrics.labels import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD, QueueKey
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.large_reads import LargeReads
from admission.scheduler.cycle_statistics import CycleStatistics

G = TypeVar("G", bound=QueueGauges | LocalQueueGauges | CohortGauges)
MetricFamily = GaugeMetricFamily | CounterMetricFamily


class QueueCollector(Collector):
    """Serves the gauges of the latest snapshots. Call `refresh` for new ones before each scrape.

    `series` are ended with their object. `statistics` are those of the scheduler's cycles.
    """

    def __init__(
        self,
        metrics: Metrics,
        reader: GaugeReader,
        clock: Clock,
        *,
        reads: LargeReads,
        series: QueueSeries,
        statistics: CycleStatistics,
    ) -> None:
        self._metrics = metrics
        self._reader = reader
        self._clock = clock
        self._reads = reads
        self._series = series
        self._labels = series.labels
        self._statistics = statistics
        self._snapshots = QueueSnapshots()
        # By object: the values of its custom labels as last served. The series of an object that is missing
        # next time, or has other values then, end.
        self._shown: dict[QueueKey, tuple[str, ...]] = {}
        metrics.registry.register(self)

    async def refresh(self) -> None:
        """Take new snapshots, and yield the event loop between slices."""
        self._series.begin_scrape()
        queues: list[QueueGauges] = []
        local_queues: list[LocalQueueGauges] = []
        cohorts: list[CohortGauges] = []
        for snapshot in await self._reads.collect(self._reader.snapshots(now=self._clock.now())):
            if isinstance(snapshot, QueueGauges):
                queues.append(snapshot)
            elif isinstance(snapshot, LocalQueueGauges):
                local_queues.append(snapshot)
            else:
                cohorts.append(snapshot)
        self._snapshots = QueueSnapshots(
            cluster_queues=tuple(queues), local_queues=tuple(local_queues), cohorts=tuple(cohorts)
        )
        # After the new snapshots are in place, so that no scrape shows an object without its counters.
        self._drop_gone()

    def describe(self) -> Iterable[MetricFamily]:
        """Return nothing, so that registering does not read anything."""
        return ()

    def collect(self) -> Iterator[MetricFamily]:
        """Yield the metric families of the latest snapshots."""
        snapshots = self._snapshots
        yield from self._families(CLUSTER_QUEUE, CLUSTER_QUEUE_FAMILIES, snapshots.cluster_queues)
        if self._labels.has_local_queues:
            yield from self._families(LOCAL_QUEUE, LOCAL_QUEUE_FAMILIES, snapshots.local_queues)
        yield from self._families(COHORT, COHORT_FAMILIES, snapshots.cohorts)
        yield from self._of_cycles()

    def _families(
        self, kind: str, families: tuple[Family[G], ...], snapshots: tuple[G, ...]
    ) -> Iterator[GaugeMetricFamily]:
        role, custom = self._metrics.role, self._labels.names(kind)
        for family in families:
            of_workloads = self._labels.names(WORKLOAD) if family.by_workload else ()
            labels = ("replica_role", *family.labels, *of_workloads, *custom)
            found = GaugeMetricFamily(family.name, family.text, labels=labels)
            for snapshot in snapshots:
                for values, number in family.rows(snapshot):
                    found.add_metric((role, *values, *snapshot.labels), number)
            yield found

    def _of_cycles(self) -> Iterator[CounterMetricFamily]:
        role, statistics = self._metrics.role, self._statistics
        attempts = CounterMetricFamily(
            "ai_scheduler_attempts",
            "Workloads that a cycle tried to admit",
            labels=("replica_role", "workload_type", "result"),
        )
        for key, count in statistics.attempts.items():
            attempts.add_metric((role, *key), count)
        yield attempts
        custom = self._labels.names(CLUSTER_QUEUE)
        again = CounterMetricFamily(
            "kueue_preemption_target_recomputations",
            "Searches for other victims, after another head had taken one",
            labels=("replica_role", "cluster_queue", "result", *custom),
        )
        queues = {queue.name: queue.labels for queue in self._snapshots.cluster_queues}
        for (name, result), count in statistics.recomputations.items():
            # The snapshots are a moment old: a queue may be missing that has begun or ended since.
            if name in queues:
                again.add_metric((role, name, result, *queues[name]), count)
        yield again

    def _drop_gone(self) -> None:
        """End the counters of objects that are gone. A changed custom label begins new series."""
        snapshots = self._snapshots
        shown: dict[QueueKey, tuple[str, ...]] = {
            **{(CLUSTER_QUEUE, "", one.name): one.labels for one in snapshots.cluster_queues},
            **{(LOCAL_QUEUE, one.namespace, one.name): one.labels for one in snapshots.local_queues},
            **{(COHORT, "", one.name): one.labels for one in snapshots.cohorts},
        }
        for key, labels in self._shown.items():
            if key not in shown:
                # Also a Cohort that only queues and Cohorts below it had named: no object ends with it.
                self._series.end(key)
            elif shown[key] != labels and key[0] != COHORT:
                self._series.drop(*key)
        self._shown = shown
