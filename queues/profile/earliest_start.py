"""The first start: from when on could a request begin, and stay for as long as it takes?

What costs is the search for flavors and nodes (`Trial.find`), so that is asked rarely:

    promises that begin        ▼ b1             ▼ b2              ▼ b3
    ───┬────┬──────┬───┬───────┼──────┬────┬────┼───┬──────┬──────┼──────┬─────────▶ t
      now  end    end end            end  end      end    end           end

Work begins where something is released, never between two edges, and only where spot by spot there is room
for as long as it runs (`queues.profile.node_windows`): as a rule that leaves one or two instants of hundreds.
Between two begins quota only grows, so a cheap and necessary condition (`Trial.may_have_quota`) is looked at
at the last instant before a begin: where it does not hold there, it holds nowhere between the two; where it
does, the first instant is found by halving. Where it does not hold right after a begin, no start will do that
would still run then. From there on every release that is left is tried in earnest, since a later start meets
other begins and may fail where an earlier one would not. After the last begin what fits once fits ever after,
and halving alone finds it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from typing import Generic

from queues.profile.capacity_profile import RELEASE, Stage, Start, Trial, Value, time_of
from queues.profile.profile_walk import ProfileWalk
from queues.profile.request_horizon import RequestHorizon
from queues.steps import Steps, finish

# A search that has tried so often in vain pauses: tens of milliseconds where hundreds are promised a start,
# and several times what the pause costs it.
_ATTEMPTS_AT_ONCE = 2


def earliest(
    horizon: RequestHorizon,
    stage: Stage,
    trial: Trial[Value],
    *,
    now: float,
    seconds: float,
    latest: float = inf,
) -> Start[Value] | None:
    """Return the first instant from which the trial's request fits for so many seconds, None for never.

    `horizon` is what there is of other claims. The stage shows the present and is left as it was found.
    Edges of the past: a promise that should have begun counts as begun, work that should have ended as never
    ending (its estimate is to be raised first). No start after `latest` is looked for, but now always is.
    """
    return finish(searching(horizon, stage, trial, now=now, seconds=seconds, latest=latest))


def searching(
    horizon: RequestHorizon,
    stage: Stage,
    trial: Trial[Value],
    *,
    now: float,
    seconds: float,
    latest: float = inf,
) -> Steps[Start[Value] | None]:
    """Look for the `earliest` start in steps; between two the stage shows the present."""
    walk = ProfileWalk(horizon.since(now), stage=stage, trial=trial, at=now, seconds=seconds)
    try:
        return (yield from _Search(walk, latest=latest).search())
    finally:
        walk.leave()


@dataclass(slots=True)
class _Search(Generic[Value]):
    """A search along a walk, which stands at the present."""

    walk: ProfileWalk[Value]
    _: KW_ONLY
    latest: float
    _attempts: int = 0
    # How many begins have been looked at, and when of those there is no quota right after.
    _looked: int = 0
    _short_at: list[float] = field(default_factory=list)

    def search(self) -> Steps[Start[Value] | None]:
        """Return the first start from the present position on."""
        walk = self.walk
        due = walk.due()
        instants = walk.open_instants([walk.at, *self._releases(due)])
        if instants and instants[0] == walk.at:
            walk.go_to(due)
            found = walk.attempt()
            if found is not None:
                return Start(at=walk.at, value=found)
            del instants[0]
        return (yield from self._search_among(instants))

    def _search_among(self, instants: Sequence[float]) -> Steps[Start[Value] | None]:
        """Return the first start at one of the instants, which are later ones in order."""
        if not instants:
            return None
        done = 0
        begins = self.walk.horizon.begins()
        for begin in begins[bisect_left(begins, self.walk.due()) :]:
            # Ends at the same instant come before the begin.
            end = bisect_right(instants, self.walk.edges[begin][0], lo=done)
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
        # Each of them, not by halving: a later start meets more begins, so that fitting is
        # no longer monotone here.
        for at in instants[self._first_that_may_fit(instants, end=begin) :]:
            self._attempts += 1
            if self._attempts % _ATTEMPTS_AT_ONCE == 0:
                self.walk.rest()
                yield
            self.walk.stand_at(at)
            found = self.walk.attempt()
            if found is not None:
                return Start(at=at, value=found)
        return None

    def _is_short_within(self, at: float) -> bool:
        """Return whether after some begin within the span from `at` on there is certainly no quota.

        What is left then does not hang on when the request has begun, so each begin is looked at once a
        search, and rules out all instants from which it would be met. To be asked of instants in order.
        """
        begins, until = self.walk.horizon.begins(), at + self.walk.seconds
        while self._looked < len(begins) and (edge := self.walk.edges[begins[self._looked]])[0] < until:
            # Appointments with a lead are in nobody's way who begins long before: each start
            # has its own answer.
            if edge[0] >= at and edge[3].lead_seconds == inf:
                self.walk.go_to(begins[self._looked] + 1)
                if not self.walk.may_have_quota():
                    self._short_at.append(edge[0])
            self._looked += 1
        first = bisect_left(self._short_at, at)
        return first < len(self._short_at) and self._short_at[first] < until

    def _releases(self, position: int) -> list[float]:
        """Return the instants of the releases from a position on, as far as they are of interest."""
        edges = self.walk.edges[position : bisect_right(self.walk.edges, self.latest, key=time_of)]
        return list(dict.fromkeys(edge[0] for edge in edges if edge[1] == RELEASE))

    def _first_that_may_fit(self, instants: Sequence[float], *, end: int) -> int:
        """Return the index of the first instant at which the request may fit; past the last: at none.

        A begin at `end` does not count as having come, though it may be at the last of the instants.
        """
        low, high = 0, len(instants)
        # The last instant is the roomiest: where it does not fit there, one look has spared all the others.
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
        self.walk.go_to(min(end, bisect_right(self.walk.edges, at, key=time_of)))
        return self.walk.may_have_quota()

    def _by_halving(self, instants: Sequence[float]) -> Start[Value] | None:
        """Return the first start where only releases are left: what fits once, fits ever after."""
        low = high = self._first_that_may_fit(instants, end=len(self.walk.edges))
        step, found = 1, None
        # Strides that double: the first that may fit is often the first that does, and a search costs most.
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
        self.walk.stand_at(at)
        return self.walk.find()
