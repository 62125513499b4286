"""The best of many candidates, a few of which change between two questions.

Theory of operation. Each group of leaves that may hold a gang is a candidate, and a strategy orders the
candidates (`admission.placement.strategies`). There are as many as leaves, and a gang that is placed or
removed changes the groups that it touches. Each group therefore keeps its key in a heap. A changed group
gets a new key, and its old entry stays in the heap until it reaches the top, where its serial number shows
that it is stale.

The order also reads the room of the domains *around* a group, such as its block, where a policy fills the
fullest block first. That room changes while the group does not, so it is no part of the key. Groups below the
same domains share it, so each such family has a heap of its own, and the heads of the families, a few dozen,
are compared by their present room.

    family  =  (preferred, broken leaves, domains around)       heap of  (own room, depth, score, name)

Invariant. Each group that can hold the gang has exactly one entry whose serial number is the group's, and
that entry has the group's present key. The least entry over all families is therefore the best candidate.

Cost. With g groups and f families: `changed` costs O(log g) per group, `best` O(f) plus the stale
entries that it drops, each of which is dropped once. Heaps are rebuilt when stale entries outnumber
the groups several times.

One sorted list was rejected: it costs as many comparisons, but all keys of a family would have to move
whenever their block gets a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from queues.steps import Steps, finish

# The heaps are rebuilt after this many new entries per group.
_MOST_STALE = 3

# Groups judged without a pause, at about thirty microseconds each.
_JUDGED_AT_ONCE = 100

Tail = tuple[object, ...]


class CandidateFamily(NamedTuple):
    """The first part of the order, which many groups share. `around` are the domains around them."""

    preferred: int
    broken: int
    around: tuple[int, ...]


class RankedCandidate(NamedTuple):
    """The place of a group in the order: its family, and its key within it."""

    family: CandidateFamily
    tail: Tail


Judge = Callable[[tuple[int, ...]], RankedCandidate | None]
Rooms = Callable[[tuple[int, ...]], tuple[int, ...]]
_Heap = list[tuple[Tail, int, int]]


@dataclass(slots=True, eq=False)
class TopCandidate:
    """Groups of leaves by number.

    `judge` returns a group's present place, None where it cannot hold the gang. `rooms` returns the present
    room in domains around a group.
    """

    groups: tuple[tuple[int, ...], ...]
    judge: Judge
    rooms: Rooms
    # The present place of each group, by the group's number.
    _places: list[RankedCandidate | None] = field(default_factory=list)
    _groups_of: dict[int, list[int]] = field(default_factory=dict)
    _heaps: dict[CandidateFamily, _Heap] = field(default_factory=dict)
    # The serial number of each group's latest heap entry. Older entries are stale.
    _serials: list[int] = field(init=False)
    _next: int = 0
    _pushed: int = 0

    def __post_init__(self) -> None:
        for number, group in enumerate(self.groups):
            for leaf in group:
                self._groups_of.setdefault(leaf, []).append(number)
        self._serials = [-1] * len(self.groups)

    def judging(self) -> Steps[None]:
        """Judge the groups that have not been judged yet, in steps. `best` does so at once.

        One step for each `_JUDGED_AT_ONCE` groups. Nothing is left to do where all groups are judged.
        """
        judged = self._places
        while len(judged) < len(self.groups):
            begin = len(judged)
            judged += [self.judge(group) for group in self.groups[begin : begin + _JUDGED_AT_ONCE]]
            if len(judged) == len(self.groups):
                self._fill()
            yield

    def _fill(self) -> None:
        """Build the heaps again from the present places, without entries that are outdated."""
        self._heaps = {}
        for number, place in enumerate(self._places):
            if place is not None:
                self._serials[number] = number
                self._heaps.setdefault(place.family, []).append((place.tail, number, number))
        for heap in self._heaps.values():
            heapify(heap)
        # Later serial numbers continue from here, so that no stale entry equals a new one.
        self._next, self._pushed = len(self.groups), 0

    def changed(self, leaves: Iterable[int]) -> None:
        """Judge again the groups that contain these leaves.

        O(g log n) for the g groups with one of these leaves.
        """
        finish(self.judging())
        for number in {number for leaf in leaves for number in self._groups_of.get(leaf, ())}:
            place = self.judge(self.groups[number])
            # An equal place means that the heap entry is still valid.
            if place == self._places[number]:
                continue
            self._places[number] = place
            self._serials[number] = self._next
            if place is not None:
                heap = self._heaps.setdefault(place.family, [])
                heappush(heap, (place.tail, self._next, number))
                self._pushed += 1
            self._next += 1
        # The heaps are rebuilt as a whole when needed; most never are.
        if self._pushed > _MOST_STALE * len(self.groups):
            self._fill()

    def best(self) -> tuple[tuple[object, ...], tuple[int, ...]] | None:
        """Return the order and the leaves of the best group; None where no group holds the gang.

        O(families) beside the outdated entries that are dropped on the way.
        """
        finish(self.judging())
        best: tuple[object, ...] | None = None
        winner = -1
        for family in list(self._heaps):
            heap = self._heaps[family]
            # Stale entries are dropped when they reach the top.
            while heap and self._serials[heap[0][2]] != heap[0][1]:
                heappop(heap)
            if not heap:
                del self._heaps[family]
                continue
            # Read now, because the room around a group changes without the group.
            order = (-family.preferred, family.broken, self.rooms(family.around), heap[0][0])
            if best is None or order < best:
                best, winner = order, heap[0][2]
        return (best, self.groups[winner]) if best is not None else None
