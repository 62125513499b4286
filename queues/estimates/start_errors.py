"""Start errors: how far from their estimates Workloads have started, and the interval that follows.

An expected start is wrong because run times are, and because Workloads come that go before it or that another
lets pass. What those errors were in the recent past says what the next one will be: of the ratios of true to
estimated waits the tenth and the ninetieth percentile, for estimates of about the same length.

Long waits end late, so recent outcomes are those of short waits, and their quantiles alone hold 60% to 70% of
the starts. The levels are therefore corrected by each outcome: a start outside of its interval widens the
next ones, a start inside narrows them, such that four of five lie inside in the long run, whatever the
distribution of the errors and however it changes.
Source: Gibbs and Candès 2021, adaptive conformal inference under distribution shift.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from math import log2
from typing import NamedTuple

from api.workload import WorkloadKey

# The share of starts on each side of the interval.
_TAIL = 0.1
# How far one outcome moves a level. Smaller reacts later, larger makes intervals jump.
_STEP = 0.005
# The levels stay within these. Where starts err by the same for long, a level would otherwise move on with
# each, and take as long to come back once they err differently.
_LEAST_LEVEL, _MOST_LEVEL = -1.0, 0.5
# Outcomes remembered for each length of estimates, and how many it takes before they are used.
_REMEMBERED = 200
_LEAST_OUTCOMES = 20
# Added to both waits before they are compared, in seconds: five minutes instead of one are no factor of five.
_BASE_SECONDS = 300.0
# Before there are outcomes: from now to twice the wait and ten minutes.
_FIRST_FACTOR = 2.0
# By how much the longest known ratio is exceeded for each whole level that is missing beyond it.
_BEYOND = 20.0
# Estimates that are open at a time. More than any forecast computes for a hundred ClusterQueues.
_MOST_OPEN = 50_000


class StartInterval(NamedTuple):
    """Four of five starts lie in it: the tenth and the ninetieth percentile, in Unix seconds."""

    earliest_at: float
    latest_at: float


class StartOutcome(NamedTuple):
    """A start whose first estimate is known, and its error in seconds, which is positive if it was late."""

    error_seconds: float
    interval: StartInterval
    at: float

    @property
    def side(self) -> str:
        """`inside` its interval, `early` or `late`."""
        if self.at < self.interval.earliest_at:
            return "early"
        return "late" if self.at > self.interval.latest_at else "inside"


class StartAccuracy(NamedTuple):
    """How many starts lay inside the interval of their first estimate, before it and behind it."""

    inside: int = 0
    early: int = 0
    late: int = 0

    @property
    def starts(self) -> int:
        """All of them."""
        return sum(self)


class _Estimated(NamedTuple):
    made_at: float
    at: float
    interval: StartInterval


@dataclass(slots=True)
class _Length:
    """What is known of estimates of about one length: the ratios, and the levels of both tails."""

    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    low: float = _TAIL
    high: float = _TAIL
    # The ratios in order; None after a new one.
    ordered: list[float] | None = None

    def quantile(self, level: float) -> float:
        """Return the ratio at the level; 0 below the first, and more than the last beyond it."""
        if self.ordered is None:
            self.ordered = sorted(self.ratios)
        if level < 0:
            return 0.0
        if level >= 1:
            return self.ordered[-1] * (1 + (level - 1) * _BEYOND)
        return self.ordered[int(level * len(self.ordered))]


class StartErrors:
    """Learns from the first estimate of each Workload and its start. One task owns the object.

    Forgotten with the process: the next leader begins with wide intervals, and has learned again after some
    tens of starts.
    """

    def __init__(self) -> None:
        self._lengths: dict[int, _Length] = {}
        self._open: dict[WorkloadKey, _Estimated] = {}
        self._outcomes: deque[StartOutcome] = deque(maxlen=1000)
        self._sides: Counter[str] = Counter()

    def interval(self, at: float, *, made_at: float) -> StartInterval:
        """Return where a start that was estimated at `made_at` to be `at` lies in four of five cases.

        The estimate itself lies inside, so more than four of five do where estimates are far too long. None
        before `made_at` does. All in Unix seconds.
        """
        known, wait = self._lengths.get(_length_of(at - made_at)), max(0.0, at - made_at)
        if known is None or len(known.ratios) < _LEAST_OUTCOMES:
            return StartInterval(min(at, made_at), at + (_FIRST_FACTOR - 1) * wait + 2 * _BASE_SECONDS)
        low, high = (
            made_at - _BASE_SECONDS + (wait + _BASE_SECONDS) * known.quantile(level)
            for level in (known.low, 1 - known.high)
        )
        return StartInterval(max(min(low, at), min(made_at, at)), max(high, at))

    def note_estimate(self, key: WorkloadKey, at: float, *, made_at: float) -> None:
        """Record that the Workload is expected to start `at`. Only its first estimate counts."""
        if key not in self._open and len(self._open) < _MOST_OPEN:
            self._open[key] = _Estimated(made_at, at, self.interval(at, made_at=made_at))

    def note_start(self, key: WorkloadKey, at: float) -> None:
        """Learn from the start of a Workload; without an estimate nothing is learned."""
        first = self._open.pop(key, None)
        if first is None:
            return
        wait = max(0.0, first.at - first.made_at)
        known = self._lengths.setdefault(_length_of(wait), _Length())
        known.ratios.append((max(0.0, at - first.made_at) + _BASE_SECONDS) / (wait + _BASE_SECONDS))
        known.ordered = None
        outcome = StartOutcome(at - first.at, first.interval, at)
        known.low = _corrected(known.low, is_outside=outcome.side == "early")
        known.high = _corrected(known.high, is_outside=outcome.side == "late")
        self._outcomes.append(outcome)
        self._sides[outcome.side] += 1

    def forget(self, key: WorkloadKey) -> None:
        """Forget the estimate of a Workload that is gone."""
        self._open.pop(key, None)

    def clear(self) -> None:
        """Forget the estimates that are open, but not what was learned."""
        self._open.clear()

    @property
    def accuracy(self) -> StartAccuracy:
        """How good the intervals were of all starts that were learned from."""
        return StartAccuracy(**self._sides)

    def take_outcomes(self) -> tuple[StartOutcome, ...]:
        """Return the outcomes since the last call, each once."""
        outcomes = tuple(self._outcomes)
        self._outcomes.clear()
        return outcomes


def _corrected(level: float, *, is_outside: bool) -> float:
    """Return the level after one more outcome: lower, for a wider interval, if that was outside."""
    return min(_MOST_LEVEL, max(_LEAST_LEVEL, level + _STEP * (_TAIL - is_outside)))


def _length_of(wait: float) -> int:
    """Return the class of an estimated wait: below about 2, 35 and 580 minutes, or longer."""
    return int(log2((max(0.0, wait) + _BASE_SECONDS) / 60 + 1)) // 3
