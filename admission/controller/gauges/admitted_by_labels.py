"""How many Workloads of each ClusterQueue are admitted, by the values of the custom labels of Workloads.

As Kueue's gauge `admitted_active_workloads`, which is the only one with these labels. The counts are updated
with every change of a Workload, as in `admission.controller.cluster_state.workload_counts`.
Source: Kueue, pkg/cache/scheduler/clusterqueue.go, updateWorkloadUsage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from admission.controller.cluster_state.observers import WorkloadTransition
from admission.controller.metrics.labels import MetricLabels
from api.workload import Workload

_Values = tuple[str, ...]


class AdmittedByLabels:
    """Counts admitted Workloads by ClusterQueue and custom labels."""

    def __init__(self, labels: MetricLabels) -> None:
        self._labels = labels
        self._counts: dict[str, Counter[_Values]] = {}

    def observe(self, change: WorkloadTransition) -> None:
        """Count a Workload by its labels of now, and no longer by those that it had."""
        for workload, step in ((change.before, -1), (change.after, 1)):
            if workload is not None:
                self._add(workload, step)

    def of(self, cluster_queue: str) -> Mapping[_Values, int]:
        """Return how many Workloads are admitted and not finished, by the values of their custom labels."""
        return self._counts.get(cluster_queue, {})

    def _add(self, workload: Workload, step: int) -> None:
        if workload.admission is None or not workload.is_admitted or workload.is_finished:
            return
        name, values = workload.admission.cluster_queue, self._labels.values_of(workload)
        counts = self._counts.setdefault(name, Counter())
        counts[values] += step
        # Zeros are dropped, otherwise every value that ever occurred would stay a series forever.
        if not counts[values]:
            del counts[values]
        if not counts:
            del self._counts[name]
