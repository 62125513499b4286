"""Rules for owners: what they may ask of queues and topologies, and what may change while they run.

Source: Kueue, pkg/controller/jobframework/validation.go and tas_validation.go, and the webhook of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from api import keys
from api.jobs.owners.paths import Body, path_text, value_at
from api.jobs.owners.row import OwnerKind, OwnerPodSet
from api.parsing.faults import FieldError
from api.validation.jobs import metadata_errors, object_of, texts_of
from api.validation.templates import TopologyAnnotations, topology_errors
from api.validation.updates import elastic_gate_errors, queue_update_errors

_STRENGTHS = (keys.REQUIRED_TOPOLOGY, keys.PREFERRED_TOPOLOGY)


def kind_errors(row: OwnerKind, body: Body) -> tuple[FieldError, ...]:
    """Return what forbids an object of this kind to be queued; () if the API server would reject it."""
    try:
        return tuple(row.faults(body))
    except (AttributeError, KeyError, TypeError):
        return ()


def owner_errors(row: OwnerKind, body: Body, pod_sets: Sequence[OwnerPodSet]) -> Iterator[FieldError]:
    """Yield the faults that prevent an owner from being queued as its labels and annotations request."""
    metadata = body.get("metadata") or {}
    annotations = texts_of(metadata, "annotations")
    yield from metadata_errors(texts_of(metadata, "labels"), annotations)
    if annotations.get(keys.ELASTIC_JOB) == "true" and not row.may_be_elastic:
        yield FieldError(
            path=f"metadata.annotations[{keys.ELASTIC_JOB}]",
            value="true",
            rule=f"is not supported for {body.get('kind')}",
        )
    asked = [_asked(one) for one in pod_sets]
    for one in asked:
        yield from topology_errors(one)
        yield from _group_member_errors(one)
    yield from _group_errors(asked)


def validate_owner(row: OwnerKind, body: Body) -> tuple[FieldError, ...]:
    """Return the faults of an object of this kind; its pod sets are checked as far as they can be read."""
    try:
        pod_sets = row.pod_sets(body)
    except (AttributeError, KeyError, TypeError, ValueError):
        # The API server rejects it, with its own message.
        pod_sets = ()
    labels = texts_of(body.get("metadata"), "labels")
    # One that is not queued may be all that its kind allows.
    of_kind = kind_errors(row, body) if labels.get(keys.QUEUE_NAME) else ()
    return (*of_kind, *owner_errors(row, body, pod_sets))


def validate_owner_update(row: OwnerKind, old: Body, new: Body) -> tuple[FieldError, ...]:
    """Return the faults of a change of an object, but for those that it had before."""
    before = {str(error) for error in validate_owner(row, old)}
    faults = [error for error in validate_owner(row, new) if str(error) not in before]
    was_suspended, is_suspended = (value_at(body, row.suspend) is True for body in (old, new))
    changes = queue_update_errors(old, new, was_suspended=was_suspended, is_suspended=is_suspended)
    gates = () if is_suspended else _elastic_gate_errors(row, old, new)
    return (*faults, *changes, *gates)


def _elastic_gate_errors(row: OwnerKind, old: Body, new: Body) -> Iterator[FieldError]:
    if not row.may_be_elastic:
        return
    try:
        before, after = ({one.name: one for one in row.pod_sets(body)} for body in (old, new))
    except (AttributeError, KeyError, TypeError, ValueError):
        return
    for name in before.keys() & after.keys():
        path = path_text(after[name].at)
        yield from elastic_gate_errors(new, before[name].template, after[name].template, path)


def _asked(one: OwnerPodSet) -> TopologyAnnotations:
    annotations = texts_of(object_of(one.template, "metadata"), "annotations")
    # What is no number, the API server or the composition rejects, with its own message.
    pods = one.count if isinstance(one.count, int) else 0
    return TopologyAnnotations(template=path_text(one.at), annotations=annotations, pods=pods)


def _group_member_errors(asked: TopologyAnnotations) -> Iterator[FieldError]:
    """Yield what forbids a pod set to be placed together with another."""
    group = asked.annotations.get(keys.POD_SET_GROUP)
    if group is None:
        return
    path = asked.path_of(keys.POD_SET_GROUP)
    if group.isdecimal():
        yield FieldError(path=path, value=group, rule="must not be a number")
    for key in (keys.SLICE_SIZE, keys.SLICE_REQUIRED_TOPOLOGY, keys.SLICE_CONSTRAINTS):
        if key in asked.annotations:
            yield FieldError(path=path, value=group, rule=f"excludes {key}")
    if not any(key in asked.annotations for key in _STRENGTHS):
        yield FieldError(path=path, value=group, rule=f"needs {_STRENGTHS[1]} or {_STRENGTHS[0]}")


def _group_errors(asked: Sequence[TopologyAnnotations]) -> Iterator[FieldError]:
    groups: dict[str, list[TopologyAnnotations]] = {}
    for one in asked:
        if any(key in one.annotations for key in _STRENGTHS) and keys.POD_SET_GROUP in one.annotations:
            groups.setdefault(one.annotations[keys.POD_SET_GROUP], []).append(one)
    for name, members in groups.items():
        for one in members:
            if rule := _group_fault(members):
                yield FieldError(path=one.path_of(keys.POD_SET_GROUP), value=name, rule=rule)


def _group_fault(members: Sequence[TopologyAnnotations]) -> str:
    if len(members) != 2:
        return f"must be on exactly 2 pod sets, but is on {len(members)}"
    pods = [one.pods for one in members]
    if 1 not in pods:
        return f"one of the 2 pod sets must have a single pod, but they have {pods[0]} and {pods[1]}"
    first, second = ([one.annotations.get(key) for key in _STRENGTHS] for one in members)
    return "" if first == second else "both pod sets must ask for the same topology"
