"""The order of pending Workloads, in one place: higher priority first, then the older, then the uid.

Among equals those go first that lost their nodes, or were moved to others.

A Workload keeps the place of its creation through preemption. Only an eviction that was its own doing (its
pods did not become ready, a check asked for a retry) moves it behind those that came meanwhile.
Source: Kueue, pkg/workload/workload.go, Ordering.GetQueueOrderTimestamp; pkg/cache/queue/cluster_queue.go.
"""

from __future__ import annotations

from enum import StrEnum

from api.reasons import ConditionType, EvictionReason, PreemptionReason
from api.workload import Workload

_CONSOLIDATION = PreemptionReason.CONSOLIDATION.value


class RequeuingTimestamp(StrEnum):
    """What a Workload queues by after its pods did not become ready.

    Kueue's waitForPodsReady.requeuingStrategy.timestamp.
    """

    EVICTION = "Eviction"
    CREATION = "Creation"


def comes_first(workload: Workload) -> bool:
    """Return whether the Workload goes before all others of its priority.

    One that was evicted because its nodes failed had its turn already and lost it by no act of its own or of
    anybody in the queue. It does so until it is admitted. (Kueue leaves it the place of its creation.) It
    gets no more right to evict others by that. So does one that was moved for a gang (a policy's
    consolidation): its other place was found on the condition that it gets it.
    """
    evicted = workload.eviction
    if evicted is None:
        return False
    preempted = workload.conditions.get(ConditionType.PREEMPTED)
    was_moved = preempted is not None and preempted.status and preempted.reason == _CONSOLIDATION
    return evicted.reason == EvictionReason.NODE_FAILURES or was_moved


def queued_at(workload: Workload, timestamp: RequeuingTimestamp = RequeuingTimestamp.EVICTION) -> float:
    """Return the instant that the Workload queues by, in Unix seconds."""
    evicted = workload.eviction
    if evicted is not None:
        # A check that asked for a retry, and pods that did not get ready, are its own doing: it
        # queues again behind who came meanwhile.
        if evicted.reason == EvictionReason.ADMISSION_CHECK:
            return evicted.at
        by_eviction = timestamp is RequeuingTimestamp.EVICTION
        if by_eviction and evicted.reason == EvictionReason.PODS_READY_TIMEOUT:
            return evicted.at
    return workload.created_at
