"""A simulated kube-scheduler, which binds pending pods to nodes with room. Embedded server only."""

from __future__ import annotations

import asyncio
import heapq
import time
from typing import Final

import msgspec

from api.kube.client import STRATEGIC_MERGE_PATCH, Body, KubeClient
from api.kube.embedded.standins.mirror import StandInCache
from api.kube.embedded.standins.objects import Pod
from api.kube.embedded.standins.placement import NodeRoom, choose_node, explain, requests_of
from api.kube.embedded.standins.work import WorkQueue
from api.kube.errors import KubeError
from api.kube.informer import Change, ChangeType
from api.kube.listing import Key
from api.kube.resources import PODS
from api.objects.cluster import NodeObject
from api.parsing.times import to_rfc3339

_NAME: Final = "default-scheduler"
# Pods placed before other tasks may run: with several hundred nodes, a few milliseconds.
_SLICE: Final = 8

# Order: higher priority first, then the older pod, then the name.
_Rank = tuple[int, str, Key]


class Scheduler:
    """Places one pod after another and sends the bindings concurrently.

    A placed pod counts on its node immediately (`_assumed`), before the watch shows its binding. Pods that
    fit on no node wait until a node or a running pod changes.
    """

    def __init__(self, client: KubeClient, mirror: StandInCache) -> None:
        self._client = client
        self._mirror = mirror
        self._rooms: dict[str, NodeRoom] = {}
        self._pending: list[_Rank] = []
        self._waiting: dict[Key, str] = {}
        self._assumed: dict[Key, tuple[str, Pod]] = {}
        self._wake = asyncio.Event()
        self._bindings = WorkQueue("scheduler", self._bind)
        self._reports = WorkQueue("scheduler reports", self._report, workers=4)
        mirror.pod_listeners.append(self._pod_changed)
        mirror.node_listeners.append(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._bindings.run(), name="scheduler: bindings")
            group.create_task(self._reports.run(), name="scheduler: reports")
            group.create_task(self._place_all(), name="scheduler: placement")

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.object
        key = (pod.metadata.namespace, pod.metadata.name)
        is_gone = change.type is ChangeType.DELETED
        held, holds = _held(change.previous), "" if is_gone else _held(pod)
        if held != holds or (is_gone and key in self._assumed):
            self._move(key, pod, held, holds)
        if is_gone or not _is_pending(pod):
            self._waiting.pop(key, None)
        elif change.previous is None or not _is_pending(change.previous):
            self._enqueue(pod)

    def _move(self, key: Key, pod: Pod, before: str, after: str) -> None:
        """Add a pod to the usage of its node, or remove it from there."""
        # The usual case: the watch shows the binding that was assumed.
        assumed, _ = self._assumed.pop(key, ("", pod))
        if assumed and assumed == after:
            return
        needs = requests_of(pod.spec)
        for node, sign in ((assumed, -1), (before, -1), (after, 1)):
            if node in self._rooms:
                self._rooms[node].take(needs, sign=sign)
        if before or assumed:
            self._retry_waiting()

    def _node_changed(self, change: Change[NodeObject]) -> None:
        node, before = change.object, change.previous
        name = node.metadata.name
        if change.type is ChangeType.DELETED:
            self._rooms.pop(name, None)
            return
        if before is not None and name in self._rooms and _is_alike(node, before):
            self._rooms[name].node = node
            return
        bound = self._mirror.pods_by_node.get(name, {})
        assumed = [pod for key, (place, pod) in self._assumed.items() if place == name and key not in bound]
        self._rooms[name] = NodeRoom.of(node, [*bound.values(), *assumed])
        self._retry_waiting()

    def _enqueue(self, pod: Pod) -> None:
        metadata = pod.metadata
        key = (metadata.namespace, metadata.name)
        heapq.heappush(self._pending, (-(pod.spec.priority or 0), metadata.creation_timestamp or "", key))
        self._wake.set()

    def _retry_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for key in waiting:
            if pod := self._mirror.pods.get(key):
                self._enqueue(pod)

    async def _place_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            # Pods that do not fit are set aside until the end; otherwise each placed pod
            # would queue them again.
            unplaced: dict[Key, str] = {}
            count = 0
            while self._pending:
                _, _, key = heapq.heappop(self._pending)
                pod = self._mirror.pods.get(key)
                if pod is not None and _is_pending(pod) and key not in self._assumed:
                    self._place(key, pod, unplaced)
                count += 1
                if count % _SLICE == 0:
                    await asyncio.sleep(0)
            self._waiting.update(unplaced)
            for key in unplaced:
                self._reports.add(key)

    def _place(self, key: Key, pod: Pod, unplaced: dict[Key, str]) -> None:
        rooms = list(self._rooms.values())
        node = choose_node(pod, rooms)
        if node is None:
            unplaced[key] = explain(pod, rooms)
            return
        self._rooms[node].take(requests_of(pod.spec))
        self._assumed[key] = (node, pod)
        self._bindings.add(key)

    async def _bind(self, key: Key) -> None:
        node, pod = self._assumed.get(key, ("", None))
        if pod is None:
            return
        namespace, name = key
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(namespace, name, "binding")
        try:
            await self._client.request("POST", path, body=Body(msgspec.json.encode(body)))
        except KubeError:
            # The resources are released, and the pod is queued again if it still exists.
            self._forget(key)

    def _forget(self, key: Key) -> None:
        node, pod = self._assumed.pop(key, ("", None))
        if pod is not None and node in self._rooms:
            self._rooms[node].take(requests_of(pod.spec), sign=-1)
        current = self._mirror.pods.get(key)
        if current is not None and _is_pending(current):
            self._enqueue(current)

    async def _report(self, key: Key) -> None:
        """Write to the pod why it is pending, if that has changed."""
        message, pod = self._waiting.get(key), self._mirror.pods.get(key)
        if message is None or pod is None:
            return
        current = next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)
        if current is not None and current.status == "False" and current.message == message:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": to_rfc3339(time.time()),
        }
        namespace, name = key
        # A strategic merge patch keeps the other conditions.
        await self._client.request(
            "PATCH",
            PODS.path(namespace, name, "status"),
            body=Body(msgspec.json.encode({"status": {"conditions": [condition]}}), STRATEGIC_MERGE_PATCH),
        )


def _is_pending(pod: Pod) -> bool:
    return (
        not pod.spec.node_name
        and not pod.spec.scheduling_gates
        and not pod.is_leaving
        and not pod.is_finished
        and pod.spec.scheduler_name == _NAME
    )


def _held(pod: Pod | None) -> str:
    """Return the node on which a pod uses resources, or ""."""
    return "" if pod is None or pod.is_finished else pod.spec.node_name or ""


def _is_alike(one: NodeObject, other: NodeObject) -> bool:
    """Return whether two states of a node are equal for scheduling, as after a heartbeat."""
    return (
        one.status.allocatable == other.status.allocatable
        and one.spec == other.spec
        and one.metadata.labels == other.metadata.labels
    )
