"""When the last of what a Workload depends on is expected to have ended: it cannot start before.

A dependency that runs ends by its estimate. One that waits begins at its expected start, or else after what
it depends on itself. So the result is a lower bound, and unknown as soon as one of the ends is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from admission.cache.cache import Cache
from admission.cache.dependencies import MOST_AWAITED
from admission.cache.workload_store import WorkloadStore
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from queues.estimates.runtime_estimate import Estimate


class AwaitedEnd(NamedTuple):
    """The dependency that is expected to end last, and when (Unix seconds)."""

    at: float
    name: str


class AwaitedEnds:
    """Answers from the present state. It owns none."""

    def __init__(
        self,
        cache: Cache,
        workload_store: WorkloadStore,
        *,
        estimate: Callable[[Workload], Estimate | None],
        expected_start: Callable[[WorkloadKey], float | None],
    ) -> None:
        self._cache, self._workload_store = cache, workload_store
        self._estimate, self._expected_start = estimate, expected_start

    def of(self, key: WorkloadKey) -> AwaitedEnd | None:
        """Return the last end that the Workload waits for; None if it waits for none, or one is not known."""
        record = self._workload_store.index.records.get(key)
        if record is None or record.unmet is None:
            return None
        # It is not awaited by itself: a ring ends nowhere.
        return self._last(record.workload, {key: None})

    def _last(self, workload: Workload, ends: dict[WorkloadKey, float | None]) -> AwaitedEnd | None:
        last: AwaitedEnd | None = None
        for one in self._workload_store.awaited(workload):
            at = self._end(one, ends)
            if at is None:
                return None
            if last is None or at > last.at:
                last = AwaitedEnd(at, one.owner_name or one.key.name)
        return last

    def _end(self, workload: Workload, ends: dict[WorkloadKey, float | None]) -> float | None:
        # Tenants write them: for one Workload no more are looked at.
        if workload.key in ends or len(ends) > MOST_AWAITED:
            return ends.get(workload.key)
        ends[workload.key] = None
        estimate, begins_at = self._estimate(workload), self._begin(workload, ends)
        if estimate is None or begins_at is None:
            return None
        at = begins_at + estimate.seconds
        # One that has outrun its estimate ends at a time that nothing tells.
        ends[workload.key] = at if at > self._cache.now else None
        return ends[workload.key]

    def _begin(self, workload: Workload, ends: dict[WorkloadKey, float | None]) -> float | None:
        admitted = workload.conditions.get(ConditionType.ADMITTED)
        if admitted is not None and admitted.status:
            return admitted.at
        expected = self._expected_start(workload.key)
        if expected is not None:
            return expected
        last = self._last(workload, ends)
        return last.at if last is not None else None
