"""What can be asked about Workloads: whether one waits or holds quota, why it is not tried, how long it runs.

A query decides nothing. It sees changed specs at once, and assumed admissions as if they were confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from admission.backfill.running_estimates import started_at_of
from admission.cache.cache import Cache
from admission.cache.workload_record import LocalQueueKey, Problem, queue_problem
from admission.cache.workload_store import WorkloadStore
from admission.cache.workload_usage import cluster_queue_of, usage_since
from admission.calendar.advance_reservations import next_turn_at, reservation_of
from admission.decisions.decision import Evict
from admission.engine.explain_pending import reason_of
from admission.engine.queue_queries import QueueQueries
from admission.nomination.nominate import replaced_slice
from admission.scheduler.outcomes import required_checks
from admission.status.explain import PodSetLines, explain
from api.eviction import EvictionRequest
from api.jobs.resource_requests import PodSetRequests
from api.workload import Admission, Workload, WorkloadKey
from queues.estimates.estimator import key_of
from queues.estimates.runtime_estimate import Estimate
from queues.reservations.usage_rows import UsageKey, UsageRow

_HALF = 0.5


class RunTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long a Workload is expected to run, in seconds. None: not known.

    `runs` is how many runs of the same name and shape are remembered, and `median_seconds` what they took.
    `promised_seconds` is what promised starts count with, None where none are made: infinity where nothing
    may be promised after it.
    """

    estimate: Estimate | None
    runs: int
    median_seconds: float | None
    promised_seconds: float | None


