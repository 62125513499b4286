"""The promises in force: each a planned start, and the claim that keeps its capacity in the profile.

How many promises precede a Workload is asked often, so the ranks are cached by ClusterQueue.
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
    """A planned start, and the claim that represents it in the profile."""

    planned: PlannedStart
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseOutcome:
    """A promise that has been kept: its Workload started at `at` (Unix seconds)."""

    planned: PlannedStart
    at: float


class Promises(Tracked[WorkloadKey, Promise]):
    """The promises by Workload. Changes are tracked, so that the store gets only what has changed."""

    __slots__ = ("_ranked_in", "_ranks")

    def __init__(self) -> None:
        super().__init__()
        # Ranks by ClusterQueue, and the version of the promises that they were computed for.
        self._ranks: dict[str, list[Rank]] = {}
        self._ranked_in = -1

    def in_order(self) -> list[Promise]:
        """Return all promises, the highest rank first."""
        return sorted(self.values(), key=lambda promise: promise.planned.rank)

    def before(self, pending: Pending, queue: str) -> int:
        """Return how many Workloads of the queue have a promise and precede this one in queue order."""
        own, known = own_rank(pending), self.get(pending.key)
        # Without a promise of its own it ranks behind all promised Workloads queued in the same second.
        is_ranked = known is not None and known.planned.rank[1:4] == own[:3]
        uid = known.planned.rank.uid if known is not None and is_ranked else None
        return sum(
            1
            for rank in self._ranks_in(queue)
            if rank[1:4] < own[:3] or (rank[1:4] == own[:3] and (uid is None or rank.uid < uid))
        )

    def _ranks_in(self, queue: str) -> Sequence[Rank]:
        """Return the ranks of the queue's promised Workloads, in no order."""
        # This is asked for every class of pending Workloads whenever something comes free, while the
        # promises stay the same.
        if self._ranked_in != self.version:
            self._ranked_in, self._ranks = self.version, {}
            for one in self.values():
                self._ranks.setdefault(one.planned.cluster_queue, []).append(one.planned.rank)
        return self._ranks.get(queue, ())
