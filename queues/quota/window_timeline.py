"""The windows of one quota along time: which one is in force, when that changes, and what follows.

A quota with dozens of windows changes every few minutes, and nearly everything known before a change is still
true after it. The windows are therefore followed along time instead of being evaluated again: a change costs
O(log n) of n windows. The answers are the same as those of `queues.quota.quota_windows` for a single instant.
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
    """From `at` (Unix seconds) on the quota is `amount`, set by `window`; None: the nominal quota.

    `lead_seconds` is how long before `at` starts must take the change into account.

    `amount` is in the resource's unit. The lead is the window's `reclaimLeadSeconds` in the policy.
    """

    at: float
    amount: int
    window: QuotaWindow | None
    lead_seconds: int


class NominalTimeline:
    """All windows of one quota at an instant that moves forward: which are open, and which changes next.

    It only moves forward. `windows` is the list of one quota, in the order in which later windows take
    precedence; `after` is the first instant, in Unix seconds.
    """

    def __init__(self, windows: Sequence[QuotaWindow], *, after: float) -> None:
        self._windows = windows
        self._spans = [spans(window, after=after) for window in windows]
        self._begins, self._ends = [inf] * len(windows), [inf] * len(windows)
        # One bit per window, so that the highest bit is the last open window of the list.
        self._is_open = 0
        self._turns: list[tuple[float, int]] = []
        for index in range(len(windows)):
            self._go_on(index, after)
        heapify(self._turns)

    @property
    def in_force(self) -> QuotaWindow | None:
        """The window in force, None where none is open."""
        return self._windows[self._is_open.bit_length() - 1] if self._is_open else None

    def openings(self) -> Iterator[tuple[QuotaWindow, float]]:
        """Yield each closed window with the instant of its next opening; infinity for never."""
        for index, window in enumerate(self._windows):
            if not self._is_open >> index & 1:
                yield window, self._begins[index]

    def next_at(self) -> float:
        """Return when a window next opens or closes, infinity for never."""
        return self._turns[0][0] if self._turns else inf

    def turn(self) -> int:
        """Move on to the next change. Return the longest lead of the windows that open or close there.

        All windows that open or close at that instant change together, so no intermediate quota is ever seen.
        The lead is in seconds. Without a further change nothing happens and 0 is returned.
        """
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
        """Schedule the next span of a closed window, and open it where that span has begun."""
        begins, self._ends[index] = next(self._spans[index], (inf, inf))
        self._begins[index] = begins
        if begins <= at:
            self._open(index)
        elif begins < inf:
            heappush(self._turns, (begins, index))

    def _open(self, index: int) -> None:
        """Mark the window as open and schedule its end."""
        self._is_open |= 1 << index
        heappush(self._turns, (self._ends[index], index))


class QuotaTimeline:
    """One quota at an instant that moves forward: what is in force, and the steps that follow.

    `nominal` is the quota outside of all windows, in the resource's unit. Two timelines run over the same
    windows: `present` at `now`, and one ahead of it for `steps`, which is moved on only as far as a caller
    asks.
    """

    def __init__(self, windows: Sequence[QuotaWindow], nominal: int, *, now: float) -> None:
        self.windows = windows
        self.nominal = nominal
        self._begin(now)

    def _begin(self, now: float) -> None:
        """Start both timelines at `now`, without any known step."""
        self.now = now
        self.present = NominalTimeline(self.windows, after=now)
        # Runs ahead of the present as far as a caller asks. The steps it passed are kept in `_known`.
        self._future = NominalTimeline(self.windows, after=now)
        self._known: deque[QuotaStep] = deque()

    @property
    def amount(self) -> int:
        """The quota in force, in the resource's unit."""
        return _amount(self.present.in_force, self.nominal)

    def go_to(self, now: float) -> None:
        """Move to `now` (Unix seconds). A clock that was set back starts the timeline again.

        A clock set back is rare, and the windows keep no history, so everything is computed again from there.
        O(log n) for each change that has passed.
        """
        if now < self.now:
            self._begin(now)
        self.now = now
        while self.present.next_at() <= now:
            self.present.turn()

    def steps(self, *, until: float, most: int) -> list[QuotaStep]:
        """Return the changes of the quota after the present instant and up to `until`, at most `most`.

        `until` is in Unix seconds. Steps are sorted by time, and each changes the quota. Asking again for the
        same range is cheap, because known steps are kept until they have passed.
        """
        while self._known and self._known[0].at <= self.now:
            self._known.popleft()
        while len(self._known) < most and (at := self._future.next_at()) <= until and at < inf:
            before = _amount(self._future.in_force, self.nominal)
            # Where several windows change together the longest lead counts, because each asked for its own.
            lead, window = self._future.turn(), self._future.in_force
            amount = _amount(window, self.nominal)
            # A change without effect, such as that of a window covered by another, is no step.
            if amount != before and at > self.now:
                self._known.append(QuotaStep(at=at, amount=amount, window=window, lead_seconds=lead))
        return [step for step in islice(self._known, most) if step.at <= until]


def _amount(window: QuotaWindow | None, nominal: int) -> int:
    """Return the quota that a window sets, in the resource's unit, the nominal one for None."""
    return nominal if window is None else window.nominal
