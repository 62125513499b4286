"""Field ownership: metadata.managedFields after every write, and server-side apply.

An entry records that a manager set these fields with one operation through one subresource. A plain write
takes the ownership of the fields that it changed from all other managers. Server-side apply declares all
fields that its manager wants: the fields that it contains are taken (with `force`; otherwise different
values are a conflict), and fields that the last apply contained but this one does not are removed, unless
another manager owns them.

Source: k8s.io/apimachinery, pkg/util/managedfields; sigs.k8s.io/structured-merge-diff, merge/update.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from api.kube.embedded.apply.errors import ApiError, ConflictsOfFields, bad_request
from api.kube.embedded.apply.field_sets import (
    Fields,
    difference,
    intersection,
    paths,
    shown,
    union,
    with_named_members,
    without,
)
from api.kube.embedded.apply.schema import Json, JsonObject, Schema
from api.kube.embedded.apply.typed import Comparison, compare, field_set, merge, misfits, remove

# If an object has more plain writers than this, the oldest are merged into one entry, so
# that objects stay small.
_MAX_UPDATE_MANAGERS = 10
_OLD_MANAGERS = "ancient-changes"
_BEFORE_FIRST_APPLY = "before-first-apply"

# Fields that the system sets on every object and that have no owner. Their containers have no owner either.
_UNOWNED_METADATA: Final = frozenset(
    {
        "f:name",
        "f:namespace",
        "f:creationTimestamp",
        "f:selfLink",
        "f:uid",
        "f:clusterName",
        "f:generation",
        "f:managedFields",
        "f:resourceVersion",
    }
)


_TYPE_FIELDS: Final = frozenset({"apiVersion", "kind"})


class _Key(NamedTuple):
    """Identity of an entry. The entry of an apply is kept when its manager uses another API version."""

    manager: str
    operation: str
    subresource: str
    api_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    api_version: str
    time: str | None
    fields: Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The manager of a write: the part of a managedFields entry that the request determines."""

    manager: str
    api_version: str
    subresource: str
    at: str

    def key(self, operation: str) -> _Key:
        """Return the key of this writer's entry for "Apply" or "Update"."""
        api_version = self.api_version if operation == "Update" else ""
        # The entry of an apply is independent of the API version; plain writes have an
        # entry for each version.
        return _Key(self.manager or "unknown", operation, self.subresource, api_version)


_Managers = dict[_Key, _Entry]


def after_update(
    schema: Schema, old: JsonObject, new: JsonObject, writer: Writer, *, reset: Iterable[str] = ()
) -> list[JsonObject]:
    """Return managedFields after a create, update or patch that changed `old` to `new`.

    `reset` names top-level fields that this endpoint does not write. Entries in the request replace the old
    ones, and an empty list removes all, as clients that edit the ownership expect.
    """
    # 1. The previous owners: from the object, or from the entries in the request.
    managers = _managers_of_request(old, new, writer)
    if not managers and old.get("metadata", {}).get("uid"):
        # The object has no owners, so plain writes are not recorded either until an apply.
        return []
    # 2. All managers lose the fields that this write changed, the writer's own earlier entry included ...
    changed = _relevant(compare(schema, _bare(old), _bare(new)), reset)
    _take(managers, changed, keep=None)
    # 3. ... and the writer gets them. If nothing changed, its entry and the time of the entry stay.
    mine = _stripped(union(changed.added, changed.modified))
    if mine:
        # The fields are added to those that the manager already owned, because a plain write is
        # not a full intent.
        key = writer.key("Update")
        before = managers.get(key)
        fields = union(mine, before.fields) if before else mine
        managers[key] = _Entry(api_version=writer.api_version, time=writer.at, fields=fields)
        _cap(managers)
    return _encode(managers)


