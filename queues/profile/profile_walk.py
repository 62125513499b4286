"""A walk along the edges of a capacity profile: what fits at its position, and which promise would it break?

What is searched. A walk is at a position between two edges of a profile. The edges before the position count
as having happened, those after it as still to come. At the position it answers two questions: could a request
begin here, and would an assignment that begins here leave enough for everything that begins while it runs?

How. The profile stores no totals over time, because a quota tree with borrowing and lending limits has none.
The walk therefore shows the quota tree and the nodes themselves (the *stage*) the state at its position:

    position         │ here
    edges   ──end────┼──begin───end───▶ t
            counted  │  not counted
    stage   present + everything counted

It charges only what a question needs (`queues.profile.trial_usage`): the quota of all ClusterQueues, which is
kept as a running sum, and the spots that the question names, each summed up from its own few edges.

Invariant. What the stage shows is the present plus the sum of all changes charged so far, and `TrialUsage`
records that sum. Charging and taking back are exact inverses, so the walk may move in either direction and
`leave` restores the stage exactly.

Why checking the begins is enough. Between two begins edges only release, so free capacity never falls. An
assignment that fits right after every begin within its duration fits at every instant of it.

Cost. A move costs the edges it crosses. `first_conflict` costs one quota test for each begin within the
duration (fewer where a test already passed at a higher usage), and one node test for each begin that shares a
spot with the assignment. Every loop runs over a finite slice of the edges, so each question ends.

Which positions are worth asking at is decided by `queues.profile.earliest_start`.
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
    """A promise that cannot be kept: its Workload, and the instant (Unix seconds) at which it begins."""

    key: WorkloadKey
    at: float


def first_broken_promise(
    horizon: RequestHorizon, stage: Stage, trial: Trial[Value], value: Value, *, now: float, until: float
) -> WorkloadKey | None:
    """Return the Workload whose promise `value`, held from `now` until `until`, would break first.

    None where every promise can be kept. The stage is unchanged on return.

    `now` and `until` are in Unix seconds. See `first_broken`, which also tells when.
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
    """Return the first promise that `value`, held from `now` until `until`, would break.

    None where every promise can be kept. A promise that should have begun by now is reported with `now` as
    its instant. The stage is unchanged on return.

    `value` must fit at `now`: what fits is not checked again. `until` infinite means that the work may run
    for ever, so every promise counts. Quota windows and reservations of the calendar are promises in this
    sense, except where the start is earlier than their lead.
    """
    walk = ProfileWalk(horizon.since(now), stage=stage, trial=trial, at=now, seconds=until - now)
    try:
        walk.go_to(walk.due())
        # A promise that should have begun by now and has not keeps its claim, although
        # nothing uses the capacity yet.
        begun = [edge[2] for edge in walk.edges[: walk.position] if edge[1] == BEGIN]
        if begun and not walk.holds(value):
            return ClaimConflict(begun[-1], now)
        return walk.first_conflict(value)
    finally:
        walk.leave()


def fits_from(
    horizon: RequestHorizon, stage: Stage, trial: Trial[Value], *, now: float, seconds: float
) -> Value | None:
    """Return how the request could begin now and run for `seconds`, None where it could not.

    The cheap tests come first: most requests fail at the room of single nodes. The stage is unchanged on
    return.
    """
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
    """Return whether `value` could begin at `at`, now or later, and run for `seconds`.

    Use this to verify a promise that has been made.

    `at` is in Unix seconds. With `seconds` 0 only the begin itself is checked, not what begins later. The
    stage is unchanged on return.
    """
    # The horizon is not cut off at the present (`since`): the promise was made on ends up to `at`, including
    # ends that are overdue by now.
    walk = ProfileWalk(horizon, stage=stage, trial=trial, at=at, seconds=seconds)
    try:
        walk.go_to(walk.due())
        return walk.holds(value) and walk.first_conflict(value) is None
    finally:
        walk.leave()


