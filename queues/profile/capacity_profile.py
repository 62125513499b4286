"""Capacity over time: who holds what until when, and when a request could begin.

A *claim* is an amount of quota in one ClusterQueue, and of concrete places (*spots*: hosts, racks), from
one instant to another. Running work claims from now until its expected end; a promise claims an interval
that lies ahead. The profile is nothing but the edges of all claims in order of time:

        used
         8 ┤██████████████┐                          running a, ends at 20
         6 ┤              │      ┌──────────┐        promise p from 30 to 50
         4 ┤██████┐       └──────┘          │        running b, ends at 10
         0 ┼──────┴──────────────┴──────────┴──▶ t
         now     10      20      30         50

It keeps no counters of its own. A quota tree with borrowing and lending limits is no sum that could be kept
per instant, so a search walks along the edges and lets a *stage* (the quota tree and the nodes themselves)
take every change and give it back: adding and removing usage are mirror images, so the walk leaves no trace,
and what fits at an instant is judged by the same arithmetic as what fits now. An edge costs O(log n) to put
in or take out. The edges are kept a second time by spot, a handful each: what becomes of one host is then
read off without a look at the others.

Work begins where something is released, never between two edges: the search tries the instant asked for and
then each release. Once no promise begins any more, capacity only grows and the instant is found by halving.
Source: Slurm's backfill scheduler (node_space), Srinivasan et al. 2002 for the kinds of promises.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeVar

import msgspec
from sortedcontainers import SortedKeyList

from api.workload import WorkloadKey
from queues.quota.resources import Quantities

# A host or another lowest domain: whose it is ("" for hosts, which flavors share), and its level values.
Spot = tuple[str, tuple[str, ...]]
Spots = Mapping[Spot, Mapping[str, int]]

# The sign of an edge: by how much the claim counts from there on.
RELEASE, BEGIN = -1, 1
_NO_SPOTS: Spots = {}


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What `holder` takes of a ClusterQueue's quota and of which spots, from `begins_at` to `ends_at`.

    Unix seconds. Running work begins at minus infinity: the quota tree and the nodes count it already.

    A quota window claims no usage: `quota` is by how much less the ClusterQueue's own nominal quota is while
    the claim lasts. Nobody need leave room for it who starts more than `lead_seconds` before it begins.
    """

    holder: WorkloadKey
    queue: str
    usage: Quantities
    spots: Spots = msgspec.field(default_factory=lambda: _NO_SPOTS)
    begins_at: float = -inf
    ends_at: float = inf
    quota: Quantities = msgspec.field(default_factory=dict)
    lead_seconds: float = inf

    @property
    def is_running(self) -> bool:
        """Whether it is counted as used now."""
        return self.begins_at == -inf

    @property
    def is_appointment(self) -> bool:
        """Whether it is the calendar's, which no Workload holds."""
        return not self.holder.namespace


# At equal times what is released comes first: a start may follow an end at once.
Edge = tuple[float, int, WorkloadKey, Claim]
# By what edges are ordered, and a bound between those of one instant and those of the next.
_Order = tuple[float, int, WorkloadKey] | tuple[float, int]
Value = TypeVar("Value")


class Stage(Protocol):
    """The quota tree and the nodes, on which changes are tried."""

    def charge(self, queue: str, usage: Quantities) -> None:
        """Count this much more of the queue's quota as used from here on; below 0: as free."""

    def shift(self, queue: str, amounts: Quantities) -> None:
        """Take the queue's own nominal quota to be less by this much from here on; below 0: more."""

    def occupy(self, spots: Spots) -> None:
        """Count this much more of the spots as taken from here on; below 0: as free."""


# The room of one spot over time: some instants in order, the room now, and that after each of them.
Course = tuple[list[float], list[int]]


class Room(Protocol):
    """How many of some equal pods the spots have room for, each spot by itself, as the stage stands."""

    @property
    def needed(self) -> int:
        """How many of them there are."""

    def total(self) -> int:
        """Return for how many all spots together have room now."""

    def at(self, spot: Spot, change: Mapping[str, int]) -> int:
        """Return for how many the spot would, were so much more of it taken; 0 for one that is no place."""

    def known(self, spot: Spot, stamp: object) -> Course | None:
        """Return what was noted of the spot under this stamp, None where its room now has changed since."""

    def note(self, spot: Spot, stamp: object, course: Course) -> None:
        """Keep how the room of the spot will change, in place of what was noted before."""


# For each group of pods the rooms of which any may take it. Without spots to look at there are none.
Rooms = Sequence[Sequence[Room]]


