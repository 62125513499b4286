"""What a controller knows, filled with objects as the API server would send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from admission.controller.cluster_state.cluster_state import ClusterState, ClusterStateSettings
from admission.controller.kinds import WatchedKind, topology_kinds, watched_kinds
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.metrics.labels import MetricLabels
from admission.controller.metrics.measuring import measure
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.events import EventReporter
from admission.engine.engine import Engine
from api.kube.client import KubeClient
from api.kube.credentials import FixedCredentials
from api.kube.events import EventRecorder
from api.kube.informer import Change, ChangeType
from api.kube.kubeconfig import Endpoint
from api.kube.listing import Reader, Unreadable
from api.kube.report_budget import WriteLoad
from tests.admission.controller.fakes import FakeClock

Object = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"


class Known:
    """A Knowledge, and the objects that it is given."""

    def __init__(
        self,
        *objects: Object,
        settings: ClusterStateSettings | None = None,
        labels: MetricLabels | None = None,
    ) -> None:
        nowhere = Endpoint(server="http://nowhere", origin="a test", credentials=FixedCredentials())
        self.metrics = Metrics(version="test")
        events = EventReporter(EventRecorder(KubeClient(nowhere), WriteLoad(), instance="a test"))
        engine, series = Engine(), QueueSeries(labels)
        self.clock = FakeClock()
        self.cluster_state = ClusterState(engine, self.clock, settings or ClusterStateSettings())
        measure(self.cluster_state, self.metrics, events, series)
        board = StatusWriter(engine, WriteLoad(), with_share=False, is_busy=lambda _: False)
        # Pods are watched twice where they are queued: all of them, and those that a queue has marked.
        self._kinds: dict[str, list[WatchedKind]] = {}
        for kind in (*watched_kinds(self.cluster_state, board, series), *topology_kinds(self.cluster_state)):
            self._kinds.setdefault(kind.resource.kind, []).append(kind)
        self._versions = 0
        for obj in objects:
            self.tell(obj)

    def tell(self, obj: Object, type_: ChangeType = ChangeType.ADDED) -> None:
        """Let it see the object."""
        self._versions += 1
        metadata = {"uid": obj["metadata"]["name"], "generation": 1, **obj["metadata"]}
        raw = msgspec.json.encode(
            {**obj, "metadata": {**metadata, "resourceVersion": str(self._versions)}},
        )
        for kind in self._kinds[obj["kind"]]:
            kind.take(Change(type_, msgspec.json.decode(raw, type=kind.wire), None, raw))

    def tell_bytes(self, kind: str, raw: bytes) -> None:
        """Let it see what a server has sent as an object of this kind, readable or not."""
        for watched in self._kinds[kind]:
            found, own = Reader(watched.wire, watched.resource).read(msgspec.Raw(raw))
            if not isinstance(found, Unreadable):
                watched.take(Change(ChangeType.ADDED, found, None, own))
                continue
            self.cluster_state.take_unreadable(watched.value, found.namespace, found.name, found.error)
            if watched.take_broken is not None:
                watched.take_broken(found)


def made(kind: str, name: str, namespace: str = "", *, version: str = KUEUE, **fields: Any) -> Object:
    """Return an object; `labels`, `annotations`, `owners` and `created` go into its metadata."""
    words = {"owners": "ownerReferences", "created": "creationTimestamp"}
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    for word in ("labels", "annotations", "owners", "created"):
        if word in fields:
            metadata[words.get(word, word)] = fields.pop(word)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def namespace_object(name: str, **labels: str) -> Object:
    """Return a namespace with the label that every namespace has."""
    labels = {"kubernetes.io/metadata.name": name, **labels}
    return made("Namespace", name, version="v1", labels=labels)


def cluster_queue_object(name: str, cpu: str = "0", **spec: Any) -> Object:
    """Return a ClusterQueue with this much CPU of flavor f, open to all namespaces."""
    quota: Mapping[str, Any] = {"name": "cpu", "nominalQuota": cpu}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
    return made("ClusterQueue", name, spec={"resourceGroups": [group], "namespaceSelector": {}, **spec})


def local_queue_object(name: str, namespace: str, cluster_queue: str) -> Object:
    """Return a LocalQueue."""
    return made("LocalQueue", name, namespace, spec={"clusterQueue": cluster_queue})


def workload_object(name: str, namespace: str, queue: str, *, priority: int = 0, **metadata: Any) -> Object:
    """Return a Workload of one pod that asks for one CPU."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    pod_sets = [{"name": "main", "count": 1, "template": template}]
    spec = {"queueName": queue, "priority": priority, "podSets": pod_sets}
    created = metadata.pop("created", "2026-01-01T00:00:00Z")
    return made("Workload", name, namespace, spec=spec, created=created, **metadata)
