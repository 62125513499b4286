"""Recorded objects for tests of the audit, written as a table writes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from admission.simulation.records import ObjectRecord
from api.objects.queues import ClusterQueueObject, CohortObject
from api.objects.workloads import WorkloadObject


def queue(
    name: str, gpus: int | str, *, cohort: str | None = None, version: int = 1, **limits: Any
) -> ObjectRecord:
    """A ClusterQueue of one flavor; limits are borrowing=, lending=."""
    spec = {"cohortName": cohort, "resourceGroups": [_group(gpus, **limits)]}
    return _record(ClusterQueueObject, name, spec=spec, version=version)


def cohort(
    name: str, gpus: int = 0, *, parent: str | None = None, version: int = 1, **limits: Any
) -> ObjectRecord:
    """A Cohort with quota of its own."""
    spec = {"parentName": parent, "resourceGroups": [_group(gpus, **limits)]}
    return _record(CohortObject, name, spec=spec, version=version)


def pending(name: str, *, version: int, at: float = 0.0, planned: str | None = None) -> ObjectRecord:
    """A Workload that waits; `planned`: when it is promised to start."""
    annotations = {"berth.dev/planned-start": planned} if planned is not None else {}
    return _record(WorkloadObject, name, version=version, at=at, namespace="n", annotations=annotations)


def holding(
    name: str,
    queue: str,
    gpus: int,
    *,
    version: int,
    at: float = 0.0,
    count: int = 1,
    reclaimable: int = 0,
    finished: bool = False,
    flavor: str = "a100",
) -> ObjectRecord:
    """A Workload that holds quota, or held it until it finished."""
    conditions = [{"type": "QuotaReserved", "status": "True"}]
    if finished:
        conditions.append({"type": "Finished", "status": "True"})
    assignment = {"flavors": {"gpu": flavor}, "resourceUsage": {"gpu": gpus}, "count": count}
    status = {
        "admission": {"clusterQueue": queue, "podSetAssignments": [{"name": "main", **assignment}]},
        "conditions": conditions,
        "reclaimablePods": [{"name": "main", "count": reclaimable}] if reclaimable else None,
    }
    return _record(WorkloadObject, name, status=status, version=version, at=at, namespace="n")


def gone(record: ObjectRecord, *, at: float) -> ObjectRecord:
    """The deletion of what `record` shows."""
    return ObjectRecord(at=at, object=record.object, is_deleted=True)


def _group(gpus: int | str, *, borrowing: int | None = None, lending: int | None = None) -> dict[str, Any]:
    quota = {
        "name": "gpu",
        "nominalQuota": gpus,
        "borrowingLimit": borrowing,
        "lendingLimit": lending,
    }
    return {"coveredResources": ["gpu"], "flavors": [{"name": "a100", "resources": [quota]}]}


def _record(
    type_: type[WorkloadObject | ClusterQueueObject | CohortObject],
    name: str,
    *,
    version: int,
    at: float = 0.0,
    namespace: str = "",
    annotations: Mapping[str, str] = MappingProxyType({}),
    **parts: Any,
) -> ObjectRecord:
    metadata = {
        "name": name,
        "namespace": namespace,
        "resourceVersion": str(version),
        "annotations": dict(annotations),
    }
    return ObjectRecord(at=at, object=msgspec.convert({"metadata": metadata, **parts}, type_))
