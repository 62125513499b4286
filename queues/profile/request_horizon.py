"""A prospect: what one request has to reckon with of all that a profile knows, along time and by spot.

Who asks decides what counts: promises of lower rank do not, work that is being evicted ends otherwise than it
was believed to. Such things are few, so a prospect is the profile itself *less* some claims and *plus* some
edges, and only what was left out or put in is sorted in anew:

    profile    a─┐   b────┐   ┌p─────┐   ┌q──┐
    left out                  ┌p─────┐                promised to one of lower rank
    put in         b─┐                                is being stopped, and gone sooner
    prospect   a─┐ b─┐                   ┌q──┐

Where everything is otherwise (appointments believe no estimate), it is made of bare edges.
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
    """`edges` in order of time, and by spot. Outdated by the next change of the profile."""

    edges: Sequence[Edge]
    # None: there is nothing but `edges`.
    profile: CapacityProfile | None = None
    # Claims of the profile, and edges that are not the profile's.
    left_out: Collection[Claim] = ()
    put_in: Sequence[Edge] = ()
    # Ends until then are not believed.
    ended_by: float = -inf
    _own: dict[Spot, list[Edge]] | None = field(default=None, init=False)
    # By spot the claims that are left out there, by identity.
    _without: dict[Spot, set[int]] = field(init=False)
    _begins: list[int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._without = {}
        for claim in self.left_out:
            for spot in claim.spots:
                self._without.setdefault(spot, set()).add(id(claim))

    def since(self, now: float) -> RequestHorizon:
        """Return the same without ends that have passed: nothing that is still there has ended."""
        past = self.edges[: bisect_right(self.edges, now, key=time_of)]
        begun = [edge for edge in past if edge[1] == BEGIN]
        if len(begun) == len(past):
            return self
        return replace(self, edges=begun + list(self.edges[len(past) :]), ended_by=now)

    def begins(self) -> list[int]:
        """Return at which positions among the edges something begins, in order. Not to be changed."""
        # Several walks share a prospect, and most of it are ends.
        if self._begins is None:
            self._begins = [index for index, edge in enumerate(self.edges) if edge[1] == BEGIN]
        return self._begins

    def spots_until(self, last: float, *, seconds: float) -> Collection[Spot]:
        """Return the spots that matter to who begins by `last` and stays for so many seconds: those at which
        anything changes until then, or is taken while it stays.
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
        """Return the spots at which something may change."""
        own = self._of_own().keys()
        if self.profile is None:
            return own
        return {*self.profile.spots(), *own} if own else self.profile.spots()

    def at_spot(self, spot: Spot) -> Sequence[Edge]:
        """Return the edges of the claims on one spot, in order of time."""
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
        """Return a mark of what changes at the spot, the same as long as it does not change; None for none.

        `edges` are those that `at_spot` has just given.
        """
        if self.profile is None or edges is not self.profile.at_spot(spot):
            return None
        # Another profile would count its versions from the beginning again.
        return id(self.profile), self.profile.changed_in(spot)

    def _of_own(self) -> dict[Spot, list[Edge]]:
        if self._own is None:
            self._own = by_spot(self.edges if self.profile is None else self.put_in)
        return self._own
