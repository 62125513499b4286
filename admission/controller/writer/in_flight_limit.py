"""How many requests may be in flight: as many as the API server answers well.

Additive increase and multiplicative decrease, as in TCP. While requests wait for a place, one more place is
added for each round of answers: up to FIRST_IN_FLIGHT unless answers come late, and beyond that while they
take about as long as the fastest of the last minutes. Late answers take back what is beyond FIRST_IN_FLIGHT.
They do not reduce it further, since a server shares its time among all that it has in hand: with fewer
requests Berth would only leave more to its other clients. A 429, or no answer in time, does: then the server
itself says that it is too much. Requests that were already in flight say nothing about the reduced number,
so they do not reduce it again.
"""

from __future__ import annotations

FIRST_IN_FLIGHT = 32
# Fewer would leave an API server idle between two answers.
LEAST_IN_FLIGHT = 4

# Latency up to twice the lowest is near it, from four times on it is well above. Below these times neither
# counts: they are as much the delay of our own event loop as the server's.
NEAR, NEAR_SECONDS = 2.0, 0.05
ABOVE, ABOVE_SECONDS = 4.0, 0.5
# What is kept after an answer that came late, and after 429 or no answer.
KEPT_IF_LATE, KEPT_IF_OVERLOADED = 0.75, 0.5
# The weight of one answer in the latency.
WEIGHT = 0.125
# The lowest latency is that of the present and the last such time: what a server achieved hours ago, on
# another node or with fewer objects, says nothing.
REMEMBERED_SECONDS = 60.0


class InFlightLimit:
    """The limit of one server, at most `most`. Times are monotonic seconds."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(min(FIRST_IN_FLIGHT, most))
        # A moving average of the time from sending a write to its answer; 0 before the first.
        self.latency_seconds = 0.0
        self._lowest = self._lowest_before = float("inf")
        self._lowest_since = 0.0
        self._reduced_at = float("-inf")

    @property
    def allowed(self) -> int:
        """Return how many requests may be in flight."""
        return int(self._limit)

    def note_answer(self, sent_at: float, now: float, *, has_backlog: bool) -> None:
        """Take an answer. `has_backlog`: other requests wait for a place."""
        seconds = now - sent_at
        lowest = self._note_lowest(seconds, now)
        average = self.latency_seconds or seconds
        self.latency_seconds = average + WEIGHT * (seconds - average)
        # Both the average and this answer: one slow object is not a slow server, and an average that is
        # still high says nothing about the reduced number.
        if min(seconds, self.latency_seconds) > max(ABOVE * lowest, ABOVE_SECONDS):
            self._reduce(KEPT_IF_LATE, FIRST_IN_FLIGHT, sent_at, now)
            return
        is_near = max(seconds, self.latency_seconds) <= max(NEAR * lowest, NEAR_SECONDS)
        if has_backlog and (is_near or self._limit < FIRST_IN_FLIGHT):
            # One place for as many answers as there are places.
            self._limit = min(float(self._most), self._limit + 1.0 / self._limit)

    def note_overload(self, sent_at: float, now: float) -> None:
        """Take note that a request got 429 or no answer in time."""
        self._reduce(KEPT_IF_OVERLOADED, LEAST_IN_FLIGHT, sent_at, now)

    def _reduce(self, kept: float, least: float, sent_at: float, now: float) -> None:
        if sent_at >= self._reduced_at and self._limit > least:
            self._reduced_at = now
            self._limit = max(least, kept * self._limit)

    def _note_lowest(self, seconds: float, now: float) -> float:
        if now - self._lowest_since >= REMEMBERED_SECONDS:
            self._lowest_before, self._lowest, self._lowest_since = self._lowest, seconds, now
        self._lowest = min(self._lowest, seconds)
        return min(self._lowest, self._lowest_before)
