"""What is learned from a run that has ended: how long it took, and how it went on its nodes."""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.placement.performance import FAILED, run_outcome
from admission.placement.topology.node_health import hosts_of
from api.reasons import ConditionType, FinishedReason
from api.workload import Workload
from queues.estimates.estimator import key_of, measured_seconds
from queues.estimates.runtime_estimate import RunKey

# The middle of earlier runs of its kind is what a run is compared with.
_USUAL = 0.5


def note_ended(cache: Cache, workload: Workload) -> None:
    """Learn from a Workload that has ended, also before this process began."""
    # First how it went: its own time is not to be part of what it is compared with.
    key = key_of(workload)
    _note_performance(cache, workload, key)
    cache.schedule_plan.lengths.observe(workload, key, is_told=cache.schedule_plan.is_on)


def _note_performance(cache: Cache, workload: Workload, key: RunKey) -> None:
    finished, admission = workload.conditions.get(ConditionType.FINISHED), workload.admission
    placed = [one.topology for one in admission.pod_sets if one.topology] if admission is not None else []
    if finished is None or not placed:
        return
    hosts = sorted({host for one in placed for host in hosts_of(one)})
    outcome = _outcome(cache, workload, key)
    if outcome is None or not hosts:
        return
    cache.topology_cache.observe(hosts, uid=workload.uid, at=finished.at, outcome=outcome)


def _outcome(cache: Cache, workload: Workload, key: RunKey) -> float | None:
    """Return how the run went, None where it says nothing about its nodes: it was replaced, or taken back."""
    finished = workload.conditions.get(ConditionType.FINISHED)
    if finished is not None and finished.reason == FinishedReason.FAILED:
        return FAILED
    seconds = measured_seconds(workload)
    if seconds is None:
        return None
    usual = cache.schedule_plan.lengths.estimator.learned.quantile(key, _USUAL)
    return run_outcome(seconds, usual)
