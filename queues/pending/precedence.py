"""Precedence: which Workloads of a queue come before their turn, because capacity was freed for them?

    preemptor        others were evicted for it, and the queue waits for their quota: it comes first
    held capacity    the queue goes on without it: it comes first among those of its priority

Both end when the Workload changes, is admitted, or leaves. Source: Kueue, pkg/cache/queue/cluster_queue.go.
"""

from __future__ import annotations

from collections.abc import Callable

from api.workload import Workload, WorkloadKey
from queues.pending.entries import LocalQueueKey, Pending
from queues.pending.members import Members
from queues.pending.requeuing import RequeueCause

# The past usage of a LocalQueue, see `queues.pending.admission_fair_sharing`.
UsageOf = Callable[[LocalQueueKey], float]
Order = tuple[float, bool, int, bool, int, float, str, WorkloadKey]


def _usual_order(pending: Pending) -> Order:
    workload = pending.workload
    return 0.0, True, -workload.priority, True, pending.level, pending.place_at, workload.uid, pending.key


class Precedence:
    """The Workloads of one queue for which capacity was freed."""

    def __init__(self) -> None:
        # The Workload that evicted others and waits for their quota, and its generation then.
        self.preemptor: WorkloadKey | None = None
        self._preemptor_generation = 0
        # Workloads for which capacity is held, and their generations then.
        self._kept: dict[WorkloadKey, int] = {}
        # Those of them that are to be tried again. Some may have been parked since.
        self.ahead: dict[WorkloadKey, Pending] = {}

    # --- questions ---------------------------------------------------------------------------------------

    def is_preemptor(self, pending: Pending) -> bool:
        """Return whether Workloads were evicted for this one, which has not changed since.

        Either the queue waits for their quota, or capacity is held for it.
        """
        workload = pending.workload
        if self._kept.get(workload.key) == workload.generation:
            return True
        return self.preemptor == workload.key and self._preemptor_generation == workload.generation

    def order(self, sticky: WorkloadKey | None, usage_of: UsageOf | None) -> Callable[[Pending], Order]:
        """Return the sort key: past usage, `sticky`, priority, held capacity, level, age, uid.

        Source: Kueue, pkg/cache/queue/cluster_queue.go, queueOrderingFunc.
        """
        kept = self._kept
        if usage_of is None and sticky is None and not kept:
            # As a rule nothing comes before its turn: a list of all Workloads builds a key for each.
            return _usual_order

        def order(pending: Pending) -> Order:
            workload = pending.workload
            usage = usage_of(pending.local_queue) if usage_of is not None else 0.0
            is_behind = pending.key != sticky
            is_owed_nothing = pending.key not in kept
            rank = -workload.priority, is_owed_nothing, pending.level, pending.place_at, workload.uid
            return usage, is_behind, *rank, pending.key

        return order

    # --- changes -----------------------------------------------------------------------------------------

    def prefer_preemptor(self, workload: Workload) -> None:
        """Record that others were evicted for a Workload that is pending here, so it comes first.

        No effect where another Workload already has that place.
        """
        if self.preemptor is None:
            self.preemptor, self._preemptor_generation = workload.key, workload.generation

    def prefer_holder(self, workload: Workload) -> None:
        """Record that capacity is held for a Workload: it comes first among those of its priority.

        There may be many such Workloads, because the queue does not wait for them.
        """
        self._kept[workload.key] = workload.generation

    def end_hold(self, key: WorkloadKey) -> None:
        """Record that no capacity is held for a Workload any more. It loses its precedence."""
        self._kept.pop(key, None)
        self.ahead.pop(key, None)
        if self.preemptor == key:
            self.preemptor = None

    def note_tried(self, pending: Pending, cause: RequeueCause) -> None:
        """Record why a Workload that was tried returns: it has evicted others, or it has not."""
        if cause is RequeueCause.PENDING_PREEMPTION:
            self.preemptor = pending.key
            self._preemptor_generation = pending.workload.generation
        # It was tried and preempted none this time, so it loses its precedence.
        elif self.preemptor == pending.key:
            self.preemptor = None

    def note_active(self, pending: Pending) -> None:
        """Record that the Workload is to be tried: with held capacity it comes before its turn."""
        if pending.key in self._kept:
            self.ahead[pending.key] = pending

    def note_left(self, key: WorkloadKey) -> None:
        """Record that the Workload has left its place in the queue."""
        self.ahead.pop(key, None)

    def validate(self, members: Members) -> None:
        """Raise AssertionError where a Workload comes first that is not pending or has no held capacity."""
        for key, pending in self.ahead.items():
            is_here = key in self._kept and members.get(key) is pending
            assert is_here, f"{key} comes first, but is not pending or has no held capacity"
