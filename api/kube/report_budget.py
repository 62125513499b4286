"""Budgets of requests that only report: reasons why Workloads wait, statuses of queues, Events.

A report costs the API server as much as an admission, so decisions come first. Each budget is a bucket of
tokens that fills at a steady rate. A report takes one token, and a decision takes one from every bucket. No
bucket fills while writes that carry out decisions wait for their answers. So a report is sent at once in
quiet times, and under load reports get what decisions leave over. Every LONGEST_WAIT_SECONDS one is sent
in any case, so that a load without end does not silence them.
"""

from __future__ import annotations

# How long a report waits at most while decisions use up the budget. One write a second is a small part of
# the hundreds that an API server takes.
LONGEST_WAIT_SECONDS = 1.0


class WriteLoad:
    """What precedes reports. The control loop keeps it up to date, and the budgets read it.

    `decided` counts admissions and evictions and only increases. `is_behind` is whether writes that carry
    out decisions have no answer yet.
    """

    def __init__(self) -> None:
        self.decided = 0
        self.is_behind = False


class ReportBudget:
    """A budget of `burst` reports at once and `per_second` in the long run. Times are monotonic seconds."""

    def __init__(self, load: WriteLoad, *, per_second: float, burst: float) -> None:
        self._load = load
        self._decided = load.decided
        #: May be changed at any time.
        self.per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._filled_at: float | None = None
        self._taken_at = float("-inf")

    def seconds_to_next(self, now: float) -> float:
        """Return in how many seconds a report may be sent; 0: now."""
        self._fill(now)
        # A rate may be lower than one report in LONGEST_WAIT_SECONDS.
        pause = max(LONGEST_WAIT_SECONDS, 1.0 / self.per_second)
        longest = max(0.0, self._taken_at + pause - now)
        if self._load.is_behind:
            return longest
        return min(longest, max(0.0, (1.0 - self._tokens) / self.per_second))

    def take(self, now: float) -> None:
        """Take a token for a report that is sent now."""
        self._fill(now)
        self._tokens = max(0.0, self._tokens - 1.0)
        self._taken_at = now

    def _fill(self, now: float) -> None:
        since = now - self._filled_at if self._filled_at is not None else 0.0
        self._filled_at = now
        filled = 0.0 if self._load.is_behind else since * self.per_second
        decided, self._decided = self._load.decided - self._decided, self._load.decided
        # Limited at both ends: neither a quiet night nor a busy hour outweighs what happens now.
        self._tokens = min(self._burst, max(0.0, self._tokens + filled - decided))
