"""Statistics of scheduling cycles for metrics: attempts, skipped preemptions, repeated searches for targets.

Decisions alone do not show them: a head that is tried again and waits for the same reason gives no decision.
All counts only rise, except that `skips` describes the last cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from admission.decisions.decision import Admit
from admission.nomination.head_outcome import HeadOutcome
from api.jobs.placement_annotations import read_key
from api.keys import WORKLOAD_TYPE
from api.workload import Workload

# Any other type is counted as UNKNOWN, so that a misspelt one does not create a time series of its own.
WORKLOAD_TYPES = ("training", "inference", "batch")
UNKNOWN = "unknown"
SUCCESS, UNSCHEDULABLE = "success", "unschedulable"


class CycleStatistics:
    """Counts the outcomes of cycles, by ClusterQueue for as long as that exists. One task owns it."""

    def __init__(self) -> None:
        # How many decisions were made since the start, those beside the cycles included.
        self.admits = 0
        self.evicts = 0
        # By workload type and result.
        self.attempts: Counter[tuple[str, str]] = Counter()
        # By ClusterQueue and result.
        self.recomputations: Counter[tuple[str, str]] = Counter()
        # By ClusterQueue: whether its head's preemption was skipped in the last cycle that tried one, 1 or 0.
        self.skips: dict[str, int] = {}

    def count(self, outcomes: Iterable[HeadOutcome]) -> None:
        """Count the outcomes of one cycle."""
        for outcome in outcomes:
            queue, workload = outcome.queue.name, outcome.pending.workload
            result = SUCCESS if isinstance(outcome.decision, Admit) else UNSCHEDULABLE
            named = workload_type(workload, with_aliases=outcome.queue.policy.reads_aliases)
            self.attempts[named, result] += 1
            self.skips[queue] = int(outcome.is_preemption_skipped)
            if outcome.recomputation is not None:
                self.recomputations[queue, outcome.recomputation] += 1

    def forget(self, cluster_queue: str) -> None:
        """Drop the counts of a ClusterQueue that was deleted."""
        self.skips.pop(cluster_queue, None)
        for key in [key for key in self.recomputations if key[0] == cluster_queue]:
            del self.recomputations[key]


def workload_type(workload: Workload, *, with_aliases: bool) -> str:
    """Return the type named by the Workload, or by the first pod template that names one, else UNKNOWN.

    With `with_aliases` the label workload-type names it as well, which a policy may allow.
    """
    sources: list[Mapping[str, str] | None] = [workload.labels, workload.annotations]
    # A plain loop, since this is counted for each head of each cycle.
    for pod_set in workload.pod_sets:
        if (metadata := pod_set.template.metadata) is not None:
            sources += (metadata.labels, metadata.annotations)
    named = read_key(WORKLOAD_TYPE, sources, with_aliases=with_aliases).lower()
    return named if named in WORKLOAD_TYPES else UNKNOWN
