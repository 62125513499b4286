"""How long Workloads waited for quota, which separates that wait from machine latency.

Like the audit, it uses only recorded API objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from admission.simulation.ledger import Holding, QuotaLedger, holding_of
from admission.simulation.records import ObjectRecord, in_order
from api.objects.workloads import WorkloadObject
from api.reasons import ConditionType
from api.workload import WorkloadKey
from queues.quota.resources import FlavorResource


def quota_waits(records: Iterable[ObjectRecord]) -> dict[WorkloadKey, float]:
    """Return how long each Workload waited while there was no quota for it, in seconds over all its waits.

    The time for which its quota was already free just before it got it is excluded, because that is machine
    latency. A wait that did not end in a quota reservation is not counted.

    Each distinct demand is tracked separately: O(versions × demands), of which there are usually some dozens.
    """
    ordered = in_order(records)
    waits = _Waits(_demands(ordered))
    for record in ordered:
        waits.take(record)
    return waits.waited


_Demand = tuple[str, frozenset[tuple[FlavorResource, int]]]


def _demand(holding: Holding) -> _Demand:
    return holding.cluster_queue, frozenset(holding.amounts.items())


def _demands(records: Iterable[ObjectRecord]) -> dict[_Demand, Holding]:
    """Return each distinct demand that ever got quota."""
    holdings = (holding_of(record.object) for record in records if isinstance(record.object, WorkloadObject))
    return {_demand(holding): holding for holding in holdings if holding is not None}


@dataclass(slots=True)
class _Waits:
    """Records since when each demand would fit, and since when each Workload waits."""

    demands: dict[_Demand, Holding]
    waited: dict[WorkloadKey, float] = field(default_factory=dict)
    _ledger: QuotaLedger = field(default_factory=QuotaLedger)
    _fits_since: dict[_Demand, float] = field(default_factory=dict)
    _waits_since: dict[WorkloadKey, float] = field(default_factory=dict)

    def take(self, record: ObjectRecord) -> None:
        if isinstance(record.object, WorkloadObject):
            self._follow(record.object, record)
        if self._ledger.apply(record):
            self._try_all(record.at)

    def _follow(self, workload: WorkloadObject, record: ObjectRecord) -> None:
        key = WorkloadKey(workload.metadata.namespace, workload.metadata.name)
        holding = None if record.is_deleted else holding_of(workload)
        if record.is_deleted or _is_finished(workload):
            self._waits_since.pop(key, None)
        elif holding is None:
            self._waits_since.setdefault(key, record.at)
        elif (since := self._waits_since.pop(key, None)) is not None:
            short_until = min(record.at, self._fits_since.get(_demand(holding), record.at))
            self.waited[key] = self.waited.get(key, 0.0) + max(0.0, short_until - since)

    def _try_all(self, at: float) -> None:
        for demand, holding in self.demands.items():
            if self._ledger.would_fit(holding):
                self._fits_since.setdefault(demand, at)
            else:
                self._fits_since.pop(demand, None)


def _is_finished(workload: WorkloadObject) -> bool:
    return any(
        c.type == ConditionType.FINISHED and c.status == "True" for c in workload.status.conditions or ()
    )
