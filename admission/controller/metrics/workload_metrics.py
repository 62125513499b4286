"""Counters and histograms of the steps of Workloads, by ClusterQueue and by LocalQueue.

The input is two versions of an object. A step is counted once, when the object shows it, whichever client
made it, so the counts of two consecutive leaders add up.
Source of names, labels and buckets: Kueue, pkg/metrics/metrics.go.

The waits of gangs have a series for each Job, which would grow without bound, so the series of the gang that
was admitted longest ago is removed when there are too many. Totals per queue are in
kueue_admission_wait_time_seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from admission.controller.cluster_state.observers import WorkloadTransition
from admission.controller.metrics.histogram import Histogram
from admission.controller.metrics.labels import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import (
    LONG_WAIT_BUCKETS,
    WAIT_BUCKETS,
    Counter,
    Metrics,
)
from api.reasons import ConditionType
from api.workload import Workload

_CLASS = ("priority_class",)
_CLUSTER = ("cluster_queue",)
_LOCAL = ("name", "namespace")
_EVICTION = ("reason", "underlying_cause")

# How many gangs have a series of their own.
MAX_GANGS = 100
_GANG_BUCKETS = (10.0, 30.0, 60.0, 300.0, 600.0)


class _Pair(NamedTuple):
    """A counter by ClusterQueue, and the same counter by LocalQueue."""

    cluster: Counter
    local: Counter | None = None


class _Waits(NamedTuple):
    """A histogram by ClusterQueue, and the same histogram by LocalQueue."""

    cluster: Histogram
    local: Histogram | None = None


class _Place(NamedTuple):
    """The label values of a step: for both kinds of queue, its priority class, and custom ones.

    `local` None: the LocalQueue has no metrics.
    """

    cluster: tuple[str, ...]
    local: tuple[str, ...] | None
    priority_class: str
    cluster_custom: tuple[str, ...]
    local_custom: tuple[str, ...]


class WorkloadMetrics:
    """Counts the steps of Workloads. `cohorts_above` returns the cohorts above a ClusterQueue."""

    def __init__(
        self,
        metrics: Metrics,
        series: QueueSeries,
        *,
        cohorts_above: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._metrics = metrics
        self._series = series
        self._labels = series.labels
        self._cohorts_above = cohorts_above
        self._gangs = GangWaits(metrics)
        self._reserved = self._counter("quota_reserved_workloads", "Quota reservations", _CLASS)
        self._admitted = self._counter("admitted_workloads", "Admissions", _CLASS)
        self._finished = self._counter("finished_workloads", "Finished Workloads", _CLASS)
        self._evicted = self._counter("evicted_workloads", "Evictions", (*_EVICTION, *_CLASS))
        self._evicted_once = self._counter(
            "evicted_workloads_once",
            "First evictions of Workloads for that reason",
            (*_EVICTION, *_CLASS),
            has_local=False,
        )
        self._admitted_below = self._series.keep(
            ("cohort",),
            metrics.counter(
                "kueue_cohort_subtree_admitted_workloads",
                "Admissions in the cohort and all below",
                ("cohort", *_CLASS, *self._labels.names(COHORT)),
            ),
        )
        self._reserved_wait = self._waits("quota_reserved_wait_time", "Queued to quota reserved")
        self._admission_wait = self._waits(
            "admission_wait_time", "Queued to admitted", buckets=LONG_WAIT_BUCKETS, local=WAIT_BUCKETS
        )
        self._checks_wait = self._waits("admission_checks_wait_time", "Quota reserved to admitted")
        self._ready_wait = self._waits("ready_wait_time", "Queued to pods ready")
        self._started_wait = self._waits("admitted_until_ready_wait_time", "Admitted to pods ready")
        self._execution = self._waits("execution_time", "Admitted to finished", buckets=LONG_WAIT_BUCKETS)
        self._ready_to_evicted = self._of_evictions(
            "pods_ready_to_evicted_time", "Pods ready to evicted", _EVICTION
        )
        self._release = self._of_evictions("workload_eviction_latency", "Evicted to released", ("reason",))

    def observe(self, change: WorkloadTransition) -> None:
        """Count the steps between two versions of a Workload. A follower counts nothing."""
        before, after, now = change.before, change.after, change.at
        if self._metrics.is_follower or before is None or after is None:
            return
        queue = _cluster_queue(before, after)
        if queue is None or before.uid != after.uid:
            return
        place = self._place(queue, after)
        self._note_admission(before, after, place, now)
        if after.is_admitted and not before.is_admitted:
            self._note_cohorts(self._cohorts_above(queue), place)
            self._gangs.note(after, now - _queued_at(before))
        self._note_ready(before, after, place, now)
        self._note_eviction(before, after, place, now)
        if after.is_finished and not before.is_finished:
            self._count(self._finished, place)
            self._observe(self._execution, place, _since(before, ConditionType.ADMITTED, now))

    # --- steps ------------------------------------------------------------------------------------

    def _note_admission(self, before: Workload, after: Workload, place: _Place, now: float) -> None:
        queued_at = _queued_at(before)
        if after.has_quota_reservation and not before.has_quota_reservation:
            self._count(self._reserved, place)
            self._observe(self._reserved_wait, place, now - queued_at)
        if after.is_admitted and not before.is_admitted:
            self._count(self._admitted, place)
            self._observe(self._admission_wait, place, now - queued_at)
            if after.checks:
                self._observe(self._checks_wait, place, _since(after, ConditionType.QUOTA_RESERVED, now))

    def _note_cohorts(self, cohorts: tuple[str, ...], place: _Place) -> None:
        for cohort in cohorts:
            custom = self._labels.values(COHORT, "", cohort)
            self._admitted_below.labels(self._role, cohort, place.priority_class, *custom).inc()

    def _note_ready(self, before: Workload, after: Workload, place: _Place, now: float) -> None:
        if not after.is_true(ConditionType.PODS_READY) or before.is_true(ConditionType.PODS_READY):
            return
        self._observe(self._ready_wait, place, now - _queued_at(before))
        self._observe(self._started_wait, place, _since(after, ConditionType.ADMITTED, now))

    def _note_eviction(self, before: Workload, after: Workload, place: _Place, now: float) -> None:
        for (reason, cause), count, is_first in _new_evictions(before, after):
            labels = (reason, cause)
            self._count(self._evicted, place, *labels, times=count)
            if is_first:
                self._count(self._evicted_once, place, *labels)
            if before.is_true(ConditionType.PODS_READY):
                seconds = _since(before, ConditionType.PODS_READY, now)
                names = (*place.cluster, *labels, *place.cluster_custom)
                self._ready_to_evicted.labels(self._role, *names).observe(seconds)
        evicted = before.eviction
        if evicted is not None and before.admission and after.admission is None:
            reason = evicted.reason.partition("DueTo")[0]
            names = (*place.cluster, reason, *place.cluster_custom)
            self._release.labels(self._role, *names).observe(max(0.0, now - evicted.at))

    # --- metrics ----------------------------------------------------------------------------------

    @property
    def _role(self) -> str:
        return self._metrics.role

    def _place(self, queue: str, workload: Workload) -> _Place:
        reference, labels = workload.priority_class, self._labels
        namespace, local_queue = workload.key.namespace, workload.queue_name
        of_workload = labels.values_of(workload)
        return _Place(
            cluster=(queue,),
            local=(local_queue, namespace) if labels.shows(namespace, local_queue) else None,
            priority_class=reference.name if reference is not None else "",
            cluster_custom=(*labels.values(CLUSTER_QUEUE, "", queue), *of_workload),
            local_custom=(*labels.values(LOCAL_QUEUE, namespace, local_queue), *of_workload),
        )

    def _count(self, pair: _Pair, place: _Place, *labels: str, times: int = 1) -> None:
        labels = (*labels, place.priority_class)
        pair.cluster.labels(self._role, *place.cluster, *labels, *place.cluster_custom).inc(times)
        if pair.local is not None and place.local is not None:
            pair.local.labels(self._role, *place.local, *labels, *place.local_custom).inc(times)

    def _observe(self, waits: _Waits, place: _Place, seconds: float) -> None:
        seconds, name = max(0.0, seconds), place.priority_class
        waits.cluster.labels(self._role, *place.cluster, name, *place.cluster_custom).observe(seconds)
        if waits.local is not None and place.local is not None:
            waits.local.labels(self._role, *place.local, name, *place.local_custom).observe(seconds)

    def _counter(self, name: str, text: str, labels: tuple[str, ...], *, has_local: bool = True) -> _Pair:
        make = self._metrics.counter
        cluster, local = self._custom_names()
        of_cluster = self._series.keep(_CLUSTER, make(f"kueue_{name}", text, (*_CLUSTER, *labels, *cluster)))
        if not has_local or not self._labels.has_local_queues:
            return _Pair(of_cluster)
        return _Pair(
            of_cluster,
            self._series.keep(_LOCAL, make(f"kueue_local_queue_{name}", text, (*_LOCAL, *labels, *local))),
        )

    def _waits(
        self,
        name: str,
        text: str,
        *,
        buckets: tuple[float, ...] = WAIT_BUCKETS,
        local: tuple[float, ...] | None = None,
    ) -> _Waits:
        make = self._metrics.histogram
        cluster_names, local_names = self._custom_names()
        of_cluster = self._series.keep(
            _CLUSTER, make(f"kueue_{name}_seconds", text, (*_CLUSTER, *_CLASS, *cluster_names), buckets)
        )
        if not self._labels.has_local_queues:
            return _Waits(of_cluster)
        labels = (*_LOCAL, *_CLASS, *local_names)
        of_local = make(f"kueue_local_queue_{name}_seconds", text, labels, local or buckets)
        return _Waits(of_cluster, self._series.keep(_LOCAL, of_local))

    def _of_evictions(self, name: str, text: str, labels: tuple[str, ...]) -> Histogram:
        labels = (*_CLUSTER, *labels, *self._custom_names()[0])
        return self._series.keep(
            _CLUSTER, self._metrics.histogram(f"kueue_{name}_seconds", text, labels, WAIT_BUCKETS)
        )

    def _custom_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the custom labels for metrics by ClusterQueue, and by LocalQueue."""
        names = self._labels.names
        return (
            (*names(CLUSTER_QUEUE), *names(WORKLOAD)),
            (*names(LOCAL_QUEUE), *names(WORKLOAD)),
        )


