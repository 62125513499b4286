"""Rows of `berth get estimates`: how long similar Workloads ran, computed from the finished Workloads.

It uses the controller's own code (`queues.estimates.runtime_estimate`), which learns from the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from api.objects.workloads import WorkloadObject
from api.workload import Workload
from api.workload_decoding import to_workload
from queues.estimates.estimator import Estimator, declared_seconds, key_of, measured_seconds
from queues.estimates.runtime_estimate import RunKey


@dataclass(slots=True, kw_only=True)
class EstimateRow:
    """Workloads of one namespace, name stem and kind of pods. `shape` is a digest of the pods' requests.

    Run times are those of successful runs; `declared_seconds` is the run time that the
    latest of them declares.
    """

    namespace: str
    stem: str
    shape: str
    runs: int
    median_seconds: float
    p90_seconds: float
    longest_seconds: float
    declared_seconds: float | None = None


def estimate_rows(objects: Iterable[WorkloadObject]) -> tuple[EstimateRow, ...]:
    """Return a row for each kind of work with a successful run, sorted by namespace and name."""
    estimator = Estimator()
    declared: dict[RunKey, float | None] = {}
    ended = [workload for workload in map(_read, objects) if workload is not None]
    ended.sort(key=lambda workload: workload.conditions["Finished"].at)
    for workload in ended:
        seconds = measured_seconds(workload)
        if seconds is not None:
            key = key_of(workload)
            estimator.observe(workload, seconds, key)
            declared[key] = declared_seconds(workload)
    learned = estimator.learned
    return tuple(
        EstimateRow(
            namespace=key.namespace,
            stem=key.stem,
            shape=key.shape,
            runs=len(runs),
            median_seconds=learned.quantile(key, 0.5) or 0.0,
            p90_seconds=learned.quantile(key, 0.9) or 0.0,
            longest_seconds=max(run.seconds for run in runs),
            declared_seconds=declared[key],
        )
        for key, runs in learned.items()
    )


def _read(obj: WorkloadObject) -> Workload | None:
    try:
        workload = to_workload(obj)
    except (ValueError, msgspec.DecodeError):
        return None
    return workload if workload.is_finished else None
