"""Walks along the edges of a profile: when could a request begin, and whose promise would it break?

A walk stands at a position between two edges. What the claims before it have released and taken, counted
from now, is kept as a sum (`_Shift`), and carried over to the stage only as far as a question needs it: the
quota of all queues, and of the places those that are asked about. Adding and removing are mirror images, so
sums may be carried over in any order and the walk leaves no trace. An edge costs a few additions; what costs
is the search for flavors and nodes (`Trial.find`), so that is asked rarely:

    promises that begin        ▼ b1             ▼ b2              ▼ b3
    ───┬────┬──────┬───┬───────┼──────┬────┬────┼───┬──────┬──────┼──────┬─────────▶ t
      now  end    end end            end  end      end    end           end

Work begins where something is released, never between two edges. Between two begins capacity only grows, so
a cheap and necessary condition (`Trial.may_fit`) is looked at in the last position before a begin: where it
does not hold there, it holds nowhere between the two; where it does, the first position is found by halving.
From there on every release is tried in earnest, since a later start meets other begins and may fail where an
earlier one would not. After the last begin what fits once fits ever after, and halving alone finds it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Generic

from api.workload import WorkloadKey
from queues.profile import BEGIN, RELEASE, Claim, Edge, Spot, Spots, Stage, Start, Trial, Value, time_of
from queues.resources import FlavorResource, Quantities


def earliest(
    edges: Sequence[Edge],
    stage: Stage,
    trial: Trial[Value],
    *,
    now: float,
    seconds: float,
    latest: float = inf,
) -> Start[Value] | None:
    """Return the first instant from which the trial's request fits for so many seconds, None for never.

    `edges` are those of all other claims. The stage shows the present and is left as it was found. Edges of
    the past: a promise that should have begun counts as begun, work that should have ended as never ending
    (its estimate is to be raised first). No start after `latest` is looked for, but now always is.
    """
    walk = _Walk(
        edges=_from_now(edges, now), stage=stage, trial=trial, at=now, seconds=seconds, latest=latest
    )
    try:
        return walk.search()
    finally:
        walk.leave()


def stands(
    edges: Sequence[Edge], stage: Stage, trial: Trial[Value], value: Value, *, now: float, until: float
) -> WorkloadKey | None:
    """Return whose promise `value`, kept from now until `until`, would get in the way of first.

    None where all stand. The stage is left as it was found.
    """
    walk = _Walk(edges=_from_now(edges, now), stage=stage, trial=trial, at=now, seconds=until - now)
    # Until, not for: the same walk serves both, as its span is counted from where it stands.
    try:
        walk.go_to(walk.due())
        # Promises that should have begun by now and have not: their room is theirs, though nothing
        # takes it yet.
        begun = [edge[2] for edge in walk.edges[: walk.position] if edge[1] == BEGIN]
        if begun and not walk.holds(value):
            return begun[-1]
        return walk.first_conflict(value)
    finally:
        walk.leave()


def fits_from(
    edges: Sequence[Edge], stage: Stage, trial: Trial[Value], *, now: float, seconds: float
) -> Value | None:
    """Return how the request could begin now and stay for so many seconds, None where it could not."""
    walk = _Walk(edges=_from_now(edges, now), stage=stage, trial=trial, at=now, seconds=seconds)
    try:
        walk.go_to(walk.due())
        return walk.attempt()
    finally:
        walk.leave()


def holds_at(
    edges: Sequence[Edge], stage: Stage, trial: Trial[Value], value: Value, *, at: float, seconds: float
) -> bool:
    """Return whether `value` could begin at that instant, be it now or later, and stay so many seconds.

    For a promise that has been made: does it stand? Ends up to `at` count as come.
    """
    # Ends up to `at` count as come, passed ones too: the promise was made on them.
    walk = _Walk(edges=edges, stage=stage, trial=trial, at=at, seconds=seconds)
    try:
        walk.go_to(walk.due())
        return walk.holds(value) and walk.first_conflict(value) is None
    finally:
        walk.leave()


@dataclass(slots=True)
class _Shift:
    """What is used at the walk's position beyond what is used now, and how much of that the stage shows."""

    stage: Stage
    usage: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    # By how much less the nominal quota of a queue is.
    quota: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    spots: dict[Spot, dict[str, int]] = field(default_factory=dict)
    _shown_usage: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    _shown_quota: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    _shown_spots: dict[Spot, dict[str, int]] = field(default_factory=dict)

    def add(self, claim: Claim, sign: int) -> None:
        """Count a claim as taken (1) or as released (-1)."""
        total = self.usage.get(claim.queue)
        if total is None:
            total = self.usage[claim.queue] = {}
        for pair, amount in claim.usage.items():
            total[pair] = total.get(pair, 0) + sign * amount
        if claim.quota:
            lost = self.quota.setdefault(claim.queue, {})
            for pair, amount in claim.quota.items():
                lost[pair] = lost.get(pair, 0) + sign * amount
        for spot, amounts in claim.spots.items():
            of_spot = self.spots.get(spot)
            if of_spot is None:
                of_spot = self.spots[spot] = {}
            for resource, amount in amounts.items():
                of_spot[resource] = of_spot.get(resource, 0) + sign * amount

    def show_quota(self) -> None:
        """Let the stage show the quota of every queue as of this position."""
        self._show(self.usage, self._shown_usage, self.stage.charge)
        if self.quota:
            self._show(self.quota, self._shown_quota, self.stage.shift)

    @staticmethod
    def _show(
        totals: Mapping[str, Mapping[FlavorResource, int]],
        all_shown: dict[str, dict[FlavorResource, int]],
        carry_over: Callable[[str, Quantities], None],
    ) -> None:
        for queue, total in totals.items():
            shown = all_shown.setdefault(queue, {})
            # Only the difference, so that walking back and forth over an edge costs the stage
            # nothing.
            change = {pair: more for pair, value in total.items() if (more := value - shown.get(pair, 0))}
            if change:
                carry_over(queue, change)
                shown.update(total)

    def show_spots(self, spots: Mapping[Spot, object] | None = None) -> None:
        """Let the stage show these spots as of this position; None: all."""
        changes: dict[Spot, Mapping[str, int]] = {}
        for spot in self.spots if spots is None else spots:
            total = self.spots.get(spot)
            if total is not None and (change := self._hidden_of(spot, total)):
                changes[spot] = change
                self._shown_spots[spot] = dict(total)
        if changes:
            self.stage.occupy(changes)

    def hidden(self) -> dict[Spot, dict[str, int]]:
        """Return by how much every spot differs from what the stage shows, where it does."""
        found = {spot: self._hidden_of(spot, total) for spot, total in self.spots.items()}
        return {spot: change for spot, change in found.items() if change}

    def _hidden_of(self, spot: Spot, total: Mapping[str, int]) -> dict[str, int]:
        shown = self._shown_spots.get(spot)
        if shown is None:
            return {resource: value for resource, value in total.items() if value}
        return {
            resource: more for resource, value in total.items() if (more := value - shown.get(resource, 0))
        }

    def take_back(self) -> None:
        """Let the stage show the present again."""
        # Zero beyond the present, but only for what the stage has been shown: the rest never
        # reached it.
        self.usage = {queue: dict.fromkeys(total, 0) for queue, total in self._shown_usage.items()}
        self.quota = {queue: dict.fromkeys(total, 0) for queue, total in self._shown_quota.items()}
        self.spots = {spot: dict.fromkeys(total, 0) for spot, total in self._shown_spots.items()}
        self.show_quota()
        self.show_spots()


