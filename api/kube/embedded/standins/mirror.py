"""The cache of the simulated controllers: Jobs, Pods and Nodes, with the pods of each Job and node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from api.kube.client import KubeClient
from api.kube.embedded.standins.objects import Job, Pod
from api.kube.informer import Change, ChangeType, Informer, Listener, ListWatch
from api.kube.listing import Key
from api.kube.resources import JOBS, NODES, PODS
from api.objects.cluster import NodeObject

JobListener = Callable[[Change[Job]], None]
PodListener = Callable[[Change[Pod]], None]
NodeListener = Callable[[Change[NodeObject]], None]


class StandInCache:
    """Maintains the cache and reports every change to its listeners, after it is in the cache."""

    def __init__(self, client: KubeClient) -> None:
        self.pods_by_owner: dict[str, dict[Key, Pod]] = {}
        self.pods_by_node: dict[str, dict[Key, Pod]] = {}
        self.job_listeners: list[JobListener] = []
        self.pod_listeners: list[PodListener] = []
        self.node_listeners: list[NodeListener] = []
        self._jobs = Informer(
            client, ListWatch(resource=JOBS, type_=Job), Listener(on_change=self._job_changed)
        )
        self._pods = Informer(
            client, ListWatch(resource=PODS, type_=Pod), Listener(on_change=self._pod_changed)
        )
        self._nodes = Informer(
            client, ListWatch(resource=NODES, type_=NodeObject), Listener(on_change=self._node_changed)
        )

    @property
    def jobs(self) -> dict[Key, Job]:
        """All Jobs."""
        return self._jobs.store

    @property
    def pods(self) -> dict[Key, Pod]:
        """All Pods."""
        return self._pods.store

    @property
    def nodes(self) -> dict[Key, NodeObject]:
        """All Nodes."""
        return self._nodes.store

    async def run(self) -> None:
        """Watch the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._jobs.run(), name="stand-ins: jobs")
            group.create_task(self._pods.run(), name="stand-ins: pods")
            group.create_task(self._nodes.run(), name="stand-ins: nodes")

    async def wait_synced(self) -> None:
        """Return once all three kinds have been listed."""
        for informer in (self._jobs, self._pods, self._nodes):
            await informer.synced.wait()

    def _job_changed(self, change: Change[Job]) -> None:
        for listener in self.job_listeners:
            listener(change)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod, before = change.object, change.previous
        key = (pod.metadata.namespace, pod.metadata.name)
        is_gone = change.type is ChangeType.DELETED
        owner = pod.owner_uid
        before_owner = before.owner_uid if before else ""
        before_node = (before.spec.node_name if before else None) or ""
        # The indexes are updated before the listeners are called, because these use them.
        _move(self.pods_by_owner, key, before_owner, "" if is_gone else owner, pod)
        _move(self.pods_by_node, key, before_node, "" if is_gone else pod.spec.node_name or "", pod)
        for listener in self.pod_listeners:
            listener(change)

    def _node_changed(self, change: Change[NodeObject]) -> None:
        for listener in self.node_listeners:
            listener(change)


def _move(index: dict[str, dict[Key, Pod]], key: Key, before: str, after: str, pod: Pod) -> None:
    if before and before != after:
        kept = index.get(before, {})
        kept.pop(key, None)
        # Empty entries would accumulate in a trace with thousands of Jobs.
        if not kept:
            index.pop(before, None)
    if after:
        index.setdefault(after, {})[key] = pod
