"""Holders: which Workloads hold the quota that a pending one lacks, until when, and what keeps it theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from math import inf

from admission.engine.engine import Engine
from admission.status.explain import FlavorLines, PodSetLines
from api.queueing import ClusterQueue, PreemptionPolicy
from api.reasons import ConditionType
from api.workload import Admission, Workload, WorkloadKey
from queues.quota.resources import FlavorResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What a Workload lacks of one resource of one flavor, in canonical units: `missing` of `wanted`.

    `most` is what its ClusterQueue could ever use.
    """

    pair: FlavorResource
    wanted: int
    missing: int
    most: int

    @property
    def is_forever(self) -> bool:
        """Whether no end of other work helps."""
        return self.wanted > self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A Workload that holds `amount` of what another lacks.

    `ends_at` is when it is expected to end (Unix seconds), None if its length is not known. `kept_by` is the
    setting that keeps its quota from being taken back, "" if none does.
    """

    key: WorkloadKey
    cluster_queue: str
    amount: int
    ends_at: float | None
    kept_by: str


def lacks(pod_sets: tuple[PodSetLines, ...]) -> tuple[Lack, ...]:
    """Return what each pod set lacks in the flavor that is nearest to serving it."""
    found: list[Lack] = []
    for pod_set in pod_sets:
        by_flavor = [_lacks_in(one) for one in pod_set.flavors if not one.refusal]
        # First those that could ever serve it, then by how much is missing.
        if by_flavor:
            nearest: tuple[Lack, ...] = min(by_flavor, key=_distance)
            found += nearest
    return tuple(found)


def _lacks_in(flavor: FlavorLines) -> tuple[Lack, ...]:
    return tuple(
        Lack(
            pair=FlavorResource(flavor.flavor, line.resource),
            wanted=line.wanted,
            missing=line.wanted - max(line.free, 0),
            most=line.most,
        )
        for line in flavor.quota
        if not line.fits
    )


def _distance(lacking: tuple[Lack, ...]) -> tuple[int, float]:
    return sum(one.is_forever for one in lacking), sum(one.missing / max(1, one.wanted) for one in lacking)


def holders(engine: Engine, workload: Workload, pair: FlavorResource) -> tuple[Holder, ...]:
    """Return what holds some of the pair in the Workload's quota tree, the first to end first."""
    own = engine.queues.cluster_queue_of(workload)
    root_of = cache(partial(_root, engine))
    found = [
        Holder(
            key=key,
            cluster_queue=admission.cluster_queue,
            amount=amount,
            ends_at=_ends_at(engine, held),
            kept_by=_kept_by(engine, workload, own, held, admission, pair),
        )
        for key, admission in engine.workloads.admissions()
        if root_of(admission.cluster_queue) == root_of(own)
        and (amount := _amount(admission, pair))
        and (held := engine.workloads.workload(key)) is not None
    ]
    return tuple(sorted(found, key=lambda one: (one.ends_at is None, one.ends_at or inf, one.key)))


def _root(engine: Engine, cluster_queue: str) -> str:
    above = engine.queues.cohorts_above(cluster_queue)
    # A cohort may have the name of a ClusterQueue.
    return f"cohort {above[-1]}" if above else cluster_queue


def _amount(admission: Admission, pair: FlavorResource) -> int:
    return sum(
        one.usage.get(pair.resource, 0)
        for one in admission.pod_sets
        if one.flavors.get(pair.resource) == pair.flavor
    )


def _ends_at(engine: Engine, held: Workload) -> float | None:
    estimate, admitted = engine.workloads.estimate(held), held.conditions.get(ConditionType.ADMITTED)
    if estimate is None or admitted is None or not admitted.status:
        return None
    return admitted.at + estimate.seconds


def _kept_by(
    engine: Engine, workload: Workload, own: str, held: Workload, admission: Admission, pair: FlavorResource
) -> str:
    queue = engine.queues.spec(own)
    if queue is None or held.is_evicted:
        return ""
    if admission.cluster_queue == own:
        return _within(queue, workload, held)
    return _in_cohort(engine, queue, workload, held, admission.cluster_queue, pair)


def _within(queue: ClusterQueue, workload: Workload, held: Workload) -> str:
    policy = queue.preemption.within_cluster_queue
    where = f"preemption.withinClusterQueue of ClusterQueue {queue.name}"
    if policy is PreemptionPolicy.NEVER:
        return f"{where} is Never"
    if held.priority > workload.priority or (
        held.priority == workload.priority and policy is PreemptionPolicy.LOWER_PRIORITY
    ):
        return f"its priority {held.priority} is not below {workload.priority}"
    return ""


def _in_cohort(
    engine: Engine,
    queue: ClusterQueue,
    workload: Workload,
    held: Workload,
    theirs: str,
    pair: FlavorResource,
) -> str:
    policy = queue.preemption.reclaim_within_cohort
    if not engine.queues.is_borrowing(theirs, pair):
        return f"it is within the own quota of ClusterQueue {theirs}"
    if policy is PreemptionPolicy.NEVER:
        return f"preemption.reclaimWithinCohort of ClusterQueue {queue.name} is Never"
    if policy is PreemptionPolicy.LOWER_PRIORITY and held.priority >= workload.priority:
        return f"its priority {held.priority} is not below {workload.priority}"
    return ""


def of_unknown_length(found: tuple[Holder, ...]) -> Iterator[Holder]:
    """Yield the holders whose end is not known: what waits for them is put off as far as queues plan."""
    return (one for one in found if one.ends_at is None)