@dataclass(slots=True)
class ProfileWalk(Generic[Value]):
    """A position on the edges of a horizon. The edges before it count as having happened.

    `at` is the start (Unix seconds) that questions are about, and `seconds` for how long the request runs
    from it. The stage must show the present when a walk is created; `leave` must be called at the end, also
    after an exception. Two walks must not use one stage at the same time.
    """

    horizon: RequestHorizon
    _: KW_ONLY
    stage: Stage
    trial: Trial[Value]
    at: float
    seconds: float
    position: int = 0
    edges: Sequence[Edge] = field(init=False)
    # The position whose spots the stage shows, and the spots for which it shows another position's.
    _spots_at: int = 0
    _strays: set[Spot] = field(default_factory=set)
    _shift: TrialUsage = field(init=False)

    def __post_init__(self) -> None:
        self.edges = self.horizon.edges
        self._shift = TrialUsage(self.stage)

    # --- moving ------------------------------------------------------------------------------------------

    def due(self) -> int:
        """Return the position after every edge up to `at`."""
        return bisect_right(self.edges, self.at, key=time_of)

    def go_to(self, position: int) -> None:
        """Count exactly the edges before `position` as having happened."""
        if position > self.position:
            self._shift.count(self.edges[self.position : position], 1)
        elif position < self.position:
            # Going back subtracts the same edges.
            self._shift.count(self.edges[position : self.position], -1)
        self.position = position

    def go_to_time(self, at: float) -> None:
        """Go to the position after every edge up to `at`. Later questions are about a start at `at`."""
        self.at = at
        self.go_to(self.due())

    def leave(self) -> None:
        """Make the stage show the present again. The walk is over."""
        self._shift.take_back()

    def rest(self) -> None:
        """Make the stage show the present during a pause. The walk goes on afterwards."""
        self.go_to(0)
        self._shift.take_back()
        self._spots_at, self._strays = 0, set()

    # --- asking ------------------------------------------------------------------------------------------

    def open_instants(self, instants: Sequence[float]) -> list[float]:
        """Return those instants at which there may be room on single nodes. The first one must be `at`.

        Call this while the stage shows the present.
        """
        return open_instants(self.horizon, self.trial.rooms(), instants, seconds=self.seconds)

    def may_have_quota(self) -> bool:
        """Return False only where the quota at this position certainly does not suffice. Cheap."""
        self._shift.show_quota()
        return self.trial.may_have_quota()

    def holds(self, value: Value) -> bool:
        """Return whether quota and spots at this position suffice for `value`."""
        return self._has_quota(value) and self._has_spots(value)

    def _has_quota(self, value: Value) -> bool:
        """Return whether the quota at this position suffices for `value`."""
        self._shift.show_quota()
        return self.trial.has_quota(value)

    def _has_spots(self, value: Value) -> bool:
        """Return whether the spots of `value` are free at this position. Only those spots are shown on the
        stage.
        """
        self._show_spots(self.trial.spots_of(value))
        return self.trial.has_spots(value)

    def first_conflict(self, value: Value) -> ClaimConflict | None:
        """Return the first begin within the duration that leaves no room for `value`, None where there is
        none. The walk is at the same position afterwards.
        """
        start, spots, before = self.position, self.trial.spots_of(value), self._shift.usage_beyond_present()
        pairs = self.trial.pairs_of(value)
        found: ClaimConflict | None = None
        fullest: Usage | None = None
        for index in self._begins_in_span():
            edge = self.edges[index]
            if edge[0] - self.at > edge[3].lead_seconds:
                # A quota window so far away is no reason by itself. It counts at later begins of claims on
                # the same quota, which were promised what it leaves.
                continue
            # Between two begins capacity only grows: it is enough to look right after each.
            self.go_to(index + 1)
            # What takes none of the same quota leaves enough of it. Quota sufficed at the usage in `fullest`,
            # so it suffices wherever no queue uses more.
            takes_quota = not (pairs.isdisjoint(edge[3].usage) and pairs.isdisjoint(edge[3].quota))
            if takes_quota and (fullest is None or not self._shift.is_within(fullest)):
                if not self._has_quota(value):
                    found = ClaimConflict(edge[2], edge[0])
                    break
                fullest = self._shift.usage_beyond_present()
            if not spots.keys().isdisjoint(edge[3].spots) and not self._has_spots(value):
                found = ClaimConflict(edge[2], edge[0])
                break
        # Restoring the saved sums is cheaper than going back over every edge.
        if self._shift.return_to(before):
            self.position = start
        else:
            self.go_to(start)
        return found

    def find(self) -> Value | None:
        """Return how the request could begin at this position, ignoring what begins later.

        The expensive search, on the whole stage. None where quota or nodes do not suffice.
        """
        if not self.may_have_quota():
            return None
        self._show_spots()
        return self.trial.find()

    def attempt(self) -> Value | None:
        """Return how the request could begin here and run for its duration, None where it could not.

        At most two searches: with the peak usage of the spots, and where the result breaks an appointment of
        the calendar, once more with the appointments counted. A None is final for this instant only.
        """
        if not self.may_have_quota():
            return None
        self._show_spots()
        peaks = self._peaks()
        # Most attempts before a promise fail because a spot that is free now is promised within the
        # duration. The search therefore runs with each spot's highest usage over the duration, and the
        # spots that it finds are free throughout.
        found = self._find_beside(peaks)
        if found is not None and self.first_conflict(found) is not None:
            # The cause may be a flavor and not a spot: the peaks cover spots only.
            found = self._find_clear_of_appointments(peaks)
        return found

    def _find_beside(self, peaks: Spots) -> Value | None:
        """Return how the request could begin at this position if `peaks` more of the spots were taken."""
        if not peaks:
            return self.trial.find()
        self.stage.occupy(peaks)
        found = self.trial.find()
        self.stage.occupy({spot: _negative(amounts) for spot, amounts in peaks.items()})
        return found

    def _find_clear_of_appointments(self, peaks: Spots) -> Value | None:
        """Return how the request could begin here if every appointment within its duration had begun.

        The search takes the first flavor with enough quota, and an appointment may be about to reduce just
        that one. With the appointments counted it takes another flavor. The ends before the appointments are
        not counted, so the result is pessimistic, and this search comes second.
        """
        coming = [
            edge
            for edge in (self.edges[index] for index in self._begins_in_span())
            if edge[3].is_from_calendar and edge[0] - self.at <= edge[3].lead_seconds
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
        """Yield the positions of the begins after this position and within the duration."""
        until = self.at + self.seconds
        # The position is read once, because the caller moves the walk between two results.
        begins = self.horizon.begins()
        for index in begins[bisect_left(begins, self.position) :]:
            if self.edges[index][0] >= until:
                break
            yield index

    def _peaks(self) -> dict[Spot, dict[str, int]]:
        """Return by how much each spot's usage rises above that at this position, at most, in the duration.

        A Workload keeps its spots for the whole duration, so the least room over the duration counts.
        """
        # Only spots with a begin are of interest. On all others capacity only grows.
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
        """Make the stage show these spots as of this position; None for all spots."""
        if spots is not None:
            spots = tuple(spots)
            self._strays.update(spots)
        else:
            # Only the edges between the two positions matter: a step changes a few of hundreds of spots.
            first, last = sorted((self._spots_at, self.position))
            spots, self._strays = self._strays, set()
            for edge in self.edges[first:last]:
                spots.update(edge[3].spots)
            self._spots_at = self.position
        self._shift.show_spots([(spot, self._change_of(spot)) for spot in spots])

    def _change_of(self, spot: Spot) -> dict[str, int]:
        """Return how much more of the spot is taken at this position than now."""
        change: dict[str, int] = {}
        here = self._here()
        for edge in self.horizon.at_spot(spot):
            if here is not None and order(edge) >= here:
                break
            for resource, amount in edge[3].spots[spot].items():
                change[resource] = change.get(resource, 0) + edge[1] * amount
        return change

    def _here(self) -> tuple[float, int, WorkloadKey] | None:
        """Return the sort key of the first edge that has not happened, None where all have."""
        return order(self.edges[self.position]) if self.position < len(self.edges) else None


_NOTHING: dict[str, int] = {}


def _negative(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts with the opposite sign, to take back what was occupied."""
    return {resource: -amount for resource, amount in amounts.items()}
