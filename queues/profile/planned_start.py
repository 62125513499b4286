"""Promised starts and backfill leases: values that say what will begin when, and who gives way until then.

A *PlannedStart* is the promise made to a Workload that cannot start now: an instant, and the quota and
places that it will have. (A QuotaReservation is held now, a PlannedStart is promised for later.) A
*BackfillLease* is what a Workload runs under that started before others who were first: it gives way to them.

Promises and leases are ordered by *rank*, in the order in which a cycle serves entries: least borrowing
first, then higher priority, then the older. A promise is made in view of all promises of higher rank and of
running work, never of those below it. Hence the law: a promise moves later for one of five causes alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from api.workload import Admission, WorkloadKey
from queues.pending.entries import Pending


class MoveCause(StrEnum):
    """Why a promised start moved to a later instant."""

    NODE_LOST = "NodeLost"
    QUOTA_CUT = "QuotaCut"
    HIGHER_PRIORITY = "HigherPriority"
    RECLAIM = "Reclaim"
    OVERRUN = "Overrun"


class Rank(NamedTuple):
    """The place in the order of service; the lowest goes first.

    `height` is the borrow height: whoever stays within the own quota goes before whoever borrows. Within one
    ClusterQueue it never falls from one Workload to the next, so that it does not upset the queue's order.
    `level` is what the queue's ordering puts before age, 0 where nothing does. `uid` decides between those of
    one second; see `tie_behind`.
    """

    height: int
    negative_priority: int
    level: int
    queued_at: float
    uid: str


# A rank without the height.
OwnRank = tuple[int, int, float, str]


def own_rank(pending: Pending) -> OwnRank:
    """Return the rank of a Workload within its ClusterQueue: all of it but the height."""
    return -pending.workload.priority, pending.level, pending.queued_at, pending.workload.uid


def tie_behind(last: str, uid: str) -> str:
    """Return what stands for `uid` in a rank behind that of `last`: itself where it sorts behind it anyway.

    Else with a number before it, which sorts behind every uid and rises only where uids do not:

        promised one after the other    b     a              c              bb
        in their ranks                  b     ~000000001~a   ~000000001~c   ~000000002~bb
    """
    if last < uid:
        return uid
    number, _, known = last[1:].partition("~") if last.startswith("~") else ("0", "", last)
    # What is no number of ours came from a store that somebody else wrote to.
    return f"~{int(number if number.isdecimal() else 0) + (uid <= known):09}~{uid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStart:
    """The promise made to a Workload: it starts at `start_at` (Unix seconds) with this admission.

    `seconds` is how long it is expected to run. `first_start_at` is what was promised first, at `made_at`;
    `moves` counts how often it moved later, `cause` says why the last time.
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
        """When the work is expected to end."""
        return self.start_at + self.seconds

    @property
    def borrows(self) -> bool:
        """Whether it counts on quota that its owner may take back."""
        return self.rank.height > 0

    @property
    def domain(self) -> str:
        """The domains promised, as `level=value` of the lowest level; empty without a topology."""
        # A dict instead of a set keeps the order of the domains, which is that of the search.
        names = {
            f"{topology.levels[-1]}={domain.values[-1]}": None
            for pod_set in self.admission.pod_sets
            if (topology := pod_set.topology) is not None
            for domain in topology.domains
        }
        return ",".join(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillLease:
    """What a Workload runs under that overtook promised ones.

    It ends `eviction_seconds` before the start of the Workload `promised`, in whose way it is; None: it is in
    nobody's way so far. Who may not be evicted ends by itself, at its enforced limit.
    """

    key: WorkloadKey
    uid: str
    cluster_queue: str
    rank: Rank
    started_at: float
    eviction_seconds: float
    is_evictable: bool = True
    promised: WorkloadKey | None = None
