"""One term of leadership, as the work of a leader sees it: its number, and how long it lasts.

              t = 0      renew_seconds    deadline_seconds       duration - stop_seconds     duration_seconds
    leader    renewed ────── renews ... fails ── begins no write ─── lead() cancelled ─────── │
    others    see it change ─────────────────────────────────────────────────────────────────── may take it

A renewal that is answered late loses nothing: until lead() is cancelled, any attempt that succeeds extends
the lease. A write is sent only before the deadline, and may take as long as the lease leaves it
(`Leadership.write_seconds()`), so that it has ended when lead() is cancelled. A process that is frozen
(SIGSTOP, a paused machine) cannot stop in time, so this is checked at each write, and all times count from
the *start* of the last successful renewal.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """The durations of an election. Raises ValueError unless renew < deadline < duration.

    `duration_seconds`: how long other candidates wait for a renewal. `renew_seconds`: interval at which the
    leader renews and the others check the lease. `deadline_seconds`: time without a renewal after which a
    leader begins no write. The defaults are those of client-go and Kueue.
    """

    duration_seconds: float = 15.0
    renew_seconds: float = 2.0
    deadline_seconds: float = 10.0

    def __post_init__(self) -> None:
        # client-go requires the same order: at least one renewal is attempted before the deadline, and lead()
        # has time to stop between the deadline and the time when others may take the lease.
        if not 0 < self.renew_seconds < self.deadline_seconds < self.duration_seconds:
            given = f"{self.renew_seconds}, {self.deadline_seconds}, {self.duration_seconds}"
            raise ValueError(f"a lease needs 0 < renew < deadline < lease, not {given}")

    @property
    def stop_seconds(self) -> float:
        """Return how long before the end of the lease lead() is cancelled.

        A fifth of the time from the deadline. Nothing is in flight by then, so this covers only the delays of
        a busy event loop.
        """
        return (self.duration_seconds - self.deadline_seconds) / 5

    @property
    def attempt_seconds(self) -> float:
        """Return after how long without an answer a renewal is sent once more, on another connection.

        The second one has as long again before lead() is cancelled.
        """
        return (self.duration_seconds - self.stop_seconds - self.renew_seconds) / 2


class Renewals(Protocol):
    """What a term asks of the election that it was won in."""

    @property
    def timing(self) -> LeaseTiming:
        """The durations of the election."""

    def seconds_left(self, renewed_at: float) -> float:
        """Return for how long a lease that was renewed at this instant is valid; below 0 if it has ended."""

    def renew_soon(self) -> None:
        """Renew as soon as possible instead of at the next interval."""

    async def raise_fence(self, leadership: Leadership, above: int) -> int:
        """Raise the fence above a number; see Leadership.raise_fence."""


class Leadership:
    """One term of leadership: from the acquisition of the lease until lead() has ended."""

    def __init__(
        self,
        election: Renewals,
        fence: int,
        renewed_at: float,
        *,
        continues: bool = False,
        settled_at: float = 0.0,
        decides_without_store: bool = False,
    ) -> None:
        #: Until then (monotonic seconds) a write of an earlier leader may still be stored.
        self.settled_at = settled_at
        #: Whether a write may still be stored when lead() ends, which lead() knows. The lease is then left to
        #: run out, which tells the next leader so.
        self.leaves_unanswered = settled_at > 0.0
        self._election = election
        self._fence = fence
        self._renewed_at = renewed_at
        self._continues = continues
        # Whether the next write of the Lease is to say so, and whether it certainly says so now.
        self._wants_without_store = decides_without_store
        self._is_without_store = decides_without_store
        self._renewed = asyncio.Event()
        self._ended = False

    @property
    def fence(self) -> int:
        """The number of this term, higher than that of any earlier term."""
        return self._fence

    @property
    def continues(self) -> bool:
        """Whether no other process has led since the last term of this one; False in its first."""
        return self._continues

    @property
    def decides_without_store(self) -> bool:
        """Whether the Lease tells the next leader that this one, or one before, decides without the store.

        The next leader then does not rely on what the store shows.
        """
        return self._is_without_store

    def note_store(self, *, is_complete: bool) -> None:
        """Have the Lease tell whether the store shows all that was decided.

        If it does not, nothing may be decided before `decides_without_store` is true, which takes one write
        of the Lease. The opposite is written with the next renewal.
        """
        self._wants_without_store = not is_complete
        if not is_complete and not self._is_without_store:
            self._election.renew_soon()

    def take_note(self) -> bool:
        """Return what the write of the Lease that begins now is to say: `decides_without_store`."""
        # It may be stored without an answer.
        self._is_without_store &= self._wants_without_store
        return self._wants_without_store

    def remaining_seconds(self) -> float:
        """Return for how many seconds no other process can lead; 0 or less if another may.

        Counted from the start of the last successful renewal, on a clock that continues while the process is
        stopped or the machine is suspended.
        """
        if self._ended:
            return 0.0
        return self._election.seconds_left(self._renewed_at)

    def write_seconds(self) -> float:
        """Return how long a write that is sent now may take; 0 if none may be sent."""
        left, timing = self.remaining_seconds(), self._election.timing
        # After the deadline, too little is left for an answer.
        if left <= timing.duration_seconds - timing.deadline_seconds:
            return 0.0
        return left - timing.stop_seconds

    def renewed_after(self, instant: float) -> bool:
        """Return whether a renewal that started after `instant` (monotonic seconds) has succeeded."""
        return self._renewed_at > instant

    async def wait_renewed_after(self, instant: float) -> None:
        """Wait until a renewal that started after `instant` has succeeded; requests one immediately.

        There is no timeout: lead() is cancelled when the lease is lost.
        """
        while not self.renewed_after(instant):
            renewed = self._renewed
            self._election.renew_soon()
            # A renewal sets this event and then replaces it. The loop checks `renewed_after` again, because a
            # renewal that was already in progress at `instant` sets the event too.
            await renewed.wait()

    async def raise_fence(self, above: int) -> int:
        """Raise the fence above a number, write it to the Lease, and return it.

        For a leader that the store rejects because it knows a higher fence. Raises KubeError if the Lease
        cannot be written; Conflict means that another process holds it.
        """
        return await self._election.raise_fence(self, above)

    def note_renewal(self, fence: int, began_at: float, *, without_store: bool) -> None:
        """Record a successful renewal that started at `began_at`, and what it said of the store."""
        self._is_without_store = without_store
        # Counted from the start of the request and not from its response: the server may have stored it at
        # any time in between, and other candidates count the lease from then.
        self._fence, self._renewed_at = fence, began_at
        self._renewed.set()
        # A new event for each renewal, so that a task which starts to wait now is not woken
        # by an earlier renewal.
        self._renewed = asyncio.Event()

    def end(self) -> None:
        """Record that this process no longer holds the lease."""
        self._ended = True
