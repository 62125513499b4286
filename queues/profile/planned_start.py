"""Promised starts and backfill leases, as values.

A *PlannedStart* is the promise made to a Workload that cannot start now: an instant, and the quota and
nodes that it will have. (A QuotaReservation is held now, a PlannedStart is promised for later.) A
*BackfillLease* is what a Workload runs under that started before Workloads ahead of it: it is evicted when
they need the capacity.

Promises and leases are ordered by *rank*, the order in which a cycle processes its entries: least
borrowing first, then higher priority, then older. A promise takes into account all promises of higher
rank and all running work, never anything of lower rank. A promise can therefore move later for one of
five causes only (`MoveCause`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from api.parsing.decimals import whole_number
from api.workload import Admission, WorkloadKey
from queues.pending.entries import Pending


class MoveCause(StrEnum):
    """Why a promised start moved to a later instant.

    The NodeLost: a node of the promise failed. QuotaCut: quota was lowered. HigherPriority: a Workload of
    higher rank was promised or started. Reclaim: lent quota was reclaimed. Overrun: running work lasted
    longer than estimated.
    """

    NODE_LOST = "NodeLost"
    QUOTA_CUT = "QuotaCut"
    HIGHER_PRIORITY = "HigherPriority"
    RECLAIM = "Reclaim"
    OVERRUN = "Overrun"


class Rank(NamedTuple):
    """A place in the order in which Workloads are served; the lowest goes first.

    `height` is the borrowing height: a Workload within its nominal quota goes before one that borrows. Within
    one ClusterQueue it never falls from one Workload to the next, so it does not change the queue's order.
    `level` is what the queue's ordering puts before age, 0 where it puts nothing. `uid` breaks ties between
    Workloads queued in the same second; see `tie_behind`.

    Compared as a tuple. Priorities are negated, so that a higher one sorts first, and `queued_at` is in Unix
    seconds.
    """

    height: int
    negative_priority: int
    level: int
    queued_at: float
    uid: str


# A rank without the height.
OwnRank = tuple[int, int, float, str]


def own_rank(pending: Pending) -> OwnRank:
    """Return the rank of a Workload within its ClusterQueue: all of it but the height.

    The height is left out because it depends on what else runs, and so changes while a Workload waits.
    """
    return -pending.workload.priority, pending.level, pending.queued_at, pending.workload.uid


def tie_behind(last: str, uid: str) -> str:
    """Return the tie-breaker for `uid` in a rank behind `last`: `uid` itself where it already sorts behind.

    Otherwise a number is put before it. The prefix sorts behind every uid, and the number rises only
    where uids do not:

        promised one after the other    b     a              c              bb
        in their ranks                  b     ~000000001~a   ~000000001~c   ~000000002~bb
    """
    if last < uid:
        return uid
    number, _, known = last[1:].partition("~") if last.startswith("~") else ("0", "", last)
    # A prefix that is no number was not written by Berth: the store holds foreign data. It counts as 0.
    return f"~{(whole_number(number) or 0) + (uid <= known):09}~{uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStart:
    """The promise made to a Workload: it starts at `start_at` (Unix seconds) with this admission.

    `seconds` is the expected run time. `first_start_at` is the start that was promised first, at `made_at`.
    `moves` counts how often the start moved later, and `cause` is the reason for the last move.

    `admission` is the flavors and, where the flavors have a topology, the domains that the search found. It
    is a plan and no reservation: the Workload is assigned again when it starts. `made_at` is in Unix seconds.
    Stored as one row, so that the next leader keeps the promise.
    """

    key: WorkloadKey
    uid: str
    cluster_queue: str
    rank: Rank
    start_at: float
    seconds: float
    admission: Admission
    made_at: float
    first_start_at: float
    moves: int = 0
    cause: MoveCause | None = None

    @property
    def ends_at(self) -> float:
        """When the work is expected to end (Unix seconds)."""
        return self.start_at + self.seconds

    def is_outranked_by(self, rank: Rank, cluster_queue: str) -> bool:
        """Return whether a Workload of that rank and ClusterQueue may break this promise.

        It may if it has the higher priority or the lower level or, in another ClusterQueue, if it borrows
        less. Being older gives no such right. Neither does borrowing less within one ClusterQueue, because
        which of its Workloads borrow follows from which start first.
        """
        first = 1 if cluster_queue == self.cluster_queue else 0
        return rank < self.rank and rank[first:3] < self.rank[first:3]

    @property
    def borrows(self) -> bool:
        """Whether it depends on borrowed quota, which its owner may reclaim."""
        return self.rank.height > 0

    @property
    def domain(self) -> str:
        """The promised domains as `level=value` of the lowest level, comma-separated; else empty."""
        # A dict keeps the order in which the search chose the domains; a set would not.
        names = {
            f"{topology.levels[-1]}={domain.values[-1]}": None
            for pod_set in self.admission.pod_sets
            if (topology := pod_set.topology) is not None
            for domain in topology.domains
        }
        return ",".join(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillLease:
    """What a Workload runs under that started ahead of promised Workloads.

    The eviction begins `eviction_seconds` before the start of the Workload `promised`, which needs the
    capacity; None where no promise needs it so far. A Workload that is not evictable ends by itself, at its
    enforced run time limit.

    `started_at` is in Unix seconds. `eviction_seconds` is how long its eviction takes until the capacity is
    free.
    """

    key: WorkloadKey
    uid: str
    cluster_queue: str
    rank: Rank
    started_at: float
    eviction_seconds: float
    is_evictable: bool = True
    promised: WorkloadKey | None = None
