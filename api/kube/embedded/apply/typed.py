"""Comparing, merging and pruning objects by their type: the operations that server-side apply is made of.

Every function walks a value together with its `Schema`. An atomic value counts as one leaf; the items of
other lists are identified by their keys, never by their position.

Source: sigs.k8s.io/structured-merge-diff, typed/{tofieldset,compare,merge,remove}.go.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from api.kube.embedded.apply.field_sets import Fields, child_schema, is_member, item_element, node, shown
from api.kube.embedded.apply.schema import Json, JsonObject, Schema, Type


class _Absent:
    """Stands for an absent value, which differs from JSON's null."""


# JSON's null is a value that can be set. This marker is not, and is compared by identity.
_ABSENT: Final = _Absent()


class Comparison(NamedTuple):
    """The changes of an object, as three sets of paths. An added or removed container counts as a whole."""

    added: Fields
    modified: Fields
    removed: Fields


def field_set(schema: Schema, value: Json) -> Fields:
    """Return the paths that applying `value` owns: its leaves, and the items of its granular lists."""
    fields: Fields = {}
    if not _is_open(schema, value):
        return fields
    if isinstance(value, list):
        for below in value:
            fields[item_element(schema, below)] = node(True, field_set(schema.item(), below)) or {}
        return fields
    for key, below in value.items():
        # The key of a map is owned in addition to its contents; a declared field is only on the path to them.
        is_claimed = key not in schema.properties or _is_leaf(schema.child(key), below)
        # A declared field on the path is not owned: otherwise applying spec.a would own all of spec.
        claimed = node(is_claimed, field_set(schema.child(key), below))
        if claimed is not None:
            fields[f"f:{key}"] = claimed
    return fields


def _is_leaf(schema: Schema, value: Json) -> bool:
    # An empty granular list is not a leaf, because it contains nothing to own.
    return not _is_open(schema, value) and not (value == [] and schema.is_granular_array)


def compare(schema: Schema, old: Json, new: Json) -> Comparison:
    """Return the changes that turn `old` into `new`."""
    added, modified, removed = _compare(schema, old, new)
    return Comparison(added or {}, modified or {}, removed or {})


_Differences = tuple[Fields | None, Fields | None, Fields | None]
_SAME: Final[_Differences] = (None, None, None)


def _compare(schema: Schema, old: Json, new: Json) -> _Differences:
    # If one side is absent, the whole of the other counts, with each container and each leaf.
    if old is _ABSENT:
        return _whole(schema, new), None, None
    if new is _ABSENT:
        return None, None, _whole(schema, old)
    # In Python 1 == True and 1 == 1.0, but a change of type is a change too.
    if old == new and type(old) is type(new):
        return _SAME
    # The value itself has changed only if both sides are leaves; otherwise its parts have, even if a
    # container is now empty.
    if not (_is_open(schema, old) or _is_open(schema, new)):
        return None, {}, None
    return _compare_parts(schema, old, new)


def _compare_parts(schema: Schema, old: Json, new: Json) -> _Differences:
    # `or {}`: a container that is now null or empty is compared as one without parts.
    if isinstance(old or {}, dict) and isinstance(new or {}, dict):
        return _compare_maps(schema, old or {}, new or {})
    return _compare_items(schema, _parts(schema, old), _parts(schema, new))


def _compare_maps(schema: Schema, old: JsonObject, new: JsonObject) -> _Differences:
    # Most writes leave most fields unchanged, so these are skipped first.
    changed = [key for key, value in new.items() if key not in old or old[key] != value]
    changed += [key for key in old if key not in new]
    fields: tuple[Fields, Fields, Fields] = ({}, {}, {})
    for key in changed:
        found = _compare(schema.child(key), old.get(key, _ABSENT), new.get(key, _ABSENT))
        _collect(fields, f"f:{key}", found)
    return fields[0] or None, fields[1] or None, fields[2] or None


