"""Counters and histograms of what becomes of Workloads, for their ClusterQueues and LocalQueues.

They are fed by what an object says that its former version did not, whoever wrote it and for whatever reason:
so a step is counted when it has come about, once, and the books of two leaders in turn add up.
Source of names, labels and buckets: Kueue, pkg/metrics/metrics.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import Counter, Histogram

from admission.controller.metrics import LONG_WAIT_BUCKETS, WAIT_BUCKETS, Metrics
from api.reasons import ConditionType
from api.workload import Workload

_CLASS = ("priority_class",)
_EVICTION = ("reason", "underlying_cause")


class _Pair(NamedTuple):
    """A counter by ClusterQueue and the same by LocalQueue."""

    cluster: Counter
    local: Counter | None = None


class _Waits(NamedTuple):
    """A histogram by ClusterQueue and the same by LocalQueue."""

    cluster: Histogram
    local: Histogram | None = None


class _Place(NamedTuple):
    """Where a step is counted: the labels of both kinds of queue."""

    cluster: tuple[str, ...]
    local: tuple[str, ...]


class WorkloadMetrics:
    """Counts the steps of Workloads. `with_local_queues`: by LocalQueue too."""

    def __init__(self, metrics: Metrics, *, with_local_queues: bool = True) -> None:
        self._metrics = metrics
        self._with_local_queues = with_local_queues
        self._reserved = self._counter("quota_reserved_workloads", "Quota reservations", _CLASS)
        self._admitted = self._counter("admitted_workloads", "Admissions", _CLASS)
        self._finished = self._counter("finished_workloads", "Finished Workloads", _CLASS)
        self._evicted = self._counter("evicted_workloads", "Evictions", (*_EVICTION, *_CLASS))
        self._evicted_once = _Pair(
            metrics.counter(
                "kueue_evicted_workloads_once",
                "First evictions of Workloads for that reason",
                ("cluster_queue", *_EVICTION, *_CLASS),
            )
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

    def note(self, before: Workload, after: Workload, *, now: float) -> None:
        """Count what has come about between two versions of a Workload, seen at `now` (Unix seconds)."""
        queue = _cluster_queue(before, after)
        if queue is None or before.uid != after.uid:
            return
        place = self._place(queue, after)
        self._note_admission(before, after, place, now)
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
                self._ready_to_evicted.labels(self._role, place.cluster[0], *labels).observe(seconds)
        evicted = before.conditions.get(ConditionType.EVICTED)
        if evicted is not None and evicted.status and before.admission and after.admission is None:
            reason = evicted.reason.partition("DueTo")[0]
            self._release.labels(self._role, place.cluster[0], reason).observe(max(0.0, now - evicted.at))

    # --- metrics ----------------------------------------------------------------------------------

    @property
    def _role(self) -> str:
        return self._metrics.role

    def _place(self, queue: str, workload: Workload) -> _Place:
        reference = workload.priority_class
        name = reference.name if reference is not None else ""
        return _Place((queue, name), (workload.queue_name, workload.key.namespace, name))

    def _count(self, pair: _Pair, place: _Place, *labels: str, times: int = 1) -> None:
        *queue, priority_class = place.cluster
        pair.cluster.labels(self._role, *queue, *labels, priority_class).inc(times)
        if pair.local is not None:
            *names, priority_class = place.local
            pair.local.labels(self._role, *names, *labels, priority_class).inc(times)

    def _observe(self, waits: _Waits, place: _Place, seconds: float) -> None:
        waits.cluster.labels(self._role, *place.cluster).observe(max(0.0, seconds))
        if waits.local is not None:
            waits.local.labels(self._role, *place.local).observe(max(0.0, seconds))

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> _Pair:
        make = self._metrics.counter
        cluster = make(f"kueue_{name}", text, ("cluster_queue", *labels))
        if not self._with_local_queues:
            return _Pair(cluster)
        return _Pair(cluster, make(f"kueue_local_queue_{name}", text, ("name", "namespace", *labels)))

    def _waits(
        self,
        name: str,
        text: str,
        *,
        buckets: tuple[float, ...] = WAIT_BUCKETS,
        local: tuple[float, ...] | None = None,
    ) -> _Waits:
        make = self._metrics.histogram
        cluster = make(f"kueue_{name}_seconds", text, ("cluster_queue", *_CLASS), buckets)
        if not self._with_local_queues:
            return _Waits(cluster)
        labels = ("name", "namespace", *_CLASS)
        return _Waits(cluster, make(f"kueue_local_queue_{name}_seconds", text, labels, local or buckets))

    def _of_evictions(self, name: str, text: str, labels: tuple[str, ...]) -> Histogram:
        return self._metrics.histogram(
            f"kueue_{name}_seconds", text, ("cluster_queue", *labels), WAIT_BUCKETS
        )


def _cluster_queue(before: Workload, after: Workload) -> str | None:
    admission = after.admission or before.admission
    return admission.cluster_queue if admission is not None else None


def _queued_at(workload: Workload) -> float:
    """Return since when the Workload has been queued: its creation, or its last return."""
    requeued = workload.conditions.get(ConditionType.REQUEUED)
    return requeued.at if requeued is not None and requeued.status else workload.created_at


def _since(workload: Workload, type_: ConditionType, now: float) -> float:
    condition = workload.conditions.get(type_)
    return now - condition.at if condition is not None else 0.0


def _new_evictions(before: Workload, after: Workload) -> Iterator[tuple[tuple[str, str], int, bool]]:
    """Yield each reason and cause whose counter has risen, by how much, and whether it was at 0."""
    for kind, count in after.evictions.items():
        known = before.evictions.get(kind, 0)
        if count > known:
            yield kind, count - known, known == 0
