"""Sets of field paths, as managedFields holds them, and their algebra.

A set is the FieldsV1 tree itself, so nothing is converted on the way in or out:

    {"f:spec": {"f:a": {}, "f:list": {'k:{"name":"x"}': {".": {}, "f:v": {}}}}}

owns spec.a, the item x of spec.list and that item's v, but neither spec nor spec.list. A node is a *member*
of the set when it is empty or holds "."; path elements start with "f:" (field), "k:" (item by its keys),
"v:" (item by its value). The tree's root is never a member. Trees are never altered: every operation makes
a new one.

Source: sigs.k8s.io/structured-merge-diff, fieldpath/set.go.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from api.kube.embedded.apply.schema import Json, JsonObject, Schema

Fields = dict[str, Any]

# Caps the memory of the caches below; a cluster's lists use a few hundred different keys.
_CACHE_SIZE = 4096


def node(is_member: bool, children: Fields) -> Fields | None:
    """Return the tree node with these children; None where it would hold nothing."""
    if not children:
        # Members without children are {}, with children they carry the mark ".".
        return {} if is_member else None
    return {".": {}, **children} if is_member else children


def is_member(fields: Fields) -> bool:
    """Whether the path that ends at this node is in the set."""
    return not fields or "." in fields


def union(one: Fields, other: Fields) -> Fields:
    """Return the paths of either set."""
    out = dict(one)
    for key, theirs in other.items():
        mine = out.get(key)
        if mine is None:
            out[key] = theirs
        elif key != ".":
            # A node's own membership is told by its form, so it is decided apart from its children.
            # A path in either set is in the union, even where only one of them has it as a member.
            both = is_member(mine) or is_member(theirs)
            out[key] = node(both, union(_children(mine), _children(theirs))) or {}
    return out


def difference(one: Fields, other: Fields) -> Fields:
    """Return the paths of `one` that are not in `other`. A path's own children are paths of their own."""
    out = {}
    for key, mine in one.items():
        theirs = other.get(key)
        if key == "." or theirs is None:
            out[key] = mine
            continue
        # A path that is in both leaves the set, those below it are compared on their own.
        alone = is_member(mine) and not is_member(theirs)
        rest = node(alone, difference(_children(mine), _children(theirs)))
        if rest is not None:
            out[key] = rest
    return out


def intersection(one: Fields, other: Fields) -> Fields:
    """Return the paths that are in both sets."""
    out = {}
    for key, mine in one.items():
        theirs = other.get(key)
        if key == "." or theirs is None:
            continue
        both = is_member(mine) and is_member(theirs)
        shared = node(both, intersection(_children(mine), _children(theirs)))
        if shared is not None:
            out[key] = shared
    return out


def with_named_members(fields: Fields, schema: Schema) -> Fields:
    """Return the set with every declared field on the way to a member made a member itself.

    Owning spec.a then means owning spec, when spec is a declared field and not a free key.
    """
    # The mark of membership is worked out below, by `node`.
    out = {}
    for key, below in fields.items():
        if key == ".":
            continue
        inner = with_named_members(_children(below), child_schema(schema, key))
        named = key.startswith("f:") and key[2:] in schema.properties
        out[key] = node(is_member(below) or named, inner) or {}
    return out


def without(fields: Fields, *path: str) -> Fields:
    """Return the set without the member at `path` alone; what lies below it stays."""
    key, *rest = path
    below = fields.get(key)
    if below is None:
        return fields
    # Nothing below is touched: owning a container and owning what is in it are two things.
    inner: Fields | None
    inner = without(_children(below), *rest) if rest else _children(below)
    inner = node(bool(rest) and is_member(below), inner)
    return {k: v for k, v in {**fields, key: inner}.items() if v is not None}


def paths(fields: Fields, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    # Sorted, so that two servers print conflicts in one order.
    """Yield every member, as a tuple of path elements, a parent before its children."""
    for key in sorted(fields):
        if key == ".":
            continue
        here = (*prefix, key)
        if is_member(fields[key]):
            yield here
        yield from paths(fields[key], here)


def shown(path: tuple[str, ...]) -> str:
    """Return a path as conflicts print it: .spec.items[name="a"].v"""
    return "".join(_shown_element(element) for element in path)


def _shown_element(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    keys = msgspec.json.decode(text)
    inner = ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items())
    return f"[{inner}]"


def child_schema(schema: Schema, element: str) -> Schema:
    """Return the type of what a path element leads to."""
    return schema.child(element[2:]) if element.startswith("f:") else schema.item()


def item_element(schema: Schema, item: Json) -> str:
    # Associative lists of scalars (finalizers) are told apart by the values themselves.
    """Return the path element of an item of the granular list `schema`."""
    if schema.is_set:
        return f"v:{_text(item)}"
    keys = schema.keys
    # A wrong item in a keyed list: told apart by its value, so that `misfits` can name it.
    if not isinstance(item, dict):
        return f"v:{_text(item)}"
    # Nearly every list has one textual key; its path element is worth remembering.
    if len(keys) == 1 and isinstance(value := item.get(keys[0]), str):
        return _single_key(keys[0], value)
    return "k:" + _text(_key_values(schema, item))


def _key_values(schema: Schema, item: JsonObject) -> JsonObject:
    properties = schema.item().properties
    found: JsonObject = {}
    for key in sorted(schema.keys):
        declared = properties.get(key)
        # A key that was left out counts with its default: a port without protocol is one of TCP.
        value = item.get(key, declared.default if declared else None)
        if value is not None:
            found[key] = value
    return found


@lru_cache(maxsize=_CACHE_SIZE)
def _single_key(key: str, value: str) -> str:
    return "k:" + _text({key: value})


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _children(fields: Fields) -> Fields:
    if "." not in fields:
        return fields
    return {key: below for key, below in fields.items() if key != "."}
