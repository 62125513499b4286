"""Converts rows to JSON with the key style of the Kubernetes API."""

from __future__ import annotations

from typing import Any


def to_api_keys(row: Any) -> Any:
    """Return a row with its keys in camel case, as in the API: cluster_queue becomes clusterQueue."""
    if isinstance(row, dict):
        return {_camel(key): to_api_keys(value) for key, value in row.items()}
    return [to_api_keys(each) for each in row] if isinstance(row, list | tuple) else row


def _camel(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(word.capitalize() for word in others)