def apply(
    schema: Schema,
    live: JsonObject,
    applied: JsonObject,
    writer: Writer,
    *,
    force: bool,
    reset: Iterable[str] = (),
) -> JsonObject:
    """Return `live` after `writer` has applied `applied`, including managedFields.

    An empty `live` is a new object.

    Raises ConflictsOfFields if fields of other managers would change and `force` is not set.
    """
    if applied.get("metadata", {}).get("managedFields") is not None:
        # A client that reads an object and applies it again must remove the ownership first; ignoring it
        # silently would let the client take over all fields.
        raise bad_request("metadata.managedFields must be nil")
    _check_form(schema, applied)
    managers = _decode(live.get("metadata", {}).get("managedFields"))
    bare = _bare(live)
    # The object was created without managedFields, so its fields are assigned to a manager first.
    if not managers and live.get("metadata", {}).get("uid"):
        managers = _before_first_apply(schema, bare, writer)
    # 1. The fields that this apply declares, and those of the last apply.
    key = writer.key("Apply")
    last = managers.get(key)
    mine = _without_keys(field_set(schema, applied), reset)
    # The time of the last apply is kept until it is known whether this one changes anything.
    managers[key] = _Entry(api_version=writer.api_version, time=last.time if last else None, fields=mine)
    # 2. Merge, then remove the fields that are no longer declared. The new entry is added before, so that
    # pruning takes it into account together with those of other managers.
    merged = merge(schema, bare, applied)
    pruned = _prune(schema, merged, managers, last.fields) if last else merged
    # Pruning may remove everything.
    pruned = pruned if isinstance(pruned, dict) else {}
    # 3. Changes of fields that others own are conflicts, or are taken from them.
    changed = _relevant(compare(schema, bare, pruned), reset)
    if not force:
        _refuse_conflicts(managers, changed, key)
    # Before the applier's own entry is completed, so that its fields are not taken from itself.
    _take(managers, changed, keep=key)
    if fields := _stripped(mine):
        # The time is that of the last change by this manager: applying the same object again
        # does not change it.
        time = writer.at if pruned != bare or last is None else last.time
        managers[key] = replace(managers[key], fields=fields, time=time)
    else:
        # An apply without fields owns nothing, so its entry is removed.
        managers.pop(key, None)
    return _with_managers(pruned, _encode(managers))


def _check_form(schema: Schema, applied: JsonObject) -> None:
    found = list(misfits(schema, {key: applied[key] for key in applied.keys() - _TYPE_FIELDS}))
    if not found:
        return
    metadata, version = applied.get("metadata") or {}, applied.get("apiVersion")
    title = (
        f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {version}, Kind={applied.get('kind')}"
    )
    shown_faults = found[0] if len(found) == 1 else "errors:" + "".join(f"\n  {each}" for each in found)
    # One fault is reported in one line, several as a list, in the real server's words. Although it is a
    # client error, the real server returns 500 without a reason.
    raise ApiError(500, "", f"failed to create typed patch object ({title}): {shown_faults}")


def _prune(schema: Schema, merged: JsonObject, managers: _Managers, last: Fields) -> Json:
    """Remove the fields of the last apply, then restore those with another owner or none."""
    # All fields of the last apply are removed, with the containers that existed only for them ...
    named_last = with_named_members(last, schema)
    pruned = remove(schema, merged, named_last)
    everything = with_named_members(field_set(schema, merged), schema)
    owned: Fields = {}
    for entry in managers.values():
        owned = union(owned, with_named_members(entry.fields, schema))
    # ... then the fields that any manager owns, this apply included, are restored ...
    left = with_named_members(field_set(schema, pruned), schema)
    pruned = remove(schema, merged, difference(everything, union(left, owned)))
    # ... and the fields that were removed with a container but did not belong to the apply: fields without an
    # owner, such as defaults, must not be removed.
    left = with_named_members(field_set(schema, pruned), schema)
    return remove(schema, merged, intersection(difference(everything, left), named_last))


def _refuse_conflicts(managers: _Managers, changed: Comparison, own: _Key) -> None:
    touched = union(changed.modified, changed.added)
    conflicts = [
        (_title(key, entry), shown(path))
        for key, entry in sorted(managers.items())
        if key != own
        for path in paths(intersection(entry.fields, touched))
    ]
    if conflicts:
        # All conflicts are reported at once, because the client decides about all of them together.
        raise ConflictsOfFields(conflicts)


def _title(key: _Key, entry: _Entry) -> str:
    title = f'"{key.manager}"'
    if key.subresource:
        title += f' with subresource "{key.subresource}"'
    if key.operation == "Update":
        title += f" using {entry.api_version}" + (f" at {entry.time}" if entry.time else "")
    return title


def _take(managers: _Managers, changed: Comparison, *, keep: _Key | None) -> None:
    """Remove every changed or removed path from all managers but `keep`; drop managers without fields."""
    gone = union(union(changed.added, changed.modified), changed.removed)
    for key, entry in list(managers.items()):
        if key == keep:
            continue
        # A path that was added or removed as a whole includes everything below it.
        fields = difference(entry.fields, gone)
        if not fields:
            del managers[key]
        elif fields != entry.fields:
            managers[key] = replace(entry, fields=fields)


def _relevant(changed: Comparison, reset: Iterable[str]) -> Comparison:
    return Comparison(*(_without_keys(fields, reset) for fields in changed))


