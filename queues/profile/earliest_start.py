"""The search for a request's earliest start: the first instant from which it fits for its whole duration.

What is searched. The profile (`queues.profile.capacity_profile`) is a list of edges in order of time: each
edge releases capacity (an *end*) or takes it (a *begin*, most often of a promise). Free capacity grows only
at an end, so the earliest start is either now or at an end, and no other instant is a candidate:

    promises that begin        ▼ b1             ▼ b2              ▼ b3
    ───┬────┬──────┬───┬───────┼──────┬────┬────┼───┬──────┬──────┼──────┬─────────▶ t
      now  end    end end            end  end      end    end           end

What costs. Only `Trial.find`, the search for flavors and nodes, is expensive. Three cheaper tests, each of
them necessary for a fit, remove candidates before it is called:

1. Nodes. `queues.profile.node_windows` sums the room of single nodes over the duration. As a rule this leaves
   one or two of hundreds of candidates.
2. Quota at a begin. Where `Trial.may_have_quota` fails right after a begin, it fails for every start whose
   duration covers that begin, whenever the start is. One look at each begin removes those candidates.
3. Quota between two begins. There free quota never falls, so `Trial.may_have_quota` is monotone:
   where it fails at the last candidate it fails at all of them, otherwise the first candidate that
   passes is found by bisection.

Invariant. The walk visits candidates in order of time and never skips one that passes all three tests, so the
first fit that it returns is the earliest. Before the last begin a complete fit is *not* monotone: a later
start overlaps other begins and may fail where an earlier start succeeds. Each remaining candidate is
therefore tried. After the last begin only ends remain, so what fits once fits at every later instant: the
search doubles its stride until a candidate fits and then bisects.

Cost. With n candidates left by test 1 and b begins: at most n calls of `Trial.find` before the last begin,
O(log n) after it, and b + O(b log n) calls of `Trial.may_have_quota`. The search ends because the candidates
are a finite list and every step either removes one or returns.
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

# The search pauses after this many failed attempts. One search then holds the control loop for tens of
# milliseconds where hundreds of Workloads have a promised start; a pause costs a fraction of that.
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
    """Return the first instant from which the request fits for `seconds`, None where there is none.

    `horizon` holds all other claims that count for the request. The stage must show the present and shows it
    again on return. Edges in the past: a promise that should have begun counts as begun, and work that should
    have ended counts as never ending, so the caller first raises its estimate. `latest` (Unix seconds) bounds
    the starts that are considered; a start now is considered in any case.
    Source: Slurm's backfill scheduler, which tries the ends of running jobs in order.

    Runs the search in one piece. A caller that makes promises, which may need hundreds of searches in a row,
    uses `searching` and pauses between the steps.
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
    """Search for the `earliest` start in steps. At every pause the stage shows the present.

    Arguments and result are those of `earliest`, and the result is the same however the steps are spread over
    time, provided that neither stage nor profile changes in between. Because the stage shows the present at
    every pause, a search may be abandoned there.
    """
    walk = ProfileWalk(horizon.since(now), stage=stage, trial=trial, at=now, seconds=seconds)
    try:
        return (yield from _Search(walk, latest=latest).search())
    finally:
        walk.leave()


@dataclass(slots=True)
class _Search(Generic[Value]):
    """One search. Its walk is at the present position."""

    walk: ProfileWalk[Value]
    _: KW_ONLY
    latest: float
    _attempts: int = 0
    # How many begins have been checked for quota, and the instants of those without quota right after.
    _looked: int = 0
    _has_lead: bool = False
    _short_at: list[float] = field(default_factory=list)

    def search(self) -> Steps[Start[Value] | None]:
        """Return the first start at or after the present position, None where there is none."""
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
        """Return the first start at one of `instants`, which are sorted and later than the present."""
        if not instants:
            return None
        done = 0
        begins = self.walk.horizon.begins()
        for begin in begins[bisect_left(begins, self.walk.due()) :]:
            # An end at the instant of the begin sorts before it.
            end = bisect_right(instants, self.walk.edges[begin][0], lo=done)
            found_start = yield from self._search_before(begin, instants[done:end])
            if found_start is not None or end == len(instants):
                return found_start
            # The last of these instants may be the begin's own. Its edges include the begin, so it was tried
            # as a start after the begin and is not tried a second time.
            done = end
        return self._by_halving(instants[done:])

    def _search_before(self, begin: int, instants: Sequence[float]) -> Steps[Start[Value] | None]:
        """Return the first start at one of `instants`, all of which come before the begin at `begin`."""
        # This test comes first because it moves along the edges in one direction only, and as a rule it
        # leaves no instant for which the walk would have to go back.
        instants = [at for at in instants if not self._is_short_within(at)]
        # Every instant from here on is tried. Bisection would be wrong: a later start overlaps more begins,
        # so the fit is not monotone here.
        for at in instants[self._first_that_may_fit(instants, end=begin) :]:
            self._attempts += 1
            if self._attempts % _ATTEMPTS_AT_ONCE == 0:
                self.walk.rest()
                yield
            self.walk.go_to_time(at)
            found = self.walk.attempt()
            if found is not None:
                return Start(at=at, value=found)
        return None

    def _is_short_within(self, at: float) -> bool:
        """Return whether quota certainly lacks right after some begin within the duration of a start at `at`.

        The quota right after a begin does not depend on when the request starts. Each begin is therefore
        checked once a search, and one without quota removes every start whose duration covers it. Call this
        with ascending instants.
        """
        begins, until = self.walk.horizon.begins(), at + self.walk.seconds
        while self._looked < len(begins) and (edge := self.walk.edges[begins[self._looked]])[0] < until:
            # A claim with a lead counts only for starts close enough to its begin, so neither there nor after
            # it is there an answer that holds for all starts. The walk checks these begins for each start.
            self._has_lead |= edge[3].lead_seconds < inf
            if edge[0] >= at and not self._has_lead:
                self.walk.go_to(begins[self._looked] + 1)
                if not self.walk.may_have_quota():
                    self._short_at.append(edge[0])
            self._looked += 1
        first = bisect_left(self._short_at, at)
        return first < len(self._short_at) and self._short_at[first] < until

    def _releases(self, position: int) -> list[float]:
        """Return the instants, up to `latest`, at which an edge from `position` on releases capacity."""
        edges = self.walk.edges[position : bisect_right(self.walk.edges, self.latest, key=time_of)]
        return list(dict.fromkeys(edge[0] for edge in edges if edge[1] == RELEASE))

    def _first_that_may_fit(self, instants: Sequence[float], *, end: int) -> int:
        """Return the index of the first instant at which the request may have quota, len(instants) for none.

        The begin at `end` is not counted, even where the last instant is its own.
        """
        low, high = 0, len(instants)
        # Free quota is largest at the last instant: where it does not suffice there, it suffices nowhere.
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
        """Return whether quota may suffice at the instant, counting the edges before position `end` only."""
        self.walk.go_to(min(end, bisect_right(self.walk.edges, at, key=time_of)))
        return self.walk.may_have_quota()

    def _by_halving(self, instants: Sequence[float]) -> Start[Value] | None:
        """Return the first start after the last begin, where a request that fits once fits ever after."""
        low = high = self._first_that_may_fit(instants, end=len(self.walk.edges))
        step, found = 1, None
        # The stride doubles because a search costs most, and the first instant that may have quota is often
        # the first that fits.
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
        """Return how the request could begin at the instant, ignoring what begins later."""
        self.walk.go_to_time(at)
        return self.walk.find()
