"""Sets of field paths in the form of managedFields, and the operations on them.

A set is the FieldsV1 tree itself, so no conversion is necessary:

    {"f:spec": {"f:a": {}, "f:list": {'k:{"name":"x"}': {".": {}, "f:v": {}}}}}

owns spec.a, the item x of spec.list and the field v of this item, but neither spec nor spec.list. A node is a
*member* of the set if it is empty or contains "."; path elements start with "f:" (field), "k:" (item by its
keys), "v:" (item by its value). The root of the tree is never a member. Trees are immutable: every operation
returns a new one.

Source: sigs.k8s.io/structured-merge-diff, fieldpath/set.go.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from api.kube.embedded.apply.schema import Json, JsonObject, Schema

Fields = dict[str, Any]

# Maximum size of the caches below; the lists of a cluster use a few hundred different keys.
_CACHE_SIZE = 4096


def node(is_member: bool, children: Fields) -> Fields | None:
    """Return a tree node with these children; None if it would contain nothing."""
    if not children:
        # A member without children is {}, one with children contains the mark ".".
        return {} if is_member else None
    return {".": {}, **children} if is_member else children


def is_member(fields: Fields) -> bool:
    """Return whether the path that ends at this node is in the set."""
    return not fields or "." in fields


def union(one: Fields, other: Fields) -> Fields:
    """Return the paths that are in either set."""
    out = dict(one)
    for key, theirs in other.items():
        mine = out.get(key)
        if mine is None:
            out[key] = theirs
        elif key != ".":
            # The form of a node encodes its own membership, so this is decided separately from its children.
            # A path is in the union if either set has it as a member.
            both = is_member(mine) or is_member(theirs)
            out[key] = node(both, union(_children(mine), _children(theirs))) or {}
    return out


def difference(one: Fields, other: Fields) -> Fields:
    """Return the paths of `one` that are not in `other`. Each path counts separately from its children."""
    out = {}
    for key, mine in one.items():
        theirs = other.get(key)
        if key == "." or theirs is None:
            out[key] = mine
            continue
        # A path that is in both sets is removed; the paths below it are compared separately.
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
    """Return the set with every declared field on the path to a member added as a member.

    Owning spec.a then implies owning spec, if spec is a declared field and not the key of a map.
    """
    # The mark "." is skipped here, because `node` sets it again.
    out = {}
    for key, below in fields.items():
        if key == ".":
            continue
        inner = with_named_members(_children(below), child_schema(schema, key))
        named = key.startswith("f:") and key[2:] in schema.properties
        out[key] = node(is_member(below) or named, inner) or {}
    return out


def without(fields: Fields, *path: str) -> Fields:
    """Return the set without the member at `path`; members below it stay."""
    key, *rest = path
    below = fields.get(key)
    if below is None:
        return fields
    # Members below stay, because owning a container is independent of owning its contents.
    inner: Fields | None
    inner = without(_children(below), *rest) if rest else _children(below)
    inner = node(bool(rest) and is_member(below), inner)
    return {k: v for k, v in {**fields, key: inner}.items() if v is not None}


def paths(fields: Fields, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every member as a tuple of path elements, each parent before its children."""
    # Sorted, so that two servers print conflicts in the same order.
    for key in sorted(fields):
        if key == ".":
            continue
        here = (*prefix, key)
        if is_member(fields[key]):
            yield here
        yield from paths(fields[key], here)


def shown(path: tuple[str, ...]) -> str:
    """Return a path in the form that conflict messages use: .spec.items[name="a"].v"""
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
    """Return the type of the value at a path element."""
    return schema.child(element[2:]) if element.startswith("f:") else schema.item()


def item_element(schema: Schema, item: Json) -> str:
    """Return the path element of an item of the granular list `schema`."""
    # Items of sets of scalars (finalizers) are identified by their values.
    if schema.is_set:
        return f"v:{_text(item)}"
    keys = schema.keys
    # An item of a wrong type in a keyed list is identified by its value, so that `misfits` can report it.
    if not isinstance(item, dict):
        return f"v:{_text(item)}"
    # Nearly every list has a single key with a string value, so its path element is cached.
    if len(keys) == 1 and isinstance(value := item.get(keys[0]), str):
        return _single_key(keys[0], value)
    return "k:" + _text(_key_values(schema, item))


def _key_values(schema: Schema, item: JsonObject) -> JsonObject:
    properties = schema.item().properties
    found: JsonObject = {}
    for key in sorted(schema.keys):
        declared = properties.get(key)
        # A missing key counts with its default: a port without protocol is a TCP port.
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
