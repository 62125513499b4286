"""Simulated kubelets for simulated nodes, on the embedded server or on a real one.

The module registers the nodes, sends their heartbeats, and simulates each bound pod according to its
annotations: it runs for `berth.dev/simulated-runtime-seconds` (1), then exits with
`berth.dev/simulated-exit-code` (0). A deleted pod ends `berth.dev/simulated-shutdown-seconds` (0) later, or
when its grace period is over. A pod that may restart its containers (restartPolicy OnFailure) fails anyway.

A node that is not ready simulates a lost node: its pods do not change until it is ready again. The annotation
`berth.dev/simulated-ready: "false"` on the Node controls this state. With `silent` the node does not even say
so: it stops renewing its Lease, as a machine without power does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from api.kube.client import STRATEGIC_MERGE_PATCH, Body, KubeClient
from api.kube.embedded.standins.mirror import StandInCache
from api.kube.embedded.standins.objects import Pod
from api.kube.embedded.standins.pod_status import EXIT_AFTER_SIGTERM, Runtime, ended, running
from api.kube.embedded.standins.work import WorkQueue
from api.kube.errors import AlreadyExists, NotFound
from api.kube.informer import Change, ChangeType
from api.kube.listing import Key
from api.kube.resources import LEASES, NODES, PODS
from api.objects.cluster import NodeObject
from api.parsing.times import to_rfc3339

_PREFIX: Final = "berth.dev/simulated-"
READY_ANNOTATION: Final = f"{_PREFIX}ready"
_DEFAULT_RUNTIME_SECONDS: Final = 1.0
_SILENT: Final = "silent"
# Like a real kubelet: the Lease is renewed every ten seconds, and an unchanged status is repeated after five
# minutes. The node controller marks a node as not ready after 50 s without either.
_HEARTBEAT_SECONDS: Final = 10.0
_STATUS_SECONDS: Final = 300.0
_LEASE_NAMESPACE: Final = "kube-node-lease"
_UNREADY_TAINT: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_VERSION: Final = "v1.36.0-simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node to simulate. `allocatable` contains quantities; "pods" defaults to 110."""

    name: str
    allocatable: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


