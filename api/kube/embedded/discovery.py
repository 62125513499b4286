"""Discovery: versions, groups, resources, and the OpenAPI documents that kubectl needs.

kubectl uses OpenAPI to find out whether `fieldValidation` and server-side apply are supported, and `kubectl
explain` reads the types from it. The documents contain only what these need.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from api.kube.embedded.apply.errors import unknown_path
from api.kube.embedded.apply.schema import JsonObject, Schema, Type
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.kinds.kinds import Kind

_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CREATE_ONLY: Final = ("binding", "eviction")
VERSION: Final = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0-berth",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "any",
}
_QUERY: Final = ("dryRun", "fieldManager", "fieldValidation", "force")


def discover(catalog: Catalog, parts: Sequence[str]) -> JsonObject:
    """Return the document at a path that is not the path of an object. Raises ApiError (404)."""
    groups = catalog.groups()
    match parts:
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            described = [_group(group, versions) for group, versions in groups.items() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": described}
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        # The core group has no name, and its own path prefix, because it is older than API groups.
        case ["api", version] if version in groups[""]:
            return _resources(catalog, "", version)
        case ["apis", group, version] if version in groups.get(group, ()):
            return _resources(catalog, group, version)
        case ["openapi", "v3"]:
            return _openapi_index(groups)
        case ["openapi", "v3", "api", version]:
            return _openapi(catalog, "", version)
        case ["openapi", "v3", "apis", group, version]:
            return _openapi(catalog, group, version)
    raise unknown_path()


def _group(group: str, versions: Sequence[str]) -> JsonObject:
    described = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    # The first version is preferred, because kinds are added in the order of `version_rank`.
    return {"name": group, "versions": described, "preferredVersion": described[0]}


def _kinds(catalog: Catalog, group: str, version: str) -> list[Kind]:
    return [kind for kind in catalog if (kind.group, kind.version) == (group, version)]


def _resources(catalog: Catalog, group: str, version: str) -> JsonObject:
    kinds = _kinds(catalog, group, version)
    listed = [entry for kind in kinds for entry in _entries(kind)]
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": listed,
    }


def _entries(kind: Kind) -> Iterator[JsonObject]:
    entry: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(_VERBS),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    yield entry
    for subresource in kind.subresources:
        yield {
            "name": f"{kind.plural}/{subresource}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **_SUBRESOURCE_KINDS.get(subresource, {"kind": kind.kind}),
            "verbs": ["create"] if subresource in _CREATE_ONLY else ["get", "patch", "update"],
        }


# Kinds of the bodies of these subresources. `kubectl drain` detects evictions by their group.
_SUBRESOURCE_KINDS: Final[Mapping[str, JsonObject]] = {
    "binding": {"kind": "Binding"},
    "eviction": {"kind": "Eviction", "group": "policy", "version": "v1"},
}


def _openapi_index(groups: dict[str, list[str]]) -> JsonObject:
    names = [
        f"apis/{group}/{version}" if group else f"api/{version}"
        for group, versions in groups.items()
        for version in versions
    ]
    return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}"} for name in names}}


def _openapi(catalog: Catalog, group: str, version: str) -> JsonObject:
    kinds = _kinds(catalog, group, version)
    if not kinds:
        raise unknown_path()
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    paths: JsonObject = {}
    schemas: JsonObject = {}
    for kind in kinds:
        paths.update(_operations(kind, base))
        _describe_kind(kind, schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operations(kind: Kind, base: str) -> JsonObject:
    query = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _QUERY]
    space = "namespaces/{namespace}/" if kind.namespaced else ""
    collection = f"{base}/{space}{kind.plural}"

    def operation(verb: str) -> JsonObject:
        return {
            "parameters": query,
            "x-kubernetes-action": verb,
            "x-kubernetes-group-version-kind": _group_version_kind(kind),
            "responses": {},
        }

    return {
        collection: {"get": operation("list"), "post": operation("post")},
        f"{collection}/{{name}}": {verb: operation(verb) for verb in ("get", "put", "patch", "delete")},
    }


def _group_version_kind(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _describe_kind(kind: Kind, schemas: JsonObject) -> None:
    described = _described(kind.schema, schemas, is_root=True)
    described["x-kubernetes-group-version-kind"] = [_group_version_kind(kind)]
    text = {"type": "string"}
    described["properties"] = {"apiVersion": text, "kind": text, **described.get("properties", {})}
    schemas[f"{kind.group or 'core'}.{kind.version}.{kind.kind}"] = described


def _described(schema: Schema, schemas: JsonObject, *, is_root: bool = False) -> JsonObject:
    """Return the OpenAPI form of a type; named types are added to `schemas` and referenced."""
    if schema.type is Type.OBJECT and schema.name and not is_root and not hasattr(schema, "rules"):
        name = f"io.k8s.{schema.name}"
        if name not in schemas:
            # Added before it is described, because a type such as JSONSchemaProps may contain itself.
            schemas[name] = {}
            schemas[name].update(_described(schema, schemas, is_root=True))
        return {"allOf": [{"$ref": f"#/components/schemas/{name}"}], "default": {}}
    out: JsonObject = {"description": schema.description} if schema.description else {}
    match schema.type:
        case Type.OBJECT:
            out["type"] = "object"
            below = {key: _described(field, schemas) for key, field in schema.properties.items()}
            if below:
                out["properties"] = below
            if schema.required:
                out["required"] = list(schema.required)
        case Type.MAP:
            out.update(type="object", additionalProperties=_described(schema.values or _TEXT, schemas))
        case Type.ARRAY:
            out.update(type="array", items=_described(schema.item(), schemas))
        case Type.INTEGER | Type.NUMBER | Type.BOOLEAN:
            out["type"] = str(schema.type)
        case Type.INT_OR_STRING:
            # Both types, as in the real server, because quantities may also be plain numbers.
            out.update(format="int-or-string", oneOf=[{"type": "integer"}, {"type": "string"}])
        case Type.ANY:
            out["type"] = "object"
        case _:
            out["type"] = "string"
    if schema.enum:
        out["enum"] = list(schema.enum)
    return out


_TEXT: Final = Schema(type=Type.STRING)
