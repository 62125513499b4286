"""The horizon of one request: the part of a capacity profile that counts for it, in time and by spot.

Which claims count depends on the request. Promises of lower rank do not count, and a Workload that is being
evicted ends at another time than was estimated. Such differences are few, so a horizon is the profile *less*
some claims and *plus* some edges, and only the edges left out or put in are sorted again:

    profile    a─┐   b────┐   ┌p─────┐   ┌q──┐
    left out                  ┌p─────┐                promised to a Workload of lower rank
    put in         b─┐                                being evicted, so it ends sooner
    horizon    a─┐ b─┐                   ┌q──┐

Where every edge differs (appointments ignore all estimates), a horizon consists of its own edges alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from queues.profile.capacity_profile import (
    BEGIN,
    RELEASE,
    CapacityProfile,
    Claim,
    Edge,
    Spot,
    by_spot,
    order,
    time_of,
)


@dataclass(slots=True, kw_only=True)
class RequestHorizon:
    """The `edges` that count, in order of time, and by spot. Invalid after the next change of the profile.

    Shared by all walks of one request. Positions in `edges` are those of `begins` and of
    `ProfileWalk.position`. The claims left out are compared by identity, not by value.
    """

    edges: Sequence[Edge]
    # None where the horizon consists of `edges` alone.
    profile: CapacityProfile | None = None
    # Claims of the profile that do not count, and edges that the profile does not have.
    left_out: Collection[Claim] = ()
    put_in: Sequence[Edge] = ()
    # Ends up to this instant (Unix seconds) are ignored.
    ended_by: float = -inf
    _own: dict[Spot, list[Edge]] | None = field(default=None, init=False)
    # For each spot the claims left out there, by identity.
    _without: dict[Spot, set[int]] = field(init=False)
    _begins: list[int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._without = {}
        for claim in self.left_out:
            for spot in claim.spots:
                self._without.setdefault(spot, set()).add(id(claim))

    def since(self, now: float) -> RequestHorizon:
        """Return the horizon without ends up to `now`: work that is still there has not ended.

        `now` is in Unix seconds. Without this, work that has exceeded its estimate would count as ended and
        its capacity as free. Begins in the past stay: such a promise has its claim until it starts.
        """
        past = self.edges[: bisect_right(self.edges, now, key=time_of)]
        begun = [edge for edge in past if edge[1] == BEGIN]
        if len(begun) == len(past):
            return self
        return replace(self, edges=begun + list(self.edges[len(past) :]), ended_by=now)

    def begins(self) -> list[int]:
        """Return the positions of the begins among the edges, in order. Do not change the list."""
        # Kept because several walks share a horizon, and most of its edges are ends.
        if self._begins is None:
            self._begins = [index for index, edge in enumerate(self.edges) if edge[1] == BEGIN]
        return self._begins

    def spots_until(self, last: float, *, seconds: float) -> Collection[Spot]:
        """Return the spots that matter for a request that begins by `last` and runs for `seconds`.

        They are the spots that change until then, or are taken while the request runs.
        """
        come = bisect_right(self.edges, last, key=time_of)
        if come == len(self.edges):
            return self.spots()
        found = {spot for edge in self.edges[:come] for spot in edge[3].spots}
        begins = self.begins()
        for index in begins[bisect_left(begins, come) :]:
            edge = self.edges[index]
            if edge[0] > last + seconds:
                break
            found.update(edge[3].spots)
        return found

    def spots(self) -> Collection[Spot]:
        """Return the spots that may change.

        Others may be asked about too: they have no edges, so their room is that of the present.
        """
        own = self._of_own().keys()
        if self.profile is None:
            return own
        return {*self.profile.spots(), *own} if own else self.profile.spots()

    def at_spot(self, spot: Spot) -> Sequence[Edge]:
        """Return the edges of the claims on one spot, in order of time. The caller must not change them."""
        own = self._of_own().get(spot, ())
        if self.profile is None:
            edges: Sequence[Edge] = own
        else:
            edges = self.profile.at_spot(spot)
            without = self._without.get(spot)
            if without:
                edges = [edge for edge in edges if id(edge[3]) not in without]
            if own:
                edges = sorted((*edges, *own), key=order)
        if edges and edges[0][0] <= self.ended_by:
            return [edge for edge in edges if edge[0] > self.ended_by or edge[1] != RELEASE]
        return edges

    def stamp(self, spot: Spot, edges: Sequence[Edge]) -> object:
        """Return a stamp of a spot's edges, equal as long as they do not change; None where none exists.

        `edges` must be what `at_spot` has just returned. None where they are not the profile's own: other
        requests have other edges there.
        """
        if self.profile is None or edges is not self.profile.at_spot(spot):
            return None
        return self.profile.stamp(spot)

    def _of_own(self) -> dict[Spot, list[Edge]]:
        """Return the edges by spot that the profile does not have; without a profile, all edges."""
        if self._own is None:
            self._own = by_spot(self.edges if self.profile is None else self.put_in)
        return self._own
