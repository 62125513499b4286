"""The three patch formats that describe changes: merge patch, JSON patch, strategic merge patch.

All work on plain JSON and never modify their arguments; the result shares unchanged parts. Server-side apply,
which describes the desired state instead, is in `managed_fields`.

Source: RFC 7386, RFC 6902; k8s.io/apimachinery, pkg/util/strategicpatch.
"""

from collections import deque
from collections.abc import Sequence
from types import MappingProxyType

from jsonpatch import JsonPatch, JsonPatchException, TestOperation
from jsonpointer import JsonPointerException

from api.kube.embedded.apply.errors import ApiError, bad_request
from api.kube.embedded.apply.schema import Json, JsonObject, Schema

# A patch with more operations than this is rejected, as in the real server.
_MAX_OPERATIONS = 10_000


class _Test(TestOperation):
    """A test for null, which also holds where the field is missing, as on the real server."""

    def apply(self, obj: Json) -> Json:
        """Return the document as it is. Raises JsonPatchTestFailed."""
        is_for_null = "value" in self.operation and self.operation["value"] is None
        if is_for_null and self.pointer.resolve(obj, None) is None:
            return obj
        return super().apply(obj)


class _JsonPatch(JsonPatch):
    operations = MappingProxyType({**JsonPatch.operations, "test": _Test})


def merge_patch(target: Json, patch: Json) -> Json:
    """Return `target` after an RFC 7386 merge patch.

    Objects are merged, null removes, and any other value replaces.
    """
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def json_patch(document: JsonObject, operations: Json) -> Json:
    """Return `document` after an RFC 6902 patch; either all operations are applied or none.

    Raises ApiError: 400 for a malformed patch, 422 for one that cannot be applied, also if a test fails.
    """
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > _MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}"
        raise ApiError(413, "RequestEntityTooLarge", f"{message}, got {len(operations)}")
    for operation in operations:
        if operation.get("op") not in _JsonPatch.operations:
            raise bad_request(f"Unexpected kind: {operation.get('op')}")
    try:
        # Applied to a copy: a patch that fails half way must leave nothing behind.
        return _JsonPatch(operations).apply(document)
    except (JsonPatchException, JsonPointerException, TypeError, KeyError) as error:
        message = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", message) from error


def strategic_merge(schema: Schema, target: Json, patch: Json) -> Json:
    """Return `target` after a strategic merge patch: a merge patch that knows which lists have keys.

    Items of such lists are merged individually. The directives `$patch`, `$deleteFromPrimitiveList`,
    `$setElementOrder` and `$retainKeys` are supported.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "delete":
        # For an item of a list, `_merge_item` handles this directive.
        return {}
    given = {key: value for key, value in patch.items() if not key.startswith("$")}
    if directive == "replace":
        return given
    out = dict(target) if isinstance(target, dict) else {}
    if (kept := patch.get("$retainKeys")) is not None:
        # $retainKeys removes all other keys first, so that one member of a union replaces another.
        out = {key: value for key, value in out.items() if key in kept}
    for key, value in given.items():
        _merge_field(schema.child(key), out, key, value)
    _obey_lists(schema, out, patch)
    return out


def _merge_field(schema: Schema, out: JsonObject, key: str, value: Json) -> None:
    if value is None:
        out.pop(key, None)
    elif isinstance(value, dict):
        out[key] = strategic_merge(schema, out.get(key), value)
    elif isinstance(value, list) and schema.merges:
        out[key] = _merge_list(schema, out.get(key) or [], value)
    else:
        out[key] = value


def _merge_list(schema: Schema, current: Sequence[Json], patch: Sequence[Json]) -> list[Json]:
    if not schema.merge_key:
        # Scalars have no key: existing items stay, new ones are added.
        joined = [*current, *(item for item in patch if item not in current)]
        return _in_order(schema, joined, patch, current)
    # An item with `$patch: replace` replaces the whole list by the other items of the patch.
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    merged = list(current)
    for item in patch:
        _merge_item(schema, merged, item)
    return _in_order(schema, merged, patch, current)


def _merge_item(schema: Schema, merged: list[Json], item: Json) -> None:
    key = schema.merge_key
    if not isinstance(item, dict) or key not in item:
        raise bad_request(f"map: {item} does not contain declared merge key: {key}")
    place = next((at for at, each in enumerate(merged) if each.get(key) == item[key]), None)
    if item.get("$patch") == "delete":
        # Deleting an absent item is not an error, so that a patch can be sent twice.
        merged[:] = [each for each in merged if each.get(key) != item[key]]
    elif place is None:
        merged.append(strategic_merge(schema.item(), None, item))
    else:
        merged[place] = strategic_merge(schema.item(), merged[place], item)


def _obey_lists(schema: Schema, out: JsonObject, patch: JsonObject) -> None:
    for directive, value in patch.items():
        name, _, key = directive.partition("/")
        if name == "$deleteFromPrimitiveList":
            out[key] = [item for item in out.get(key) or [] if item not in value]
        elif name == "$setElementOrder" and key in out:
            out[key] = _in_order(schema.child(key), out[key], value, out[key])


def _in_order(
    schema: Schema, items: Sequence[Json], order: Sequence[Json], before: Sequence[Json]
) -> list[Json]:
    """Return the items with those of `order` in that order, and the others in their order in `before`.

    An item that `order` does not name comes before a named one only if it did so in `before`.
    """

    def identity(item: Json) -> str:
        return str(item.get(schema.merge_key) if schema.merge_key and isinstance(item, dict) else item)

    # Reversed, so that the first position of a duplicate identity is used.
    wanted = {identity(item): place for place, item in reversed(list(enumerate(order)))}
    stood = {identity(item): place for place, item in enumerate(before)}
    named = deque(sorted((i for i in items if identity(i) in wanted), key=lambda i: wanted[identity(i)]))
    others = deque(item for item in items if identity(item) not in wanted)
    out: list[Json] = []
    while named and others:
        # New items have no earlier position and come first among the others.
        stood_ahead = stood.get(identity(others[0]), -1) < stood.get(identity(named[0]), -1)
        out.append((others if stood_ahead else named).popleft())
    return [*out, *named, *others]
