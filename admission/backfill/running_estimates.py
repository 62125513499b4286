"""Running estimates: how long is a Workload expected to run, before it starts and while it runs?

    pending    its estimate, else its queue's backfill window; at least as long as it has already run
    running    to `berth.dev/expected-completion-time`, else as above
    overrun    raised in steps from there, see `queues.estimates.runtime_estimate`

This module knows lengths only. When a claim ends is computed by `admission.backfill.running_ends`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from admission.preemption.checkpoint_before_eviction import leaving_seconds
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from api.policy import Backfill
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import Estimator, completion_at, may_be_evicted, measured_seconds
from queues.estimates.runtime_estimate import Estimate, RunKey, Source, raised
from queues.tracked import Tracked

# How many measured runs are remembered until metrics read them. Offline they are never read.
_MOST_REMEMBERED = 1000
# By how much an outrun estimate is raised, in percent, where no policy says otherwise.
_RAISE_PERCENT = 50

# Where no policy has backfill, nothing is promised, and the calendar counts with the estimates alone.
_NO_RULES = Backfill(ending_seconds=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run that has ended: the estimate it had, and how many seconds it took."""

    estimate: Estimate
    seconds: float


class RunningEstimates:
    """Estimates, and what became of them. `queues` holds all ClusterQueues; the schedule plan sets it."""

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = estimator
        self.queues: Mapping[str, QueueState] = {}
        # By Workload and uid: how many seconds a Workload had run when its lease was ended, while it is
        # pending again. Changes go to the store, so that the next leader goes on with them.
        self.stopped_after: Tracked[tuple[WorkloadKey, str], float] = Tracked()
        self._measured: deque[MeasuredRun] = deque(maxlen=_MOST_REMEMBERED)
        # The length in seconds now assumed for running work whose first estimate was outrun.
        self._raised: dict[WorkloadKey, float] = {}

    # --- what is believed --------------------------------------------------------------------------------

    def length(self, workload: Workload, queue: str) -> float:
        """Return how many seconds the Workload will run in the queue: its estimate, else the window.

        Work without an estimate is assumed to run as long as its queue looks ahead. Work that has outrun its
        estimate before is assumed to need at least as long as it ran.
        """
        return self._assumed_seconds(
            workload, queue, self.estimator.estimate(workload, self.queues[queue].policy)
        )

    def _assumed_seconds(self, workload: Workload, queue: str, estimate: Estimate | None) -> float:
        """Return the length to count with: estimate or window, but at least what it has run already."""
        if estimate is None:
            seconds = float(self._rules(queue).window_seconds)
        else:
            seconds = estimate.seconds + self._ending_seconds(queue)
        # The uid is part of the key, since a new object of the same name is other work.
        return max(seconds, self.stopped_after.get((workload.key, workload.uid), 0.0))

    def span(self, workload: Workload, queue: str) -> float:
        """Return for how many seconds it must not conflict with others: its length and its eviction time.

        Infinity for work that may not be evicted and has no enforced limit.

        A start is checked over this span, so a promise that begins right after it can be kept even if the
        Workload has to be evicted.
        """
        policy = self.queues[queue].policy
        estimate = self.estimator.estimate(workload, policy)
        # No eviction and no limit ends such work, so nothing can be promised after it.
        if not may_be_evicted(workload) and (estimate is None or not estimate.is_enforced):
            return inf
        return self._assumed_seconds(workload, queue, estimate) + leaving_seconds(workload, policy)

    def of_running(self, held: HeldWorkload, *, started_at: float, now: float, is_leased: bool) -> float:
        """Return how many seconds running work is expected to take in all, from its start.

        Its expected completion time counts, also once that has passed: the estimate is then raised from
        there. Work on a lease is held to the estimate it was admitted with: a later end would delay the
        promise that it overtook.
        """
        raised_to = self._raised.get(held.key, 0.0)
        # Few Workloads report a completion time; for all others this would compute their estimate twice.
        if not is_leased and completion_at(held.workload) is not None:
            policy = self.queues[held.admission.cluster_queue].policy
            latest = self.estimator.running_estimate(held.workload, policy, started_at=started_at)
            if latest is not None and latest.source is Source.COMPLETION_TIME:
                seconds = latest.seconds + self._ending_seconds(held.admission.cluster_queue)
                return seconds if started_at + seconds > now else max(seconds, raised_to)
        return raised_to or self.length(held.workload, held.admission.cluster_queue)

    def _ending_seconds(self, queue: str) -> float:
        """Return how long work of the queue may take to end after its estimate, by its policy alone.

        Part of each expected end rather than a tolerance at it: a tolerance would be state that a change of
        leader loses, and the next leader would move a promise that this one kept.
        """
        return float(self._rules(queue).ending_seconds)

    def _rules(self, queue: str) -> Backfill:
        """Return the backfill rules that count for a queue, also for one without rules of its own."""
        rules = self.queues[queue].policy.backfill_rules
        every = (one.policy.backfill_rules for one in self.queues.values())
        # A queue without rules may share nodes with one that has them, whose window then serves as well.
        return rules or next((one for one in every if one is not None), _NO_RULES)

    # --- what was outrun ---------------------------------------------------------------------------------

    def has_outrun(self, key: WorkloadKey) -> bool:
        """Return whether the Workload has run longer than its estimate, which was raised since."""
        return key in self._raised

    def raise_beyond(self, key: WorkloadKey, queue: str, *, believed: float, elapsed: float) -> float:
        """Raise the estimate beyond the `elapsed` seconds, and return the new length in seconds.

        By a percentage of the policy (`raisePercent`), so that work which runs far too long is not examined
        at every instant. The result is larger than `elapsed`.
        """
        rules = self.queues[queue].policy.estimates
        percent = rules.raise_percent if rules is not None else _RAISE_PERCENT
        seconds = raised(max(0.0, believed), elapsed, percent)
        self._raised[key] = seconds
        return seconds

    # --- what comes and goes -----------------------------------------------------------------------------

    def note_ended(self, key: WorkloadKey) -> None:
        """Record that the Workload no longer holds quota."""
        self._raised.pop(key, None)

    def forget(self, key: WorkloadKey) -> None:
        """Forget a Workload that is gone."""
        # Matched by key for any uid: an earlier object of that name may have left an entry behind.
        for known in [known for known in self.stopped_after if known[0] == key]:
            del self.stopped_after[known]

    def forget_raised(self) -> None:
        """Forget all raised estimates."""
        self._raised.clear()

    def take_measured(self) -> tuple[MeasuredRun, ...]:
        """Return the runs that have ended since the last call, with their estimates, each once."""
        measured = tuple(self._measured)
        self._measured.clear()
        return measured

    def observe(self, workload: Workload, key: RunKey, *, is_measured: bool) -> None:
        """Learn how long a Workload ran that has just ended. `is_measured`: also how wrong its estimate was.

        This includes runs that ended before this process began: what the cluster remembers
        of them counts too.
        """
        seconds = measured_seconds(workload)
        if seconds is None:
            return
        queue = self.queues.get(workload.admission.cluster_queue) if workload.admission is not None else None
        if queue is not None:
            # The estimate is read before the run is observed, since it is to be compared as
            # it was at admission.
            estimate = self.estimator.estimate(workload, queue.policy)
            if estimate is not None and is_measured:
                self._measured.append(MeasuredRun(estimate=estimate, seconds=seconds))
        self.estimator.observe(workload, seconds, key)


def started_at_of(held: HeldWorkload) -> float:
    """Return since when the Workload may run (Unix seconds): its admission, else its quota reservation.

    An assumed admission has no condition yet, so its quota reservation counts.
    """
    admitted = held.workload.conditions.get(ConditionType.ADMITTED)
    if held.is_assumed or admitted is None or not admitted.status:
        return held.reserved_at
    return admitted.at
