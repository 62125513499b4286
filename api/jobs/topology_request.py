"""The topology request of a pod set, read from the annotations of its pod template.

`api.validation.jobs` checks before whether the annotations are consistent; invalid values are ignored here.
Source: Kueue, pkg/controller/jobframework (topology annotations) and its API reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from api import keys
from api.parsing.decimals import whole_number

_LEVELS = {
    keys.REQUIRED_TOPOLOGY: "required",
    keys.PREFERRED_TOPOLOGY: "preferred",
    keys.SLICE_REQUIRED_TOPOLOGY: "podSetSliceRequiredTopology",
}


class _Layer(msgspec.Struct):
    topology: str
    size: int


_LAYERS = msgspec.json.Decoder(list[_Layer])


# The rank of a pod is its completion index, if the Job is Indexed.
_RANK_OF_JOB: Mapping[str, Any] = {"podIndexLabel": keys.COMPLETION_INDEX}


def topology_request_body(
    annotations: Mapping[str, str], *, rank: Mapping[str, Any] = _RANK_OF_JOB
) -> dict[str, Any] | None:
    """Return podSets[].topologyRequest as the annotations request it, or None if they request none.

    `rank` are the fields that say which labels give a pod its rank.
    """
    body: dict[str, Any] = {field: annotations[key] for key, field in _LEVELS.items() if annotations.get(key)}
    if annotations.get(keys.UNCONSTRAINED_TOPOLOGY) == "true":
        body["unconstrained"] = True
    if (size := whole_number(annotations.get(keys.SLICE_SIZE))) is not None:
        body["podSetSliceSize"] = size
    if layers := _layers(annotations.get(keys.SLICE_CONSTRAINTS)):
        body["podsetSliceRequiredTopologyConstraints"] = layers
    if annotations.get(keys.POD_SET_GROUP) and ("required" in body or "preferred" in body):
        body["podSetGroupName"] = annotations[keys.POD_SET_GROUP]
    return {**body, **rank} if body else None


def _layers(text: str | None) -> list[dict[str, Any]]:
    try:
        layers = _LAYERS.decode(text or "[]")
    # An annotation is large enough for lists nested deeper than the JSON parser can follow.
    except (msgspec.MsgspecError, RecursionError):
        return []
    return [{"topology": layer.topology, "size": layer.size} for layer in layers]
