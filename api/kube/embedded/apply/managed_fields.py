"""Who owns which field: metadata.managedFields after every write, and server-side apply itself.

An entry says that one manager set these fields with one operation through one subresource. A plain write
takes what it changed from whoever had it. Server-side apply states what its manager wants as a whole:
fields it names are taken (with `force`, else differing ones conflict), fields it named last time and no
longer names are removed unless somebody else owns them.

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

# Plain writers beyond this many are merged into one entry, oldest first, so that objects stay small.
_MAX_UPDATE_MANAGERS = 10
_OLD_MANAGERS = "ancient-changes"
_BEFORE_FIRST_APPLY = "before-first-apply"

# What the system sets on every object and nobody owns. The containers of these paths are nobody's either.
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
    """What tells two entries apart. An applier keeps its entry when it moves to another API version."""

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
    """Who writes, and as what: the part of a managedFields entry that the request decides."""

    manager: str
    api_version: str
    subresource: str
    at: str

    def key(self, operation: str) -> _Key:
        """Return the key of this writer's entry for "Apply" or "Update"."""
        api_version = self.api_version if operation == "Update" else ""
        # An applier's entry moves with it from one API version to the next; an updater has one for each.
        return _Key(self.manager or "unknown", operation, self.subresource, api_version)


_Managers = dict[_Key, _Entry]


def after_update(
    schema: Schema, old: JsonObject, new: JsonObject, writer: Writer, *, reset: Iterable[str] = ()
) -> list[JsonObject]:
    """Return managedFields after a create, update or patch that made `new` of `old`.

    `reset` names top-level fields that this endpoint does not write. Entries that the request itself brings
    replace the old ones, and an empty list of them clears all, as clients that edit ownership expect.
    """
    # 1. Who owned what: by the object, or by the entries that the request brings along.
    managers = _managers_of_request(old, new, writer)
    if not managers and old.get("metadata", {}).get("uid"):
        # Nobody owns anything of this object, so plain writes are not recorded either until one applies.
        return []
    # 2. What this write changed is nobody's for a moment, the writer's own earlier entry included ...
    changed = _relevant(compare(schema, _bare(old), _bare(new)), reset)
    _take(managers, changed, keep=None)
    # 3. ... and then the writer's. One that changed nothing keeps its entry, and the entry its time.
    mine = _stripped(union(changed.added, changed.modified))
    if mine:
        # A write of the same manager adds to what it owned; it does not state all that it wants.
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
    """Return `live` after `writer` applied `applied`, managedFields included; `live` without entries is new.

    Raises ConflictsOfFields where fields of others would change and `force` is not set.
    """
    if applied.get("metadata", {}).get("managedFields") is not None:
        # Clients that read an object and apply it back must take the ownership out first; silently
        # ignoring it would let them take over everything.
        raise bad_request("metadata.managedFields must be nil")
    _check_form(schema, applied)
    managers = _decode(live.get("metadata", {}).get("managedFields"))
    bare = _bare(live)
    # An object that was made without managedFields: what is there belongs to somebody.
    if not managers and live.get("metadata", {}).get("uid"):
        managers = _before_first_apply(schema, bare, writer)
    # 1. What the applier wants, and what it wanted last time.
    key = writer.key("Apply")
    last = managers.get(key)
    mine = _without_keys(field_set(schema, applied), reset)
    # The time of the last apply is kept until it is known that this one changes anything.
    managers[key] = _Entry(api_version=writer.api_version, time=last.time if last else None, fields=mine)
    # 2. Overlay, then take away what it no longer wants. The new claim is registered before, so that pruning
    # sees it beside those of all others.
    merged = merge(schema, bare, applied)
    pruned = _prune(schema, merged, managers, last.fields) if last else merged
    # Everything may have been taken out.
    pruned = pruned if isinstance(pruned, dict) else {}
    # 3. What that changes of others is a conflict, or is taken from them.
    changed = _relevant(compare(schema, bare, pruned), reset)
    if not force:
        _refuse_conflicts(managers, changed, key)
    # Before the applier's own entry is finished: its claim must not be taken by itself.
    _take(managers, changed, keep=key)
    if fields := _stripped(mine):
        # The time tells when the object last changed by this manager: applying the same again leaves it.
        time = writer.at if pruned != bare or last is None else last.time
        managers[key] = replace(managers[key], fields=fields, time=time)
    else:
        # An applier that wants nothing any more owns nothing, and its entry goes.
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
    told = found[0] if len(found) == 1 else "errors:" + "".join(f"\n  {each}" for each in found)
    # One fault in one line, several in a list: the words are the real server's.
    # A client's fault, which the real server answers as one of its own: without a reason, with 500.
    raise ApiError(500, "", f"failed to create typed patch object ({title}): {told}")


