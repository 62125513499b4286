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
in or take out, a search O(edges it walks over).

Work begins where something is released, never between two edges: the search tries the instant asked for and
then each release. Once no promise begins any more, capacity only grows and the instant is found by halving.
Source: Slurm's backfill scheduler (node_space), Srinivasan et al. 2002 for the kinds of promises.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Generic, Protocol, TypeVar

from api.workload import WorkloadKey
from queues.resources import Quantities

# A host or another lowest domain: whose it is ("" for hosts, which flavors share), and its level values.
Spot = tuple[str, tuple[str, ...]]
Spots = Mapping[Spot, Mapping[str, int]]

# The sign of an edge: by how much the claim counts from there on.
RELEASE, BEGIN = -1, 1
_NO_SPOTS: Spots = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What `holder` takes of a ClusterQueue's quota and of which spots, from `begins_at` to `ends_at`.

    Unix seconds. Running work begins at minus infinity: the quota tree and the nodes count it already.

    A quota window claims no usage: `quota` is by how much less the ClusterQueue's own nominal quota is while
    the claim lasts. Nobody need leave room for it who starts more than `lead_seconds` before it begins.
    """

    holder: WorkloadKey
    queue: str
    usage: Quantities
    spots: Spots = field(default_factory=lambda: _NO_SPOTS)
    begins_at: float = -inf
    ends_at: float = inf
    quota: Quantities = field(default_factory=dict)
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
Value = TypeVar("Value")


class Stage(Protocol):
    """The quota tree and the nodes, on which changes are tried."""

    def charge(self, queue: str, usage: Quantities) -> None:
        """Count this much more of the queue's quota as used from here on; below 0: as free."""

    def shift(self, queue: str, amounts: Quantities) -> None:
        """Take the queue's own nominal quota to be less by this much from here on; below 0: more."""

    def occupy(self, spots: Spots) -> None:
        """Count this much more of the spots as taken from here on; below 0: as free."""


class Trial(Protocol[Value]):
    """The request that looks for its start, asked on the stage as it stands at some instant."""

    def may_fit(self, changes: Spots) -> bool:
        """Return False only where the request could not begin if the spots changed by so much.

        A condition that is necessary and cheap, looked at before `find` is.
        """

    def find(self) -> Value | None:
        """Return how it could begin now, None where it could not."""

    def holds(self, value: Value) -> bool:
        """Return whether what was found, its spots too, could be added to the stage as it is now."""

    def spots_of(self, value: Value) -> Spots:
        """Return the spots of what was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Generic[Value]):
    """The earliest start: when (Unix seconds), and what was found then."""

    at: float
    value: Value


class Profile:
    """All claims, by holder and along time. One task owns it."""

    def __init__(self) -> None:
        self._claims: dict[WorkloadKey, Claim] = {}
        self._edges: list[Edge] = []
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
        # A holder has one claim, so that who changes its estimate needs no record of the former
        # one.
        self.drop(claim.holder)
        self.version += 1
        self._claims[claim.holder] = claim
        for edge in _edges_of(claim):
            insort(self._edges, edge, key=_order)

    def drop(self, holder: WorkloadKey) -> Claim | None:
        """Take a claim out. Returns it, None where there was none."""
        claim = self._claims.pop(holder, None)
        if claim is not None:
            self.version += 1
            for edge in _edges_of(claim):
                # Found by its order, which is unique: a holder has one begin and one end.
                del self._edges[bisect_left(self._edges, _order(edge), key=_order)]
        return claim

    def outrun(self, now: float) -> list[Claim]:
        """Return the running claims that should have ended by now, and have not."""
        # Ends at exactly `now` are due too: what has not ended by then has outrun its estimate.
        due = self._edges[: bisect_right(self._edges, now, key=time_of)]
        return [claim for _, sign, _, claim in due if sign == RELEASE and claim.is_running]

    def next_end_at(self, *, after: float) -> float | None:
        """Return when the next running claim is expected to end after that instant, None where none is."""
        for at, sign, _, claim in self._edges[bisect_right(self._edges, after, key=time_of) :]:
            if sign == RELEASE and claim.is_running:
                return at
        return None

    def edges(self, *, wants: Callable[[Claim], bool] | None = None) -> list[Edge]:
        """Return the edges in order of time, of the claims that are wanted."""
        if wants is None:
            return list(self._edges)
        return [edge for edge in self._edges if wants(edge[3])]

    def validate(self) -> None:
        """Raise AssertionError where edges and claims disagree."""
        expected = sorted((edge for claim in self._claims.values() for edge in _edges_of(claim)), key=_order)
        assert self._edges == expected, "the edges of the profile are not those of its claims"


def _edges_of(claim: Claim) -> tuple[Edge, ...]:
    end = (claim.ends_at, RELEASE, claim.holder, claim)
    # What never ends has no edge there, and running work none at its begin: both would only be
    # walked over.
    ends = (end,) if claim.ends_at < inf else ()
    return ends if claim.is_running else ((claim.begins_at, BEGIN, claim.holder, claim), *ends)


def _order(edge: Edge) -> tuple[float, int, WorkloadKey]:
    return edge[:3]


def time_of(edge: Edge) -> float:
    """Return when the edge is (Unix seconds)."""
    return edge[0]
