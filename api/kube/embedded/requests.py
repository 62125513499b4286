"""Parsing of requests: the object they refer to, their options, and the supported formats of their body."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml
from aiohttp import web

from api.kube.embedded.apply.errors import ApiError, bad_request, unknown_path, unsupported_media_type
from api.kube.embedded.apply.schema import Json
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.kinds.kinds import Kind
from api.kube.embedded.options import DeleteOptions, WriteOptions
from api.parsing import yaml_loader

# The real server accepts 3 MiB; large CRDs, which an apply also stores in an annotation, need more.
MAX_BODY_BYTES = 8 * 1024 * 1024
_MAX_MANAGER_CHARACTERS = 128
_FIELD_VALIDATIONS: Final = ("Ignore", "Warn", "Strict")
_TRUE: Final = ("true", "1", "t", "T", "TRUE", "True")
# Words after namespaces/{name}/ that are subresources of the namespace and not kinds in it.
_OF_NAMESPACES: Final = ("status", "finalize")

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
BODY_TYPES: Final = ("application/json", "application/yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a path: an object, a subresource, or (without name) a collection."""

    kind: Kind
    namespace: str | None
    name: str | None
    subresource: str

    @property
    def space(self) -> str:
        """The namespace as used by the store: "" for cluster-scoped objects."""
        return self.namespace or ""


def find_target(catalog: Catalog, parts: Sequence[str]) -> Target | None:
    """Return the target of the path, or None if it is not the path of objects. Raises ApiError (404)."""
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace = None
    # namespaces/x/status is a subresource of the namespace, namespaces/x/pods is a collection in it.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    kind = catalog.find(group, version, rest[0])
    name = rest[1] if len(rest) > 1 else None
    subresource = "/".join(rest[2:])
    # Neither an unknown kind nor a cluster-scoped kind inside a namespace is served.
    if kind is None or (namespace is not None and not kind.namespaced):
        raise unknown_path()
    if (name and kind.namespaced and namespace is None) or (
        subresource and subresource not in kind.subresources
    ):
        raise unknown_path()
    return Target(kind=kind, namespace=namespace, name=name, subresource=subresource)


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the request's body. Raises ApiError (413) if it is too large."""
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > MAX_BODY_BYTES:
            message = f"Request entity too large: limit is {MAX_BODY_BYTES}"
            # Counted while reading, because the length in the header may be wrong or missing.
            raise ApiError(413, "RequestEntityTooLarge", message)
        parts.append(part)
    return b"".join(parts)


def decode_body(body: bytes, content_type: str, accepted: Sequence[str] = BODY_TYPES) -> Json:
    """Return the body as a JSON value; None if it is empty. Raises ApiError (400, 415)."""
    if not body:
        return None
    # kubectl sends deletions without a content type.
    if content_type not in accepted and content_type not in ("", "application/octet-stream"):
        raise unsupported_media_type(accepted)
    try:
        # kubectl sends JSON even if the type is YAML, and JSON is parsed fifty times as fast.
        if "yaml" in content_type and not body.lstrip().startswith(b"{"):
            return yaml_loader.load(body)
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error


def write_options(
    query: Mapping[str, str], headers: Mapping[str, str], subresource: str = ""
) -> WriteOptions:
    """Return the write options in query and headers. Raises ApiError (400)."""
    # As in the real server, the default is the name of the program, before the slash.
    manager = query.get("fieldManager") or headers.get("User-Agent", "unknown").partition("/")[0]
    if len(manager) > _MAX_MANAGER_CHARACTERS:
        raise bad_request(f"fieldManager: may not be more than {_MAX_MANAGER_CHARACTERS} characters")
    validation = query.get("fieldValidation") or "Warn"
    if validation not in _FIELD_VALIDATIONS:
        raise bad_request(f"fieldValidation: {validation!r} is none of {', '.join(_FIELD_VALIDATIONS)}")
    return WriteOptions(
        manager=manager,
        # Only the status is a subresource with its own field owners.
        subresource=subresource if subresource == "status" else "",
        dry_run=is_dry_run(query.get("dryRun")),
        field_validation=validation,
    )


def is_dry_run(value: Json) -> bool:
    """Return whether a dryRun parameter, a word or a list of them, is set to All. Raises ApiError (400)."""
    words = [value] if isinstance(value, str) else list(value or ())
    if any(word not in ("All", "") for word in words):
        raise bad_request(f"dryRun: {value!r} is not supported, only All is")
    return "All" in words


def is_true(text: str | None) -> bool:
    """Return whether a boolean parameter is set, in any of the spellings that clients use."""
    return text in _TRUE


def delete_options(query: Mapping[str, str], body: Json) -> DeleteOptions:
    """Return the delete options in query and body; the body takes precedence. Raises ApiError (400)."""
    # A DELETE may have no body, or one of any kind.
    options: Mapping[str, Any] = body if isinstance(body, dict) else {}
    preconditions = options.get("preconditions") or {}
    propagation = options.get("propagationPolicy") or query.get("propagationPolicy")
    orphans = options.get("orphanDependents")
    if orphans is None and "orphanDependents" in query:
        orphans = is_true(query["orphanDependents"])
    # The deprecated field is used if the new one is absent.
    if propagation is None and orphans is not None:
        propagation = "Orphan" if orphans else "Background"
    if propagation not in (None, "Orphan", "Background", "Foreground"):
        raise bad_request(f"propagationPolicy: {propagation!r} is none of Orphan, Background, Foreground")
    grace = options.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    return DeleteOptions(
        grace_seconds=None if grace is None else whole_number("gracePeriodSeconds", grace),
        propagation=propagation,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        dry_run=is_dry_run(options.get("dryRun") or query.get("dryRun")),
    )


def whole_number(name: str, value: str | int) -> int:
    """Return a parameter as a number. Raises ApiError (400)."""
    try:
        return int(value)
    except ValueError:
        raise bad_request(f"{name}: {value!r} is no number") from None
