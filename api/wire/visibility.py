"""The wire types of the visibility API: the pending Workloads and their positions in the queues.

It is a separate API in the group visibility.kueue.x-k8s.io, which kube-apiserver forwards to the controller
(an APIService). `clusterqueues` and `localqueues` exist in it only as parents of `pendingworkloads`. Source:
Kueue, apis/visibility; kube-aggregator reads the discovery documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from api.objects.common import Meta, OwnerReference, Wire
from api.wire import training_jobs

GROUP = "visibility.kueue.x-k8s.io"
# The preferred version first. Both have the same fields.
VERSIONS = ("v1beta2", "v1beta1")

DEFAULT_LIMIT = 1000
MAX_LIMIT = 100_000

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    503: "ServiceUnavailable",
}


class PendingMeta(Wire, frozen=True):
    """The part of a Workload's metadata that is shown."""

    name: str
    namespace: str
    creation_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class PendingWorkload(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """One pending Workload. Positions start at 0."""

    metadata: PendingMeta
    priority: int
    local_queue_name: str
    position_in_cluster_queue: int
    position_in_local_queue: int


class _Summary(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    metadata: dict[str, str]
    items: Sequence[msgspec.Raw]


class _Places(msgspec.Struct):
    items: tuple[PendingWorkload, ...] = ()


def read_places(body: bytes) -> tuple[PendingWorkload, ...]:
    """Return the pending Workloads of an answer. Raises msgspec.DecodeError."""
    return msgspec.json.decode(body, type=_Places).items


def pending_meta(metadata: Meta) -> PendingMeta:
    """Return the part of the metadata that is shown; owners are reduced to their identity."""
    return PendingMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        creation_timestamp=metadata.creation_timestamp,
        owner_references=tuple(
            OwnerReference(api_version=one.api_version, kind=one.kind, name=one.name, uid=one.uid)
            for one in metadata.owner_references or ()
        ),
    )


def summary(version: str, items: Sequence[msgspec.Raw]) -> bytes:
    """Return a PendingWorkloadsSummary. `items` are the JSON of `PendingWorkload`s."""
    return msgspec.json.encode(
        _Summary(
            kind="PendingWorkloadsSummary",
            api_version=f"{GROUP}/{version}",
            metadata={},
            # An empty list is written as [] and not as null, because clients iterate over it.
            items=items,
        )
    )


def status(code: int, message: str) -> dict[str, Any]:
    """Return a failure in the form of a Kubernetes Status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "InternalError"),
        "code": code,
    }


def group_list() -> dict[str, Any]:
    """Return the response to /apis."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(), training_jobs.group_entry()]}


def group() -> dict[str, Any]:
    """Return the response to /apis/<group>."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def resource_list(version: str) -> dict[str, Any]:
    """Return the response to /apis/<group>/<version>."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{version}",
        "resources": [
            *_parent_and_child("clusterqueue", "ClusterQueue", is_namespaced=False),
            *_parent_and_child("localqueue", "LocalQueue", is_namespaced=True),
        ],
    }


def _group() -> dict[str, Any]:
    versions = [{"groupVersion": f"{GROUP}/{version}", "version": version} for version in VERSIONS]
    return {"name": GROUP, "versions": versions, "preferredVersion": versions[0]}


def _parent_and_child(singular: str, kind: str, *, is_namespaced: bool) -> list[dict[str, Any]]:
    plural = f"{singular}s"
    return [
        # No verbs: the parents exist only as parts of the path, and kubectl does not offer to list them.
        {"name": plural, "singularName": singular, "namespaced": is_namespaced, "kind": kind, "verbs": []},
        {
            "name": f"{plural}/pendingworkloads",
            "singularName": "",
            "namespaced": is_namespaced,
            "kind": "PendingWorkloadsSummary",
            "verbs": ["get"],
        },
    ]
