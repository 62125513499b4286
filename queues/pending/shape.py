"""The shape of a Workload. Workloads of equal shape and priority get the same decision in the same state.

Kueue calls it the scheduling equivalence hash. It covers only what the flavor search and the placement read;
container names, images and the like are left out.
Source: Kueue, pkg/workload/workload.go, scheduling hash.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from api.jobs.resource_requests import PodSetRequests
from api.keys import (
    ADDRESSES,
    EXCLUDED_NODES,
    HARDWARE_KEYS,
    PLACEMENT_KEYS,
    RESERVATION,
    SAVING_KEYS,
    SLICE_REPLACEMENT_FOR,
)
from api.objects.templates import WirePodSpec
from api.workload import PodSet, Workload

_NO_SPEC = WirePodSpec()
# A member of a reservation may be placed on nodes where others are not. Excluded nodes and reserved addresses
# are a Workload's own, and what it replaces is free for a slice alone.
_SHAPING_KEYS = (
    PLACEMENT_KEYS | HARDWARE_KEYS | {RESERVATION, EXCLUDED_NODES, ADDRESSES, SLICE_REPLACEMENT_FOR}
)
_ENCODER = msgspec.json.Encoder(order="deterministic")


def shape_of(workload: Workload, requests: tuple[PodSetRequests, ...]) -> bytes:
    """Return the shape as bytes, which are equal exactly when the shapes are."""
    parts = []
    # By position, which `requests` share with the pod sets.
    for pod_set, asked in zip(workload.pod_sets, requests, strict=True):
        spec = pod_set.template.spec or _NO_SPEC
        parts.append(
            (
                pod_set.name,
                # Requests after transformation and not as in the template: two Jobs that write one request
                # differently (1000m and 1, a limit without a request) get the same decision.
                asked.count,
                asked.per_pod,
                # Nodes do not know which resources the configuration excludes from quota or transforms, so
                # two Workloads of equal charge may need different nodes.
                None if asked.on_node == asked.per_pod else asked.on_node,
                pod_set.min_count,
                pod_set.topology_request,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                # It selects the hardware rules that bind the pods.
                spec.scheduler_name,
                _placement_annotations(workload, pod_set),
                _is_saving(workload, pod_set),
            )
        )
    return _ENCODER.encode(parts)


def has_same_keys(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether two versions of a Workload's annotations make the same shape."""
    return one == other or all(one.get(key) == other.get(key) for key in _SHAPING_KEYS)


def _is_saving(workload: Workload, pod_set: PodSet) -> bool:
    """Return whether it saves checkpoints: without them training may not run on spot nodes."""
    # Not what the keys say: each checkpoint changes that.
    metadata = pod_set.template.metadata
    sources = (workload.annotations, metadata.annotations if metadata else None)
    return any(source and not SAVING_KEYS.isdisjoint(source) for source in sources)


def _placement_annotations(workload: Workload, pod_set: PodSet) -> list[tuple[str, str]]:
    """Return the Workload's and its template's annotations and labels by which pods are placed."""
    metadata = pod_set.template.metadata
    sources = (workload.annotations, *((metadata.annotations, metadata.labels) if metadata else ()))
    # Sorted by key within each source, because dicts keep the order of the object.
    return [
        (key, source[key]) for source in sources if source for key in sorted(_SHAPING_KEYS & source.keys())
    ]
