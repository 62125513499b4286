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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Generic, Protocol, TypeVar

from api.workload import WorkloadKey
from queues.resources import Quantities

# A host or another lowest domain: whose it is ("" for hosts, which flavors share), and its level values.
Spot = tuple[str, tuple[str, ...]]
Spots = Mapping[Spot, Mapping[str, int]]

_RELEASE, _BEGIN = -1, 1
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

    def change(self, claim: Claim, sign: int) -> None:
        """Count the claim as used from here on (1), or as free (-1)."""

    def occupy(self, spots: Spots, sign: int) -> None:
        """Count spots alone as taken (1), or as free again (-1)."""


class Trial(Protocol[Value]):
    """The request that looks for its start, asked on the stage as it stands at some instant."""

    def find(self) -> Value | None:
        """Return how it could begin now, None where it could not."""

    def holds(self, value: Value) -> bool:
        """Return whether what was found, its spots too, could be added to the stage as it is now."""


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
                del self._edges[bisect_left(self._edges, _order(edge), key=_order)]
        return claim

    def outrun(self, now: float) -> list[Claim]:
        """Return the running claims that should have ended by now, and have not."""
        due = self._edges[: bisect_right(self._edges, now, key=_time)]
        return [claim for _, sign, _, claim in due if sign == _RELEASE and claim.is_running]

    def next_end_at(self, *, after: float) -> float | None:
        """Return when the next running claim is expected to end after that instant, None where none is."""
        for at, sign, _, claim in self._edges[bisect_right(self._edges, after, key=_time) :]:
            if sign == _RELEASE and claim.is_running:
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


def earliest(
    edges: Sequence[Edge], stage: Stage, trial: Trial[Value], *, now: float, seconds: float
) -> Start[Value] | None:
    """Return the first instant from which the trial's request fits for so many seconds, None for never.

    `edges` are those of all other claims. The stage shows the present and is left as it was found. Edges of
    the past: a promise that should have begun counts as begun, work that should have ended as never ending
    (its estimate is to be raised first).
    """
    walk = _Walk(edges=_from_now(edges, now), stage=stage, trial=trial, at=now, seconds=seconds)
    try:
        return walk.search()
    finally:
        walk.go_to(0)


def stands(
    edges: Sequence[Edge], stage: Stage, trial: Trial[Value], value: Value, *, now: float, until: float
) -> WorkloadKey | None:
    """Return whose promise `value`, kept from now until `until`, would get in the way of first.

    None where all stand. The stage is left as it was found.
    """
    walk = _Walk(edges=_from_now(edges, now), stage=stage, trial=trial, at=now, seconds=until - now)
    try:
        walk.go_to(walk.due())
        begun = [edge[2] for edge in walk.edges[: walk.position] if edge[1] == _BEGIN]
        if begun and not trial.holds(value):
            return begun[-1]
        return walk.first_conflict(value)
    finally:
        walk.go_to(0)


def fits_from(
    edges: Sequence[Edge], stage: Stage, trial: Trial[Value], *, now: float, seconds: float
) -> Value | None:
    """Return how the request could begin now and stay for so many seconds, None where it could not."""
    walk = _Walk(edges=_from_now(edges, now), stage=stage, trial=trial, at=now, seconds=seconds)
    try:
        walk.go_to(walk.due())
        return walk.attempt()
    finally:
        walk.go_to(0)


def holds_at(
    edges: Sequence[Edge], stage: Stage, trial: Trial[Value], value: Value, *, at: float, seconds: float
) -> bool:
    """Return whether `value` could begin at that instant, be it now or later, and stay so many seconds.

    For a promise that has been made: does it stand? Ends up to `at` count as come.
    """
    walk = _Walk(edges=list(edges), stage=stage, trial=trial, at=at, seconds=seconds)
    try:
        walk.go_to(walk.due())
        return trial.holds(value) and walk.first_conflict(value) is None
    finally:
        walk.go_to(0)