def _without_keys(fields: Fields, names: Iterable[str]) -> Fields:
    dropped = {f"f:{name}" for name in names}
    return {key: below for key, below in fields.items() if key not in dropped}


def _stripped(fields: Fields) -> Fields:
    """Return the set without the paths that have no owner. Paths below them are kept."""
    for top in ("f:apiVersion", "f:kind", "f:metadata"):
        if top in fields:
            fields = without(fields, top)
    for name in fields.get("f:metadata", {}).keys() & _UNOWNED_METADATA:
        fields = without(fields, "f:metadata", name)
    return fields


def _bare(item: JsonObject) -> JsonObject:
    """Return the object without managedFields."""
    # They describe the object, so a comparison must not count them as a change of it.
    metadata = item.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return item
    return {**item, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}


def _with_managers(item: JsonObject, entries: list[JsonObject]) -> JsonObject:
    metadata = {k: v for k, v in item.get("metadata", {}).items() if k != "managedFields"}
    return {**item, "metadata": {**metadata, "managedFields": entries} if entries else metadata}


def _managers_of_request(old: JsonObject, new: JsonObject, writer: Writer) -> _Managers:
    given = new.get("metadata", {}).get("managedFields")
    current = old.get("metadata", {}).get("managedFields")
    # Only a client that sends entries of its own intends to edit them; a status write never does.
    if writer.subresource or given is None or given is current:
        return _decode(current)
    # Clients, kubectl among them, clear the entries in one of these two ways.
    if given in ([], [{}]):
        return {}
    try:
        return _decode(given)
    except (KeyError, TypeError, AttributeError):
        # As in the real server, malformed entries are ignored instead of rejected.
        return _decode(current)


def _before_first_apply(schema: Schema, live: JsonObject, writer: Writer) -> _Managers:
    """Assign the fields of an object without entries to a manager.

    An apply cannot silently take them over then.
    """
    fields = _stripped(compare(schema, {}, live).added)
    key = replace(writer, manager=_BEFORE_FIRST_APPLY).key("Update")
    # As an update and not as an apply, so that the first apply can share fields with equal values.
    return {key: _Entry(api_version=writer.api_version, time=writer.at, fields=fields)}


def _decode(entries: Sequence[Mapping[str, Json]] | None) -> _Managers:
    managers: _Managers = {}
    for entry in entries or ():
        operation, api_version = entry["operation"], entry["apiVersion"]
        key = _Key(
            entry.get("manager", ""),
            operation,
            entry.get("subresource", ""),
            api_version if operation == "Update" else "",
        )
        managers[key] = _Entry(
            api_version=api_version, time=entry.get("time"), fields=dict(entry.get("fieldsV1") or {})
        )
    return managers


def _encode(managers: _Managers) -> list[JsonObject]:
    # Applies before updates, then by time: the order of the real server.
    def rank(item: tuple[_Key, _Entry]) -> tuple[str, str, str, str, str]:
        key, entry = item
        return key.operation, entry.time or "", key.manager, entry.api_version, key.subresource

    return [_encode_entry(key, entry) for key, entry in sorted(managers.items(), key=rank)]


def _encode_entry(key: _Key, entry: _Entry) -> JsonObject:
    encoded: JsonObject = {
        "manager": key.manager,
        "operation": key.operation,
        "apiVersion": entry.api_version,
    }
    if entry.time:
        encoded["time"] = entry.time
    encoded.update(fieldsType="FieldsV1", fieldsV1=entry.fields)
    if key.subresource:
        encoded["subresource"] = key.subresource
    return encoded


def _cap(managers: _Managers) -> None:
    """Merge the oldest plain writers of one API version into one entry while there are too many."""
    # Only plain updates: the entry of an apply is the intent of its manager and cannot be merged with others.
    updates = sorted((entry.time or "", key) for key, entry in managers.items() if key.operation == "Update")
    surplus = len(updates) - _MAX_UPDATE_MANAGERS
    first: dict[str, _Key] = {}
    for time, key in updates:
        if surplus <= 0:
            return
        bucket = _Key(_OLD_MANAGERS, "Update", "", key.api_version)
        if key.api_version not in first:
            first[key.api_version] = key
            continue
        # The first two of a version form the merged entry, and all later ones are added to it.
        older = managers.pop(bucket, None) or managers.pop(first[key.api_version])
        entry = managers.pop(key)
        managers[bucket] = replace(entry, time=time or None, fields=union(older.fields, entry.fields))
        surplus -= 1
