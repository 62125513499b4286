"""CustomResourceDefinitions: adding the kinds that they define, and removing them when they are deleted.

All versions of a kind share one collection, stored in the storage version. Conversion is `None`: versions
differ only in apiVersion, and each shows the fields that its own schema defines.

Source: k8s.io/apiextensions-apiserver.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from api.kube.embedded.apply.builtin_types import Decoder, builtin_schema
from api.kube.embedded.apply.errors import FieldError, invalid_value, required
from api.kube.embedded.apply.schema import Json, JsonObject
from api.kube.embedded.apply.structural import Structural, faults, fit, structural_schema
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.kinds.kinds import Column, Decoded, Kind, Strategy, World
from api.kube.embedded.kinds.names import label_fault
from api.kube.embedded.kinds.strategies import StatusStrategy
from api.kube.embedded.kinds.tables import age, age_of, json_path
from api.kube.embedded.store import ChangeType, ObjectStore

GROUP: Final = "apiextensions.k8s.io"
PLURAL: Final = "customresourcedefinitions"
_CONDITIONS: Final = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)


class CrdStrategy(StatusStrategy):
    """The rules for CustomResourceDefinition objects."""

    allows_unconditional_update = False

    def fill(self, item: JsonObject) -> None:
        """Set names that default to others: `singular` and `listKind`."""
        spec = item["spec"]
        names = spec.get("names", {})
        if kind := names.get("kind"):
            names.setdefault("singular", kind.lower())
            names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Accept the names and establish the kind immediately, because no other component takes part."""
        item["status"] = _status(item["spec"], world.now())

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield the faults that prevent the kind from being served."""
        spec = item["spec"]
        names = spec.get("names", {})
        want = f"{names.get('plural')}.{spec.get('group')}"
        if item["metadata"]["name"] != want:
            why = f'must be spec.names.plural+"."+spec.group ("{want}")'
            yield invalid_value("metadata.name", item["metadata"]["name"], why)
        for key in ("plural", "kind"):
            if not names.get(key):
                yield required(f"spec.names.{key}")
            elif fault := label_fault(names[key].lower()):
                yield invalid_value(f"spec.names.{key}", names[key], fault)
        if spec.get("scope") not in ("Namespaced", "Cluster"):
            yield required("spec.scope")
        yield from _versions_faults(spec.get("versions") or [])


def _status(spec: JsonObject, now: str) -> JsonObject:
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        for type_, reason, message in _CONDITIONS
    ]
    stored = [each["name"] for each in spec.get("versions") or () if each.get("storage")]
    return {"conditions": conditions, "acceptedNames": spec.get("names", {}), "storedVersions": stored}


def _versions_faults(versions: list[JsonObject]) -> Iterator[FieldError]:
    # All versions share the stored objects, which have a single form.
    if sum(bool(each.get("storage")) for each in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield invalid_value("spec.versions", [each.get("name") for each in versions], why)
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            yield required(path, "schemas are required")
        else:
            yield from _structure_faults(schema, path, is_root=True)


def _structure_faults(schema: JsonObject, path: str, *, is_root: bool = False) -> Iterator[FieldError]:
    """Yield why a schema is not structural: values without type, and list map keys that may be missing."""
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if "type" not in schema and not free:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    if is_root and schema.get("type") != "object":
        yield invalid_value(f"{path}.type", schema.get("type", ""), "must be object at the root")
    try:
        # Checked here, because otherwise the error would be reported to the first user who creates an object.
        re.compile(schema.get("pattern", ""))
    except re.error as error:
        yield invalid_value(
            f"{path}.pattern", schema["pattern"], f"must be a valid regular expression: {error}"
        )
    if schema.get("type") == "array" and "items" not in schema:
        yield required(f"{path}.items", "must be specified")
    items: JsonObject = schema.get("items") or {}
    for key in schema.get("x-kubernetes-list-map-keys", ()) if items else ():
        declared = items.get("properties", {}).get(key)
        if declared is None:
            why = "entries must all be names of item properties"
            yield invalid_value(f"{path}.x-kubernetes-list-map-keys", key, why)
        # If two managers apply the list, an item without the key could not be distinguished from another one.
        elif key not in items.get("required", ()) and "default" not in declared:
            why = "a list map key must have a default or be a required property"
            yield required(f"{path}.items.properties[{key}].default", why)
    for key, below in schema.get("properties", {}).items():
        # The server itself defines these three, whatever the schema says.
        if not (is_root and key in ("metadata", "apiVersion", "kind")):
            yield from _structure_faults(below, f"{path}.properties[{key}]")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _structure_faults(schema[key], f"{path}.{key}")


class CustomStrategy(Strategy):
    """The rules for objects of a custom kind, which its schema defines."""

    counts_generations = True
    allows_unconditional_update = False
    reset_by_status = ("metadata", "spec")

    def __init__(self, schema: Structural, *, has_status: bool) -> None:
        self._schema = schema
        self._has_status = has_status
        self.reset_by_main = ("status",) if has_status else ()

    def prepare_create(self, item: JsonObject, world: World) -> None:
        """Drop the status if it has its own endpoint."""
        del world
        if self._has_status:
            item.pop("status", None)

    def prepare_status(self, new: JsonObject, old: JsonObject) -> None:
        """Keep only the status and its managed fields."""
        status, entries = new.get("status"), new["metadata"].get("managedFields")
        # Changed in place, because the caller keeps using this object.
        new.clear()
        new.update(old)
        new["metadata"] = {**old["metadata"], "managedFields": entries}
        if entries is None:
            del new["metadata"]["managedFields"]
        if status is not None:
            new["status"] = status
        else:
            new.pop("status", None)

    def faults(self, item: JsonObject) -> Iterable[FieldError]:
        """Yield the violations of the schema by the object."""
        return faults(self._schema, item)

    def status_faults(self, new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
        """Yield the violations of the schema by the status."""
        del old
        status = self._schema.properties.get("status")
        return faults(status, new["status"], "status") if status and "status" in new else ()


class CustomKinds:
    """Keeps the catalog consistent with the stored CRDs."""

    def __init__(self, store: ObjectStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def define(self, crd: JsonObject) -> None:
        """Serve every served version of the CRD, and stop serving its former versions."""
        spec = crd["spec"]
        versions = spec["versions"]
        stored = next(each["name"] for each in versions if each.get("storage"))
        served = [each for each in versions if each.get("served")]
        names = {each["name"] for each in served}
        for kind in self._catalog.versions_of(spec["group"], spec["names"]["plural"]):
            if kind.version not in names:
                self._catalog.remove(kind)
        for version in sorted(served, key=lambda each: version_rank(each["name"])):
            self._catalog.add(self._kind(spec, version, stored))

    def forget(self, crd: JsonObject) -> None:
        """Stop serving the kind of a deleted CRD, and delete its objects."""
        spec = crd["spec"]
        collection = self._store.collection(spec["group"], spec["names"]["plural"])
        # Each object is deleted separately, so that watches receive the deletions before the kind is removed.
        for stored in collection.all():
            self._store.commit(collection, ChangeType.DELETED, stored.item, stored.item)
        for kind in self._catalog.versions_of(spec["group"], spec["names"]["plural"]):
            self._catalog.remove(kind)
        # Last, so that a later CRD of the same kind starts with an empty collection.
        self._store.drop(collection)

    def _kind(self, spec: JsonObject, version: JsonObject, stored: str) -> Kind:
        group, names = spec["group"], spec["names"]
        subresources = version.get("subresources") or {}
        schema = structural_schema(version["schema"]["openAPIV3Schema"], name=names["kind"])
        decode = _decoder(schema)
        # The storage version needs no conversion, and nearly all requests use it.
        to_stored, from_stored = None, None
        if version["name"] != stored:
            to_stored = _renamer(f"{group}/{stored}")
            from_stored = _shower(f"{group}/{version['name']}", decode)
        return Kind(
            group=group,
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            collection=self._store.collection(group, names["plural"]),
            schema=schema,
            strategy=CustomStrategy(schema, has_status="status" in subresources),
            decode=decode,
            empty={"apiVersion": f"{group}/{version['name']}", "kind": names["kind"]},
            singular=names.get("singular", ""),
            list_kind=names.get("listKind", ""),
            short_names=names.get("shortNames", ()),
            categories=names.get("categories", ()),
            subresources=("status",) if "status" in subresources else (),
            columns=_columns(version.get("additionalPrinterColumns")),
            selectable=[each["jsonPath"][1:] for each in version.get("selectableFields") or ()],
            is_custom=True,
            to_stored=to_stored,
            from_stored=from_stored,
        )


def version_rank(name: str) -> tuple[int, int, int]:
    """Return a sort key that orders v2, v1, v1beta2, v1alpha1, as in discovery."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", name)
    # As in Kubernetes, names of any other form come last.
    if match is None:
        return (3, 0, 0)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0))


