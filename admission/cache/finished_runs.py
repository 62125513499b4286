"""Finished runs: what is learned from them, which is how long they took and how their nodes performed."""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.cache.workload_changed import WorkloadChanged
from admission.placement.performance import FAILED, run_outcome
from admission.placement.topology.node_health import hosts_of
from api.reasons import ConditionType, FinishedReason
from api.workload import Workload
from queues.estimates.estimator import key_of, measured_seconds
from queues.estimates.runtime_estimate import RunKey

# A run is compared with the median of earlier runs of its kind.
_USUAL = 0.5


class FinishedRuns:
    """Learns from Workloads that have finished."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def observe(self, change: WorkloadChanged) -> None:
        """Learn from the Workload if it has finished by this change."""
        if change.finished is not None:
            self.learn(change.finished)

    def learn(self, workload: Workload) -> None:
        """Learn from a Workload that has ended, even before this process began.

        Each run counts once, by uid, whichever process has seen it first.
        """
        # Its performance is compared with earlier runs, so its own time must be added only afterwards.
        key = key_of(workload)
        self._note_performance(workload, key)
        self._cache.schedule_plan.run_estimates.observe(
            workload, key, is_measured=self._cache.schedule_plan.is_on
        )

    def _note_performance(self, workload: Workload, key: RunKey) -> None:
        """Record how the run went on the hosts that its topology assignments name."""
        finished, admission = workload.conditions.get(ConditionType.FINISHED), workload.admission
        placed = [one.topology for one in admission.pod_sets if one.topology] if admission is not None else []
        if finished is None or not placed:
            return
        hosts = sorted({host for one in placed for host in hosts_of(one)})
        outcome = self._outcome(workload, key)
        if outcome is None or not hosts:
            return
        self._cache.topology_cache.observe(hosts, uid=workload.uid, at=finished.at, outcome=outcome)

    def _outcome(self, workload: Workload, key: RunKey) -> float | None:
        """Return how the run went; None if it says nothing about its nodes, as after a replacement."""
        finished = workload.conditions.get(ConditionType.FINISHED)
        if finished is not None and finished.reason == FinishedReason.FAILED:
            return FAILED
        seconds = measured_seconds(workload)
        if seconds is None:
            return None
        usual = self._cache.estimator.learned.quantile(key, _USUAL)
        return run_outcome(seconds, usual)
