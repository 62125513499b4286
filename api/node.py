"""Nodes, and what pods take of them, as frozen values: the ground that placement by topology stands on.

A pod that was placed by topology is counted through its Workload, whose assignment says where it goes before
it is bound. All other bound pods are counted here, one by one.
Source: Kueue, pkg/cache/scheduler/tas_nodes_cache.go and tas_non_tas_pod_cache.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api import keys
from api.jobs.resource_requests import PODS, pod_requests
from api.objects import NodeObject, PodObject, WireTaint
from api.parsing.problems import read_amount
from api.parsing.quantities import QuantityError
from api.workload import to_seconds

_TOPOLOGY_ANNOTATIONS = (
    keys.REQUIRED_TOPOLOGY,
    keys.PREFERRED_TOPOLOGY,
    keys.UNCONSTRAINED_TOPOLOGY,
    keys.SLICE_REQUIRED_TOPOLOGY,
    # Any of these on a pod means that its Workload has said where it goes.
    keys.SLICE_CONSTRAINTS,
)
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """A Node as far as placement cares. `allocatable` is in canonical units, `pods` among them.

    `is_silent`: it has no Ready condition at all, so nobody keeps it. `ready_changed_at` (Unix seconds) is
    when the Ready condition became what it is.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[WireTaint, ...] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict)
    is_ready: bool = True
    is_silent: bool = False
    ready_changed_at: float = 0.0
    is_unschedulable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """What a pod takes of its node; `node` is empty where it takes nothing that is counted here."""

    namespace: str
    name: str
    node: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)


def to_node(wire: NodeObject) -> NodeInfo:
    """Return the Node as a value. Raises SpecError where an amount cannot be read."""
    meta, status = wire.metadata, wire.status
    ready = next((one for one in status.conditions or () if one.type == "Ready"), None)
    return NodeInfo(
        name=meta.name,
        labels=meta.labels or {},
        taints=wire.spec.taints or (),
        # Capacity is what the kubelet offers to pods, not what the machine has: system
        # daemons take the difference.
        allocatable={
            resource: read_amount(f"status.allocatable.{resource}", resource, quantity)
            for resource, quantity in (status.allocatable or {}).items()
        },
        # A node without the condition is as unready as one whose condition is Unknown.
        is_ready=ready is not None and ready.status == "True",
        is_silent=ready is None,
        ready_changed_at=_instant(ready.last_transition_time) if ready is not None else 0.0,
        is_unschedulable=bool(wire.spec.unschedulable),
    )


def _instant(text: str | None) -> float:
    """Return an instant as Unix seconds; one that cannot be read lies long ago."""
    try:
        return to_seconds(text)
    except ValueError:
        return 0.0


def to_pod_usage(wire: PodObject) -> PodUsage:
    """Return what the pod takes of its node. One whose requests cannot be read takes a pod's place only."""
    meta = wire.metadata
    node = wire.spec.node_name or ""
    if not node or is_finished(wire) or is_placed_by_topology(wire):
        return PodUsage(namespace=meta.namespace, name=meta.name)
    try:
        requests = pod_requests(wire.spec)
    except QuantityError:
        # A pod runs whatever we can read of it; at least its place on the node is taken.
        requests = {}
    return PodUsage(namespace=meta.namespace, name=meta.name, node=node, requests={**requests, PODS: 1})


def is_finished(wire: PodObject) -> bool:
    """Return whether the pod has ended, in success or not."""
    return wire.status.phase in _TERMINAL_PHASES


def is_placed_by_topology(wire: PodObject) -> bool:
    """Return whether the pod asks for a place in a topology, and so is counted through its Workload."""
    annotations = wire.metadata.annotations or {}
    return any(key in annotations for key in _TOPOLOGY_ANNOTATIONS)