@dataclass(slots=True, kw_only=True)
class _Walk(Generic[Value]):
    """A position on the edges: those before it count as having happened."""

    edges: Sequence[Edge]
    stage: Stage
    trial: Trial[Value]
    at: float
    seconds: float
    latest: float = inf
    position: int = 0
    _shift: _Shift = field(init=False)
    # The positions of all begins, in order.
    _begins: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._shift = _Shift(self.stage)
        self._begins = [index for index, edge in enumerate(self.edges) if edge[1] == BEGIN]

    # --- moving ------------------------------------------------------------------------------------------

    def due(self) -> int:
        """Return the position after all that happens up to `at`."""
        return bisect_right(self.edges, self.at, key=time_of)

    def go_to(self, position: int) -> None:
        """Count the edges up to there as having happened, and none behind it."""
        edges, add = self.edges, self._shift.add
        for index in range(self.position, position):
            edge = edges[index]
            add(edge[3], edge[1])
        # Backwards the same edges count the other way round.
        for index in range(self.position - 1, position - 1, -1):
            edge = edges[index]
            add(edge[3], -edge[1])
        self.position = position

    def leave(self) -> None:
        """Leave the stage as it was found."""
        self._shift.take_back()

    # --- searching ---------------------------------------------------------------------------------------

    def search(self) -> Start[Value] | None:
        """Return the first start from the present position on."""
        self.go_to(self.due())
        # Now is tried in earnest before anything else: most who are asked about can start, or
        # nearly.
        found = self.attempt()
        if found is not None:
            return Start(at=self.at, value=found)
        # From one begin to the next, as between them capacity only grows.
        for begin in self._begins[bisect_left(self._begins, self.position) :]:
            if self.at > self.latest:
                return None
            found_start = self._search_before(begin)
            if found_start is not None:
                return found_start
            # Ends at the same instant come before the begin; on to the first release after it.
            self.go_to(max(self.position, begin + 1))
            self.at = max(self.at, self.edges[begin][0])
        return self._by_halving()

    def _search_before(self, begin: int) -> Start[Value] | None:
        """Return the first start at a release after the present position and before a begin."""
        instants = self._releases(self.position, begin)
        # Each of them, not by halving: a later start meets more begins, so that fitting is no
        # longer monotone here.
        for at in instants[self._first_that_may_fit(instants, end=begin) :]:
            self.at = at
            self.go_to(self.due())
            found = self.attempt()
            if found is not None:
                return Start(at=at, value=found)
        return None

    def _releases(self, position: int, end: int) -> list[float]:
        """Return the instants of the releases between two positions, as far as they are of interest."""
        edges = self.edges[position:end]
        instants = dict.fromkeys(edge[0] for edge in edges if edge[1] == RELEASE and edge[0] <= self.latest)
        return list(instants)

    def _first_that_may_fit(self, instants: Sequence[float], *, end: int) -> int:
        """Return the index of the first instant at which the request may fit; past the last: at none.

        A begin at `end` does not count as having come, though it may be at the last of the instants.
        """
        low, high = 0, len(instants)
        # The last instant is the roomiest: where it does not fit there, one look has spared all the
        # others.
        if not instants or not self._may_fit_at(instants[-1], end):
            return high
        high -= 1
        while low < high:
            middle = (low + high) // 2
            if self._may_fit_at(instants[middle], end):
                high = middle
            else:
                low = middle + 1
        return low

    def _may_fit_at(self, at: float, end: int) -> bool:
        self.go_to(min(end, bisect_right(self.edges, at, key=time_of)))
        return self._may_fit()

    def _may_fit(self) -> bool:
        self._shift.show_quota()
        return self.trial.may_fit(self._shift.hidden())

    def _by_halving(self) -> Start[Value] | None:
        """Return the first start where only releases are left: what fits once, fits ever after."""
        instants = self._releases(self.position, len(self.edges))
        low = high = self._first_that_may_fit(instants, end=len(self.edges))
        step, found = 1, None
        # Strides that double: the first that may fit is often the first that does, and a search
        # costs most.
        while found is None:
            if high >= len(instants):
                return None
            found = self._find_at(instants[high])
            if found is None:
                low, step = high + 1, 2 * step
                high = max(low, min(high + step, len(instants) - 1))
        while low < high:
            middle = (low + high) // 2
            value = self._find_at(instants[middle])
            if value is None:
                low = middle + 1
            else:
                high, found = middle, value
        return Start(at=instants[high], value=found)

    def _find_at(self, at: float) -> Value | None:
        self.at = at
        self.go_to(self.due())
        return self._find()

    def _find(self) -> Value | None:
        if not self._may_fit():
            return None
        self._shift.show_spots()
        return self.trial.find()

    # --- asking ------------------------------------------------------------------------------------------

    def holds(self, value: Value) -> bool:
        """Return whether `value` could be added at this position."""
        self._shift.show_quota()
        self._shift.show_spots(self.trial.spots_of(value))
        return self.trial.holds(value)

    def first_conflict(self, value: Value) -> WorkloadKey | None:
        """Return whose begin within the span leaves no room for `value`; the position comes back."""
        start, found = self.position, None
        for index in self._begins_in_span():
            edge = self.edges[index]
            if edge[0] - self.at > edge[3].lead_seconds:
                continue
            # Between two begins capacity only grows: it is enough to look right after each.
            self.go_to(index + 1)
            if not self.holds(value):
                found = edge[2]
                break
        self.go_to(start)
        return found

    def attempt(self) -> Value | None:
        """Return how the request could begin here and stay for the span, None where it could not."""
        if not self._may_fit():
            return None
        peaks = self._peaks()
        # Most starts before promises fail for these: what is free now is promised within the span.
        if peaks and not self.trial.may_fit(_sum(self._shift.hidden(), peaks)):
            return None
        self._shift.show_spots()
        if peaks:
            self.stage.occupy(peaks)
        # Searched with the peaks in place, so that the nodes found are free all through the span.
        found = self.trial.find()
        if found is not None and self.first_conflict(found) is not None:
            # The flavors may be to blame, not the nodes: peaks know spots only.
            found = self._find_clear_of_appointments()
        if peaks:
            self.stage.occupy({spot: _negative(amounts) for spot, amounts in peaks.items()})
        return found

    def _find_clear_of_appointments(self) -> Value | None:
        """Return how the request could begin here with all appointments of its span counted as begun.

        The first flavor that has room now may be the one whose quota falls, and a search looks no further. An
        end before the appointment is not seen here, so this comes second.
        """
        coming = [
            claim
            for at, _, _, claim in (self.edges[index] for index in self._begins_in_span())
            if claim.is_appointment and at - self.at <= claim.lead_seconds
        ]
        if not coming:
            return None
        for claim in coming:
            self._shift.add(claim, 1)
        self._shift.show_quota()
        self._shift.show_spots()
        # Nodes and flavors are chosen with everything of the span begun, which is stricter than it
        # needs to be.
        found = self.trial.find()
        for claim in coming:
            self._shift.add(claim, -1)
        return None if found is None or self.first_conflict(found) is not None else found

    def _begins_in_span(self) -> Iterator[int]:
        """Yield the positions of the begins from here on and within the span."""
        until = self.at + self.seconds
        # The slice is taken now: whoever asks moves on meanwhile.
        for index in self._begins[bisect_left(self._begins, self.position) :]:
            if self.edges[index][0] >= until:
                break
            yield index

    def _peaks(self) -> dict[Spot, dict[str, int]]:
        """Return by how much more than now every spot is taken within the span, at its worst.

        The same spots must do for the whole span, so what is free of a spot is its least over the span.
        """
        window = self.edges[self.position : bisect_left(self.edges, self.at + self.seconds, key=time_of)]
        # Only what promises take is of interest: elsewhere capacity grows.
        promised = {spot for _, sign, _, claim in window if sign == BEGIN for spot in claim.spots}
        peaks: dict[Spot, dict[str, int]] = {}
        if not promised:
            return peaks
        changes: dict[tuple[Spot, str], int] = {}
        for _, sign, _, claim in window:
            for spot in claim.spots.keys() & promised:
                for resource, amount in claim.spots[spot].items():
                    # The sum runs from the present: releases on the way make room for later begins.
                    change = changes[spot, resource] = changes.get((spot, resource), 0) + sign * amount
                    if change > peaks.get(spot, {}).get(resource, 0):
                        peaks.setdefault(spot, {})[resource] = change
        return peaks


def _from_now(edges: Sequence[Edge], now: float) -> Sequence[Edge]:
    """Return the edges without ends that have passed: nothing that is still there has ended."""
    past = bisect_right(edges, now, key=time_of)
    if not past:
        return edges
    # A begin in the past has not come true yet and is due; an end in the past has not come true and
    # is a lie.
    return [edge for edge in edges[:past] if edge[1] == BEGIN] + list(edges[past:])


def _sum(one: Mapping[Spot, Mapping[str, int]], other: Mapping[Spot, Mapping[str, int]]) -> Spots:
    """Return both changes together."""
    total = {spot: dict(amounts) for spot, amounts in one.items()}
    for spot, amounts in other.items():
        of_spot = total.setdefault(spot, {})
        for resource, amount in amounts.items():
            of_spot[resource] = of_spot.get(resource, 0) + amount
    return total


def _negative(amounts: Mapping[str, int]) -> dict[str, int]:
    return {resource: -amount for resource, amount in amounts.items()}
