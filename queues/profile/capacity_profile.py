"""Capacity over time: which quota and nodes are taken from when to when.

A *claim* is an amount of quota in one ClusterQueue, and of concrete *spots* (hosts, racks), from one instant
to another. Running work claims from now until its expected end; a promise claims an interval in the future.
The profile consists of the edges of all claims in order of time:

        used
         8 ┤██████████████┐                          running a, ends at 20
         6 ┤              │      ┌──────────┐        promise p from 30 to 50
         4 ┤██████┐       └──────┘          │        running b, ends at 10
         0 ┼──────┴──────────────┴──────────┴──▶ t
         now     10      20      30         50

Why edges and no totals. In a quota tree with borrowing and lending limits the free quota of a queue depends
on the usage of all others, so there is no total per instant that could be kept. A search instead walks along
the edges and applies each change to a *stage*, the quota tree and the nodes themselves
(`queues.profile.profile_walk`). Adding and removing usage are exact inverses, so the walk leaves the stage
unchanged, and the same arithmetic decides what fits at an instant and what fits now.

Invariant. The list of edges is sorted by instant, then releases before begins, then holder. It holds at most
one begin and one release of each claim, and nothing else. A second index holds the same edges by spot, a
handful each, so that one host over time can be read without the others. `validate` checks both.

Cost. To find the place of an edge takes O(log n) comparisons.

Source: Slurm's backfill scheduler (node_space); Srinivasan et al. 2002 for the kinds of promises.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, KeysView, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeVar

import msgspec
from sortedcontainers import SortedKeyList

from api.workload import WorkloadKey
from queues.quota.resources import FlavorResource, Quantities

# A host or another lowest domain: its flavor ("" for hosts, which flavors share), and its level values.
Spot = tuple[str, tuple[str, ...]]
Spots = Mapping[Spot, Mapping[str, int]]

# The sign of an edge: +1 where its claim begins to count, -1 where it ceases to.
RELEASE, BEGIN = -1, 1
_NO_SPOTS: Spots = {}
# The stamp of a spot without edges.
_NO_EDGES = object()


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Quota of a ClusterQueue and spots that `holder` takes from `begins_at` to `ends_at` (Unix seconds).

    Running work begins at minus infinity: the quota tree and the nodes already count it.

    The claim of a quota window has no usage: `quota` is by how much it lowers the ClusterQueue's own
    nominal quota while it lasts. A start more than `lead_seconds` before such a claim begins need not
    leave room for it.

    `usage` is in each resource's unit, `spots` in the resources of a pod on that spot. Claims of the calendar
    have a holder with an empty namespace. Frozen, because the profile finds the edges of a claim again by its
    values.
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
        """Whether it is part of the present usage."""
        return self.begins_at == -inf

    @property
    def is_from_calendar(self) -> bool:
        """Whether it comes from the calendar (a quota window, a reservation) and not from a Workload."""
        return not self.holder.namespace


# At equal instants a release sorts before a begin: work may start the moment other work ends.
Edge = tuple[float, int, WorkloadKey, Claim]
# By what edges are ordered, and a bound between those of one instant and those of the next.
_Order = tuple[float, int, WorkloadKey] | tuple[float, int]
Value = TypeVar("Value")


class Stage(Protocol):
    """The quota tree and the nodes, to which changes are applied on trial.

    Each method is its own inverse with negated amounts, which a walk relies on: it applies differences and
    takes them back. `admission.backfill.profile_trial` implements it on the snapshot of a cycle.
    """

    def charge(self, queue: str, usage: Quantities) -> None:
        """Count this much more of the queue's quota as used from now on; negative amounts: as free."""

    def shift(self, queue: str, amounts: Quantities) -> None:
        """Lower the queue's own nominal quota by this much from now on; negative amounts raise it."""

    def occupy(self, spots: Spots) -> None:
        """Count this much more of the spots as taken from now on; negative amounts: as free."""


# The room of one spot over time: the sorted instants of its changes, and the room now and after each.
Course = tuple[list[float], list[int]]