def _cluster_queue(before: Workload, after: Workload) -> str | None:
    admission = after.admission or before.admission
    return admission.cluster_queue if admission is not None else None


def _queued_at(workload: Workload) -> float:
    """Return since when the Workload has been queued: since its creation, or its last requeue."""
    requeued = workload.conditions.get(ConditionType.REQUEUED)
    return requeued.at if requeued is not None and requeued.status else workload.created_at


def _since(workload: Workload, type_: ConditionType, now: float) -> float:
    condition = workload.conditions.get(type_)
    return now - condition.at if condition is not None else 0.0


def _new_evictions(before: Workload, after: Workload) -> Iterator[tuple[tuple[str, str], int, bool]]:
    """Yield each eviction reason and cause whose count has risen, by how much, and whether it was 0."""
    for kind, count in after.evictions.items():
        known = before.evictions.get(kind, 0)
        if count > known:
            yield kind, count - known, known == 0


class GangWaits:
    """The histogram `gang_scheduling_wait_seconds`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._waits = metrics.histogram(
            "gang_scheduling_wait_seconds",
            "From queueing to the admission of a whole gang, of the last 100 gangs",
            ("job_name", "namespace", "local_queue"),
            _GANG_BUCKETS,
        )
        # The label values of each series, in the order of their last admission.
        self._series: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def note(self, workload: Workload, seconds: float) -> None:
        """Count the admission of a Workload after `seconds` in the queue, if it has more than one pod."""
        if sum(pod_set.count for pod_set in workload.pod_sets) < 2:
            return
        name = workload.owner_name or workload.key.name
        series = (self._metrics.role, name, workload.key.namespace, workload.queue_name)
        self._waits.labels(*series).observe(max(0.0, seconds))
        self._series[series] = None
        self._series.move_to_end(series)
        if len(self._series) > MAX_GANGS:
            gone, _ = self._series.popitem(last=False)
            # With all its labels: a search by some of them reads every series at each admission.
            self._waits.remove(*gone)