def _decoder(schema: Structural) -> Callable[[JsonObject], Decoded]:
    metadata = Decoder(builtin_schema("ObjectMeta"))

    def decode(body: JsonObject) -> Decoded:
        unknown: list[str] = []
        rest = {key: value for key, value in body.items() if key != "metadata"}
        item = fit(schema, rest, unknown)
        # Metadata has a built-in type in every kind; the schemas of CRDs declare it only as an object.
        fitted = metadata.decode(body.get("metadata") or {})
        unknown += [f"metadata.{path}" for path in metadata.unknown]
        top = {key: item.pop(key) for key in ("apiVersion", "kind")}
        return Decoded({**top, "metadata": fitted, **item}, unknown)

    return decode


def _renamer(api_version: str) -> Callable[[JsonObject], JsonObject]:
    return lambda item: {**item, "apiVersion": api_version}


def _shower(api_version: str, decode: Callable[[JsonObject], Decoded]) -> Callable[[JsonObject], JsonObject]:
    return lambda item: decode({**item, "apiVersion": api_version}).item


def _columns(described: Json) -> list[Column]:
    if not described:
        return [Column(name="Age", value=age_of)]
    return [_column(each) for each in described]


def _column(described: Mapping[str, Json]) -> Column:
    find = json_path(described["jsonPath"])
    is_date = described.get("type") == "date"

    def value(item: JsonObject) -> str | int | None:
        found = find(item)
        if is_date:
            return age(found, datetime.now(UTC)) if found else None
        # Table cells contain no structures; the real server prints them in Go syntax, which no client parses.
        return found if isinstance(found, str | int) or found is None else str(found)

    return Column(
        name=described["name"],
        value=value,
        type="string" if is_date else described.get("type", "string"),
        priority=described.get("priority", 0),
    )
