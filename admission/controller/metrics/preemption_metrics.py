"""Preemptions by the preemptor's ClusterQueue, and those that are repeated."""

from __future__ import annotations

from collections import OrderedDict

from admission.controller.metrics.labels import CLUSTER_QUEUE
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.logs import Log
from admission.decisions.decision import Evict

log = Log("berth.decisions")

_NAMING = ("preempting_cluster_queue",)
# How many pairs of victim and preemptor are remembered.
MAX_REMEMBERED = 10_000


class PreemptionMetrics:
    """Counts preemptions from their decisions."""

    def __init__(self, metrics: Metrics, series: QueueSeries) -> None:
        self._metrics = metrics
        self._labels = series.labels
        self._preempted = series.keep(
            _NAMING,
            metrics.counter(
                "kueue_preempted_workloads",
                "Preemptions",
                (*_NAMING, "reason", *series.labels.names(CLUSTER_QUEUE)),
            ),
        )
        self._repeated = series.keep(
            _NAMING,
            metrics.counter(
                "berth_repeated_preemptions",
                "Preemptions of a Workload for one that it was evicted for before",
                _NAMING,
            ),
        )
        # Pairs of uids, victim and preemptor, the latest last.
        self._evicted_for: OrderedDict[tuple[str, str], None] = OrderedDict()

    def note(self, decision: Evict) -> None:
        """Count an eviction that frees quota for a preemptor; ignore any other."""
        if decision.preemption_reason is None:
            return
        queue = decision.preempting_cluster_queue
        custom = self._labels.values(CLUSTER_QUEUE, "", queue)
        self._preempted.labels(self._metrics.role, queue, decision.preemption_reason, *custom).inc()
        self._note_repeat(decision)

    def _note_repeat(self, decision: Evict) -> None:
        """Count a Workload that is preempted again by the same one: work that was lost for nothing."""
        pair = (decision.uid, decision.preemptor_uid)
        if pair in self._evicted_for:
            self._repeated.labels(self._metrics.role, decision.preempting_cluster_queue).inc()
            log.warning("evicted-again", workload=decision.key, preemptor=decision.preemptor)
        self._evicted_for[pair] = None
        self._evicted_for.move_to_end(pair)
        if len(self._evicted_for) > MAX_REMEMBERED:
            self._evicted_for.popitem(last=False)
