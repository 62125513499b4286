"""Changes of plain objects that never modify their argument: the parts that conversions are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Fields = dict[str, Any]


def changed(obj: Fields, key: str, change: Callable[[Fields], Fields]) -> Fields:
    """Return `obj` with the object at `key` replaced by its changed form; `obj` itself if there is none."""
    value = obj.get(key)
    return {**obj, key: change(value)} if isinstance(value, dict) else obj


def changed_items(obj: Fields, key: str, change: Callable[[Fields], Fields]) -> Fields:
    """Return `obj` with each object of the list at `key` replaced by its changed form.

    `obj` itself if there is no list, or something else in it than objects.
    """
    items = list_of(dict, obj.get(key))
    return obj if items is None else {**obj, key: [change(item) for item in items]}


def moved(obj: Fields, old: str, new: str) -> Fields:
    """Return `obj` with the field renamed; an empty field is dropped, as the API server would have done."""
    value = obj.get(old)
    rest = without(obj, old)
    return rest if value in (None, "") else {**rest, new: value}


def without(obj: Fields, *keys: str) -> Fields:
    """Return `obj` without these fields."""
    return {key: value for key, value in obj.items() if key not in keys}


def list_of(type_: type, value: object) -> list[Any] | None:
    """Return `value` if it is a list whose items all have type `type_`, otherwise None."""
    if not isinstance(value, list) or not all(isinstance(item, type_) for item in value):
        return None
    return value
