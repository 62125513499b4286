"""Walks along the edges of a profile: what could begin where one stands, and whose promise would it break?

A walk stands at a position between two edges. What the claims before it have released and taken,
counted from now, is carried over to the stage only as far as a question needs it
(`queues.profile.trial_usage`): the quota of all queues, which is kept as a sum along the way, and the
places that are asked about, each summed up from its own few edges when it is. Adding and removing are
mirror images, so this may be done in any order and the walk leaves no trace. At which positions it is
worth to ask is no question of the walk's (`queues.profile.earliest_start`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from typing import Generic, NamedTuple

from api.workload import WorkloadKey
from queues.profile.capacity_profile import (
    BEGIN,
    Edge,
    Spot,
    Spots,
    Stage,
    Trial,
    Value,
    order,
    time_of,
)
from queues.profile.node_windows import open_instants
from queues.profile.request_horizon import RequestHorizon
from queues.profile.trial_usage import TrialUsage, Usage


class ClaimConflict(NamedTuple):
    """That a promise does not stand: whose, and at which instant it is to begin (Unix seconds)."""

    key: WorkloadKey
    at: float


def stands(
    horizon: RequestHorizon, stage: Stage, trial: Trial[Value], value: Value, *, now: float, until: float
) -> WorkloadKey | None:
    """Return whose promise `value`, kept from now until `until`, would get in the way of first.

    None where all stand. The stage is left as it was found.
    """
    found = first_broken(horizon, stage, trial, value, now=now, until=until)
    return found.key if found is not None else None


def first_broken(
    horizon: RequestHorizon,
    stage: Stage,
    trial: Trial[Value],
    value: Value,
    *,
    now: float,
    until: float = inf,
) -> ClaimConflict | None:
    """Return the first promise that `value`, kept from now until `until`, would get in the way of.

    None where all stand. One that should have begun by now is at `now`. The stage is left as it was found.
    """
    walk = ProfileWalk(horizon.since(now), stage=stage, trial=trial, at=now, seconds=until - now)
    try:
        walk.go_to(walk.due())
        # Promises that should have begun by now and have not: their room is theirs, though
        # nothing takes it yet.
        begun = [edge[2] for edge in walk.edges[: walk.position] if edge[1] == BEGIN]
        if begun and not walk.holds(value):
            return ClaimConflict(begun[-1], now)
        return walk.first_conflict(value)
    finally:
        walk.leave()


def fits_from(
    horizon: RequestHorizon, stage: Stage, trial: Trial[Value], *, now: float, seconds: float
) -> Value | None:
    """Return how the request could begin now and stay for so many seconds, None where it could not."""
    walk = ProfileWalk(horizon.since(now), stage=stage, trial=trial, at=now, seconds=seconds)
    try:
        if not walk.open_instants([now]):
            return None
        walk.go_to(walk.due())
        return walk.attempt()
    finally:
        walk.leave()


def holds_at(
    horizon: RequestHorizon, stage: Stage, trial: Trial[Value], value: Value, *, at: float, seconds: float
) -> bool:
    """Return whether `value` could begin at that instant, be it now or later, and stay so many seconds.

    For a promise that has been made: does it stand? Ends up to `at` count as come.
    """
    # Ends up to `at` count as come, passed ones too: the promise was made on them.
    walk = ProfileWalk(horizon, stage=stage, trial=trial, at=at, seconds=seconds)
    try:
        walk.go_to(walk.due())
        return walk.holds(value) and walk.first_conflict(value) is None
    finally:
        walk.leave()


@dataclass(slots=True)
class ProfileWalk(Generic[Value]):
    """A position on the edges: those before it count as having happened."""

    horizon: RequestHorizon
    _: KW_ONLY
    stage: Stage
    trial: Trial[Value]
    at: float
    seconds: float
    position: int = 0
    edges: Sequence[Edge] = field(init=False)
    # Up to where the stage shows all spots, and those of which it shows something else.
    _spots_at: int = 0
    _strays: set[Spot] = field(default_factory=set)
    _shift: TrialUsage = field(init=False)

    def __post_init__(self) -> None:
        self.edges = self.horizon.edges
        self._shift = TrialUsage(self.stage)

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

    def stand_at(self, at: float) -> None:
        """Go to the position after all that happens up to `at`, from which on questions are meant."""
        self.at = at
        self.go_to(self.due())

    def leave(self) -> None:
        """Leave the stage as it was found."""
        self._shift.take_back()

    def rest(self) -> None:
        """Leave the stage as it was found for a while; what was worked out stays."""
        self.go_to(0)
        self._shift.take_back()
        self._spots_at, self._strays = 0, set()

    # --- asking ------------------------------------------------------------------------------------------

    def open_instants(self, instants: Sequence[float]) -> list[float]:
        """Return at which of the instants, the first of them `at`, there may be room spot by spot.

        To be asked while the stage shows the present.
        """
        return open_instants(self.horizon, self.trial.rooms(), instants, seconds=self.seconds)

    def may_have_quota(self) -> bool:
        """Return False only where there is no quota for the request at this position: a cheap question."""
        self._shift.show_quota()
        return self.trial.may_have_quota()

    def holds(self, value: Value) -> bool:
        """Return whether `value` could be added at this position."""
        return self._has_quota(value) and self._has_spots(value)

    def _has_quota(self, value: Value) -> bool:
        self._shift.show_quota()
        return self.trial.has_quota(value)

    def _has_spots(self, value: Value) -> bool:
        self._show_spots(self.trial.spots_of(value))
        return self.trial.has_spots(value)

    def first_conflict(self, value: Value) -> ClaimConflict | None:
        """Return the begin within the span that leaves no room for `value`; the position comes back."""
        start, spots, before = self.position, self.trial.spots_of(value), self._shift.picture()
        found: ClaimConflict | None = None
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
                    found = ClaimConflict(edge[2], edge[0])
                    break
                fullest = self._shift.picture()
            if not spots.keys().isdisjoint(edge[3].spots) and not self._has_spots(value):
                found = ClaimConflict(edge[2], edge[0])
                break
        # Not edge by edge where it can be had at once.
        if self._shift.return_to(before):
            self.position = start
        else:
            self.go_to(start)
        return found

    def find(self) -> Value | None:
        """Return how the request could begin here as things stand at this position, whatever begins later."""
        if not self.may_have_quota():
            return None
        self._show_spots()
        return self.trial.find()

    def attempt(self) -> Value | None:
        """Return how the request could begin here and stay for the span, None where it could not."""
        if not self.may_have_quota():
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
        begins = self.horizon.begins()
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
            for edge in self.horizon.at_spot(spot):
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
        for edge in self.horizon.at_spot(spot):
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