@dataclass(slots=True, kw_only=True)
class _Walk(Generic[Value]):
    """A position on the edges: those before it have been carried out on the stage."""

    edges: list[Edge]
    stage: Stage
    trial: Trial[Value]
    at: float
    seconds: float
    position: int = 0
    _last_begin: int = field(init=False)

    def __post_init__(self) -> None:
        begins = (index for index in range(len(self.edges) - 1, -1, -1) if self.edges[index][1] == _BEGIN)
        self._last_begin = next(begins, -1)

    def search(self) -> Start[Value] | None:
        """Return the first start from the present position on."""
        self.go_to(self.due())
        while self.position <= self._last_begin:
            found = self.attempt()
            if found is not None:
                return Start(at=self.at, value=found)
            if not self._step():
                return None
        return self._by_halving()

    def due(self) -> int:
        """Return the position after all that happens up to `at`."""
        return bisect_right(self.edges, self.at, key=_time)

    def go_to(self, position: int) -> None:
        """Carry out the edges up to there, or take them back."""
        while self.position < position:
            _, sign, _, claim = self.edges[self.position]
            self.stage.change(claim, sign)
            self.position += 1
        while self.position > position:
            self.position -= 1
            _, sign, _, claim = self.edges[self.position]
            self.stage.change(claim, -sign)

    def first_conflict(self, value: Value) -> WorkloadKey | None:
        """Return whose begin within the span leaves no room for `value`; the position comes back."""
        begin, until = self.position, self.at + self.seconds
        for index in range(begin, self._last_begin + 1):
            at, sign, holder, claim = self.edges[index]
            if at >= until:
                break
            # Between two begins capacity only grows: it is enough to look right after each.
            if sign == _BEGIN and at - self.at <= claim.lead_seconds:
                self.go_to(index + 1)
                if not self.trial.holds(value):
                    self.go_to(begin)
                    return holder
        self.go_to(begin)
        return None

    def attempt(self) -> Value | None:
        """Return how the request could begin here and stay for the span, None where it could not."""
        peaks = self._peaks()
        self.stage.occupy(peaks, 1)
        found = self.trial.find()
        if found is not None and self.first_conflict(found) is not None:
            found = self._find_clear_of_appointments()
        self.stage.occupy(peaks, -1)
        return found

    def _find_clear_of_appointments(self) -> Value | None:
        """Return how the request could begin here with all appointments of its span counted as begun.

        The first flavor that has room now may be the one whose quota falls, and a search looks no further. An
        end before the appointment is not seen here, so this comes second.
        """
        until = self.at + self.seconds
        edges = self.edges[self.position : self._last_begin + 1]
        coming = [
            claim
            for at, sign, _, claim in edges
            if sign == _BEGIN and claim.is_appointment and at < until and at - self.at <= claim.lead_seconds
        ]
        for claim in coming:
            self.stage.change(claim, 1)
        found = self.trial.find() if coming else None
        for claim in reversed(coming):
            self.stage.change(claim, -1)
        return None if found is None or self.first_conflict(found) is not None else found

    def _step(self) -> bool:
        """Go on to the next release. Returns whether there is one."""
        index = self.position
        while index < len(self.edges) and self.edges[index][1] != _RELEASE:
            index += 1
        if index == len(self.edges):
            return False
        self.at = self.edges[index][0]
        self.go_to(self.due())
        return True

    def _by_halving(self) -> Start[Value] | None:
        """Return the first start where only releases are left: what fits once, fits ever after."""
        times = [self.at, *dict.fromkeys(edge[0] for edge in self.edges[self.position :])]
        low, high, found = -1, 0, self._try_at(times[0])
        while found is None:
            if high == len(times) - 1:
                return None
            low, high = high, min(2 * high + 1, len(times) - 1)
            found = self._try_at(times[high])
        while high - low > 1:
            middle = (low + high) // 2
            value = self._try_at(times[middle])
            if value is None:
                low = middle
            else:
                high, found = middle, value
        return Start(at=times[high], value=found)

    def _try_at(self, at: float) -> Value | None:
        self.at = at
        self.go_to(self.due())
        return self.trial.find()

    def _peaks(self) -> dict[Spot, dict[str, int]]:
        """Return by how much more than now every spot is taken within the span, at its worst.

        The same spots must do for the whole span, so what is free of a spot is its least over the span.
        """
        window = self.edges[self.position : bisect_left(self.edges, self.at + self.seconds, key=_time)]
        # Only what promises take is of interest: elsewhere capacity grows.
        promised = {spot for _, sign, _, claim in window if sign == _BEGIN for spot in claim.spots}
        peaks: dict[Spot, dict[str, int]] = {}
        if not promised:
            return peaks
        changes: dict[tuple[Spot, str], int] = {}
        for _, sign, _, claim in window:
            for spot in claim.spots.keys() & promised:
                for resource, amount in claim.spots[spot].items():
                    change = changes[spot, resource] = changes.get((spot, resource), 0) + sign * amount
                    if change > peaks.get(spot, {}).get(resource, 0):
                        peaks.setdefault(spot, {})[resource] = change
        return peaks


def _from_now(edges: Sequence[Edge], now: float) -> list[Edge]:
    """Return the edges without ends that have passed: nothing that is still there has ended."""
    past = bisect_right(edges, now, key=_time)
    return [edge for edge in edges[:past] if edge[1] == _BEGIN] + list(edges[past:])


def _edges_of(claim: Claim) -> tuple[Edge, ...]:
    end = (claim.ends_at, _RELEASE, claim.holder, claim)
    ends = (end,) if claim.ends_at < inf else ()
    return ends if claim.is_running else ((claim.begins_at, _BEGIN, claim.holder, claim), *ends)


def _order(edge: Edge) -> tuple[float, int, WorkloadKey]:
    return edge[:3]


def _time(edge: Edge) -> float:
    return edge[0]
