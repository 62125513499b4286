"""`integrations.external` of Berth's settings: rules, and the rows as values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from api.config.berth import ExternalKind as Section
from api.config.berth import ExternalPodSet as PodSetSection
from api.config.berth import ExternalSign as SignSection
from api.config.berth import Settings
from api.jobs.owners.external import ExternalKind, ExternalPodSet, Sign
from api.jobs.owners.paths import Path, parsed_path
from api.jobs.owners.table import OWNER_KINDS
from api.parsing.faults import ABSENT, FieldError
from api.validation.names import duplicates

KIND_VERSION_GROUP = re.compile(
    r"(?P<kind>[A-Za-z][A-Za-z0-9]*)\.(?P<version>v[0-9][a-z0-9]*)\.(?P<group>[a-z0-9]([-a-z0-9.]*[a-z0-9])?)"
)
KIND_RULE = "must be Kind.version.group, such as MyJob.v1.example.com"
# Objects are told apart by the names of their kinds alone.
_TAKEN = frozenset({"Job", "Pod", "Workload", "Deployment", "StatefulSet", "LeaderWorkerSet"})
_WHERE = "integrations.external"


def external_errors(settings: Settings) -> Iterator[FieldError]:
    """Yield the violations of rules in rows for other kinds."""
    rows = settings.integrations.external
    for index, row in enumerate(rows):
        yield from _kind_errors(f"{_WHERE}[{index}].kind", row.kind)
        yield from _path_errors(f"{_WHERE}[{index}]", row)
    for name in duplicates(one.kind.partition(".")[0] for one in rows):
        yield FieldError(path=_WHERE, value=name, rule="must be described once")


def external_kinds(settings: Settings) -> tuple[ExternalKind, ...]:
    """Return the rows of valid settings as values."""
    return tuple(_kind(f"{_WHERE}[{index}]", row) for index, row in enumerate(settings.integrations.external))


def _kind_errors(where: str, text: str) -> Iterator[FieldError]:
    found = KIND_VERSION_GROUP.fullmatch(text)
    if found is None:
        yield FieldError(path=where, value=text, rule=KIND_RULE)
    elif found["kind"] in {*_TAKEN, *(row.kind for row in OWNER_KINDS)}:
        rule = f"Berth has a {found['kind']} already, and tells kinds apart by this name"
        yield FieldError(path=where, value=text, rule=rule)


def _path_errors(where: str, row: Section) -> Iterator[FieldError]:
    texts = {name: getattr(row, name) for name in ("suspend", "active", "message", "priority_class")}
    for name, text in texts.items():
        if text:
            yield from _path_error(f"{where}.{'priorityClass' if name == 'priority_class' else name}", text)
    if not row.suspend:
        yield FieldError(path=f"{where}.suspend", value=ABSENT, rule="an object could never be stopped")
    for index, one in enumerate(row.pod_sets):
        yield from _pod_set_errors(f"{where}.podSets[{index}]", one)
    # The names within `each` are those of the objects.
    for name in duplicates(one.name for one in row.pod_sets if not one.each):
        yield FieldError(path=f"{where}.podSets", value=name, rule="names must be unique")
    for name in ("ready", "succeeded", "failed"):
        if (sign := getattr(row, name)) is not None:
            yield from _sign_errors(f"{where}.{name}", sign)


def _pod_set_errors(where: str, one: PodSetSection) -> Iterator[FieldError]:
    yield from _path_error(f"{where}.template", one.template)
    if isinstance(one.count, str):
        yield from _path_error(f"{where}.count", one.count)
    if one.each:
        yield from _path_error(f"{where}.each", one.each)
        if one.name:
            yield from _path_error(f"{where}.name", one.name)
    elif not one.name:
        yield FieldError(path=f"{where}.name", value=ABSENT, rule="a pod set needs a name")


def _sign_errors(where: str, sign: SignSection) -> Iterator[FieldError]:
    if bool(sign.condition) == bool(sign.path):
        yield FieldError(path=where, value=sign.condition, rule="needs either condition or path")
    elif sign.path:
        yield from _path_error(f"{where}.path", sign.path)
        if not sign.values:
            yield FieldError(path=f"{where}.values", value=ABSENT, rule="a path needs values")


def _path_error(where: str, text: str) -> Iterator[FieldError]:
    try:
        parsed_path(text)
    except ValueError:
        yield FieldError(path=where, value=text, rule="must be a path, such as .spec.groups[0].template")


def _kind(where: str, row: Section) -> ExternalKind:
    named = KIND_VERSION_GROUP.fullmatch(row.kind)
    assert named is not None, "the settings are valid"
    return ExternalKind(
        kind=named["kind"],
        group=named["group"],
        version=named["version"],
        plural=row.plural or f"{named['kind'].lower()}s",
        where=where,
        pod_sets=tuple(map(_pod_set, row.pod_sets)),
        suspend=parsed_path(row.suspend),
        active=_path(row.active),
        ready=_sign(row.ready),
        succeeded=_sign(row.succeeded),
        failed=_sign(row.failed),
        message=_path(row.message),
        priority_class=_path(row.priority_class),
    )


def _pod_set(one: PodSetSection) -> ExternalPodSet:
    return ExternalPodSet(
        template=parsed_path(one.template),
        name="" if one.each else one.name,
        name_at=_path(one.name) if one.each else (),
        each=_path(one.each),
        count=one.count if isinstance(one.count, int) else 1,
        count_at=_path(one.count) if isinstance(one.count, str) else (),
    )


def _sign(sign: SignSection | None) -> Sign | None:
    if sign is None:
        return None
    return Sign(condition=sign.condition, path=_path(sign.path), values=tuple(sign.values))


def _path(text: str) -> Path:
    return parsed_path(text) if text else ()
