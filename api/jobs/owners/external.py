"""Rows for kinds that no module knows: what the configuration says of them (`integrations.external`).

A specification is plain data, so that another process can make the same row of it. Paths are those of
`api.jobs.owners.paths.parsed_path`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from api.jobs.owners.conditions import is_true
from api.jobs.owners.paths import Body, Path, path_text, value_at
from api.jobs.owners.row import OwnerKind, OwnerPodSet
from api.jobs.queued_object import JobOutcome
from api.parsing.faults import ABSENT, FieldError


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """What shows a state: a condition that is True, or one of these values at a path."""

    condition: str = ""
    path: Path = ()
    values: tuple[str, ...] = ()

    def is_shown(self, body: Body) -> bool:
        """Return whether the object shows it."""
        if self.condition:
            return is_true(body, self.condition)
        found = value_at(body, self.path)
        # As YAML writes them: true and 1 are no texts.
        return msgspec.json.encode(found).decode().strip('"') in self.values


class ExternalPodSet(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod set is. With `each`, each entry of a list or an object has one, and paths are in it."""

    template: Path
    name: str = ""
    name_at: Path = ()
    each: Path = ()
    count: int = 1
    count_at: Path = ()


class ExternalKind(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says of a kind. `where` is its place there, for messages."""

    kind: str
    group: str
    version: str
    plural: str
    where: str
    pod_sets: tuple[ExternalPodSet, ...]
    suspend: Path = ("spec", "suspend")
    active: Path = ()
    ready: Sign | None = None
    succeeded: Sign | None = None
    failed: Sign | None = None
    message: Path = ()
    priority_class: Path = ()


def row_of(kind: ExternalKind) -> OwnerKind:
    """Return the row of a kind."""
    return OwnerKind(
        kind=kind.kind,
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        framework=kind.where,
        pod_sets=lambda body: tuple(_pod_set(*found) for found in _found(kind, body)),
        active=lambda body: _amount(value_at(body, kind.active)) if kind.active else 0,
        outcome=lambda body: _outcome(kind, body),
        are_pods_ready=lambda body: kind.ready is not None and kind.ready.is_shown(body),
        suspend=tuple(map(str, kind.suspend)),
        priority_class=kind.priority_class or None,
        faults=lambda body: _faults(kind, body),
    )


def _found(kind: ExternalKind, body: Body) -> Iterator[tuple[ExternalPodSet, Path, Body]]:
    """Yield each pod set with the path of what its paths are within, and that."""
    for one in kind.pod_sets:
        if not one.each:
            yield one, (), body
            continue
        entries = value_at(body, one.each) or ()
        steps: Sequence[Any] = list(entries) if isinstance(entries, Mapping) else range(len(entries))
        for step in steps:
            yield one, (*one.each, step), entries[step]


def _pod_set(one: ExternalPodSet, at: Path, within: Body) -> OwnerPodSet:
    count = value_at(within, one.count_at) if one.count_at else one.count
    return OwnerPodSet(
        name=_name(one, at, within).lower(),
        count=1 if count is None else _amount(count),
        template=value_at(within, one.template),
        at=(*at, *one.template),
    )


def _name(one: ExternalPodSet, at: Path, within: Body) -> str:
    # Without a path, an entry of an object is named by its key.
    return str(value_at(within, one.name_at)) if one.name_at else one.name or str(at[-1])


def _amount(found: Any) -> int:
    """Return a number as it is, and the length of a list. Raises TypeError for anything else."""
    if found is None:
        return 0
    if isinstance(found, list):
        return len(found)
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"{found!r} is no number")
    return found


def _outcome(kind: ExternalKind, body: Body) -> JobOutcome | None:
    for sign, is_success in ((kind.succeeded, True), (kind.failed, False)):
        if sign is not None and sign.is_shown(body):
            message = value_at(body, kind.message) if kind.message else None
            fallback = "finished successfully" if is_success else "failed"
            return JobOutcome(is_success=is_success, message=str(message or fallback))
    return None


def _faults(kind: ExternalKind, body: Body) -> Iterator[FieldError]:
    """Yield the places of the row that an object of the kind does not have, and numbers below zero there."""
    for one, at, within in _found(kind, body):
        template = value_at(within, one.template)
        if not isinstance(template, Mapping) or not isinstance(template.get("spec"), Mapping):
            yield _wrong((*at, *one.template), f"{kind.where} expects a pod template here")
        if one.name_at and not isinstance(value_at(within, one.name_at), str):
            yield _wrong((*at, *one.name_at), f"{kind.where} expects the name of a pod set here")
        count = value_at(within, one.count_at) if one.count_at else None
        if isinstance(count, int) and count < 0:
            what = f"{kind.where} expects a number of pods here, 0 or more"
            yield _wrong((*at, *one.count_at), what, value=count)
    for one in kind.pod_sets:
        if one.each and not value_at(body, one.each):
            yield _wrong(one.each, f"{kind.where} expects pod sets here")


def _wrong(path: Path, what: str, value: Any = ABSENT) -> FieldError:
    return FieldError(path=path_text(path), value=value, rule=f"{what}; correct the object, or the path")


# --- the definition of the kind -------------------------------------------------------------------


def unknown_paths(kind: ExternalKind, definition: Body) -> tuple[str, ...]:
    """Return the paths of a row that the kind's CustomResourceDefinition does not have, as sentences.

    The API server drops what a definition does not have, so a wrong path of `suspend` could never stop an
    object. () where the version is not served, which its watch reports.
    """
    versions = value_at(definition, ("spec", "versions")) or ()
    schema = next(
        (value_at(one, ("schema", "openAPIV3Schema")) for one in versions if one.get("name") == kind.version),
        None,
    )
    return () if schema is None else tuple(_unknown(kind, schema))


def _unknown(kind: ExternalKind, schema: Body) -> Iterator[str]:
    for field, path in _paths(kind):
        if not _has(schema, path):
            name = f"{kind.plural}.{kind.group}/{kind.version}"
            yield f"{kind.where}.{field}: the definition of {name} has no {path_text(path)}; correct the path"


def _paths(kind: ExternalKind) -> Iterator[tuple[str, Path]]:
    yield "suspend", kind.suspend
    for index, one in enumerate(kind.pod_sets):
        # One entry stands for all.
        at = (*one.each, "*") if one.each else ()
        yield f"podSets[{index}].template", (*at, *one.template)
        for field, path in (("name", one.name_at), ("count", one.count_at)):
            if path:
                yield f"podSets[{index}].{field}", (*at, *path)
    found = {"active": kind.active, "message": kind.message, "priorityClass": kind.priority_class}
    signs = {"ready": kind.ready, "succeeded": kind.succeeded, "failed": kind.failed}
    found |= {f"{field}.path": sign.path for field, sign in signs.items() if sign is not None}
    yield from ((field, path) for field, path in found.items() if path)


def _has(schema: Body, path: Path) -> bool:
    for step in path:
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        entries = schema.get("items") or schema.get("additionalProperties")
        found = (schema.get("properties") or {}).get(step) if isinstance(step, str) else None
        below = found if found is not None else entries
        if not isinstance(below, Mapping):
            return bool(below)
        schema = below
    return True