def _prune(schema: Schema, merged: JsonObject, managers: _Managers, last: Fields) -> Json:
    """Remove what the applier named before, then give back what anyone still owns or nobody had from it."""
    # Everything of last time goes, with the containers that were only there for it ...
    named_last = with_named_members(last, schema)
    pruned = remove(schema, merged, named_last)
    everything = with_named_members(field_set(schema, merged), schema)
    owned: Fields = {}
    for entry in managers.values():
        owned = union(owned, with_named_members(entry.fields, schema))
    # ... what anyone still claims, the applier's new wish included, comes back ...
    left = with_named_members(field_set(schema, pruned), schema)
    pruned = remove(schema, merged, difference(everything, union(left, owned)))
    # ... and so does what went along with a container and was never the applier's: fields without an owner,
    # such as defaults, are no one's to remove.
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
        # All conflicts at once: the applier decides about all of them together.
        raise ConflictsOfFields(conflicts)


def _title(key: _Key, entry: _Entry) -> str:
    title = f'"{key.manager}"'
    if key.subresource:
        title += f' with subresource "{key.subresource}"'
    if key.operation == "Update":
        title += f" using {entry.api_version}" + (f" at {entry.time}" if entry.time else "")
    return title


def _take(managers: _Managers, changed: Comparison, *, keep: _Key | None) -> None:
    """Take every changed or removed path from all managers but `keep`; who is left with nothing goes."""
    gone = union(union(changed.added, changed.modified), changed.removed)
    for key, entry in list(managers.items()):
        if key == keep:
            continue
        # A path that came or went whole takes everything below it along.
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
    """Return the set without what nobody owns. What lies below such a path is owned as any other."""
    for top in ("f:apiVersion", "f:kind", "f:metadata"):
        if top in fields:
            fields = without(fields, top)
    for name in fields.get("f:metadata", {}).keys() & _UNOWNED_METADATA:
        fields = without(fields, "f:metadata", name)
    return fields


def _bare(item: JsonObject) -> JsonObject:
    # Their fields describe the object and would count as changes of it.
    """Return the object without managedFields, which describe it and are no part of what they describe."""
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
    # Only a client that brings entries of its own means to edit them; a status write never does.
    if writer.subresource or given is None or given is current:
        return _decode(current)
    # Two ways of clearing that clients use, kubectl's among them.
    if given in ([], [{}]):
        return {}
    try:
        return _decode(given)
    except (KeyError, TypeError, AttributeError):
        # Entries that nobody can read are ignored rather than refused, as the real server does.
        return _decode(current)


def _before_first_apply(schema: Schema, live: JsonObject, writer: Writer) -> _Managers:
    """Own what an object without any entry holds, so that the first apply cannot silently take it over."""
    fields = _stripped(compare(schema, {}, live).added)
    key = replace(writer, manager=_BEFORE_FIRST_APPLY).key("Update")
    # As an update and not as an apply: the first real apply may take it over where values agree.
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
    # Applies before updates, then by time: the order in which the real server writes them.
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
    # Only plain updates: an applier's entry says what it wants, and cannot be merged with another's.
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
        # The first two of one version become the bucket, all later ones join it.
        older = managers.pop(bucket, None) or managers.pop(first[key.api_version])
        entry = managers.pop(key)
        managers[bucket] = replace(entry, time=time or None, fields=union(older.fields, entry.fields))
        surplus -= 1
