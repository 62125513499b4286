"""What watches delivered, kept: a record for each version of an object, and their order of writing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from api.objects import ClusterQueueObject, CohortObject, WorkloadObject

RecordedObject = WorkloadObject | ClusterQueueObject | CohortObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRecord:
    """One version of an object, as a watch delivered it. `at` is the observer's clock, in seconds.

    `is_deleted`: the object ceased to be; `object` is then its last known version.
    """

    at: float
    object: RecordedObject
    is_deleted: bool = False


def in_order(records: Iterable[ObjectRecord]) -> Sequence[ObjectRecord]:
    """Return the records by resourceVersion, each kind's own order kept.

    Resource versions are numbers that grow with every write to the server (Kubernetes promises to keep it so
    from 1.35). A deletion that was noticed late carries the version of an earlier write, so within
    a kind a version never counts as lower than one before it.
    """
    newest: dict[type, int] = {}
    keyed: list[tuple[int, ObjectRecord]] = []
    for record in records:
        kind = type(record.object)
        newest[kind] = max(newest.get(kind, 0), _version(record))
        keyed.append((newest[kind], record))
    return [record for _, record in sorted(keyed, key=lambda pair: pair[0])]


def _version(record: ObjectRecord) -> int:
    text = record.object.metadata.resource_version
    return int(text) if text.isdigit() else 0
