"""Objects that cannot be read, and how long the steps took that Jobs, pods and nodes bring about.

Each is measured when an object shows it. Followers see the same objects as the leader and would count each
step twice, so they count only what they cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from admission.controller.cluster_state.observers import WorkloadTransition
from admission.controller.cluster_state.queued_objects import QueuedObjects, target_of
from admission.controller.metrics.registry import RECOVERY_BUCKETS, Metrics
from admission.controller.runtime.logs import Log
from api import keys
from api.parsing.times import to_seconds
from api.reasons import ConditionType
from api.workload import Workload

log = Log("berth.decisions")


class ObjectMetrics:
    """Measures the creation of Workloads, recoveries from failed nodes, ungated pods and unreadable objects.

    `jobs` are the known Jobs and other owners. `seconds_since_fault` returns how long ago the first of some
    hosts failed; None if none has.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        jobs: QueuedObjects,
        seconds_since_fault: Callable[[Iterable[str]], float | None],
    ) -> None:
        self._metrics = metrics
        self._jobs = jobs
        self._seconds_since_fault = seconds_since_fault
        self._recovery_seconds = metrics.histogram(
            "topology_scheduler_recovery_duration_seconds",
            "From a failed node under a gang to its replacement",
            ("result",),
            RECOVERY_BUCKETS,
        )
        self._creation_latency = metrics.histogram(
            "kueue_workload_creation_latency_seconds",
            "From the creation of a Job to that of its Workload",
            ("job_kind",),
            tuple(0.01 * 2**i for i in range(11)),
        )
        self._gate_removal = metrics.histogram(
            "kueue_pod_scheduling_gate_removal_seconds",
            "From admission to a pod's scheduling gate being taken off",
            ("name", "cluster_queue", "is_group"),
            None,
        )

    def observe(self, change: WorkloadTransition) -> None:
        """Measure what a change of a Workload ends: the wait for its creation, or for other nodes."""
        before, after = change.before, change.after
        if self._metrics.is_follower or after is None:
            return
        if before is None:
            self._note_created(after, change.at)
        elif before.unhealthy_nodes and not after.unhealthy_nodes:
            self._note_recovery(before, after)

    def note_ungated(self, gate: str, workload: Workload, at: float) -> None:
        """Measure how long after its admission a Workload's pod was ungated, at `at` (Unix seconds)."""
        admitted = workload.conditions.get(ConditionType.ADMITTED)
        if not self._metrics.is_follower and workload.admission is not None and admitted is not None:
            is_group = str(keys.IS_GROUP_WORKLOAD in workload.annotations).lower()
            labels = (gate, workload.admission.cluster_queue, is_group)
            self._gate_removal.labels(self._metrics.role, *labels).observe(max(0.0, at - admitted.at))

    def note_unreadable(self, kind: str, name: str, error: str) -> None:
        """Log and count an object that could not be read."""
        self._metrics.unreadable.labels(self._metrics.role, kind).inc()
        log.warning("unreadable-object", kind=kind, object=name, error=error)

    def _note_created(self, workload: Workload, at: float) -> None:
        """Measure how long a Job waited for its Workload."""
        job = self._jobs.by_uid(workload.owner_uid) if workload.owner_uid is not None else None
        if job is not None:
            # The clocks of server and controller differ, so the time may come out negative.
            seconds = max(0.0, at - to_seconds(job.metadata.creation_timestamp))
            self._creation_latency.labels(self._metrics.role, target_of(job.value).kind).observe(seconds)

    def _note_recovery(self, before: Workload, after: Workload) -> None:
        """Measure the time from the first fault of a node until the gang was moved or evicted."""
        seconds = self._seconds_since_fault(before.unhealthy_nodes)
        # The node recovered by itself: the gang was neither moved nor evicted.
        if seconds is not None and (after.is_evicted or after.admission != before.admission):
            result = "evicted" if after.is_evicted else "replaced"
            self._recovery_seconds.labels(self._metrics.role, result).observe(seconds)
