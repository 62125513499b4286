"""The shape of a Workload: two of equal shape and priority are answered alike by the same cluster.

Kueue calls it the scheduling equivalence hash. Only what the flavor search and the placement look at belongs
to it; names of containers, images and the like do not.
Source: Kueue, pkg/workload/workload.go, scheduling hash.
"""

from __future__ import annotations

import msgspec

from api.jobs.resource_requests import PodSetRequests
from api.keys import PLACEMENT_KEYS, RESERVATION
from api.objects import WirePodSpec
from api.workload import PodSet, Workload

_NO_SPEC = WirePodSpec()
# Who has joined a reservation may be placed where others are not.
_SHAPING_KEYS = PLACEMENT_KEYS | {RESERVATION}
_ENCODER = msgspec.json.Encoder(order="deterministic")


def shape_of(workload: Workload, requests: tuple[PodSetRequests, ...]) -> bytes:
    """Return the shape, as bytes that are equal exactly where the shapes are."""
    parts = []
    # By position, which `requests` share with the pod sets.
    for pod_set, asked in zip(workload.pod_sets, requests, strict=True):
        spec = pod_set.template.spec or _NO_SPEC
        parts.append(
            (
                pod_set.name,
                # Requests after transformation rather than the template's: two Jobs that spell one request
                # differently (1000m and 1, a limit without a request) meet the same answer.
                asked.count,
                asked.per_pod,
                # A node knows nothing of what the configuration leaves out of quota or counts as something
                # else: two of equal charge may need different nodes.
                None if asked.on_node == asked.per_pod else asked.on_node,
                pod_set.min_count,
                pod_set.topology_request,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                _wishes(workload, pod_set),
            )
        )
    return _ENCODER.encode(parts)


def _wishes(workload: Workload, pod_set: PodSet) -> list[tuple[str, str]]:
    """Return the annotations by which a policy places the pods, of the Workload and of their template."""
    metadata = pod_set.template.metadata
    sources = (workload.annotations, *((metadata.annotations, metadata.labels) if metadata else ()))
    # Sorted by key within a source: dicts keep the order of whoever wrote the annotations.
    return [
        (key, source[key]) for source in sources if source for key in sorted(_SHAPING_KEYS & source.keys())
    ]
