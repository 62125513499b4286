"""Walks along the edges of a profile: when could a request begin, and whose promise would it break?

A walk stands at a position between two edges. What the claims before it have released and taken, counted
from now, is carried over to the stage only as far as a question needs it (`queues.shift`): the quota of all
queues, which is kept as a sum along the way, and the places that are asked about, each summed up from its own
few edges when it is. Adding and removing are mirror images, so this may be done in any order and the walk
leaves no trace. What costs is the search for flavors and nodes (`Trial.find`), so that is asked rarely:

    promises that begin        ▼ b1             ▼ b2              ▼ b3
    ───┬────┬──────┬───┬───────┼──────┬────┬────┼───┬──────┬──────┼──────┬─────────▶ t
      now  end    end end            end  end      end    end           end

Work begins where something is released, never between two edges, and only where spot by spot there is room
for as long as it runs (`queues.spans`): as a rule that leaves one or two instants of hundreds. Between two
begins quota only grows, so a cheap and necessary condition (`Trial.may_have_quota`) is looked at at the last
instant before a begin: where it does not hold there, it holds nowhere between the two; where it does, the
first instant is found by halving. Where it does not hold right after a begin, no start will do that would
still run then. From there on every release that is left is tried in earnest, since a later start meets other
begins and may fail where an earlier one would not. After the last begin what fits once fits ever after,
and halving alone finds it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from typing import Generic, NamedTuple

from api.workload import WorkloadKey
from queues.profile import (
    BEGIN,
    RELEASE,
    Edge,
    Spot,
    Spots,
    Stage,
    Start,
    Trial,
    Value,
    order,
    time_of,
)
from queues.prospect import Prospect
from queues.shift import Shift, Usage
from queues.spans import open_instants
from queues.steps import Steps, finish

# A search that has tried so often in vain pauses: tens of milliseconds where hundreds are promised a start,
# and several times what the pause costs it.
_ATTEMPTS_AT_ONCE = 2


def earliest(
    prospect: Prospect,
    stage: Stage,
    trial: Trial[Value],
    *,
    now: float,
    seconds: float,
    latest: float = inf,
) -> Start[Value] | None:
    """Return the first instant from which the trial's request fits for so many seconds, None for never.

    `prospect` is what there is of other claims. The stage shows the present and is left as it was found.
    Edges of the past: a promise that should have begun counts as begun, work that should have ended as never
    ending (its estimate is to be raised first). No start after `latest` is looked for, but now always is.
    """
    return finish(searching(prospect, stage, trial, now=now, seconds=seconds, latest=latest))


def searching(
    prospect: Prospect,
    stage: Stage,
    trial: Trial[Value],
    *,
    now: float,
    seconds: float,
    latest: float = inf,
) -> Steps[Start[Value] | None]:
    """Look for the `earliest` start in steps; between two the stage shows the present."""
    walk = _Walk(prospect.since(now), stage=stage, trial=trial, at=now, seconds=seconds, latest=latest)
    try:
        return (yield from walk.search())
    finally:
        walk.leave()


class Conflict(NamedTuple):
    """That a promise does not stand: whose, and at which instant it is to begin (Unix seconds)."""

    key: WorkloadKey
    at: float


def stands(
    prospect: Prospect, stage: Stage, trial: Trial[Value], value: Value, *, now: float, until: float
) -> WorkloadKey | None:
    """Return whose promise `value`, kept from now until `until`, would get in the way of first.

    None where all stand. The stage is left as it was found.
    """
    found = first_broken(prospect, stage, trial, value, now=now, until=until)
    return found.key if found is not None else None


def first_broken(
    prospect: Prospect, stage: Stage, trial: Trial[Value], value: Value, *, now: float, until: float = inf
) -> Conflict | None:
    """Return the first promise that `value`, kept from now until `until`, would get in the way of.

    None where all stand. One that should have begun by now is at `now`. The stage is left as it was found.
    """
    walk = _Walk(prospect.since(now), stage=stage, trial=trial, at=now, seconds=until - now)
    try:
        walk.go_to(walk.due())
        # Promises that should have begun by now and have not: their room is theirs, though nothing
        # takes it yet.
        begun = [edge[2] for edge in walk.edges[: walk.position] if edge[1] == BEGIN]
        if begun and not walk.holds(value):
            return Conflict(begun[-1], now)
        return walk.first_conflict(value)
    finally:
        walk.leave()


def fits_from(
    prospect: Prospect, stage: Stage, trial: Trial[Value], *, now: float, seconds: float
) -> Value | None:
    """Return how the request could begin now and stay for so many seconds, None where it could not."""
    walk = _Walk(prospect.since(now), stage=stage, trial=trial, at=now, seconds=seconds)
    try:
        if not walk.open_instants([now]):
            return None
        walk.go_to(walk.due())
        return walk.attempt()
    finally:
        walk.leave()


def holds_at(
    prospect: Prospect, stage: Stage, trial: Trial[Value], value: Value, *, at: float, seconds: float
) -> bool:
    """Return whether `value` could begin at that instant, be it now or later, and stay so many seconds.

    For a promise that has been made: does it stand? Ends up to `at` count as come.
    """
    # Ends up to `at` count as come, passed ones too: the promise was made on them.
    walk = _Walk(prospect, stage=stage, trial=trial, at=at, seconds=seconds)
    try:
        walk.go_to(walk.due())
        return walk.holds(value) and walk.first_conflict(value) is None
    finally:
        walk.leave()


@dataclass(slots=True)
class _Walk(Generic[Value]):
    """A position on the edges: those before it count as having happened."""

    prospect: Prospect
    _: KW_ONLY
    stage: Stage
    trial: Trial[Value]
    at: float
    seconds: float
    latest: float = inf
    position: int = 0
    edges: Sequence[Edge] = field(init=False)
    # Up to where the stage shows all spots, and those of which it shows something else.
    _spots_at: int = 0
    _strays: set[Spot] = field(default_factory=set)
    _attempts: int = 0
    # How many begins have been looked at, and when of those there is no quota right after.
    _looked: int = 0
    _short_at: list[float] = field(default_factory=list)
    _shift: Shift = field(init=False)

    def __post_init__(self) -> None:
        self.edges = self.prospect.edges
        self._shift = Shift(self.stage)

    # --- moving ------------------------------------------------------------------------------------------

    def due(self) -> int:
        """Return the position after all that happens up to `at`."""
        return bisect_right(self.edges, self.at, key=time_of)

    def go_to(self, position: int) -> None:
        """Count the edges up to there as having happened, and none behind it."""
        if position > self.position:
            self._shift.count(self.edges[self.position : position], 1)
        elif position < self.position:
            # Backwards the same edges count the other way round.
            self._shift.count(self.edges[position : self.position], -1)
        self.position = position

    def leave(self) -> None:
        """Leave the stage as it was found."""
        self._shift.take_back()

    # --- searching ---------------------------------------------------------------------------------------

    def open_instants(self, instants: Sequence[float]) -> list[float]:
        """Return at which of the instants, the first of them `at`, there may be room spot by spot.

        To be asked while the stage shows the present.
        """
        return open_instants(self.prospect, self.trial.rooms(), instants, seconds=self.seconds)

    def search(self) -> Steps[Start[Value] | None]:
        """Return the first start from the present position on."""
        due = self.due()
        instants = self.open_instants([self.at, *self._releases(due)])
        if instants and instants[0] == self.at:
            self.go_to(due)
            found = self.attempt()
            if found is not None:
                return Start(at=self.at, value=found)
            del instants[0]
        return (yield from self._search_among(instants))

    def _search_among(self, instants: Sequence[float]) -> Steps[Start[Value] | None]:
        """Return the first start at one of the instants, which are later ones in order."""
        if not instants:
            return None
        done = 0
        begins = self.prospect.begins()
        for begin in begins[bisect_left(begins, self.due()) :]:
            # Ends at the same instant come before the begin.
            end = bisect_right(instants, self.edges[begin][0], lo=done)
            found_start = yield from self._search_before(begin, instants[done:end])
            if found_start is not None or end == len(instants):
                return found_start
            # A start at that very instant is one after the begin, too: it has been tried as such.
            done = end
        return self._by_halving(instants[done:])

    def _search_before(self, begin: int, instants: Sequence[float]) -> Steps[Start[Value] | None]:
        """Return the first start at one of the instants, all of them before a begin."""
        # First, as that goes one way along the edges: as a rule nothing is left to go back for.
        instants = [at for at in instants if not self._is_short_within(at)]
        # Each of them, not by halving: a later start meets more begins, so that fitting is no longer
        # monotone here.
        for at in instants[self._first_that_may_fit(instants, end=begin) :]:
            self._attempts += 1
            if self._attempts % _ATTEMPTS_AT_ONCE == 0:
                yield from self._rest()
            self.at = at
            self.go_to(self.due())
            found = self.attempt()
            if found is not None:
                return Start(at=at, value=found)
        return None

    def _rest(self) -> Steps[None]:
        """Pause with the stage as it was found; what was worked out stays."""
        self.go_to(0)
        self._shift.take_back()
        self._spots_at, self._strays = 0, set()
        yield

    def _is_short_within(self, at: float) -> bool:
        """Return whether after some begin within the span from `at` on there is certainly no quota.

        What is left then does not hang on when the request has begun, so each begin is looked at once a
        search, and rules out all instants from which it would be met. To be asked of instants in order.
        """
        begins, until = self.prospect.begins(), at + self.seconds
        while self._looked < len(begins) and (edge := self.edges[begins[self._looked]])[0] < until:
            # Appointments with a lead are in nobody's way who begins long before: each start has its own
            # answer.
            if edge[0] >= at and edge[3].lead_seconds == inf:
                self.go_to(begins[self._looked] + 1)
                if not self._may_have_quota():
                    self._short_at.append(edge[0])
            self._looked += 1
        first = bisect_left(self._short_at, at)
        return first < len(self._short_at) and self._short_at[first] < until

    def _releases(self, position: int) -> list[float]:
        """Return the instants of the releases from a position on, as far as they are of interest."""
        edges = self.edges[position : bisect_right(self.edges, self.latest, key=time_of)]
        return list(dict.fromkeys(edge[0] for edge in edges if edge[1] == RELEASE))

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
        return self._may_have_quota()

    def _may_have_quota(self) -> bool:
        self._shift.show_quota()
        return self.trial.may_have_quota()

    def _by_halving(self, instants: Sequence[float]) -> Start[Value] | None:
        """Return the first start where only releases are left: what fits once, fits ever after."""
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
        if not self._may_have_quota():
            return None
        self._show_spots()
        return self.trial.find()

    # --- asking ------------------------------------------------------------------------------------------

    def holds(self, value: Value) -> bool:
        """Return whether `value` could be added at this position."""
        return self._has_quota(value) and self._has_spots(value)

    def _has_quota(self, value: Value) -> bool:
        self._shift.show_quota()
        return self.trial.has_quota(value)

    def _has_spots(self, value: Value) -> bool:
        self._show_spots(self.trial.spots_of(value))
        return self.trial.has_spots(value)

    def first_conflict(self, value: Value) -> Conflict | None:
        """Return the begin within the span that leaves no room for `value`; the position comes back."""
        start, spots, before = self.position, self.trial.spots_of(value), self._shift.picture()
        found: Conflict | None = None
        fullest: Usage | None = None
        for index in self._begins_in_span():
            edge = self.edges[index]
            if edge[0] - self.at > edge[3].lead_seconds:
                continue
            # Between two begins capacity only grows: it is enough to look right after each.
            self.go_to(index + 1)
            # Where nobody uses more than at an instant at which there was quota, there is.
            if fullest is None or not self._shift.is_within(fullest):
                if not self._has_quota(value):
                    found = Conflict(edge[2], edge[0])
                    break
                fullest = self._shift.picture()
            if not spots.keys().isdisjoint(edge[3].spots) and not self._has_spots(value):
                found = Conflict(edge[2], edge[0])
                break
        # Not edge by edge where it can be had at once.
        if self._shift.return_to(before):
            self.position = start
        else:
            self.go_to(start)
        return found

    def attempt(self) -> Value | None:
        """Return how the request could begin here and stay for the span, None where it could not."""
        if not self._may_have_quota():
            return None
        self._show_spots()
        peaks = self._peaks()
        # Most starts before promises fail for these: what is free now is promised within the span.
        # Searched with the peaks in place, so that the nodes found are free all through the span.
        found = self._find_beside(peaks)
        if found is not None and self.first_conflict(found) is not None:
            # The flavors may be to blame, not the nodes: peaks know spots only.
            found = self._find_clear_of_appointments(peaks)
        return found

    def _find_beside(self, peaks: Spots) -> Value | None:
        """Return how the request could begin here if so much more of the spots was taken."""
        if not peaks:
            return self.trial.find()
        self.stage.occupy(peaks)
        found = self.trial.find()
        self.stage.occupy({spot: _negative(amounts) for spot, amounts in peaks.items()})
        return found

    def _find_clear_of_appointments(self, peaks: Spots) -> Value | None:
        """Return how the request could begin here with all appointments of its span counted as begun.

        The first flavor that has room now may be the one whose quota falls, and a search looks no further. An
        end before the appointment is not seen here, so this comes second.
        """
        coming = [
            edge
            for edge in (self.edges[index] for index in self._begins_in_span())
            if edge[3].is_appointment and edge[0] - self.at <= edge[3].lead_seconds
        ]
        if not coming:
            return None
        self._shift.count(coming, 1)
        self._shift.show_quota()
        self._show_spots()
        found = self._find_beside(peaks)
        self._shift.count(coming, -1)
        return None if found is None or self.first_conflict(found) is not None else found

    def _begins_in_span(self) -> Iterator[int]:
        """Yield the positions of the begins from here on and within the span."""
        until = self.at + self.seconds
        # The slice is taken now: whoever asks moves on meanwhile.
        begins = self.prospect.begins()
        for index in begins[bisect_left(begins, self.position) :]:
            if self.edges[index][0] >= until:
                break
            yield index

    def _peaks(self) -> dict[Spot, dict[str, int]]:
        """Return by how much more than now every spot is taken within the span, at its worst.

        The same spots must do for the whole span, so what is free of a spot is its least over the span.
        """
        # Only what promises take is of interest: elsewhere capacity grows.
        promised = {spot for index in self._begins_in_span() for spot in self.edges[index][3].spots}
        peaks: dict[Spot, dict[str, int]] = {}
        until, here = self.at + self.seconds, self._here()
        for spot in promised:
            change: dict[str, int] = {}
            for edge in self.prospect.at_spot(spot):
                if edge[0] >= until:
                    break
                if here is not None and order(edge) >= here:
                    for resource, amount in edge[3].spots[spot].items():
                        more = change[resource] = change.get(resource, 0) + edge[1] * amount
                        if more > peaks.get(spot, _NOTHING).get(resource, 0):
                            peaks.setdefault(spot, {})[resource] = more
        return peaks

    # --- spots -------------------------------------------------------------------------------------------

    def _show_spots(self, spots: Iterable[Spot] | None = None) -> None:
        """Let the stage show these spots as of this position; None: all."""
        if spots is not None:
            spots = tuple(spots)
            self._strays.update(spots)
        else:
            # Only what lies between there and here: of hundreds of spots a step changes a few.
            first, last = sorted((self._spots_at, self.position))
            spots, self._strays = self._strays, set()
            for edge in self.edges[first:last]:
                spots.update(edge[3].spots)
            self._spots_at = self.position
        self._shift.show_spots([(spot, self._change_of(spot)) for spot in spots])

    def _change_of(self, spot: Spot) -> dict[str, int]:
        """Return by how much more of the spot is taken at this position than now."""
        change: dict[str, int] = {}
        here = self._here()
        for edge in self.prospect.at_spot(spot):
            if here is not None and order(edge) >= here:
                break
            for resource, amount in edge[3].spots[spot].items():
                change[resource] = change.get(resource, 0) + edge[1] * amount
        return change

    def _here(self) -> tuple[float, int, WorkloadKey] | None:
        """Return the place among all edges from which on none has come; None where all have."""
        return order(self.edges[self.position]) if self.position < len(self.edges) else None


_NOTHING: dict[str, int] = {}


def _negative(amounts: Mapping[str, int]) -> dict[str, int]:
    return {resource: -amount for resource, amount in amounts.items()}
