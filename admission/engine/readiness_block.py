"""`waitForPodsReady.blockAdmission`: no admission while pods of a Workload that holds quota are not ready.

Large gangs that start one after the other do not take each other's nodes. As in Kueue, the first Workload
that would be admitted is told that it waits, nothing is tried until all pods are ready, and then it is tried
alone, before any other. It might otherwise wait for ever behind Workloads that return to the queue, such as
the one whose pods did not become ready. Unlike in Kueue the decision is made again then, on what is free.

    open ──▶ a head would be admitted, pods are not ready: `waiting` ──▶ closed
      ▲                                                                    │
      └── `waiting` was tried again ◀── all pods are ready, or it no longer waits in its queue ◀┘

Source: Kueue, pkg/scheduler/scheduler.go and pkg/cache/scheduler/cache.go, WaitForPodsReady.
"""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.cache.workload_index import WorkloadIndex
from admission.nomination.head_outcome import HeadOutcome
from admission.scheduler.readiness_gate import ReadinessGate
from admission.snapshot.queue_state import QueueState
from api.reasons import ConditionType, PendingReason
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending


class ReadinessBlock:
    """Whether a cycle may run, and what it may admit. With `is_on` False it never blocks."""

    def __init__(self, cache: Cache, index: WorkloadIndex, *, is_on: bool) -> None:
        self._cache = cache
        self._index = index
        self._is_on = is_on
        # The Workload that is admitted next, as far as there is room for it.
        self._waiting: WorkloadKey | None = None

    @property
    def is_closed(self) -> bool:
        """Whether no head is tried now."""
        return self._waits_in() is not None and self._has_unready()

    def gate(self) -> ReadinessGate | None:
        """Return what the next cycle may admit; None: as much as fits."""
        return ReadinessGate(has_unready=self._has_unready()) if self._is_on else None

    def pop_waiting(self) -> tuple[QueueState, Pending] | None:
        """Pop the Workload that has waited, to be tried alone; None if there is none in its queue."""
        queue = self._waits_in()
        if queue is None or self._waiting is None:
            return None
        pending = queue.pending.pop_member(self._waiting)
        return None if pending is None else (queue, pending)

    def note(self, outcome: HeadOutcome) -> bool:
        """Record what became of a head. Return whether it waits for the pods of others."""
        key, decision = outcome.pending.key, outcome.decision
        if self._waiting == key:
            self._waiting = None
        if outcome.requeue is None or getattr(decision, "reason", None) is not _REASON:
            return False
        # The first of a cycle has shut the gate. Those after it are only told why they are not tried.
        if self._waits_in() is None:
            self._waiting = key
        return True

    def _waits_in(self) -> QueueState | None:
        """Return the queue in which a Workload waits for the pods of others, to be tried again."""
        record = self._index.records.get(self._waiting) if self._waiting is not None else None
        if record is None or record.queued_in is None:
            return None
        queue = self._cache.queues.get(record.queued_in)
        if queue is None or queue.inactive or not queue.pending.is_active(record.workload.key):
            return None
        return queue

    def _has_unready(self) -> bool:
        # The last to get quota are the most likely, and while one of them is not ready none is added.
        return any(
            not held.workload.is_true(ConditionType.PODS_READY)
            for held in reversed(self._cache.held.values())
        )


_REASON = PendingReason.WAITING_FOR_PODS_READY
