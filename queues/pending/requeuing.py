"""Why a popped Workload comes back to its queue, and what follows: another try at once, or parking.

Source: Kueue, pkg/cache/queue/cluster_queue.go, requeueIfNotPresent.
"""

from __future__ import annotations

from enum import StrEnum

from api.queueing import QueueingStrategy
from queues.pending.entries import Pending
from queues.pending.least_attained import FIRST


class RequeueCause(StrEnum):
    """Why a popped Workload comes back; it decides whether it is tried again at once."""

    GENERIC = ""
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"
    PREEMPTION_GATED = "PreemptionGated"
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    PREEMPTION_FAILED = "PreemptionFailed"
    # It fits only where others have been told to stop, and they still run.
    STILL_TAKEN = "StillTaken"
    # Others were told to stop for it, and what they leave is kept for it: the queue goes on without it.
    ROOM_KEPT = "RoomKept"
    # It is promised a start, or would delay one that is promised. Others of equal requests are to be looked
    # at by themselves: they may be short enough, or are to be promised another start.
    HELD_BACK = "HeldBack"
    # It would delay a promised start and is promised none itself. Others of equal requests that run as long
    # or longer would, too.
    TOO_LONG = "TooLong"


_IMMEDIATE = frozenset(
    {
        RequeueCause.FAILED_AFTER_NOMINATION,
        RequeueCause.PENDING_PREEMPTION,
        RequeueCause.PREEMPTION_FAILED,
        RequeueCause.STILL_TAKEN,
    }
)
_WHOLE_CLASS = frozenset({RequeueCause.NO_FIT, RequeueCause.PREEMPTION_NO_CANDIDATES})
# Reasons that a promised start gives: how often they are given says whether it is worth trying more.
FOR_A_PROMISE = frozenset({RequeueCause.HELD_BACK, RequeueCause.TOO_LONG})


def is_immediate(pending: Pending, reason: RequeueCause, strategy: QueueingStrategy) -> bool:
    """Return whether the Workload is to be tried again at once: a StrictFIFO head always is."""
    if strategy is QueueingStrategy.STRICT_FIFO:
        # A head of another namespace than the queue selects would block all behind it for ever.
        return reason is not RequeueCause.NAMESPACE_MISMATCH
    return reason in _IMMEDIATE or _holds_capacity(pending, reason)


# StrictFIFO tries its head and nobody else, so there is no class to park.
def is_of_whole_class(reason: RequeueCause, strategy: QueueingStrategy) -> bool:
    """Return whether what the Workload lacks, all others of equal requests lack too."""
    return reason in _WHOLE_CLASS and strategy is QueueingStrategy.BEST_EFFORT_FIFO


def _holds_capacity(pending: Pending, reason: RequeueCause) -> bool:
    """Return whether nobody may pass: it has waited too long, and only others' run times are in its way.

    Whoever runs may be evicted for it in the end, so this lasts a minimum run time. One that no eviction
    would ever help is parked like any other.
    """
    return pending.level == FIRST and reason is RequeueCause.PREEMPTION_NO_CANDIDATES
