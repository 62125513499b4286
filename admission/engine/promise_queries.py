"""What can be asked about time: promised and expected starts, backfill leases, runs that have ended.

A query decides nothing. `take_kept` and `take_measured` return each entry once.
"""

from __future__ import annotations

from collections.abc import Callable

from admission.backfill.promise_reports import PromiseOutcome
from admission.backfill.running_estimates import MeasuredRun
from admission.cache.cache import Cache
from admission.cache.workload_store import WorkloadStore
from admission.engine.awaited_ends import AwaitedEnd, AwaitedEnds
from admission.engine.queue_queries import QueueQueries
from api.workload import Workload, WorkloadKey
from queues.estimates.runtime_estimate import Estimate
from queues.estimates.start_errors import StartAccuracy, StartInterval, StartOutcome
from queues.profile.planned_start import BackfillLease, PlannedStart


class PromiseQueries:
    """Answers queries about promised and expected starts."""

    def __init__(
        self,
        cache: Cache,
        workload_store: WorkloadStore,
        queues: QueueQueries,
        *,
        estimate: Callable[[Workload], Estimate | None],
    ) -> None:
        self._queues = queues
        self._cache = cache
        self._workload_store = workload_store
        self._awaited_ends = AwaitedEnds(
            cache, workload_store, estimate=estimate, expected_start=self.expected_start
        )

    def planned(self, key: WorkloadKey) -> PlannedStart | None:
        """Return the start promised to the Workload, None if it has no promise."""
        promise = self._cache.schedule_plan.promises.get(key)
        return promise.planned if promise is not None else None

    def plan(self) -> tuple[tuple[PlannedStart, ...], tuple[BackfillLease, ...]]:
        """Return all promises, the highest rank first, and all leases, by Workload key.

        What /v1/plan serves. Leases include those that no promise needs so far.
        """
        schedule_plan = self._cache.schedule_plan
        promises = tuple(promise.planned for promise in schedule_plan.promises.in_order())
        return promises, tuple(schedule_plan.leases[key] for key in sorted(schedule_plan.leases))

    @property
    def plans_starts(self) -> bool:
        """Whether a policy with backfill governs a ClusterQueue, or the calendar must be respected."""
        return self._cache.schedule_plan.is_on

    def take_kept(self) -> tuple[PromiseOutcome, ...]:
        """Return the promises kept since the last call. Each is returned once, so that it is counted once."""
        return self._cache.schedule_plan.reports.take_kept()

    def take_measured(self) -> tuple[MeasuredRun, ...]:
        """Return the runs that have ended since the last call, with their estimates, each once."""
        return self._cache.schedule_plan.run_estimates.take_measured()

    def waits_for(self, key: WorkloadKey, limit: int) -> tuple[tuple[WorkloadKey, float], ...]:
        """Return the Workloads that a promised one waits for, with their expected ends, the earliest first.

        These hold quota or nodes that it was promised and end before its start. At most `limit` of them;
        empty if it has no promise.
        """
        schedule_plan = self._cache.schedule_plan
        promise = schedule_plan.promises.get(key)
        queue = self._cache.queues.get(promise.planned.cluster_queue) if promise is not None else None
        if promise is None or queue is None:
            return ()
        # A Workload that shares neither quota nor nodes with it is not waited for.
        wanted, found = promise.claim, []
        for claim in schedule_plan.profile.claims():
            other = self._cache.queues.get(claim.queue)
            shares_quota = (
                other is not None and other.tree is queue.tree and claim.usage.keys() & wanted.usage.keys()
            )
            is_near = shares_quota or bool(claim.spots.keys() & wanted.spots.keys())
            if claim.is_running and is_near and claim.ends_at <= promise.planned.start_at:
                found.append((claim.holder, claim.ends_at))
        return tuple(sorted(found, key=lambda one: (one[1], one[0]))[:limit])

    def is_backfilled(self, key: WorkloadKey) -> bool:
        """Return whether the Workload overtook a promise, and so runs on a lease."""
        return key in self._cache.schedule_plan.leases

    def expected_start(self, key: WorkloadKey) -> float | None:
        """Return when the Workload is expected to start (Unix seconds), None if that is not known.

        In this order: its promise, the last forecast, the begin of the reservation that it has joined.
        """
        if not self._queues.can_start(key):
            return None
        known = self._cache.schedule_plan.expected_start(key)
        return known if known is not None else self._reserved_start(key)

    def start_interval(self, key: WorkloadKey) -> StartInterval | None:
        """Return where the start lies in four of five cases; None where none is promised or forecast.

        The one place that every answer takes it from. A promise is kept, so it ends the interval.
        """
        return self._cache.schedule_plan.start_interval(key) if self._queues.can_start(key) else None

    def forecast_interval(self, at: float, *, now: float) -> StartInterval:
        """Return where a start lies in four of five cases that is forecast `now` to be `at`, unpromised."""
        return self._cache.schedule_plan.start_errors.interval(at, made_at=now)

    def start_accuracy(self) -> StartAccuracy:
        """Return how many starts lay in the interval of their first estimate, since this process decides."""
        return self._cache.schedule_plan.start_errors.accuracy

    def take_start_outcomes(self) -> tuple[StartOutcome, ...]:
        """Return how wrong the first estimates were of the starts since the last call, each once."""
        return self._cache.schedule_plan.start_errors.take_outcomes()

    def _reserved_start(self, key: WorkloadKey) -> float | None:
        """Return when the reservation that a pending Workload has joined begins, None if it joined none."""
        record = self._workload_store.index.joining.get(key)
        kept = self._cache.reservations.joined_by(record.workload) if record is not None else None
        is_ahead = kept is not None and kept.start_at > self._cache.schedule_plan.now
        return kept.start_at if kept is not None and is_ahead else None

    def awaited_end(self, key: WorkloadKey) -> AwaitedEnd | None:
        """Return the last end of what the Workload depends on; None if there is none, or one is unknown."""
        return self._awaited_ends.of(key)

    def expected_after(self, key: WorkloadKey) -> float | None:
        """Return before when the Workload is not expected to start (Unix seconds), if no start is known.

        It waits behind those Workloads of its ClusterQueue whose starts were computed. None if it does not,
        if no starts were computed, or if it cannot start as it is. This is a lower bound by turns only;
        backfill may start it earlier. Of one that depends on others it is the last of their ends.
        """
        awaited = self.awaited_end(key)
        if awaited is not None:
            return awaited.at
        record = self._workload_store.index.records.get(key)
        if record is None or record.queued_in is None or self.expected_start(key) is not None:
            return None
        # The bound is for those that take a turn.
        if not self._queues.can_start(key):
            return None
        return self._cache.schedule_plan.expected.after(record.queued_in)
