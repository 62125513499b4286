"""The metrics whose series end with a queue or cohort, and the custom labels that they have.

A series of a queue that was deleted would stay until the process ends.
"""

from __future__ import annotations

from typing import TypeVar

from admission.controller.metrics.labels import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, MetricLabels
from admission.controller.metrics.registry import Counter, Histogram

M = TypeVar("M", Counter, Histogram)

# By kind: the labels with which metrics name an object of that kind.
_NAMING = {
    CLUSTER_QUEUE: (("cluster_queue",), ("preempting_cluster_queue",)),
    LOCAL_QUEUE: (("name", "namespace"),),
    COHORT: (("cohort",),),
}


class QueueSeries:
    """Counters and histograms by ClusterQueue, LocalQueue or Cohort.

    `labels`: their custom labels, and which LocalQueues have metrics.
    """

    def __init__(self, labels: MetricLabels | None = None) -> None:
        self.labels = labels if labels is not None else MetricLabels()
        self._by_naming: list[tuple[tuple[str, ...], Counter | Histogram]] = []

    def keep(self, naming: tuple[str, ...], metric: M) -> M:
        """Return the metric, and end its series from now on with the object that the labels `naming` name."""
        self._by_naming.append((naming, metric))
        return metric

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """End the series of a ClusterQueue, LocalQueue or Cohort that is gone."""
        values = (name, namespace) if kind == LOCAL_QUEUE else (name,)
        for naming, metric in self._by_naming:
            if naming in _NAMING[kind]:
                metric.remove_by_labels(dict(zip(naming, values, strict=True)))
