"""A ClusterQueue without quota in which one Workload waits until it is deleted.

It shows when a controller works: before that, a runner would measure how long it takes to start. And it keeps
the runner recording until the controller knows all Workloads. Kueue's runner ends when it has created its
last Workload and no active ClusterQueue reports pending or reserving Workloads, which it looks for every five
seconds and at each new status. To a controller that learns of everything seconds later, its queues are empty
at that time, or it has not reported anything yet.
"""

from __future__ import annotations

from bench.versus.report import metric_total
from tests.controlplane.rest import Rest

_NAME, _NAMESPACE = "standing", "default"
_API = "/apis/kueue.x-k8s.io/v1beta2"
_LOCAL = f"{_API}/namespaces/{_NAMESPACE}"
_KNOWN = ("kueue_pending_workloads", "kueue_reserving_active_workloads", "kueue_finished_workloads")


class StandingQueue:
    """The queue on one API server. Errors of the server are raised as RestError and OSError."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._is_empty = False

    def create(self) -> None:
        """Create the queue and its Workload."""
        meta = {"name": _NAME}
        quota = {"name": _NAME, "resources": [{"name": "cpu", "nominalQuota": "0"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        pods = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        pod_sets = [{"name": "main", "count": 1, "template": pods}]
        for path, kind, spec in (
            (f"{_API}/resourceflavors", "ResourceFlavor", {}),
            (f"{_API}/clusterqueues", "ClusterQueue", {"namespaceSelector": {}, "resourceGroups": groups}),
            (f"{_LOCAL}/localqueues", "LocalQueue", {"clusterQueue": _NAME}),
            (f"{_LOCAL}/workloads", "Workload", {"queueName": _NAME, "podSets": pod_sets}),
        ):
            made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": spec}
            self._rest.create(path, made)

    def is_reported(self) -> bool:
        """Return whether the queue's status says that it is active and that the Workload waits."""
        status = self._rest.get(f"{_API}/clusterqueues/{_NAME}").get("status", {})
        conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
        return conditions.get("Active") == "True" and status.get("pendingWorkloads", 0) > 0

    def empty_once_all_known(self, metrics: str, total: int) -> None:
        """Delete the Workload if these metrics of the controller count it and `total` others."""
        if not self._is_empty and sum(metric_total(metrics, name) for name in _KNOWN) > total:
            self._rest.delete(f"{_LOCAL}/workloads/{_NAME}")
            self._is_empty = True

    @property
    def is_empty(self) -> bool:
        """Return whether the Workload was deleted."""
        return self._is_empty
