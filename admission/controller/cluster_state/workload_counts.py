"""How many Workloads have finished, and how many are not admitted and why, by LocalQueue.

The counts are updated with every change of a Workload: counting thousands of them at each scrape would
block the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from admission.controller.cluster_state.observers import WorkloadTransition
from api.reasons import ConditionType, PendingReason
from api.workload import Workload

LocalQueueKey = tuple[str, str]
# The reasons of Admitted=False for a Workload that does not have the condition yet.
NO_RESERVATION, UNSATISFIED_CHECKS = "NoReservation", "UnsatisfiedAdmissionChecks"


class Unadmitted(NamedTuple):
    """Why a Workload does not run: the reason of Admitted=False, and that of QuotaReserved behind it."""

    reason: str
    underlying_cause: str


_FINISHED = "finished"
_State = Unadmitted | str


class WorkloadCounts:
    """Counts Workloads by their LocalQueue."""

    def __init__(self) -> None:
        self._counts: dict[LocalQueueKey, Counter[_State]] = {}

    def observe(self, change: WorkloadTransition) -> None:
        """Count a Workload as what it is now, and no longer as what it was."""
        # Remove the old state and add the new one. A state that has not changed cancels out.
        for workload, step in ((change.before, -1), (change.after, 1)):
            state = _state_of(workload) if workload is not None else None
            if workload is not None and state is not None:
                self._add((workload.key.namespace, workload.queue_name), state, step)

    def finished(self, queue: LocalQueueKey) -> int:
        """Return how many finished Workloads of the LocalQueue still exist."""
        return self._counts.get(queue, _NO_COUNTS)[_FINISHED]

    def unadmitted(self, queue: LocalQueueKey) -> Mapping[Unadmitted, int]:
        """Return how many of the LocalQueue's Workloads are not admitted, by the reason."""
        counts = self._counts.get(queue, _NO_COUNTS)
        return {state: count for state, count in counts.items() if isinstance(state, Unadmitted)}

    def _add(self, queue: LocalQueueKey, state: _State, step: int) -> None:
        counts = self._counts.setdefault(queue, Counter())
        counts[state] += step
        # Zeros are dropped, otherwise every reason that ever occurred would stay a series forever.
        if not counts[state]:
            del counts[state]
        if not counts:
            del self._counts[queue]


_NO_COUNTS: Counter[_State] = Counter()


def _state_of(workload: Workload) -> _State | None:
    """Return what the Workload is counted as; None if it is admitted."""
    if workload.is_finished:
        return _FINISHED
    if workload.is_admitted:
        return None
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    reserved = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    # The reason of Admitted if it has the condition, otherwise the one that it would have.
    default = UNSATISFIED_CHECKS if workload.has_quota_reservation else NO_RESERVATION
    return Unadmitted(
        admitted.reason if admitted is not None and not admitted.status else default,
        reserved.reason if reserved is not None else PendingReason.PENDING_EVALUATION.value,
    )
