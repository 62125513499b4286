"""When expected starts are computed: every half minute, in moments when there is nothing to decide."""

from __future__ import annotations

from admission.backfill.expected_starts import Forecast
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.yield_budget import YieldBudget

# How often expected starts are computed, and how many are written each time (five per second).
FORECAST_SECONDS = 30.0
MAX_STARTS_WRITTEN = 150


class Forecasting:
    """The forecast in progress, and when the next one is due."""

    def __init__(self, cluster_state: ClusterState, clock: Clock) -> None:
        self._engine = cluster_state.engine
        self._marks = cluster_state.marks
        self._clock = clock
        self._next_at = 0.0
        self._forecast: Forecast | None = None

    def seconds_to_next(self) -> float | None:
        """Return in how many seconds the next forecast is due; None if no queue plans ahead."""
        if not self._engine.promises.plans_starts:
            return None
        return self._next_at - self._clock.monotonic()

    def go_on(self) -> bool:
        """Compute for one slice of time if a forecast is due. Return whether there is more to do at once."""
        forecast = self._present()
        if forecast is None:
            return False
        pace = YieldBudget(self._clock)
        while forecast.step():
            if pace.is_over:
                return True
        self._forecast = None
        news = self._engine.forecasts.take(forecast, most=MAX_STARTS_WRITTEN, now=self._clock.now())
        for key in news:
            self._marks.workload(key)
        return bool(news)

    def _present(self) -> Forecast | None:
        """Return the forecast in progress, unless a change has outdated it; else begin one if it is due."""
        if self._forecast is None or self._forecast.is_outdated:
            if self._clock.monotonic() < self._next_at:
                return None
            self._forecast = self._engine.forecasts.begin(now=self._clock.now())
            self._next_at = self._clock.monotonic() + FORECAST_SECONDS
        return self._forecast
