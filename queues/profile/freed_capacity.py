"""Slack: what is free in time that counted as taken when promises were made.

Work ends before its time, a promise is taken back or moved: quota and spots come free for a while. A promise
can begin earlier only by that, so what came free is kept piece by piece until promises were looked at:

    promised when made   ████████████████│ p ▒▒▒▒▒▒▒▒        running work until 20, then p
    it ends at 8         ████████┊ slack ┊
                                8       20
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from queues.profile.capacity_profile import Claim, Spots
from queues.quota.resources import Quantities

# More pieces than this are no longer told apart: whoever has so much to look at looks at everything.
_MOST_PIECES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What came free of a queue's quota and of spots, from an instant to another (Unix seconds)."""

    queue: str
    usage: Quantities
    spots: Spots
    from_at: float
    until: float


@dataclass(slots=True)
class FreedCapacity:
    """Pieces, in the order in which they came free. `whole_until`: until then anything may be free."""

    pieces: list[Piece] = field(default_factory=list)
    whole_until: float = -inf

    @property
    def until(self) -> float:
        """Until when anything is free that was not expected to be."""
        return max([self.whole_until, *(piece.until for piece in self.pieces)])

    def note(self, claim: Claim, *, from_at: float, until: float) -> None:
        """Note that what a claim took came free for that long."""
        if len(self.pieces) >= _MOST_PIECES:
            self.whole_until = max(self.whole_until, until, *(piece.until for piece in self.pieces))
            self.pieces.clear()
        if self.whole_until >= until:
            return
        piece = Piece(queue=claim.queue, usage=claim.usage, spots=claim.spots, from_at=from_at, until=until)
        self.pieces.append(piece)

    def note_all(self) -> None:
        """Note that anything may have come free: nodes or quotas are others."""
        self.pieces.clear()
        self.whole_until = inf

    def give_back(self, taken: FreedCapacity) -> None:
        """Note again what was taken and not looked at to the end."""
        self.pieces[:0] = taken.pieces
        self.whole_until = max(self.whole_until, taken.whole_until)

    def take(self) -> FreedCapacity:
        """Return all that was noted, and forget it."""
        taken = FreedCapacity(self.pieces, self.whole_until)
        self.pieces, self.whole_until = [], -inf
        return taken