class Kubelet:
    """Runs the pods of its nodes."""

    def __init__(
        self, client: KubeClient, mirror: StandInCache, nodes: Sequence[NodeSpec], *, speed: float = 1.0
    ) -> None:
        """Create the kubelets. `speed` divides the times of pods: at 10, a pod of 60 s runs for 6 s."""
        self._client = client
        self._mirror = mirror
        self._nodes = {node.name: node for node in nodes}
        self._addresses = {node.name: _address(10, number) for number, node in enumerate(nodes)}
        self._speed = speed
        self._unready: set[str] = set()
        self._silent: set[str] = set()
        # When a node's status was last written, in loop time.
        self._reported_at: dict[str, float] = {}
        # When the run of a pod ends, in loop time, by uid. The end of its shutdown has a separate key.
        self._ends: dict[str, float] = {}
        self._pod_count = 0
        self._pods = WorkQueue("kubelet", self._sync_pod)
        # Several workers, so that the heartbeats of a thousand nodes are sent within one interval.
        self._heartbeats = WorkQueue("nodes", self._sync_node, workers=8)
        self.registered = asyncio.Event()
        mirror.pod_listeners.append(self._pod_changed)
        mirror.node_listeners.append(self._node_changed)

    async def run(self) -> None:
        """Register the nodes, then work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run(), name="kubelet: pods")
            group.create_task(self._heartbeats.run(), name="kubelet: nodes")
            for name in self._nodes:
                self._heartbeats.add(("", name))
            self._note_registered()

    def _note_registered(self) -> None:
        ready = (self._mirror.nodes.get(("", name)) for name in self._nodes)
        if all(node is not None and _is_ready(node) for node in ready):
            self.registered.set()

    def _node_changed(self, change: Change[NodeObject]) -> None:
        name = change.object.metadata.name
        if name not in self._nodes:
            return
        if change.type is ChangeType.DELETED:
            self._heartbeats.add(("", name))
            return
        self._note_registered()
        asked = (change.object.metadata.annotations or {}).get(READY_ANNOTATION)
        if asked == _SILENT:
            self._silent.add(name)
        else:
            self._silent.discard(name)
        ready = asked not in ("false", _SILENT)
        if ready == (name in self._unready):
            self._note_ready(name, ready)
            self._heartbeats.add(("", name))

    def _note_ready(self, node: str, ready: bool) -> None:
        if not ready:
            self._unready.add(node)
            return
        self._unready.discard(node)
        for key in self._mirror.pods_by_node.get(node, {}):
            self._pods.add(key)

    async def _sync_node(self, key: Key) -> float:
        name, now = key[1], asyncio.get_running_loop().time()
        if name in self._silent:
            return _HEARTBEAT_SECONDS
        await self._renew_lease(name)
        node, is_ready = self._mirror.nodes.get(key), name not in self._unready
        is_due = now - self._reported_at.get(name, -_STATUS_SECONDS) >= _STATUS_SECONDS
        # Compared with the node itself: its first taint may come back from the node controller.
        if is_due or node is None or _is_ready(node) != is_ready:
            await self._write_node(self._nodes[name], is_new=node is None)
            self._reported_at[name] = now
        return _HEARTBEAT_SECONDS

    async def _renew_lease(self, node: str) -> None:
        renewed_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": renewed_at}
        lease = {"metadata": {"name": node}, "spec": spec}
        try:
            await self._client.merge_patch(LEASES, node, msgspec.json.encode(lease), _LEASE_NAMESPACE)
        except NotFound:
            lease |= {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
            with contextlib.suppress(AlreadyExists):
                await self._client.create(LEASES, msgspec.json.encode(lease), _LEASE_NAMESPACE)

    async def _write_node(self, spec: NodeSpec, *, is_new: bool) -> None:
        is_ready = spec.name not in self._unready
        if is_new:
            # The node may exist although the watch has not shown it yet.
            with contextlib.suppress(AlreadyExists):
                await self._client.create(NODES, msgspec.json.encode(_node_object(spec)))
        status = _node_status(
            spec, self._addresses[spec.name], is_ready=is_ready, now=to_rfc3339(time.time())
        )
        await self._client.request(
            "PATCH",
            NODES.path(None, spec.name, "status"),
            body=Body(msgspec.json.encode({"status": status}), STRATEGIC_MERGE_PATCH),
        )
        taints = [dict(taint) for taint in spec.taints] + ([] if is_ready else [_UNREADY_TAINT])
        current = self._mirror.nodes.get(("", spec.name))
        if current is None or _taints_of(current) != {(each["key"], each["effect"]) for each in taints}:
            # The server taints every new node as not ready; the real node controller would remove the taint.
            await self._client.merge_patch(
                NODES, spec.name, msgspec.json.encode({"spec": {"taints": taints or None}})
            )

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.object
        if pod.spec.node_name not in self._nodes:
            return
        if change.type is ChangeType.DELETED:
            self._ends.pop(pod.metadata.uid, None)
        else:
            self._pods.add((pod.metadata.namespace, pod.metadata.name))

    async def _sync_pod(self, key: Key) -> float | None:
        pod = self._mirror.pods.get(key)
        # Meanwhile the key may refer to another pod of that name, which is not bound yet.
        if pod is None or pod.spec.node_name not in self._nodes:
            return None
        # A lost node reports nothing about its pods; they are processed when it is ready again.
        if pod.spec.node_name in self._unready:
            return None
        if pod.is_leaving:
            return await self._stop(pod)
        if pod.is_finished:
            return None
        if pod.status.phase == "Pending":
            return await self._start(pod)
        return await self._end_when_due(pod)

    async def _start(self, pod: Pod) -> float:
        now = to_rfc3339(time.time())
        self._pod_count += 1
        address = _address(11, self._pod_count)
        host = self._addresses[pod.spec.node_name or ""]
        await self._write_status(pod, running(pod, pod_ip=address, host_ip=host, now=now))
        seconds = runtime_of(pod).seconds / self._speed
        self._ends[pod.metadata.uid] = asyncio.get_running_loop().time() + seconds
        return seconds

    async def _end_when_due(self, pod: Pod) -> float | None:
        runtime = runtime_of(pod)
        loop_time = asyncio.get_running_loop().time()
        # A pod that was started before this kubelet gets its full run time from now on.
        due = self._ends.setdefault(pod.metadata.uid, loop_time + runtime.seconds / self._speed)
        if due > loop_time:
            return due - loop_time
        await self._write_status(pod, ended(pod, exit_code=runtime.exit_code, now=to_rfc3339(time.time())))
        return None

    async def _stop(self, pod: Pod) -> float | None:
        """End a deleted pod: wait for its shutdown, report its end, and complete its deletion."""
        loop_time = asyncio.get_running_loop().time()
        if not pod.is_finished:
            grace = pod.metadata.deletion_grace_period_seconds or 0
            wait = min(runtime_of(pod).shutdown_seconds, grace) / self._speed
            due = self._ends.setdefault(f"{pod.metadata.uid} stops", loop_time + wait)
            if due > loop_time:
                return due - loop_time
            await self._write_status(
                pod, ended(pod, exit_code=EXIT_AFTER_SIGTERM, now=to_rfc3339(time.time()))
            )
        self._ends.pop(f"{pod.metadata.uid} stops", None)
        metadata = pod.metadata
        # With 0, because the second deletion by the kubelet removes the pod; with the uid, so that it cannot
        # be a later pod of the same name.
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata.uid}}
        with contextlib.suppress(NotFound):
            await self._client.delete(
                PODS, metadata.name, metadata.namespace, body=msgspec.json.encode(options)
            )
        return None

    async def _write_status(self, pod: Pod, status: dict[str, Any]) -> None:
        metadata = pod.metadata
        # The uid prevents a write to a later pod of the same name.
        body = {"metadata": {"uid": metadata.uid}, "status": status}
        await self._client.request(
            "PATCH",
            PODS.path(metadata.namespace, metadata.name, "status"),
            body=Body(msgspec.json.encode(body), STRATEGIC_MERGE_PATCH),
        )


def runtime_of(pod: Pod) -> Runtime:
    """Return how a pod's run is simulated. A malformed number counts as absent."""
    annotations = pod.metadata.annotations or {}
    return Runtime(
        seconds=max(_number(annotations.get(f"{_PREFIX}runtime-seconds"), _DEFAULT_RUNTIME_SECONDS), 0.0),
        exit_code=int(_number(annotations.get(f"{_PREFIX}exit-code"), 0)),
        shutdown_seconds=max(_number(annotations.get(f"{_PREFIX}shutdown-seconds"), 0.0), 0.0),
    )


