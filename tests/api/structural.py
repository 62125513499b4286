"""The rules for structural schemas, for tests that need no API server.

Source: kubernetes.io, "Extend the Kubernetes API with CustomResourceDefinitions", structural schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_FORBIDDEN = (
    "$ref",
    "$defs",
    "definitions",
    "uniqueItems",
    "patternProperties",
    "dependencies",
    "const",
    "prefixItems",
    "examples",
    "if",
    "contains",
    "propertyNames",
)
_TYPES = ("object", "array", "string", "integer", "number", "boolean")


def faults(schema: Schema, path: str = "") -> Iterator[str]:
    """Yield one sentence for each part of `schema` that the API server would not accept."""
    for words in (_types(schema), _properties(schema), _lists(schema), _words(schema)):
        yield from (f"{path or 'the root'}: {fault}" for fault in words)
    for name, child in _children(schema):
        yield from faults(child, f"{path}.{name}")


def _children(schema: Schema) -> Iterator[tuple[str, Schema]]:
    yield from schema.get("properties", {}).items()
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield key, schema[key]


def _types(schema: Schema) -> Iterator[str]:
    is_either = "x-kubernetes-int-or-string" in schema
    if is_either and "type" in schema:
        yield "int-or-string takes no type"
    if not is_either and "x-kubernetes-preserve-unknown-fields" not in schema and "type" not in schema:
        yield "a type is needed"
    if schema.get("type", "string") not in _TYPES:
        yield f"{schema['type']!r} is no type"


def _properties(schema: Schema) -> Iterator[str]:
    if "properties" in schema and "additionalProperties" in schema:
        yield "properties and additionalProperties exclude each other"
    if isinstance(schema.get("additionalProperties"), bool):
        yield "additionalProperties must be a schema"
    yield from (
        f"{name!r} is required and not defined"
        for name in schema.get("required", ())
        if name not in schema.get("properties", {})
    )


def _lists(schema: Schema) -> Iterator[str]:
    if schema.get("type") != "array":
        return
    if "items" not in schema:
        yield "items are needed"
    if schema.get("x-kubernetes-list-type") == "map":
        items = schema.get("items", {})
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            if key not in items.get("required", ()) and "default" not in items["properties"].get(key, {}):
                yield f"the key {key!r} of a map list must be required or have a default"


def _words(schema: Schema) -> Iterator[str]:
    yield from (f"{word} is forbidden" for word in _FORBIDDEN if word in schema)
    for word in ("exclusiveMinimum", "exclusiveMaximum"):
        if not isinstance(schema.get(word, True), bool):
            yield f"{word} must be a boolean"
    if "default" in schema and schema["default"] is None:
        yield "a default must not be null"
