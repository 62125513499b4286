"""Rows of the table `usage`: what deleted Workloads used, by day, ClusterQueue, namespace and user."""

from __future__ import annotations

from typing import NamedTuple


class UsageKey(NamedTuple):
    """What a row sums. `day` counts days of UTC since 1970; `user` is "" where it is not known."""

    day: int
    cluster_queue: str
    namespace: str
    user: str


class UsageRow(NamedTuple):
    """Sums over Workloads. `used` and `lost` are GPU-seconds, `waited` seconds, `cost` is money.

    `workloads` and `evictions` count on the day on which a Workload ended, all else on the day it was used.
    """

    workloads: int = 0
    used: float = 0.0
    waited: float = 0.0
    lost: float = 0.0
    evictions: int = 0
    cost: float = 0.0

    def plus(self, other: UsageRow, share: float = 1.0) -> UsageRow:
        """Return the sum of this row and of a share of another; counts are whole."""
        return UsageRow(
            workloads=self.workloads + other.workloads,
            used=self.used + other.used * share,
            waited=self.waited + other.waited * share,
            lost=self.lost + other.lost * share,
            evictions=self.evictions + other.evictions,
            cost=self.cost + other.cost * share,
        )