class Room(Protocol):
    """How many of a number of equal pods fit on the spots, each spot by itself, as the stage shows them.

    A necessary condition only: it knows nothing of topology domains, of quota, or of other groups of pods.
    What is noted for a spot belongs to the stamp of its edges and is dropped when the room of the present
    changes.
    """

    @property
    def needed(self) -> int:
        """How many pods there are."""

    def total(self) -> int:
        """Return how many of them all spots together have room for now."""

    def at(self, spot: Spot, change: Mapping[str, int]) -> int:
        """Return how many fit on the spot if `change` more of it were taken; 0 for an unknown spot."""

    def known(self, spot: Spot, stamp: object) -> Course | None:
        """Return what was noted for the spot under this stamp, None where its present room has changed."""

    def note(self, spot: Spot, stamp: object, course: Course) -> None:
        """Remember the spot's room over time, replacing what was noted before."""


# One element for each group of pods: the alternatives that may take it. Empty where no spots are involved.
Rooms = Sequence[Sequence[Room]]


class Trial(Protocol[Value]):
    """The request whose start is searched for. It is asked about the stage as it is at some instant.

    `Value` is whatever the search returns as an answer, an assignment of flavors and nodes, or only an amount
    of quota. The tests are ordered by cost: `may_have_quota` and `rooms` are cheap, `has_quota` and
    `has_spots` check one known answer, `find` searches.
    """

    def may_have_quota(self) -> bool:
        """Return False only where quota certainly does not suffice: a cheap, necessary condition."""

    def rooms(self) -> Rooms:
        """Return the room that the request's pods need, spot by spot: another necessary condition."""

    def find(self) -> Value | None:
        """Return how the request could begin now, None where it could not. This is the expensive search."""

    def has_quota(self, value: Value) -> bool:
        """Return whether the stage now has the quota for `value`."""

    def has_spots(self, value: Value) -> bool:
        """Return whether the spots of `value` are free on the stage now."""

    def pairs_of(self, value: Value) -> KeysView[FlavorResource]:
        """Return the flavors and resources of which `value` takes quota."""

    def spots_of(self, value: Value) -> Spots:
        """Return the spots of `value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Generic[Value]):
    """The earliest start (Unix seconds), and what the search found for it."""

    at: float
    value: Value


class CapacityProfile:
    """All claims, by holder and in order of time. One task owns it.

    Holders are Workloads, and windows or reservations of the calendar under keys of their own. Every change
    replaces the stamps of the spots that it touches, so answers about other spots stay valid. Adding and
    removing a claim costs O(log n) for each of its edges, and O(e) for each spot with e edges.
    """

    def __init__(self) -> None:
        self._claims: dict[WorkloadKey, Claim] = {}
        self._edges: SortedKeyList[Edge, _Order] = SortedKeyList(key=order)
        self._at_spot: dict[Spot, list[Edge]] = {}
        # By spot an object that is replaced whenever the edges there change.
        self._stamps: dict[Spot, object] = {}
        # Rises with every change. A value computed from the edges is valid while the version is the same.
        self.version = 0

    def __len__(self) -> int:
        return len(self._claims)

    def get(self, holder: WorkloadKey) -> Claim | None:
        """Return the holder's claim, None where it has none."""
        return self._claims.get(holder)

    def claims(self) -> list[Claim]:
        """Return all claims, in the order in which they were added."""
        return list(self._claims.values())

    def put(self, claim: Claim) -> None:
        """Add a claim, replacing the holder's former one. Raises ValueError if it ends before it begins.

        The claim counts from the next question on.
        """
        if claim.ends_at < claim.begins_at:
            raise ValueError(f"the claim of {claim.holder} ends at {claim.ends_at}, before it begins")
        # A holder has one claim, so a caller that changes an estimate need not know the former one.
        self.drop(claim.holder)
        self.version += 1
        self._claims[claim.holder] = claim
        stamp = object()
        for edge in _edges_of(claim):
            self._edges.add(edge)
            for spot in claim.spots:
                insort(self._at_spot.setdefault(spot, []), edge, key=order)
                self._stamps[spot] = stamp

    def drop(self, holder: WorkloadKey) -> Claim | None:
        """Remove and return the holder's claim, None where there is none."""
        claim = self._claims.pop(holder, None)
        if claim is not None:
            self.version += 1
            stamp = object()
            for edge in _edges_of(claim):
                # Found by its sort key, which is unique: a holder has at most one begin and one end.
                self._edges.remove(edge)
                for spot in claim.spots:
                    self._take_out(spot, edge, stamp)
        return claim

    def _take_out(self, spot: Spot, edge: Edge, stamp: object) -> None:
        """Remove one edge from the index of a spot. A spot without edges has no entry and no stamp."""
        edges = self._at_spot[spot]
        del edges[bisect_left(edges, order(edge), key=order)]
        if edges:
            self._stamps[spot] = stamp
        else:
            del self._at_spot[spot], self._stamps[spot]

    def clear(self) -> None:
        """Remove all claims."""
        self.version += 1
        self._claims.clear()
        self._edges.clear()
        self._at_spot.clear()
        self._stamps.clear()

    def outrun(self, now: float) -> list[Claim]:
        """Return the running claims that should have ended by `now` (Unix seconds) and have not.

        Each of them needs a later expected end before the next search: an end in the past would count its
        capacity as free. In the order of those ends.
        """
        # An end at exactly `now` is included: work that has not ended by then has exceeded its estimate.
        due = self._edges.irange_key(max_key=_after(now))
        return [claim for _, sign, _, claim in due if sign == RELEASE and claim.is_running]

    def next_end_at(self, *, after: float) -> float | None:
        """Return when the next running claim after `after` is expected to end, None where there is none.

        In Unix seconds. Ends of promises do not count, because they move with their starts.
        """
        for at, sign, _, claim in self._edges.irange_key(min_key=_after(after)):
            if sign == RELEASE and claim.is_running:
                return at
        return None

    def edges(self, *, wants: Callable[[Claim], bool] | None = None) -> list[Edge]:
        """Return the edges of the claims for which `wants` is true (None: all), in order of time.

        A new list, which stays as it is when the profile changes. With `wants` every claim is asked twice at
        most, at its begin and at its release: O(n) for n edges.
        """
        if wants is None:
            return list(self._edges)
        return [edge for edge in self._edges if wants(edge[3])]

    def spots(self) -> Collection[Spot]:
        """Return the spots with any edge."""
        return self._at_spot.keys()

    def at_spot(self, spot: Spot) -> Sequence[Edge]:
        """Return the edges of the claims on one spot, in order of time. Do not change or keep the list."""
        return self._at_spot.get(spot, ())

    def stamp(self, spot: Spot) -> object:
        """Return a stamp of a spot's edges, which is equal as long as they do not change.

        Edges of another profile have other stamps. All spots without edges have the same.
        """
        return self._stamps.get(spot, _NO_EDGES)

    def validate(self) -> None:
        """Raise AssertionError where the edges are not those of the claims."""
        expected = sorted((edge for claim in self._claims.values() for edge in _edges_of(claim)), key=order)
        assert list(self._edges) == expected, "the edges of the profile are not those of its claims"
        assert self._at_spot == by_spot(expected), "the edges by spot are not those of the claims there"
        assert self._stamps.keys() == self._at_spot.keys(), "not the spots with edges are those with a stamp"


def _edges_of(claim: Claim) -> tuple[Edge, ...]:
    """Return the begin and the release of a claim, without those that would never matter."""
    end = (claim.ends_at, RELEASE, claim.holder, claim)
    # A claim that never ends has no release, and running work has no begin. Such edges would never matter.
    ends = (end,) if claim.ends_at < inf else ()
    return ends if claim.is_running else ((claim.begins_at, BEGIN, claim.holder, claim), *ends)


def by_spot(edges: Sequence[Edge]) -> dict[Spot, list[Edge]]:
    """Return the edges by spot, each once for every spot of its claim, in their given order."""
    found: dict[Spot, list[Edge]] = {}
    for edge in edges:
        for spot in edge[3].spots:
            found.setdefault(spot, []).append(edge)
    return found


def order(edge: Edge) -> tuple[float, int, WorkloadKey]:
    """Return the sort key of an edge: instant, release before begin, holder."""
    return edge[:3]


def _after(instant: float) -> _Order:
    """Return the bound that comes after every edge at the instant, and before every later one."""
    return instant, BEGIN + 1


def time_of(edge: Edge) -> float:
    """Return the instant of an edge (Unix seconds)."""
    return edge[0]
