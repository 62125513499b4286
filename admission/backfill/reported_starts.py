"""The expected starts that were reported, so that each is reported again only once it has changed."""

from __future__ import annotations

from collections.abc import Mapping

from api.workload import WorkloadKey
from queues.tracked import Tracked

# How many seconds pass at least before a changed expected start is reported again.
_AGAIN_SECONDS = 300.0


class ReportedStarts(Tracked[WorkloadKey, tuple[float, float]]):
    """By Workload without a promise: its expected start, and when that was reported (both Unix seconds)."""

    __slots__ = ("_after",)

    def __init__(self) -> None:
        super().__init__()
        # By ClusterQueue: no Workload behind those with an expected start is expected to start before this.
        self._after: Mapping[str, float] = {}

    def after(self, cluster_queue: str) -> float | None:
        """Return before when no other Workload of the queue is expected to start, None if not known."""
        return self._after.get(cluster_queue)

    def take(
        self, starts: Mapping[WorkloadKey, float], after: Mapping[str, float], *, most: int, now: float
    ) -> tuple[WorkloadKey, ...]:
        """Take in the result of a forecast. Return at most `most` Workloads whose start is to be reported.

        It was not reported before, or differs from what was reported a while ago. What exceeds `most` does
        not count as reported, so it is returned next time.
        """
        self._after = after
        news = [key for key, at in starts.items() if self._is_news(key, at, now)][:most]
        self.update({key: (starts[key], now) for key in news})
        return tuple(news)

    def _is_news(self, key: WorkloadKey, at: float, now: float) -> bool:
        known = self.get(key)
        return known is None or (now - known[1] >= _AGAIN_SECONDS and known[0] != at)

    def adopt(self, key: WorkloadKey, reported: tuple[float, float]) -> None:
        """Take in what another leader reported; what this one reported itself is newer."""
        if key not in self:
            self[key] = reported

    def clear(self) -> None:
        """Forget all expected starts."""
        self._after = {}
        super().clear()