def _compare_items(schema: Schema, old: Mapping[str, Json], new: Mapping[str, Json]) -> _Differences:
    fields: tuple[Fields, Fields, Fields] = ({}, {}, {})
    # In the order of the new list, followed by removed items: irrelevant for sets, but convenient in tests.
    for element in [*new, *(each for each in old if each not in new)]:
        before, after = old.get(element, _ABSENT), new.get(element, _ABSENT)
        _collect(fields, element, _compare(child_schema(schema, element), before, after))
    return fields[0] or None, fields[1] or None, fields[2] or None


def _collect(fields: tuple[Fields, Fields, Fields], element: str, found: _Differences) -> None:
    for kept, below in zip(fields, found, strict=True):
        if below is not None:
            kept[element] = below


def _whole(schema: Schema, value: Json) -> Fields:
    """Return every path of `value`, containers included.

    The returned node represents the path of `value` itself.
    """
    if not _is_open(schema, value):
        return {}
    out: Fields = {".": {}}
    if isinstance(value, dict):
        for key, below in value.items():
            out[f"f:{key}"] = _whole(schema.child(key), below)
    else:
        for below in value:
            out[item_element(schema, below)] = _whole(schema.item(), below)
    return out


def _is_open(schema: Schema, value: Json) -> bool:
    """Return whether the parts of this value are owned separately.

    An empty, atomic or scalar value is one leaf.
    """
    # An empty container is a leaf: owning it means owning that it is empty.
    if not value or schema.atomic:
        return False
    if isinstance(value, dict):
        return schema.type in (Type.OBJECT, Type.MAP, Type.ANY)
    return isinstance(value, list) and schema.is_granular_array


def _parts(schema: Schema, value: Json) -> Mapping[str, Json]:
    if isinstance(value, dict):
        return {f"f:{key}": below for key, below in value.items()}
    if isinstance(value, list):
        return {item_element(schema, below): below for below in value}
    return {}


def merge(schema: Schema, live: Json, applied: Json) -> Json:
    """Return `live` overlaid with `applied`. Values that only `live` has are kept."""
    # For the following merge patch, null means removal; an atomic value is replaced as a whole.
    if applied is None or live is None or schema.atomic:
        return applied
    if isinstance(applied, dict) and isinstance(live, dict):
        return {**live, **{key: _merged(schema, live, key, below) for key, below in applied.items()}}
    if isinstance(applied, list) and isinstance(live, list) and schema.is_granular_array:
        return _merge_items(schema, live, applied)
    # A list that is neither a map nor a set is one value.
    return applied


def _merged(schema: Schema, live: Mapping[str, Json], key: str, applied: Json) -> Json:
    return merge(schema.child(key), live[key], applied) if key in live else applied


def _merge_items(schema: Schema, live: Sequence[Json], applied: Sequence[Json]) -> list[Json]:
    """Merge two granular lists in the order of `applied`.

    Items that only `live` has keep their neighbours.

    Both lists are traversed together. An item that only `live` has is taken when it is reached; a shared item
    is taken at its applied position, and its copy in `live` is skipped unless it is the next shared item.
    """
    ours = [(item_element(schema, item), item) for item in live]
    theirs = [(item_element(schema, item), item) for item in applied]
    # If items erroneously share a key, the first one is used.
    known = dict(reversed(ours))
    wanted = {element for element, _ in theirs}
    shared = deque(element for element, _ in theirs if element in known)
    out: list[Json] = []
    taken: set[str] = set()
    left = right = 0
    while left < len(ours) or right < len(theirs):
        # The empty string is never the element of an item, because elements start with "k:" or "v:".
        element, item = ours[left] if left < len(ours) else ("", None)
        if left < len(ours) and element not in wanted:
            out.append(item)
            left += 1
            continue
        # A shared item that is not the next shared one is skipped; it is taken at its applied position.
        turn = theirs[right][0] if right < len(theirs) else ""
        if left < len(ours) and element != turn and turn and shared and shared[0] != element:
            left += 1
            continue
        # The live copy is done if it is taken now, or was taken earlier at its applied position.
        if left < len(ours) and (element == turn or element in taken):
            left += 1
        if turn:
            # Merged with the live item of the same key, at whatever position that was.
            out.append(merge(schema.item(), known.get(turn), theirs[right][1]))
            taken.add(turn)
            right += 1
            if shared and shared[0] == turn:
                shared.popleft()
    return out


