"""The wire types of TrainingJobPlacement: where the pods of a training job run, for kubectl.

A read-only API in the group visibility.berth.dev, which kube-apiserver forwards to the controller (an
APIService). kubectl asks for a Table, and prints its columns; other clients get the objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

GROUP, VERSION = "visibility.berth.dev", "v1alpha1"
PLURAL, KIND = "trainingjobplacements", "TrainingJobPlacement"
_COLUMNS = ("Name", "Pods", "Nodes", "Fabrics")


class PlacementMeta(msgspec.Struct, rename="camel", frozen=True):
    """Name (the value of the label training-job-id), namespace, and when its oldest pod was created."""

    name: str
    namespace: str
    creation_timestamp: str | None = None


class PodsOnNode(msgspec.Struct, frozen=True):
    """How many of the job's pods a node runs."""

    name: str
    pods: int


class PlacementStatus(msgspec.Struct, frozen=True):
    """How many pods have a node, on which, and in which NVLink fabrics those are."""

    pods: int
    nodes: Sequence[PodsOnNode]
    fabrics: Sequence[str]


class TrainingJobPlacement(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One training job whose pods have nodes."""

    api_version: str = f"{GROUP}/{VERSION}"
    kind: str = KIND
    metadata: PlacementMeta
    status: PlacementStatus


def placement_list(items: Sequence[TrainingJobPlacement]) -> dict[str, Any]:
    """Return the list of these placements."""
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": f"{KIND}List", "metadata": {}, "items": items}


def table(items: Sequence[TrainingJobPlacement]) -> dict[str, Any]:
    """Return the Table of these placements, in which kubectl adds the column of the namespace itself."""
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "Table",
        "metadata": {},
        "columnDefinitions": [
            {"name": name, "type": "integer" if name == "Pods" else "string", "format": "", "description": ""}
            for name in _COLUMNS
        ],
        "rows": [{"cells": _cells(item), "object": _partial(item)} for item in items],
    }


def _cells(item: TrainingJobPlacement) -> list[object]:
    nodes = ",".join(f"{one.name}:{one.pods}" for one in item.status.nodes)
    return [item.metadata.name, item.status.pods, nodes, ",".join(item.status.fabrics) or "<none>"]


def _partial(item: TrainingJobPlacement) -> dict[str, Any]:
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": item.metadata}


def group_entry() -> dict[str, Any]:
    """Return the group as an entry of the response to /apis."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {"name": GROUP, "versions": [version], "preferredVersion": version}


def group() -> dict[str, Any]:
    """Return the response to /apis/<group>."""
    return {"kind": "APIGroup", "apiVersion": "v1", **group_entry()}


def resource_list() -> dict[str, Any]:
    """Return the response to /apis/<group>/<version>."""
    resource = {
        "name": PLURAL,
        "singularName": KIND.lower(),
        "namespaced": True,
        "kind": KIND,
        "verbs": ["get", "list"],
    }
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [resource],
    }
