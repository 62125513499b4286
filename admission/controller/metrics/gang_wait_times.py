"""How long gangs waited, by the name of the Job, for the most recent gangs only.

One series per Job would grow without bound, so the series of the gang that was admitted longest ago is
removed when there are too many. Totals per queue are in kueue_admission_wait_time_seconds.
"""

from __future__ import annotations

from collections import OrderedDict

from admission.controller.metrics.registry import Metrics
from api.workload import Workload

# How many gangs have a series of their own.
MAX_GANGS = 100
BUCKETS = (10.0, 30.0, 60.0, 300.0, 600.0)


class GangWaits:
    """The histogram `gang_scheduling_wait_seconds`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._waits = metrics.histogram(
            "gang_scheduling_wait_seconds",
            "From queueing to the admission of a whole gang, of the last 100 gangs",
            ("job_name", "namespace", "local_queue"),
            BUCKETS,
        )
        self._names: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def note(self, workload: Workload, seconds: float) -> None:
        """Count the admission of a Workload after `seconds` in the queue, if it has more than one pod."""
        if sum(pod_set.count for pod_set in workload.pod_sets) < 2:
            return
        name = workload.owner_name or workload.key.name
        key = (name, workload.key.namespace, workload.queue_name)
        self._waits.labels(self._metrics.role, *key).observe(max(0.0, seconds))
        self._names[key] = None
        self._names.move_to_end(key)
        if len(self._names) > MAX_GANGS:
            gone, _ = self._names.popitem(last=False)
            names = ("job_name", "namespace", "local_queue")
            self._waits.remove_by_labels(dict(zip(names, gone, strict=True)))
