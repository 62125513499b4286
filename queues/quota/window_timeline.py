"""The windows of one quota on their way through time: which counts, when that changes, and how from then on.

A quota with dozens of windows turns every few minutes, and what there is to know of it then is what was known
before, a little further on. So it is walked along and not asked for anew: a turn costs O(log n) of n windows.
What is told is the same as if it was asked at that instant alone (`queues.quota.quota_windows`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf

from api.policy import QuotaWindow
from queues.quota.quota_windows import spans


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStep:
    """From `at` on the quota is `amount`, by the open window, None: the nominal quota.

    `lead_seconds`: how long before it the windows that open or close here want to be heeded.
    """

    at: float
    amount: int
    window: QuotaWindow | None
    lead_seconds: int


class NominalTimeline:
    """All windows of one quota on their way through time: which are open, and what turns next."""

    def __init__(self, windows: Sequence[QuotaWindow], *, after: float) -> None:
        self._windows = windows
        self._spans = [spans(window, after=after) for window in windows]
        self._begins, self._ends = [inf] * len(windows), [inf] * len(windows)
        # One bit a window, so that the last of the list that is open is the highest.
        self._is_open = 0
        self._turns: list[tuple[float, int]] = []
        for index in range(len(windows)):
            self._go_on(index, after)
        heapify(self._turns)

    @property
    def in_force(self) -> QuotaWindow | None:
        """The window that counts, None where none is open."""
        return self._windows[self._is_open.bit_length() - 1] if self._is_open else None

    def openings(self) -> Iterator[tuple[QuotaWindow, float]]:
        """Yield the windows that are closed, each with when it opens next; infinity for never."""
        for index, window in enumerate(self._windows):
            if not self._is_open >> index & 1:
                yield window, self._begins[index]

    def next_at(self) -> float:
        """Return when something turns next, infinity for never."""
        return self._turns[0][0] if self._turns else inf

    def turn(self) -> int:
        """Go on to the next turn. Returns the longest lead of the windows that open or close there."""
        at, lead = self.next_at(), 0
        while self._turns and self._turns[0][0] == at:
            _, index = heappop(self._turns)
            lead = max(lead, self._windows[index].reclaim_lead_seconds)
            if self._is_open >> index & 1:
                self._is_open ^= 1 << index
                self._go_on(index, at)
            else:
                self._open(index)
        return lead

    def _go_on(self, index: int, at: float) -> None:
        """Let a window that is closed wait for its next span, which may begin at once."""
        begins, self._ends[index] = next(self._spans[index], (inf, inf))
        self._begins[index] = begins
        if begins <= at:
            self._open(index)
        elif begins < inf:
            heappush(self._turns, (begins, index))

    def _open(self, index: int) -> None:
        self._is_open |= 1 << index
        heappush(self._turns, (self._ends[index], index))


class QuotaTimeline:
    """One quota at an instant that moves on: what is in force, and the steps that come after it."""

    def __init__(self, windows: Sequence[QuotaWindow], nominal: int, *, now: float) -> None:
        self.windows = windows
        self.nominal = nominal
        self._begin(now)

    def _begin(self, now: float) -> None:
        self.now = now
        self.present = NominalTimeline(self.windows, after=now)
        # Goes ahead of the present as far as somebody asks; what it met stands in `_known`.
        self._future = NominalTimeline(self.windows, after=now)
        self._known: deque[QuotaStep] = deque()

    @property
    def amount(self) -> int:
        """The quota in force."""
        return _amount(self.present.in_force, self.nominal)

    def go_to(self, now: float) -> None:
        """Move on to that instant; a clock that was set back begins anew."""
        if now < self.now:
            self._begin(now)
        self.now = now
        while self.present.next_at() <= now:
            self.present.turn()

    def steps(self, *, until: float, most: int) -> list[QuotaStep]:
        """Return the changes of the quota after the present instant up to another, at most so many."""
        while self._known and self._known[0].at <= self.now:
            self._known.popleft()
        while len(self._known) < most and (at := self._future.next_at()) <= until and at < inf:
            before = _amount(self._future.in_force, self.nominal)
            # Of several windows that turn together the longest lead counts: each asked to be heeded so early.
            lead, window = self._future.turn(), self._future.in_force
            amount = _amount(window, self.nominal)
            # A turn that changes nothing, such as that of a window covered by another, is no step.
            if amount != before and at > self.now:
                self._known.append(QuotaStep(at=at, amount=amount, window=window, lead_seconds=lead))
        return [step for step in islice(self._known, most) if step.at <= until]


def _amount(window: QuotaWindow | None, nominal: int) -> int:
    return nominal if window is None else window.nominal