class Trial(Protocol[Value]):
    """The request that looks for its start, asked on the stage as it stands at some instant."""

    def may_have_quota(self) -> bool:
        """Return False only where the quota does not suffice: a condition that is necessary and cheap."""

    def rooms(self) -> Rooms:
        """Return what must have room for the request's pods: necessary as well, and told by spot."""

    def find(self) -> Value | None:
        """Return how it could begin now, None where it could not."""

    def has_quota(self, value: Value) -> bool:
        """Return whether the stage, as it is now, has the quota for what was found."""

    def has_spots(self, value: Value) -> bool:
        """Return whether the spots of what was found are free on the stage as it is now."""

    def spots_of(self, value: Value) -> Spots:
        """Return the spots of what was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Generic[Value]):
    """The earliest start: when (Unix seconds), and what was found then."""

    at: float
    value: Value


class CapacityProfile:
    """All claims, by holder and along time. One task owns it."""

    def __init__(self) -> None:
        self._claims: dict[WorkloadKey, Claim] = {}
        self._edges: SortedKeyList[Edge, _Order] = SortedKeyList(key=order)
        self._at_spot: dict[Spot, list[Edge]] = {}
        # When the edges of a spot last changed, as the version then.
        self._changed_in: dict[Spot, int] = {}
        # Rises with every change; what was worked out of the edges holds while it stays.
        self.version = 0

    def __len__(self) -> int:
        return len(self._claims)

    def get(self, holder: WorkloadKey) -> Claim | None:
        """Return the holder's claim, None where it has none."""
        return self._claims.get(holder)

    def claims(self) -> list[Claim]:
        """Return all claims, in the order in which they were put in."""
        return list(self._claims.values())

    def put(self, claim: Claim) -> None:
        """Take in a claim, in place of the one that the holder had. Raises ValueError for an empty span."""
        if claim.ends_at < claim.begins_at:
            raise ValueError(f"the claim of {claim.holder} ends at {claim.ends_at}, before it begins")
        # A holder has one claim, so that who changes its estimate needs no record of the former one.
        self.drop(claim.holder)
        self.version += 1
        self._claims[claim.holder] = claim
        for edge in _edges_of(claim):
            self._edges.add(edge)
            for spot in claim.spots:
                insort(self._at_spot.setdefault(spot, []), edge, key=order)
        self._note_change(claim)

    def _note_change(self, claim: Claim) -> None:
        for spot in claim.spots:
            self._changed_in[spot] = self.version

    def drop(self, holder: WorkloadKey) -> Claim | None:
        """Take a claim out. Returns it, None where there was none."""
        claim = self._claims.pop(holder, None)
        if claim is not None:
            self.version += 1
            for edge in _edges_of(claim):
                # Found by its order, which is unique: a holder has one begin and one end.
                self._edges.remove(edge)
                for spot in claim.spots:
                    _take_out(self._at_spot[spot], edge)
            self._note_change(claim)
            for spot in claim.spots:
                if not self._at_spot.get(spot, True):
                    del self._at_spot[spot], self._changed_in[spot]
        return claim

    def outrun(self, now: float) -> list[Claim]:
        """Return the running claims that should have ended by now, and have not."""
        # Ends at exactly `now` are due too: what has not ended by then has outrun its estimate.
        due = self._edges.irange_key(max_key=_after(now))
        return [claim for _, sign, _, claim in due if sign == RELEASE and claim.is_running]

    def next_end_at(self, *, after: float) -> float | None:
        """Return when the next running claim is expected to end after that instant, None where none is."""
        for at, sign, _, claim in self._edges.irange_key(min_key=_after(after)):
            if sign == RELEASE and claim.is_running:
                return at
        return None

    def edges(self, *, wants: Callable[[Claim], bool] | None = None) -> list[Edge]:
        """Return the edges in order of time, of the claims that are wanted."""
        if wants is None:
            return list(self._edges)
        return [edge for edge in self._edges if wants(edge[3])]

    def spots(self) -> Collection[Spot]:
        """Return the spots at which anything changes."""
        return self._at_spot.keys()

    def at_spot(self, spot: Spot) -> Sequence[Edge]:
        """Return the edges of the claims on one spot, in order of time. Not to be changed, nor kept."""
        return self._at_spot.get(spot, ())

    def changed_in(self, spot: Spot) -> int:
        """Return the version in which the edges of a spot became what they are; it is never used again."""
        return self._changed_in.get(spot, 0)

    def validate(self) -> None:
        """Raise AssertionError where edges and claims disagree."""
        expected = sorted((edge for claim in self._claims.values() for edge in _edges_of(claim)), key=order)
        assert list(self._edges) == expected, "the edges of the profile are not those of its claims"
        assert self._at_spot == by_spot(expected), "the edges by spot are not those of the claims there"


def _edges_of(claim: Claim) -> tuple[Edge, ...]:
    end = (claim.ends_at, RELEASE, claim.holder, claim)
    # What never ends has no edge there, and running work none at its begin: both would only be walked over.
    ends = (end,) if claim.ends_at < inf else ()
    return ends if claim.is_running else ((claim.begins_at, BEGIN, claim.holder, claim), *ends)


def _take_out(edges: list[Edge], edge: Edge) -> None:
    del edges[bisect_left(edges, order(edge), key=order)]


def by_spot(edges: Sequence[Edge]) -> dict[Spot, list[Edge]]:
    """Return the edges once for each spot of their claims, in the order in which they come."""
    found: dict[Spot, list[Edge]] = {}
    for edge in edges:
        for spot in edge[3].spots:
            found.setdefault(spot, []).append(edge)
    return found


def order(edge: Edge) -> tuple[float, int, WorkloadKey]:
    """Return the place of an edge among all."""
    return edge[:3]


def _after(instant: float) -> _Order:
    """Return the bound that comes after every edge at the instant, and before every later one."""
    return instant, BEGIN + 1


def time_of(edge: Edge) -> float:
    """Return when the edge is (Unix seconds)."""
    return edge[0]
