"""The least-attained-service index of one ClusterQueue: its running Workloads by level of received service.

A Workload of a higher level may be preempted by one of a lower level. It is entered once its attempt has run
for the minimum run time, and re-entered when it reaches the next level. Both instants are known in advance,
so the index is kept by a heap of due times instead of a look at every running Workload whenever another
waits: a search for victims then costs as many steps as it takes victims, however many Workloads run.

    due times    ──▶ 12:05 w3    by_level  1 ──▶ w2, w7
                 ──▶ 12:40 w2              3 ──▶ w1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

from api.workload import WorkloadKey

# The loss of an eviction in device-seconds, then the last queued first, then the uid.
Rank = tuple[float, float, str]
Member = TypeVar("Member")


@dataclass(slots=True, eq=False)
class AttainedService(Generic[Member]):
    """Members by level, and when each has to be examined next.

    `failed_until` holds for each kind of request until when (Unix seconds) no search is repeated. The heap of
    due times may hold entries that no longer count; they are dropped when they are due.
    """

    # Searches that found no victim, with the time before which they are not repeated, by what was searched.
    failed_until: dict[object, float] = field(default_factory=dict)
    _by_level: dict[int, dict[WorkloadKey, tuple[Rank, Member]]] = field(default_factory=dict)
    _level: dict[WorkloadKey, int] = field(default_factory=dict)
    _sorted: dict[int, list[Member]] = field(default_factory=dict)
    _appointments: list[tuple[float, WorkloadKey, float]] = field(default_factory=list)

    def enter(self, key: WorkloadKey, member: Member, *, level: int, rank: Rank) -> None:
        """Enter the member at `level`: from now on a Workload of any lower level may preempt it.

        `rank` orders the members of a level: the loss in device-seconds first. A member that was entered
        before moves.
        """
        self.remove(key)
        self._level[key] = level
        self._by_level.setdefault(level, {})[key] = (rank, member)
        self._sorted.pop(level, None)

    def remove(self, key: WorkloadKey) -> None:
        """Remove the member; no error where it was not entered."""
        level = self._level.pop(key, None)
        if level is not None:
            del self._by_level[level][key]
            self._sorted.pop(level, None)

    def level_and_loss(self, key: WorkloadKey) -> tuple[int, float]:
        """Return the level of a member, and the loss of its eviction in device-seconds.

        Raises KeyError where the member was not entered.
        """
        level = self._level[key]
        return level, self._by_level[level][key][0][0]

    def above(self, level: int) -> Iterator[Member]:
        """Yield the members that `level` may preempt: the highest level first, within it the least loss.

        Sorted lists are kept for each level until a member comes or goes, so reading the first few costs
        little.
        """
        for one in sorted((one for one in self._by_level if one > level), reverse=True):
            yield from self._in_order(one)

    def _in_order(self, level: int) -> list[Member]:
        """Return the members of a level by rank."""
        known = self._sorted.get(level)
        if known is None:
            pairs = sorted(self._by_level[level].values(), key=_rank)
            known = self._sorted[level] = [member for _, member in pairs]
        return known

    def set_due(self, key: WorkloadKey, at: float, *, since: float) -> None:
        """Make the member due at `at`; `since` is when its present attempt began (both Unix seconds)."""
        heappush(self._appointments, (at, key, since))

    @property
    def next_at(self) -> float | None:
        """When the next member is due (Unix seconds), None where none is."""
        return self._appointments[0][0] if self._appointments else None

    def due(self, *, now: float) -> Iterator[tuple[WorkloadKey, float]]:
        """Yield the members that are due, each with the `since` that was given; each is yielded once.

        The caller compares `since` with the Workload: a due time of an earlier attempt no longer counts.

        `now` is in Unix seconds. Entries are removed as they are yielded.
        """
        while self._appointments and self._appointments[0][0] <= now:
            _, key, since = heappop(self._appointments)
            yield key, since


def _rank(pair: tuple[Rank, object]) -> Rank:
    return pair[0]
