"""Start forecasts: when pending Workloads are expected to start, computed in quiet moments and then kept."""

from __future__ import annotations

from admission.backfill.expected_starts import Forecast
from admission.cache.cache import Cache
from admission.cache.workload_store import WorkloadStore
from admission.engine.under_way import UnderWay
from admission.nomination.nominate import CyclePolicy
from api.workload import WorkloadKey


class StartForecasts:
    """Begins forecasts of starts, and takes in their results.

    Results are kept in the schedule plan, and shown as an annotation of the Workload and by the queries.
    """

    def __init__(
        self, cache: Cache, workload_store: WorkloadStore, under_way: UnderWay, policy: CyclePolicy
    ) -> None:
        self._cache = cache
        self._workload_store = workload_store
        self._under_way = under_way
        self._policy = policy

    def begin(self, *, now: float) -> Forecast | None:
        """Begin to compute when pending Workloads are expected to start; None where no policy has backfill.

        The caller steps the forecast to its end between cycles, and passes it to `take`.

        Ends a cycle that is under way. A forecast may take seconds for thousands of pending Workloads, which
        is why it is stepped.
        """
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        schedule_plan = self._cache.schedule_plan
        if not schedule_plan.is_on:
            return None
        # The snapshot has no time, since Workloads spared at this instant may not be spared later.
        return Forecast(
            snapshot=self._cache.snapshot(), schedule_plan=schedule_plan, policy=self._policy, now=now
        )

    def take(self, forecast: Forecast, *, most: int, now: float) -> tuple[WorkloadKey, ...]:
        """Take in a finished forecast. Return at most `most` Workloads whose expected start is news.

        A start is news if none was reported, or if it differs from the last report and 300 s have passed
        since. What is returned counts as reported.
        """
        plan = self._cache.schedule_plan
        return plan.take_expected(forecast.starts, forecast.after, most=most, now=now)
