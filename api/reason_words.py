"""Which words the condition QuotaReserved=False uses for why a Workload waits.

Kueue has two sets: a fine one, with its feature gate UnadmittedWorkloadsObservability, and three older words
without it. Berth uses the fine one unless the gate is switched off, for clients that look for older words.
Source: Kueue, pkg/workload/workload.go (UnadmittedWorkloadReasonWithFallback) and where it is called.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.reasons import PendingReason

_PENDING, _WAITING, _INADMISSIBLE = "Pending", "Waiting", "Inadmissible"
# With these, a Workload that was never admitted has no condition Admitted, as in Kueue.
OLDER = frozenset({_PENDING, _WAITING, _INADMISSIBLE})
# What a queue lacks. A cycle that finds a Workload misconfigured calls it pending all the same.
_OF_QUEUES = frozenset({PendingReason.MISCONFIGURED, PendingReason.SUSPENDED})
# These are the same in both sets.
_KEPT = frozenset(
    {PendingReason.ADMISSION_GATED, PendingReason.ON_HOLD, PendingReason.WAITING_FOR_DEPENDENCIES}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonWords:
    """One of the two sets.

    `is_explicit`: a new Workload says at once that it waits for its first evaluation, with Kueue's gate
    UnadmittedWorkloadsExplicitStatus. Only with the fine set, as in Kueue.
    """

    is_fine: bool = True
    is_explicit: bool = False

    @property
    def released(self) -> str:
        """The word for a Workload that has just lost its quota."""
        return self.of_cycle(PendingReason.PENDING_EVALUATION)

    def of_cycle(self, reason: PendingReason) -> str:
        """Return the word for a Workload that a cycle tries."""
        # Of a cycle, a gate is one of preemption, for which Kueue has no word of its own.
        if self.is_fine or (reason in _KEPT and reason is not PendingReason.ADMISSION_GATED):
            return reason.value
        return _WAITING if reason is PendingReason.WAITING_FOR_PODS_READY else _PENDING

    def of_queue(self, reason: PendingReason) -> str:
        """Return the word for a Workload that no cycle can try, because of its queue or of itself."""
        if reason in _KEPT:
            return reason.value
        return _INADMISSIBLE if not self.is_fine and reason in _OF_QUEUES else self.of_cycle(reason)


def words_for(reason: PendingReason) -> frozenset[str]:
    """Return the words that either set may have used for a reason."""
    older = ReasonWords(is_fine=False)
    return frozenset({reason.value, older.of_cycle(reason), older.of_queue(reason)})