def remove(schema: Schema, value: Json, fields: Fields) -> Json:
    """Return `value` without the paths in `fields`. A container that becomes empty is replaced by None."""
    if not fields:
        return value
    if isinstance(value, dict):
        # Removing a part of an atomic object removes the whole object.
        return (None if schema.atomic else _remove_keys(schema, value, fields)) if value else None
    if isinstance(value, list):
        return _remove_items(schema, value, fields) if value and schema.is_granular_array else None
    return value


def _remove_keys(schema: Schema, value: Mapping[str, Json], fields: Fields) -> Json:
    out = {}
    for key, below in value.items():
        found = fields.get(f"f:{key}")
        if found is None:
            out[key] = below
        elif not is_member(found):
            out[key] = remove(schema.child(key), below, found)
    # As in the real server, None removes a container without contents.
    return out or None


def _remove_items(schema: Schema, value: Sequence[Json], fields: Fields) -> Json:
    out = []
    for below in value:
        found = fields.get(item_element(schema, below))
        if found is None:
            out.append(below)
        elif not is_member(found):
            out.append(remove(schema.item(), below, found))
    return out or None


def misfits(schema: Schema, value: Json, path: str = "") -> Iterator[str]:
    """Yield why `value` cannot be applied as this type: wrong types, undeclared fields, duplicate items.

    Server-side apply checks the body as it was sent, before fields are dropped or defaults are set.
    """
    # These types accept any value, or are validated when they are parsed.
    if value is None or schema.type in (Type.ANY, Type.QUANTITY, Type.INT_OR_STRING):
        return
    match schema.type:
        case Type.OBJECT | Type.MAP if isinstance(value, dict):
            yield from _field_misfits(schema, value, path)
        case Type.ARRAY if isinstance(value, list):
            yield from _item_misfits(schema, value, path)
        case type_ if not _has_form(type_, value):
            got = "string" if isinstance(value, str) else repr(value)
            yield f"{path}: expected {_FORMS[type_]}, got {got}"


_FORMS: Final[Mapping[Type, str]] = {
    Type.OBJECT: "map",
    Type.MAP: "map",
    Type.ARRAY: "list",
    Type.STRING: "string",
    Type.TIME: "string",
    Type.BYTES: "string",
    Type.INTEGER: "numeric (int or float)",
    Type.NUMBER: "numeric (int or float)",
    Type.BOOLEAN: "boolean",
}


def _has_form(type_: Type, value: Json) -> bool:
    match _FORMS[type_]:
        case "string":
            return isinstance(value, str)
        # The cases above have accepted dicts and lists of the right type, so this one has a wrong type.
        case "boolean":
            return isinstance(value, bool)
        case "map" | "list":
            # A scalar is never a container.
            return False
    return isinstance(value, int | float) and not isinstance(value, bool)


def _field_misfits(schema: Schema, value: JsonObject, path: str) -> Iterator[str]:
    for key, below in value.items():
        if schema.values is None and key not in schema.properties and not schema.is_open:
            yield f"{path}.{key}: field not declared in schema"
        else:
            yield from misfits(schema.child(key), below, f"{path}.{key}")


def _item_misfits(schema: Schema, value: Sequence[Json], path: str) -> Iterator[str]:
    seen = set()
    for index, below in enumerate(value):
        here = f"{path}[{index}]"
        # Identified by its keys, as in the real server, because an index is not meaningful to the client.
        if schema.is_granular_array:
            element = item_element(schema, below)
            here = f"{path}{shown((element,))}"
            if element in seen:
                yield f"{path}: duplicate entries for key {shown((element,))}"
            seen.add(element)
        yield from misfits(schema.item(), below, here)
