"""How long work runs: what is believed before it starts, while it runs, and once it has outrun its word.

    before     its estimate, else as long as its queue looks ahead; no shorter than it ran before
    running    its latest word (`berth.dev/expected-completion-time`) while that is not outrun, else the above
    outrun     raised in steps, see `queues.estimates.runtime_estimate`

The timekeeper's book of lengths; which claim ends when is the timekeeper's to say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from admission.preemption.checkpoint_before_eviction import leaving_seconds
from admission.snapshot.snapshot import HeldWorkload, QueueState
from api.policy import Backfill
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import Estimator, completion_at, may_be_evicted, measured_seconds
from queues.estimates.runtime_estimate import Estimate, RunKey, Source, raised
from queues.tracked import Tracked

# Measured runs until somebody asks for them; offline nobody does.
_MOST_REMEMBERED = 1000
# Raised by this share where no policy says otherwise.
_RAISE_PERCENT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run that has ended: what was expected of it, and how many seconds it took."""

    estimate: Estimate
    seconds: float


class RunningEstimates:
    """Estimates, and what has become of them. `queues` are those there are; the timekeeper sets them."""

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = estimator
        self.queues: Mapping[str, QueueState] = {}
        # How long who was stopped at the end of a lease had run, by Workload and uid, while it waits. What
        # has changed since it was last asked goes to the store: whoever leads next goes on.
        self.stopped_after: Tracked[tuple[WorkloadKey, str], float] = Tracked()
        self.measured: deque[MeasuredRun] = deque(maxlen=_MOST_REMEMBERED)
        # The length that is believed of who runs, where its first estimate was outrun.
        self._raised: dict[WorkloadKey, float] = {}

    # --- what is believed --------------------------------------------------------------------------------

    def length(self, workload: Workload, queue: str) -> float:
        """Return how many seconds the Workload will run in the queue: its estimate, else the window.

        Work of unknown length is taken to run as long as the queue looks ahead. One that has outrun its
        estimate before is believed no shorter than it ran.
        """
        return self._believed(workload, queue, self.estimator.estimate(workload, self.queues[queue].policy))

    def _believed(self, workload: Workload, queue: str, estimate: Estimate | None) -> float:
        seconds = estimate.seconds if estimate is not None else self._window_seconds(queue)
        # By uid as well, for a new object of the same name is other work.
        return max(seconds, self.stopped_after.get((workload.key, workload.uid), 0.0))

    def span(self, workload: Workload, queue: str) -> float:
        """Return for how long it must be out of the way of others: as long as it runs, and is being stopped.

        What may not be evicted is believed only where its limit is enforced; else it runs for ever.
        """
        policy = self.queues[queue].policy
        estimate = self.estimator.estimate(workload, policy)
        # Nobody can make room from it and nothing ends it: nothing after it can be promised.
        if not may_be_evicted(workload) and (estimate is None or not estimate.is_enforced):
            return inf
        return self._believed(workload, queue, estimate) + leaving_seconds(workload, policy)

    def of_running(self, held: HeldWorkload, *, started_at: float, now: float, is_leased: bool) -> float:
        """Return how long running work is believed to run: its latest word, until that is outrun as well.

        Who runs on a lease is held to the word that let it in: a later end would move who it overtook.
        """
        # Few tell of their end, and for all others that would be a second look at their estimate.
        if not is_leased and completion_at(held.workload) is not None:
            policy = self.queues[held.admission.cluster_queue].policy
            latest = self.estimator.running_estimate(held.workload, policy, started_at=started_at)
            is_told = latest is not None and latest.source is Source.COMPLETION_TIME
            if latest is not None and is_told and started_at + latest.seconds > now:
                return latest.seconds
        raised_to = self._raised.get(held.key)
        if raised_to is not None:
            return raised_to
        return self.length(held.workload, held.admission.cluster_queue)

    def _window_seconds(self, queue: str) -> float:
        rules = self.queues[queue].policy.backfill_rules
        every = (one.policy.backfill_rules for one in self.queues.values())
        # A queue without rules may share nodes with one that has them; its window serves as well as any.
        rules = rules or next((one for one in every if one is not None), Backfill())
        return float(rules.window_seconds)

    # --- what was outrun ---------------------------------------------------------------------------------

    def has_outrun(self, key: WorkloadKey) -> bool:
        """Return whether the Workload runs longer than its estimate said, which was raised since."""
        return key in self._raised

    def raise_beyond(self, key: WorkloadKey, queue: str, *, believed: float, elapsed: float) -> float:
        """Believe that it runs longer than the `elapsed` seconds, and return for how long."""
        rules = self.queues[queue].policy.estimates
        percent = rules.raise_percent if rules is not None else _RAISE_PERCENT
        seconds = raised(max(0.0, believed), elapsed, percent)
        self._raised[key] = seconds
        return seconds

    # --- what comes and goes -----------------------------------------------------------------------------

    def note_ended(self, key: WorkloadKey) -> None:
        """Note that the Workload holds quota no longer."""
        self._raised.pop(key, None)

    def forget(self, key: WorkloadKey) -> None:
        """Forget a Workload that is gone."""
        # By key, whatever the uid: an earlier object of the name may have left one behind.
        for known in [known for known in self.stopped_after if known[0] == key]:
            del self.stopped_after[known]

    def forget_raised(self) -> None:
        """Forget whose estimate was raised."""
        self._raised.clear()

    def observe(self, workload: Workload, key: RunKey, *, is_told: bool) -> None:
        """Learn how long a Workload ran that has just ended; `is_told`: keep how far its estimate was off.

        Also of those that ended before this process began: what the cluster keeps of them is a memory too.
        """
        seconds = measured_seconds(workload)
        if seconds is None:
            return
        queue = self.queues.get(workload.admission.cluster_queue) if workload.admission is not None else None
        if queue is not None:
            # Asked before it is observed: the estimate that is to be measured is the one
            # it was admitted with.
            estimate = self.estimator.estimate(workload, queue.policy)
            if estimate is not None and is_told:
                self.measured.append(MeasuredRun(estimate=estimate, seconds=seconds))
        self.estimator.observe(workload, seconds, key)


def started_at_of(held: HeldWorkload) -> float:
    """Return since when the Workload may run (Unix seconds), as far as its object says, else is reserved."""
    admitted = held.workload.conditions.get(ConditionType.ADMITTED)
    if held.is_assumed or admitted is None or not admitted.status:
        return held.reserved_at
    return admitted.at
