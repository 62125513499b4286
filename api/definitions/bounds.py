"""Bounds on every list, map and text of a schema that has none of its own.

Where Kueue has no bound, a low one would refuse what Kueue accepts. So the bound is one that no request can
reach. An integer has the bounds of its format (int32, int64), which the API server checks.
"""

from __future__ import annotations

from typing import Any

from api.models.markers import INT_OR_STRING

Schema = dict[str, Any]

# The API server reads no larger request. Source: k8s.io/apiserver, pkg/server/config.go, MaxRequestBodyBytes.
REQUEST_BYTES = 3 * 2**20
# An item of a list takes at least three bytes ("{},"), and an entry of a map more.
MOST_ITEMS = REQUEST_BYTES // 3


def bounded(schema: Schema) -> Schema:
    """Return the structural schema with a bound in every node that can be of any length."""
    found = {**_bound_of(schema), **schema}
    if "properties" in found:
        found["properties"] = {name: bounded(child) for name, child in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = bounded(found[key])
    return found


def _bound_of(node: Schema) -> Schema:
    match node.get("type"):
        case "array":
            return {"maxItems": MOST_ITEMS}
        case "object" if "additionalProperties" in node:
            return {"maxProperties": MOST_ITEMS}
        case "string" if not node.keys() & {"enum", "format"}:
            return {"maxLength": REQUEST_BYTES}
        case _:
            return {"maxLength": REQUEST_BYTES} if INT_OR_STRING in node else {}
