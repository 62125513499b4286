"""Records of watch events: one for each version of an object, and their order of writing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from api.objects.queues import ClusterQueueObject, CohortObject
from api.objects.workloads import WorkloadObject

RecordedObject = WorkloadObject | ClusterQueueObject | CohortObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRecord:
    """One version of an object that a watch delivered. `at` is the observer's clock, in seconds.

    `is_deleted`: the object was deleted, and `object` is its last known version.
    """

    at: float
    object: RecordedObject
    is_deleted: bool = False


def in_order(records: Iterable[ObjectRecord]) -> Sequence[ObjectRecord]:
    """Return the records by resourceVersion, keeping the order of each kind.

    Resource versions are numbers that grow with every write to the server (Kubernetes guarantees this from
    1.35). A deletion that was noticed late has the version of an earlier write. So within a kind, a version
    never counts as lower than the one before it.
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
