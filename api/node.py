"""Nodes, and the resources that pods use on them, as frozen values for topology-aware placement.

A pod that was placed by topology is counted through its Workload, whose assignment names its
domain before the pod is bound. All other bound pods are counted individually here. Source:
Kueue, pkg/cache/scheduler/tas_nodes_cache.go and tas_non_tas_pod_cache.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api import keys
from api.jobs.gpu_share import GpuShare, gpu_ids, gpu_ids_fault, gpu_share
from api.jobs.inference_memory import INFERENCE_MEMORY, inference_mib
from api.jobs.resource_requests import PODS, gpus_of, most_gpu_ids, pod_requests
from api.objects.cluster import NodeObject, PodObject
from api.objects.common import WireTaint
from api.parsing.problems import read_amount
from api.parsing.quantities import QuantityError
from api.parsing.times import to_seconds

# A pod with any of these annotations is placed by its Workload.
_TOPOLOGY_ANNOTATIONS = (
    keys.REQUIRED_TOPOLOGY,
    keys.PREFERRED_TOPOLOGY,
    keys.UNCONSTRAINED_TOPOLOGY,
    keys.SLICE_REQUIRED_TOPOLOGY,
    keys.SLICE_CONSTRAINTS,
)
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """The fields of a Node that placement needs. `allocatable` is in canonical units and includes `pods`.

    `is_silent`: it has no Ready condition, so no kubelet maintains it. `ready_changed_at` (Unix seconds) is
    the last transition time of the Ready condition. `addresses` is its pool of static addresses as a text,
    `agent_version` the version of the node agent that labelled it.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[WireTaint, ...] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict)
    is_ready: bool = True
    is_silent: bool = False
    ready_changed_at: float = 0.0
    is_unschedulable: bool = False
    addresses: str = ""
    agent_version: str = ""


# Namespace and name.
PodKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """The resources that a pod uses on its node; `node` is empty if the pod is not counted here.

    `gpu_ids` are the GPUs of `gpu_node` that it was given, () where they are not recorded, and `gpus` or
    `share` what it uses of them: also of a pod that is counted elsewhere. `gpu_fault` says what is wrong with
    the record of them.
    """

    namespace: str
    name: str
    node: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    gpu_node: str = ""
    gpu_ids: tuple[int, ...] = ()
    gpus: int = 0
    share: GpuShare | None = None
    gpu_fault: str = ""


def to_node(wire: NodeObject) -> NodeInfo:
    """Return the Node as a value. Raises SpecError if an amount cannot be parsed."""
    meta, status = wire.metadata, wire.status
    annotations = meta.annotations or {}
    ready = next((one for one in status.conditions or () if one.type == "Ready"), None)
    return NodeInfo(
        name=meta.name,
        labels=meta.labels or {},
        taints=wire.spec.taints or (),
        # Allocatable and not capacity, because system daemons use the difference.
        allocatable={
            resource: read_amount(f"status.allocatable.{resource}", resource, quantity)
            for resource, quantity in (status.allocatable or {}).items()
        },
        # A node without the condition counts as not ready, like one whose condition is Unknown.
        is_ready=ready is not None and ready.status == "True",
        is_silent=ready is None,
        ready_changed_at=_instant(ready.last_transition_time) if ready is not None else 0.0,
        is_unschedulable=bool(wire.spec.unschedulable),
        addresses=annotations.get(keys.ADDRESSES, ""),
        agent_version=annotations.get(keys.NODE_AGENT_VERSION, ""),
    )


def _instant(text: str | None) -> float:
    """Return a time as Unix seconds; 0 if it cannot be parsed, which counts as long ago."""
    try:
        return to_seconds(text)
    except ValueError:
        return 0.0


def to_pod_usage(wire: PodObject) -> PodUsage:
    """Return the resources that the pod uses on its node.

    If its requests are malformed, only one of `pods`.
    """
    meta = wire.metadata
    node = wire.spec.node_name or ""
    if not node or is_finished(wire):
        return PodUsage(namespace=meta.namespace, name=meta.name)
    annotations, is_placed = meta.annotations or {}, is_placed_by_topology(wire)
    if is_placed and keys.GPU_IDS not in annotations:
        return PodUsage(namespace=meta.namespace, name=meta.name)
    try:
        requests = pod_requests(wire.spec)
    except QuantityError:
        # The pod runs even if its requests cannot be parsed, so it is counted at least as a pod.
        requests = {}
    most = most_gpu_ids(requests)
    ids, fault = gpu_ids(annotations, most), gpu_ids_fault(annotations, most)
    share = gpu_share((meta.annotations, meta.labels), gpus_of(requests))
    if share is not None:
        requests = {**requests, keys.GPU_MILLI: share.milli}
        if share.mib:
            requests[keys.GPU_MEMORY_MIB] = share.mib
    if mib := inference_mib((meta.annotations, meta.labels)):
        requests = {**requests, INFERENCE_MEMORY: mib}
    return PodUsage(
        namespace=meta.namespace,
        name=meta.name,
        node="" if is_placed else node,
        requests={} if is_placed else {**requests, PODS: 1},
        gpu_node=node if ids or fault else "",
        gpu_ids=ids,
        gpus=gpus_of(requests) if ids and share is None else 0,
        share=share if ids else None,
        gpu_fault=fault,
    )


def is_finished(wire: PodObject) -> bool:
    """Return whether the pod has finished, successfully or not."""
    return wire.status.phase in _TERMINAL_PHASES


def unschedulable_message(wire: PodObject) -> str | None:
    """Return kube-scheduler's words on why it finds no node for the pod; None where it has not refused it."""
    for condition in wire.status.conditions or ():
        if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
            return condition.message
    return None


def is_placed_by_topology(wire: PodObject) -> bool:
    """Return whether the pod has a topology request, and so is counted through its Workload."""
    annotations = wire.metadata.annotations or {}
    return any(key in annotations for key in _TOPOLOGY_ANNOTATIONS)
