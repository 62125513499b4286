"""Small changes to sample objects: a dotted path, with numbers for list positions, and the new value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.api.samples import Object


def put(obj: Object, path: str, value: Any) -> Object:
    """Set the field at `path` in `obj` itself, and return it. Missing objects on the path are created."""
    *parents, last = path.split(".")
    node: Any = obj
    for part in parents:
        node = node[int(part)] if part.isdigit() else node.setdefault(part, {})
    node[int(last) if last.isdigit() else last] = value
    return obj


def put_all(obj: Object, changes: Mapping[str, Any]) -> Object:
    """Set several fields, each by its path."""
    for path, value in changes.items():
        put(obj, path, value)
    return obj
