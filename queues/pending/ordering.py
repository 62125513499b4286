"""The order of pending Workloads: higher priority first, then older, then by uid.

At equal priority, Workloads that lost their nodes or were moved to others go first.

A Workload keeps the position of its creation through preemption. Only an eviction that it caused itself (its
pods did not become ready, a check asked for a retry) puts it behind the Workloads that arrived meanwhile.
Source: Kueue, pkg/workload/workload.go, Ordering.GetQueueOrderTimestamp; pkg/cache/queue/cluster_queue.go.
"""

from __future__ import annotations

from enum import StrEnum

from api.reasons import ConditionType, EvictionReason, PreemptionReason
from api.workload import Workload

_CONSOLIDATION = PreemptionReason.CONSOLIDATION.value
_MOVED = (EvictionReason.NODE_FAILURES.value, EvictionReason.FLAVOR_PROMOTION.value)


class RequeuingTimestamp(StrEnum):
    """Which timestamp orders a Workload after its pods did not become ready.

    Kueue's waitForPodsReady.requeuingStrategy.timestamp.
    """

    EVICTION = "Eviction"
    CREATION = "Creation"


def comes_first(workload: Workload) -> bool:
    """Return whether the Workload goes before all others of its priority.

    True for a Workload evicted because its nodes failed, until it is admitted again: it lost its place
    through no fault of its own or of any Workload in the queue. (Kueue gives it the position of its
    creation.) This does not let it preempt more. True also for a Workload that a policy's consolidation moved
    to make room for a gang, or that moves to a better flavor: the move was decided on the condition that it
    gets its other place.
    """
    evicted = workload.eviction
    if evicted is None:
        return False
    preempted = workload.conditions.get(ConditionType.PREEMPTED)
    was_moved = preempted is not None and preempted.status and preempted.reason == _CONSOLIDATION
    return evicted.reason in _MOVED or was_moved


def queued_at(workload: Workload, timestamp: RequeuingTimestamp = RequeuingTimestamp.EVICTION) -> float:
    """Return the timestamp that orders the Workload, in Unix seconds."""
    evicted = workload.eviction
    if evicted is not None:
        # A check that asked for a retry, and pods that did not become ready, are the Workload's own doing:
        # it queues behind those that arrived meanwhile.
        if evicted.reason == EvictionReason.ADMISSION_CHECK:
            return evicted.at
        by_eviction = timestamp is RequeuingTimestamp.EVICTION
        if by_eviction and evicted.reason == EvictionReason.PODS_READY_TIMEOUT:
            return evicted.at
    return workload.created_at
