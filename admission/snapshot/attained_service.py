"""The book of turns of one ClusterQueue: who of its running Workloads gives way, by level.

A Workload is entered once its attempt has run for the minimum run time, and moves when it reaches the next
level. Both are known in advance, so the book is kept by appointments and not by looking at everybody whenever
somebody waits: a search for victims then costs what it takes, not what runs.

    appointments ──▶ 12:05 w3    by_level  1 ──▶ w2, w7
                 ──▶ 12:40 w2              3 ──▶ w1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Generic, TypeVar

from api.workload import WorkloadKey

# The loss of an eviction in device-seconds, then who came last.
Rank = tuple[float, float, str]
Member = TypeVar("Member")


@dataclass(slots=True, eq=False)
class AttainedService(Generic[Member]):
    """Members by level, and when each is to be looked at next."""

    # A search that found nobody is not repeated before the next look: by what was asked, when.
    in_vain: dict[object, float] = field(default_factory=dict)
    _by_level: dict[int, dict[WorkloadKey, tuple[Rank, Member]]] = field(default_factory=dict)
    _level: dict[WorkloadKey, int] = field(default_factory=dict)
    _sorted: dict[int, list[Member]] = field(default_factory=dict)
    _appointments: list[tuple[float, WorkloadKey, float]] = field(default_factory=list)

    def enter(self, key: WorkloadKey, member: Member, *, level: int, rank: Rank) -> None:
        """Note that the member gives way to lower levels from now on."""
        self.remove(key)
        self._level[key] = level
        self._by_level.setdefault(level, {})[key] = (rank, member)
        self._sorted.pop(level, None)

    def remove(self, key: WorkloadKey) -> None:
        """Forget the member; one that was not entered is no error."""
        level = self._level.pop(key, None)
        if level is not None:
            del self._by_level[level][key]
            self._sorted.pop(level, None)

    def standing(self, key: WorkloadKey) -> tuple[int, float]:
        """Return the level of a member, and the loss of its eviction in device-seconds."""
        level = self._level[key]
        return level, self._by_level[level][key][0][0]

    def above(self, level: int) -> Iterator[Member]:
        """Yield who gives way to `level`: the highest level first, in it the least loss."""
        for one in sorted((one for one in self._by_level if one > level), reverse=True):
            yield from self._in_order(one)

    def _in_order(self, level: int) -> list[Member]:
        known = self._sorted.get(level)
        if known is None:
            pairs = sorted(self._by_level[level].values(), key=_rank)
            known = self._sorted[level] = [member for _, member in pairs]
        return known

    def appoint(self, key: WorkloadKey, at: float, *, since: float) -> None:
        """Look at the member at `at`, if it then still runs since `since`."""
        heappush(self._appointments, (at, key, since))

    @property
    def next_at(self) -> float | None:
        """The next appointment, None without one."""
        return self._appointments[0][0] if self._appointments else None

    def due(self, *, now: float) -> Iterator[tuple[WorkloadKey, float]]:
        """Yield whose appointment has come, and since when it ran when that was made."""
        while self._appointments and self._appointments[0][0] <= now:
            _, key, since = heappop(self._appointments)
            yield key, since


def _rank(pair: tuple[Rank, object]) -> Rank:
    return pair[0]
