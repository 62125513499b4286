"""The metrics whose series end with a queue or cohort, and the custom labels that they have.

A series of a queue that was deleted would stay until the process ends. It is served once more, so that what
was counted since the last scrape is not lost, and then ends. If another queue takes the name before that, it
ends at once, and the new queue counts from 0, as in Kueue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from admission.controller.metrics.histogram import Histogram
from admission.controller.metrics.labels import (
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    MetricLabels,
    QueueKey,
)
from admission.controller.metrics.registry import Counter
from api.objects.common import Meta

M = TypeVar("M", Counter, Histogram)

# By kind: the labels with which metrics name an object of that kind.
_NAMING = {
    CLUSTER_QUEUE: (("cluster_queue",), ("preempting_cluster_queue",)),
    LOCAL_QUEUE: (("name", "namespace"),),
    COHORT: (("cohort",),),
}


class QueueSeries:
    """Counters and histograms by ClusterQueue, LocalQueue or Cohort.

    `labels`: their custom labels, and which LocalQueues have metrics. `at_scrape` are called before each
    scrape.
    """

    def __init__(self, labels: MetricLabels | None = None) -> None:
        self.labels = labels if labels is not None else MetricLabels()
        self.at_scrape: list[Callable[[], None]] = []
        self._by_naming: list[tuple[tuple[str, ...], Counter | Histogram]] = []
        # The objects that are gone, and whether their last counts have been served.
        self._gone: dict[QueueKey, bool] = {}

    def keep(self, naming: tuple[str, ...], metric: M) -> M:
        """Return the metric, and end its series from now on with the object that the labels `naming` name."""
        self._by_naming.append((naming, metric))
        return metric

    def knows(self, kind: str, name: str) -> bool:
        """Return whether an object without a namespace exists."""
        return self.labels.uid_of(kind, "", name) is not None

    # --- changes from the watch -------------------------------------------------------------------

    def see(self, kind: str, metadata: Meta) -> None:
        """Take the metadata of a queue or cohort as it is now."""
        key = (kind, metadata.namespace, metadata.name)
        known = self.labels.uid_of(*key)
        # After a watch was interrupted, a deletion may be known only by the uid of the object that followed.
        is_followed = self._gone.pop(key, None) is not None if known is None else known != metadata.uid
        if is_followed:
            self.drop(*key)
        self.labels.see(kind, metadata)

    def forget(self, kind: str, metadata: Meta) -> None:
        """End the series of an object that is gone, after the next scrape."""
        self.labels.forget(kind, metadata)
        self.end((kind, metadata.namespace, metadata.name))

    # --- scrapes ----------------------------------------------------------------------------------

    def end(self, key: QueueKey) -> None:
        """End the series that name this object, after the next scrape."""
        self._gone.setdefault(key, False)

    def begin_scrape(self) -> None:
        """End what the last scrape has served for the last time. Call it before each scrape."""
        for key in [key for key, is_served in self._gone.items() if is_served]:
            del self._gone[key]
            self.drop(*key)
        self._gone = dict.fromkeys(self._gone, True)
        for begin in self.at_scrape:
            begin()

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """End the series of a ClusterQueue, LocalQueue or Cohort that is gone."""
        values = (name, namespace) if kind == LOCAL_QUEUE else (name,)
        for naming, metric in self._by_naming:
            if naming in _NAMING[kind]:
                metric.remove_by_labels(dict(zip(naming, values, strict=True)))
