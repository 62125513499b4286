"""The visibility API's words on the wire: who waits, and where in the queue.

An API of its own, group visibility.kueue.x-k8s.io, which kube-apiserver passes on to the controller
(an APIService). `clusterqueues` and `localqueues` exist in it only as the parents of `pendingworkloads`.
Source: Kueue, apis/visibility; kube-aggregator reads the documents of discovery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from api.objects import Meta, OwnerReference, Wire

GROUP = "visibility.kueue.x-k8s.io"
# The preferred one first. Both have the same fields.
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
    """What is shown of a Workload's metadata."""

    name: str
    namespace: str
    creation_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class PendingWorkload(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """One that waits. Positions begin at 0."""

    metadata: PendingMeta
    priority: int
    local_queue_name: str
    position_in_cluster_queue: int
    position_in_local_queue: int


class _Summary(msgspec.Struct, rename="camel"):
    kind: str
    api_version: str
    metadata: dict[str, str]
    items: Sequence[PendingWorkload]


def pending_meta(metadata: Meta) -> PendingMeta:
    """Return what is shown of these metadata; of owners only who they are."""
    return PendingMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        creation_timestamp=metadata.creation_timestamp,
        owner_references=tuple(
            OwnerReference(api_version=one.api_version, kind=one.kind, name=one.name, uid=one.uid)
            for one in metadata.owner_references or ()
        ),
    )


def summary(version: str, items: Sequence[PendingWorkload]) -> bytes:
    """Return a PendingWorkloadsSummary."""
    return msgspec.json.encode(
        _Summary(
            # An empty list is written as such: clients of Go range over `items`.
            kind="PendingWorkloadsSummary",
            api_version=f"{GROUP}/{version}",
            metadata={},
            items=list(items),
        )
    )


def status(code: int, message: str) -> dict[str, Any]:
    """Return a failure as Kubernetes tells it."""
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
    """Return what /apis answers."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def group() -> dict[str, Any]:
    """Return what /apis/<group> answers."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def resource_list(version: str) -> dict[str, Any]:
    """Return what /apis/<group>/<version> answers."""
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
        # No verbs: the parents exist for the path alone, so that kubectl does not offer to list them.
        {"name": plural, "singularName": singular, "namespaced": is_namespaced, "kind": kind, "verbs": []},
        {
            "name": f"{plural}/pendingworkloads",
            "singularName": "",
            "namespaced": is_namespaced,
            "kind": "PendingWorkloadsSummary",
            "verbs": ["get"],
        },
    ]