class WorkloadQueries:
    """Answers queries about Workloads."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore, queues: QueueQueries) -> None:
        self._cache = cache
        self._workload_store = workload_store
        self._queues = queues

    def workload(self, key: WorkloadKey) -> Workload | None:
        """Return the Workload as last seen, None if it is not known."""
        record = self._workload_store.index.records.get(key)
        return record.workload if record is not None else None

    def workloads(self) -> Iterator[Workload]:
        """Iterate over all Workloads as last seen. The engine must not change meanwhile."""
        return (record.workload for record in self._workload_store.index.records.values())

    def usage(self, *, since: float, now: float) -> Iterator[tuple[Workload, str, UsageRow]]:
        """Iterate over the Workloads that had not ended then, with their ClusterQueue and usage since then.

        Times in Unix seconds. The engine must not change meanwhile.
        """
        for record in self._workload_store.index.records.values():
            used = usage_since(record, self._cache, since=since, now=now)
            if used is not None:
                yield record.workload, cluster_queue_of(record.workload, self._cache), used

    def deleted_usage(self) -> Mapping[UsageKey, UsageRow]:
        """Return what Workloads have used whose objects are gone, by day, as far as it is known."""
        return self._cache.deleted_usage.rows

    def count(self) -> int:
        """Return the number of all Workloads, finished ones included."""
        return len(self._workload_store.index.records)

    def admissions(self) -> Iterator[tuple[WorkloadKey, Admission]]:
        """Iterate over the Workloads that hold quota, assumed or confirmed, with their admissions, by key."""
        self._workload_store.see()
        return ((key, held.admission) for key, held in sorted(self._cache.held.items()))

    def admission(self, key: WorkloadKey) -> Admission | None:
        """Return the admission of the Workload if it holds quota, assumed or confirmed, else None."""
        self._workload_store.see()
        held = self._cache.held.get(key)
        return None if held is None else held.admission

    def members(self, local_queue: LocalQueueKey) -> tuple[WorkloadKey, ...]:
        """Return the Workloads that name this LocalQueue and have not finished."""
        return tuple(self._workload_store.index.members(local_queue))

    def is_holding(self, key: WorkloadKey) -> bool:
        """Return whether the Workload holds quota, assumed or confirmed."""
        self._workload_store.see()
        return key in self._cache.held

    def replaced(self) -> Iterator[tuple[WorkloadKey, Admission]]:
        """Iterate over the slices of which another holds the whole quota, until they have finished."""
        self._workload_store.see()
        records, store = self._workload_store.index.records, self._workload_store.admitted
        keys = (key for key in sorted(store.successors) if key in records and key not in self._cache.held)
        found = ((key, records[key].workload) for key in keys)
        return ((key, one.admission) for key, one in found if one.admission is not None)

    def successor(self, key: WorkloadKey) -> Workload | None:
        """Return the slice that has taken over from this one, as its object shows; None if there is none."""
        self._workload_store.see()
        return self._workload_store.admitted.successor(key)

    def key_of(self, uid: str) -> WorkloadKey | None:
        """Return the key of the Workload of this uid, None if none is known."""
        record = self._workload_store.index.by_uid.get(uid)
        return record.workload.key if record is not None else None

    def named(self, request: EvictionRequest) -> EvictionRequest:
        """Return the request with the preemptor's name, which its annotation lacks for another namespace."""
        return replace(request, preemptor=self.key_of(request.preemptor_uid) or request.preemptor)

    def is_waiting(self, uid: str) -> bool:
        """Return whether the Workload of this uid is pending in a queue and holds no quota.

        Parked Workloads wait too. False for a newer object of the same name.
        """
        self._workload_store.see()
        record = self._workload_store.index.by_uid.get(uid)
        if record is None or record.queued_in is None:
            return False
        return record.workload.key not in self._cache.held

    def joined_eviction_of(self, victim: WorkloadKey) -> Evict | None:
        """Return the eviction of the Workload that another preemptor has joined, None if there is none.

        The eviction goes on for it. Of several preemptors the one with the highest priority, then
        the first by key.
        """
        successors = [
            (
                -self._workload_store.index.records[eviction.preemptor].workload.priority,
                eviction.preemptor,
                eviction,
            )
            for joined in tuple(self._workload_store.pending.joined.values())
            for eviction in joined
            if eviction.key == victim
            and eviction.preemptor is not None
            and self.is_waiting(eviction.preemptor_uid)
        ]
        return min(successors, key=lambda one: one[:2])[2] if successors else None

    def queue_problem(self, workload: Workload, *, in_older_words: bool = False) -> Problem | None:
        """Return why the Workload cannot be tried at all, and what to do; None if it only has to wait.

        The reason is for the condition, the sentence for people. Examples: its LocalQueue does not exist, or
        its requests cannot be computed. `in_older_words`: see `workload_record.queue_problem`.
        """
        self._workload_store.see()
        record = self._workload_store.index.records.get(workload.key)
        return queue_problem(self._cache, workload, record, in_older_words=in_older_words)

    def has_unread_requests(self, key: WorkloadKey) -> bool:
        """Return whether the Workload is in no queue because its requests cannot be counted."""
        record = self._workload_store.index.records.get(key)
        return record is not None and record.request_error is not None

    def take_dependants(self) -> tuple[WorkloadKey, ...]:
        """Return the Workloads that wait for others whose state has changed since the last call."""
        return self._workload_store.take_dependants()

    def waiting_reason(self, key: WorkloadKey) -> Problem | None:
        """Return why a pending Workload waits, as known now, whether or not its condition says so already.

        None for one that holds quota or is in no queue, and while no reason is known, as on a follower.
        """
        self._workload_store.see()
        record = self._workload_store.index.records.get(key)
        if record is None or key in self._cache.held:
            return None
        queue = self._cache.queues.get(record.queued_in or "")
        return None if queue is None else reason_of(queue, record)

    def why_waiting(self, workload: Workload) -> Problem | None:
        """Return what keeps a pending Workload from being tried, or else why it was refused when it was."""
        return self.queue_problem(workload) or self.waiting_reason(workload.key)

    def requests(self, key: WorkloadKey) -> tuple[PodSetRequests, ...]:
        """Return what each pod set requests of quota; empty if that cannot be read, or for no Workload."""
        record = self._workload_store.index.records.get(key)
        return record.requests if record is not None else ()

    def turns_at(self, workload: Workload) -> float | None:
        """Return when the reservation that a pending Workload names next begins or ends; None for never.

        In Unix seconds. None as well for a Workload that holds quota, or that names no reservation.
        """
        if reservation_of(workload) is None or workload.has_quota_reservation:
            return None
        policy = self._queues.policy_of(self._queues.cluster_queue_of(workload))
        return next_turn_at(workload, policy, now=self._cache.schedule_plan.now)

    def required_checks(self, workload: Workload) -> tuple[str, ...]:
        """Return the admission checks that the Workload must pass.

        If it holds quota, those of its assigned flavors; otherwise those that apply to every flavor.
        """
        self._workload_store.see()
        held = self._cache.held.get(workload.key)
        if held is not None:
            queue = self._cache.queues.get(held.admission.cluster_queue)
            return required_checks(queue.spec.checks, held.admission) if queue is not None else ()
        spec = self._cache.specs.cluster_queues.get(self._queues.cluster_queue_of(workload))
        # Without a ClusterQueue the required checks are not known, and none are written.
        if spec is None:
            return ()
        # As long as no flavor is assigned, only checks that apply to every flavor are certain.
        flavors = {flavor.name for group in spec.resource_groups for flavor in group.flavors}
        general = (rule.name for rule in spec.checks if not rule.on_flavors or rule.on_flavors >= flavors)
        return tuple(sorted(general))

    def explanation(self, workload: Workload) -> tuple[PodSetLines, ...]:
        """Return what a cycle would consider for each pod set; empty if the Workload cannot be tried.

        Lines for each pod set, flavor by flavor. A search on the snapshot, as expensive as one of a cycle;
        for `berth explain`, not for the loop.
        """
        self._workload_store.see()
        record = self._workload_store.index.records.get(workload.key)
        queue = self._cache.queues.get(self._queues.cluster_queue_of(workload))
        if record is None or queue is None:
            return ()
        snapshot = self._cache.snapshot()
        replaced = replaced_slice(snapshot, queue, workload)
        with snapshot.evictions.handed_over(queue, replaced, with_places=False):
            return explain(
                snapshot, queue, workload, record.requests, self._cache.estimator, replaced=replaced
            )

    def run_time(self, workload: Workload) -> RunTime:
        """Return how long the Workload is expected to run, with what is behind it."""
        queue = self._queues.cluster_queue_of(workload)
        plan, learned, key = self._cache.schedule_plan, self._cache.estimator.learned, key_of(workload)
        promised = None
        if plan.is_on and queue in self._cache.queues:
            promised = plan.run_estimates.span(workload, queue)
        return RunTime(
            estimate=self.estimate(workload),
            runs=learned.count(key),
            median_seconds=learned.quantile(key, _HALF),
            promised_seconds=promised,
        )

    def estimate(self, workload: Workload) -> Estimate | None:
        """Return how long the Workload is expected to run, None if there is no estimate.

        Of a running Workload from its start, by its annotations as they are now. The policy is that of its
        LocalQueue's ClusterQueue.
        """
        policy = self._queues.policy_of(self._queues.cluster_queue_of(workload))
        held, estimator = self._cache.held.get(workload.key), self._cache.estimator
        if held is None:
            return estimator.estimate(workload, policy)
        return estimator.running_estimate(workload, policy, started_at=started_at_of(held))
