"""Why a popped Workload returns to its queue, and what follows: another attempt at once, or parking.

Source: Kueue, pkg/cache/queue/cluster_queue.go, requeueIfNotPresent.
"""

from __future__ import annotations

from enum import StrEnum

from api.queueing import QueueingStrategy
from queues.pending.entries import Pending
from queues.pending.least_attained import FIRST


class RequeueCause(StrEnum):
    """Why a popped Workload returns. It decides whether the Workload is tried again at once."""

    GENERIC = ""
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    NO_FIT = "NoFit"
    # No node of its flavors has the hardware that its pods need.
    HARDWARE_MISFIT = "HardwareMisfit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"
    # It fits only after evictions, which its preemption gates hold back.
    PREEMPTION_GATED = "PreemptionGated"
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    PREEMPTION_FAILED = "PreemptionFailed"
    # It fits only on capacity of Workloads that are being evicted and still run.
    STILL_TAKEN = "StillTaken"
    # Others are being evicted for it, and the freed capacity is held for it: the queue goes on without it.
    ROOM_KEPT = "RoomKept"
    # It has a promised start, or would delay one. Other Workloads of its class are tried individually: they
    # may be short enough, or may get a promised start of their own.
    HELD_BACK = "HeldBack"
    # It would delay a promised start and has none itself. So would every Workload of its class that runs
    # as long or longer.
    TOO_LONG = "TooLong"


_IMMEDIATE = frozenset(
    {
        RequeueCause.FAILED_AFTER_NOMINATION,
        RequeueCause.PENDING_PREEMPTION,
        RequeueCause.PREEMPTION_FAILED,
        RequeueCause.STILL_TAKEN,
    }
)
_WHOLE_CLASS = frozenset(
    {RequeueCause.NO_FIT, RequeueCause.HARDWARE_MISFIT, RequeueCause.PREEMPTION_NO_CANDIDATES}
)
# Nothing that happens in the queue helps: the head of a StrictFIFO queue would block all behind it for ever.
_PASSED_OVER = frozenset({RequeueCause.NAMESPACE_MISMATCH, RequeueCause.HARDWARE_MISFIT})
# Reasons caused by a promised start. Their number shows whether trying more Workloads is worthwhile.
FOR_A_PROMISE = frozenset({RequeueCause.HELD_BACK, RequeueCause.TOO_LONG})


def is_immediate(pending: Pending, reason: RequeueCause, strategy: QueueingStrategy) -> bool:
    """Return whether the Workload is to be tried again at once, as a StrictFIFO head always is."""
    if strategy is QueueingStrategy.STRICT_FIFO:
        return reason not in _PASSED_OVER
    return reason in _IMMEDIATE or _holds_capacity(pending, reason)


def is_of_whole_class(reason: RequeueCause, strategy: QueueingStrategy) -> bool:
    """Return whether all Workloads of equal requests lack what this one lacks.

    False for StrictFIFO, which tries only its head and so never parks a class.
    """
    return reason in _WHOLE_CLASS and strategy is QueueingStrategy.BEST_EFFORT_FIFO


def _holds_capacity(pending: Pending, reason: RequeueCause) -> bool:
    """Return whether the Workload blocks those behind it: it waited too long, and only run times prevent it.

    Running Workloads may be evicted for it in the end, so this lasts for a minimum run time. A Workload that
    no eviction could help is parked like any other.
    """
    return pending.level == FIRST and reason is RequeueCause.PREEMPTION_NO_CANDIDATES
