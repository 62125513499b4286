"""Writes the labels of the node by server-side apply, which records who wrote which label.

So labels that no longer hold go by being left out of the next apply, also those of an earlier process or
version of the agent. A label that another writer has set to something else is left alone: an administrator's,
or one of GPU feature discovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from api import keys
from api.kube.client import Body, KubeClient
from api.kube.errors import malformed
from api.kube.resources import NODES
from api.object_events import ObjectRef
from api.objects.common import Wire

FIELD_MANAGER = "berth-node-agent"
_APPLY = "application/apply-patch+yaml"


class _ManagedFields(Wire, frozen=True):
    manager: str = ""
    operation: str = ""
    fields_v1: dict[str, Any] = msgspec.field(name="fieldsV1", default_factory=dict)


class _Metadata(Wire, frozen=True):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    managed_fields: tuple[_ManagedFields, ...] | None = None


class _Node(Wire, frozen=True):
    metadata: _Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The end of a write. `left_alone`: a sentence about each label that another writer has set."""

    changed: bool
    left_alone: tuple[str, ...] = ()


class NodeLabelsWriter:
    """Writes the labels of one node; `version` is that of the agent, noted in an annotation."""

    def __init__(self, client: KubeClient, node: str, version: str) -> None:
        self._client = client
        self._node = node
        self._version = version

    async def find_node(self) -> ObjectRef:
        """Return the node, to write Events about it. Raises KubeError."""
        meta = (await self._read()).metadata
        return ObjectRef(api_version=NODES.api_version, kind=NODES.kind, name=meta.name, uid=meta.uid)

    async def write(self, wanted: Mapping[str, str]) -> Written:
        """Give the node these labels and take away the agent's others. Sends nothing if nothing changes.

        Raises KubeError.
        """
        meta = (await self._read()).metadata
        present, own = meta.labels or {}, _own_labels(meta)
        ours = {key: value for key, value in wanted.items() if key in own or present.get(key, value) == value}
        annotations = {keys.NODE_AGENT_VERSION: self._version} if ours else {}
        left_alone = tuple(
            f"label {key} is {present[key]!r} by another writer and not {wanted[key]!r}"
            for key in sorted(wanted.keys() - ours.keys())
        )
        noted = (meta.annotations or {}).get(keys.NODE_AGENT_VERSION)
        is_there = ours.items() <= present.items() and own <= ours.keys()
        if is_there and noted == annotations.get(keys.NODE_AGENT_VERSION):
            return Written(changed=False, left_alone=left_alone)
        await self._apply({"name": self._node, "labels": ours, "annotations": annotations})
        return Written(changed=True, left_alone=left_alone)

    async def _read(self) -> _Node:
        body = await self._client.get(NODES, self._node)
        try:
            return msgspec.json.decode(body, type=_Node)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(f"Node {self._node}", error) from error

    async def _apply(self, metadata: Mapping[str, object]) -> None:
        node = {"apiVersion": NODES.api_version, "kind": NODES.kind, "metadata": metadata}
        await self._client.request(
            "PATCH",
            NODES.path(name=self._node),
            # Not forced: if another writer was faster, this fails, and the next turn sees its label.
            params={"fieldManager": FIELD_MANAGER},
            body=Body(msgspec.json.encode(node), _APPLY),
        )


def _own_labels(meta: _Metadata) -> set[str]:
    """Return the keys of the labels that the agent has applied."""
    found: set[str] = set()
    for entry in meta.managed_fields or ():
        if entry.manager == FIELD_MANAGER and entry.operation == "Apply":
            labels = entry.fields_v1.get("f:metadata", {}).get("f:labels", {})
            found.update(key.removeprefix("f:") for key in labels if key.startswith("f:"))
    return found
