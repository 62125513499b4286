"""The promised starts of a run's Workloads, and when they got their quota.

Like the audit, it uses only recorded API objects: the controller's own count could not reveal its own faults.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from admission.simulation.ledger import holding_of
from admission.simulation.records import ObjectRecord, in_order
from api.keys import PLANNED_START
from api.objects.workloads import WorkloadObject
from api.parsing.times import to_seconds
from api.workload import WorkloadKey

# Promises are in whole seconds, so a smaller difference means nothing.
_TOLERANCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """A Workload's first promise and its start, in Unix seconds; `started_at` None: not yet."""

    key: WorkloadKey
    promised_at: float
    started_at: float | None = None

    @property
    def early_seconds(self) -> float:
        """Return how long before the promise it started, negative if it was late, 0 if it has not started."""
        return self.promised_at - self.started_at if self.started_at is not None else 0.0

    @property
    def is_broken(self) -> bool:
        """Return whether it started later than first promised, beyond the tolerance."""
        return self.early_seconds < -_TOLERANCE_SECONDS


def promises(records: Iterable[ObjectRecord], *, epoch: float) -> tuple[Promised, ...]:
    """Return the Workloads with a promised start, in the order of their first promises.

    `epoch` is the Unix time at which the records' clock was 0.
    """
    found: dict[WorkloadKey, Promised] = {}
    for record in in_order(records):
        if not isinstance(record.object, WorkloadObject) or record.is_deleted:
            continue
        meta = record.object.metadata
        key = WorkloadKey(meta.namespace, meta.name)
        planned = (meta.annotations or {}).get(PLANNED_START)
        if key not in found and planned is not None:
            found[key] = Promised(key=key, promised_at=to_seconds(planned))
        # The write that adds the quota may remove the annotation, so keep an earlier promise.
        known = found.get(key)
        if known is not None and known.started_at is None and holding_of(record.object) is not None:
            found[key] = Promised(key=key, promised_at=known.promised_at, started_at=record.at + epoch)
    return tuple(found.values())
