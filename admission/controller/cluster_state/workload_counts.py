"""How many Workloads have finished and how many are not admitted and why, by LocalQueue.

Kept up with every change of an object, because counting thousands of Workloads anew whenever Prometheus asks
would hold up the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from api.reasons import ConditionType, PendingReason
from api.workload import Workload

LocalQueueKey = tuple[str, str]
# What Admitted says of a Workload that has no such condition yet.
NO_RESERVATION, UNSATISFIED_CHECKS = "NoReservation", "UnsatisfiedAdmissionChecks"


class Unadmitted(NamedTuple):
    """Why a Workload does not run: the reason of Admitted=False, and behind it that of QuotaReserved."""

    reason: str
    underlying_cause: str


_FINISHED = "finished"
_Standing = Unadmitted | str


class WorkloadCounts:
    """Counts Workloads by their LocalQueue. One task owns it."""

    def __init__(self) -> None:
        self._counts: dict[LocalQueueKey, Counter[_Standing]] = {}

    def move(self, before: Workload | None, after: Workload | None) -> None:
        """Take note that a Workload was as `before` and is as `after`; None: it was not or is no more."""
        # The old standing goes, the new one comes; one that has not changed cancels out.
        for workload, step in ((before, -1), (after, 1)):
            standing = _standing(workload) if workload is not None else None
            if workload is not None and standing is not None:
                self._add((workload.key.namespace, workload.queue_name), standing, step)

    def finished(self, queue: LocalQueueKey) -> int:
        """Return how many finished Workloads of the LocalQueue are still there."""
        return self._counts.get(queue, _NOBODY)[_FINISHED]

    def unadmitted(self, queue: LocalQueueKey) -> Mapping[Unadmitted, int]:
        """Return how many of the LocalQueue's Workloads are not admitted, by the reason."""
        counts = self._counts.get(queue, _NOBODY)
        return {standing: count for standing, count in counts.items() if isinstance(standing, Unadmitted)}

    def _add(self, queue: LocalQueueKey, standing: _Standing, step: int) -> None:
        counts = self._counts.setdefault(queue, Counter())
        counts[standing] += step
        # Zeros are dropped, else every reason that ever was would stay a series for ever.
        if not counts[standing]:
            del counts[standing]
        if not counts:
            del self._counts[queue]


_NOBODY: Counter[_Standing] = Counter()


def _standing(workload: Workload) -> _Standing | None:
    """Return what the Workload is counted as, None where it is admitted."""
    if workload.is_finished:
        return _FINISHED
    if workload.is_admitted:
        return None
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    reserved = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    # What Admitted says where it stands, and else what it would say.
    default = UNSATISFIED_CHECKS if workload.has_quota_reservation else NO_RESERVATION
    return Unadmitted(
        admitted.reason if admitted is not None and not admitted.status else default,
        reserved.reason if reserved is not None else PendingReason.PENDING_EVALUATION.value,
    )
