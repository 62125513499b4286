"""A ClusterQueue without quota in which a Workload waits until it is deleted.

It shows when a controller works: before that, a runner would measure how long it takes to start. And it keeps
the runner recording until the controller has reported all Workloads. Kueue's runner ends when it has created
its last Workload and no active ClusterQueue reports pending or reserving Workloads, which it looks for every
five seconds and at each new status. To a controller that learns of everything seconds later, its queues are
empty at that time, or it has not reported anything yet.
"""

from __future__ import annotations

import time

from tests.controlplane.rest import Rest

_QUEUE, _NAMESPACE = "standing", "default"
_API = "/apis/kueue.x-k8s.io/v1beta2"
_LOCAL = f"{_API}/namespaces/{_NAMESPACE}"
# Created before the run, and after the last Workload of it.
_FIRST, _LAST = "standing-first", "standing-last"
# For how long the status of one queue may be behind that of another.
_SETTLE_SECONDS = 2.0


class StandingQueue:
    """The queue on one API server. Errors of the server are raised as RestError and OSError.

    `answer_seconds`: how much later than at once the controller gets answers and events.
    """

    def __init__(self, rest: Rest, *, answer_seconds: float) -> None:
        self._rest = rest
        self._settle_seconds = _SETTLE_SECONDS + 2 * answer_seconds
        self._has_last = self._is_empty = False
        self._reported_at: float | None = None

    def create(self) -> None:
        """Create the queue and its first Workload."""
        quota = {"name": _QUEUE, "resources": [{"name": "cpu", "nominalQuota": "0"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        self._create(f"{_API}/resourceflavors", "ResourceFlavor", _QUEUE, {})
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        self._create(f"{_API}/clusterqueues", "ClusterQueue", _QUEUE, spec)
        self._create(f"{_LOCAL}/localqueues", "LocalQueue", _QUEUE, {"clusterQueue": _QUEUE})
        self._create_workload(_FIRST)

    def _create_workload(self, name: str) -> None:
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        pods = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        pod_sets = [{"name": "main", "count": 1, "template": pods}]
        self._create(f"{_LOCAL}/workloads", "Workload", name, {"queueName": _QUEUE, "podSets": pod_sets})

    def _create(self, path: str, kind: str, name: str, spec: object) -> None:
        version, metadata = "kueue.x-k8s.io/v1beta2", {"name": name}
        self._rest.create(path, {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})

    @property
    def reported(self) -> int:
        """Return how many Workloads the queue's status says to be pending; 0 unless it is active."""
        status = self._rest.get(f"{_API}/clusterqueues/{_QUEUE}").get("status", {})
        conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
        return int(status.get("pendingWorkloads", 0)) if conditions.get("Active") == "True" else 0

    @property
    def is_empty(self) -> bool:
        """Return whether the Workloads were deleted."""
        return self._is_empty

    def empty_once_all_reported(self, total: int) -> None:
        """Delete the Workloads if the controller has reported all `total` others. To be called repeatedly.

        When these are created, another Workload is. Events come in the order of changes, so the controller
        knows the others when it reports that one, and has reported them a moment later.
        """
        if self._is_empty:
            return
        if not self._has_last:
            count = self._workloads()
            # Counted again by the next call, since a request without an answer may have been stored.
            self._has_last = count == total + 2
            if count == total + 1:
                self._create_workload(_LAST)
        elif self._reported_at is None:
            if self.reported == 2:
                self._reported_at = time.monotonic()
        elif time.monotonic() >= self._reported_at + self._settle_seconds:
            for name in (_FIRST, _LAST):
                self._rest.delete(f"{_LOCAL}/workloads/{name}")
            self._is_empty = True

    def _workloads(self) -> int:
        """Return how many Workloads there are, without reading them."""
        found = self._rest.get(f"{_API}/workloads?limit=1")
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))
