"""Tables, the form in which `kubectl get` requests objects."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from api.kube.embedded.apply.schema import Json, JsonObject
from api.kube.embedded.kinds.kinds import Column, Kind

_JSON_PATH: Final = re.compile(
    r"\.(?P<field>(?:\\.|[\w/-])+)"
    r"|\['(?P<quoted>[^']+)'\]"
    r"|\[(?P<index>-?\d+)\]"
    r"|\[\?\(@\.(?P<key>[\w.]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
    r"|(?P<every>\[\*\])"
)


def table(kind: Kind, items: Sequence[JsonObject], metadata: JsonObject, include: str = "") -> JsonObject:
    """Return a Table of these objects. `include`: content of each row, Metadata (default), Object or None."""
    columns = list(kind.columns)
    names = {column.name for column in columns}
    # A built-in kind that defines its own name column also defines its own age columns.
    if kind.is_custom or "Name" not in names:
        columns.insert(0, Column(name="Name", value=lambda item: item["metadata"]["name"]))
        if "Age" not in names and not kind.is_custom:
            columns.append(Column(name="Age", value=age_of))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(columns, item, include) for item in items],
    }


def _definition(column: Column) -> JsonObject:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": "",
        "priority": column.priority,
    }


def _row(columns: Sequence[Column], item: JsonObject, include: str) -> JsonObject:
    row: JsonObject = {"cells": [column.value(item) for column in columns]}
    if include == "Object":
        row["object"] = item
    elif include != "None":
        row["object"] = partial_object(item)
    return row


def partial_object(item: JsonObject) -> JsonObject:
    """Return only the object's metadata, as a PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": item["metadata"],
    }


def age_of(item: JsonObject) -> str:
    """Return how long ago the object was created, as kubectl shows it."""
    return age(item["metadata"].get("creationTimestamp"), datetime.now(UTC))


def age(timestamp: Json, now: datetime) -> str:
    """Return the time since a timestamp, in kubectl's short form: 5s, 3m12s, 4h, 2d."""
    if not isinstance(timestamp, str):
        return "<unknown>"
    return duration((now - datetime.fromisoformat(timestamp)).total_seconds())


def duration(seconds: float) -> str:
    """Return a duration in kubectl's short form, in one or two units depending on its length."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{whole % 60}s" if whole % 60 else "")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if days < 2:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    return f"{days}d" if days < 730 else f"{days // 365}y"


def json_path(path: str) -> Callable[[JsonObject], Json]:
    """Return a reader for the path of a printer column: .a.b, .a['x.y/z'], .a[0], .a[?(@.type=="X")].b"""
    steps = list(_JSON_PATH.finditer(path))

    def read(item: JsonObject) -> Json:
        found: Json = item
        for step in steps:
            found = _step(found, step)
            if found is None:
                return None
        return found

    return read


def _step(value: Json, step: re.Match[str]) -> Json:
    if key := step["field"] or step["quoted"]:
        return value.get(key.replace("\\", "")) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    if step["index"]:
        index = int(step["index"])
        return value[index] if -len(value) <= index < len(value) else None
    if step["every"]:
        return value[0] if value else None
    wanted = step["value"]
    return next((each for each in value if str(each.get(step["key"])) == wanted), None)