def _number(text: str | None, default: float) -> float:
    try:
        return default if text is None else float(text)
    except ValueError:
        return default


def _node_object(spec: NodeSpec) -> dict[str, Any]:
    # Every kubelet sets this label; topologies whose lowest level is the host need it.
    labels = {"kubernetes.io/hostname": spec.name, **spec.labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels},
        "spec": {"taints": [dict(taint) for taint in spec.taints]} if spec.taints else {},
    }


def _node_status(spec: NodeSpec, address: str, *, is_ready: bool, now: str) -> dict[str, Any]:
    # The kubelet's own default, which the spec may override.
    allocatable = {"pods": "110", **spec.allocatable}
    condition = {
        "type": "Ready",
        # Not False: if a kubelet stops reporting, the node controller sets the condition to Unknown.
        "status": "True" if is_ready else "Unknown",
        "reason": "KubeletReady" if is_ready else "NodeStatusUnknown",
        "message": "kubelet is posting ready status" if is_ready else "Kubelet stopped posting node status.",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "allocatable": allocatable,
        "capacity": allocatable,
        "conditions": [condition],
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": spec.name}],
        "nodeInfo": {"kubeletVersion": _VERSION, "operatingSystem": "linux", "architecture": "amd64"},
    }


def _is_ready(node: NodeObject) -> bool:
    """Return whether a node accepts pods: it is ready, and its initial taint is removed."""
    is_said = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())
    return is_said and not any(taint.key == _UNREADY_TAINT["key"] for taint in node.spec.taints or ())


def _taints_of(node: NodeObject) -> set[tuple[str, str]]:
    return {(taint.key, taint.effect) for taint in node.spec.taints or ()}


def _address(first: int, number: int) -> str:
    return f"{first}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
