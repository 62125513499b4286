"""Converts rows to JSON with the key style of the Kubernetes API."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

# Most values, which stay as they are: to call a function for each takes half the time of a large answer.
_PLAIN = frozenset({str, int, float, bool, type(None)})


def to_api_keys(row: Any) -> Any:
    """Return a row with its keys in camel case, as in the API: cluster_queue becomes clusterQueue.

    A row is a dataclass or a dict, and may hold others.
    """
    if isinstance(row, dict):
        return {_camel(key): to_api_keys(value) for key, value in row.items()}
    if isinstance(row, list | tuple):
        return [each if type(each) in _PLAIN else to_api_keys(each) for each in row]
    # Not by `asdict`, which copies all that it holds: an explanation names each node of a cluster.
    if is_dataclass(row) and not isinstance(row, type):
        return {
            key: value if type(value) in _PLAIN else to_api_keys(value)
            for name, key in _keys_of(type(row))
            for value in (getattr(row, name),)
        }
    return row


@cache
def _keys_of(row_type: type) -> tuple[tuple[str, str], ...]:
    """Return the fields of a dataclass with their keys."""
    return tuple((one.name, _camel(one.name)) for one in fields(row_type))


def _camel(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(word.capitalize() for word in others)
