"""The promises that stand: each a planned start and the claim by which the profile keeps it.

Whoever is asked about for its place among them is asked often, so the ranks are kept by ClusterQueue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import Claim
from queues.profile.planned_start import PlannedStart, Rank, own_rank
from queues.tracked import Tracked


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A planned start, and the claim that stands for it in the profile."""

    planned: PlannedStart
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseOutcome:
    """A promise that has been fulfilled: started at `at`."""

    planned: PlannedStart
    at: float


class Promises(Tracked[WorkloadKey, Promise]):
    """The promises by Workload."""

    __slots__ = ("_ranked_in", "_ranks")

    def __init__(self) -> None:
        super().__init__()
        # Ranks by ClusterQueue, and of which version of the promises they are.
        self._ranks: dict[str, list[Rank]] = {}
        self._ranked_in = -1

    def in_order(self) -> list[Promise]:
        """Return all promises, the highest rank first."""
        return sorted(self.values(), key=lambda promise: promise.planned.rank)

    def before(self, pending: Pending, queue: str) -> int:
        """Return how many of the queue are promised a start that come before the Workload in its order."""
        own, known = own_rank(pending), self.get(pending.key)
        # Without a promise it comes behind all of its second that have one.
        is_ranked = known is not None and known.planned.rank[1:4] == own[:3]
        uid = known.planned.rank.uid if known is not None and is_ranked else None
        return sum(
            1
            for rank in self._ranks_in(queue)
            if rank[1:4] < own[:3] or (rank[1:4] == own[:3] and (uid is None or rank.uid < uid))
        )

    def _ranks_in(self, queue: str) -> Sequence[Rank]:
        """Return the ranks of those of the queue that are promised a start, in no order."""
        # Asked of every class that waits whenever something comes free, while promises stay as they are.
        if self._ranked_in != self.version:
            self._ranked_in, self._ranks = self.version, {}
            for one in self.values():
                self._ranks.setdefault(one.planned.cluster_queue, []).append(one.planned.rank)
        return self._ranks.get(queue, ())
