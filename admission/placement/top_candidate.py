"""The best of many candidates, of which a few change between two questions.

Theory of operation. Each group of leaves that may hold a gang is a candidate, and a strategy puts them in
order (`admission.placement.strategies`). There are as many as leaves, and a gang that comes or goes changes
those that it touches. So each group keeps its key, in a heap; a group that has changed gets a new one, and
its old one stays in the heap until it comes to the top, where its number tells that it is out of date.

What the order asks about the domains *around* a group changes without the group's doing: the room of its
block, where a policy fills the fullest block first. That part is left out of the keys. Groups below the same
domains have it in common, so each such family has a heap of its own, and the heads of the families, a few
dozen, are compared with their room as it is now.

    family  =  (preferred, broken leaves, domains around)       heap of  (own room, depth, score, name)

A sorted list of all would cost as many comparisons; but keys of a family would all move whenever their block
gets a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from queues.steps import Steps, finish

# Heaps are put in order once they hold so many times as much out of date as there are groups.
_MOST_STALE = 3

# Groups that are judged without a pause, at some thirty microseconds each.
_JUDGED_AT_ONCE = 100

Tail = tuple[object, ...]


class CandidateFamily(NamedTuple):
    """What comes first in the order and is common to many groups; `around` are the domains around them."""

    preferred: int
    broken: int
    around: tuple[int, ...]


class RankedCandidate(NamedTuple):
    """Where a group stands: its family, and its key in it."""

    family: CandidateFamily
    tail: Tail


Judge = Callable[[tuple[int, ...]], RankedCandidate | None]
Rooms = Callable[[tuple[int, ...]], tuple[int, ...]]
_Heap = list[tuple[Tail, int, int]]


@dataclass(slots=True, eq=False)
class TopCandidate:
    """Groups of leaves by number. `judge` says where a group stands now, None: it cannot hold the gang.

    `rooms` says how much room there is now in domains around a group.
    """

    groups: tuple[tuple[int, ...], ...]
    judge: Judge
    # At its place among the groups, so that a heap entry can be told from an outdated one.
    rooms: Rooms
    _standings: list[RankedCandidate | None] = field(default_factory=list)
    _groups_of: dict[int, list[int]] = field(default_factory=dict)
    _heaps: dict[CandidateFamily, _Heap] = field(default_factory=dict)
    # The number under which each group's key went into its heap last.
    _serials: list[int] = field(init=False)
    _next: int = 0
    _pushed: int = 0

    def __post_init__(self) -> None:
        for number, group in enumerate(self.groups):
            for leaf in group:
                self._groups_of.setdefault(leaf, []).append(number)
        self._serials = [-1] * len(self.groups)

    def judging(self) -> Steps[None]:
        """Judge the groups that nobody has looked at yet, in steps; without it `best` does so in one."""
        judged = self._standings
        while len(judged) < len(self.groups):
            begin = len(judged)
            judged += [self.judge(group) for group in self.groups[begin : begin + _JUDGED_AT_ONCE]]
            if len(judged) == len(self.groups):
                self._fill()
            yield

    def _fill(self) -> None:
        self._heaps = {}
        for number, standing in enumerate(self._standings):
            if standing is not None:
                self._serials[number] = number
                self._heaps.setdefault(standing.family, []).append((standing.tail, number, number))
        for heap in self._heaps.values():
            heapify(heap)
        # Numbers go on from there, so that no old entry can pass for a new one.
        self._next, self._pushed = len(self.groups), 0

    def changed(self, leaves: Iterable[int]) -> None:
        """Judge the groups anew that these leaves are in."""
        finish(self.judging())
        for number in {number for leaf in leaves for number in self._groups_of.get(leaf, ())}:
            standing = self.judge(self.groups[number])
            # The same standing as before: its key is still right, and its entry still good.
            if standing == self._standings[number]:
                continue
            self._standings[number] = standing
            self._serials[number] = self._next
            if standing is not None:
                heap = self._heaps.setdefault(standing.family, [])
                heappush(heap, (standing.tail, self._next, number))
                self._pushed += 1
            self._next += 1
        # Everything at once instead of clearing up as we go: most heaps never get there.
        if self._pushed > _MOST_STALE * len(self.groups):
            self._fill()

    def best(self) -> tuple[tuple[object, ...], tuple[int, ...]] | None:
        """Return the first group in the order, after its place in it; None where no group holds the gang."""
        finish(self.judging())
        best: tuple[object, ...] | None = None
        winner = -1
        for family in list(self._heaps):
            heap = self._heaps[family]
            # Outdated entries are dropped when they come to the top, and only then.
            while heap and self._serials[heap[0][2]] != heap[0][1]:
                heappop(heap)
            if not heap:
                del self._heaps[family]
                continue
            # What is around is asked for now, since it changes without the group's doing.
            order = (-family.preferred, family.broken, self.rooms(family.around), heap[0][0])
            if best is None or order < best:
                best, winner = order, heap[0][2]
        return (best, self.groups[winner]) if best is not None else None
