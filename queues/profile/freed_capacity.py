"""Capacity that came free earlier than the promises assumed.

Work that ends early, or a promise that is dropped or moved, frees quota and spots for a while. A
promise can move to an earlier start only because of that, so each freed piece is kept until the
promises have been checked:

    promised when made   ████████████████│ p ▒▒▒▒▒▒▒▒        running work until 20, then p
    it ends at 8         ████████┊ freed ┊
                                8       20

Which promises a piece could improve is decided by `admission.backfill.improvable_promises`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from queues.profile.capacity_profile import Claim, Spots
from queues.quota.resources import Quantities

# Beyond this many pieces they are merged into "anything may be free": with that many to compare,
# checking every promise is cheaper.
_MOST_PIECES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Quota of a ClusterQueue and spots that came free from `from_at` to `until` (Unix seconds).

    `usage` and `spots` are what the claim held, in the same units. The piece says nothing about whether other
    claims have taken the capacity since.
    """

    queue: str
    usage: Quantities
    spots: Spots
    from_at: float
    until: float


@dataclass(slots=True)
class FreedCapacity:
    """The freed pieces in the order in which they came free. Until `whole_until` anything may be free."""

    pieces: list[Piece] = field(default_factory=list)
    whole_until: float = -inf

    @property
    def until(self) -> float:
        """The last instant (Unix seconds) at which unexpected capacity may be free; -inf where none is."""
        return max([self.whole_until, *(piece.until for piece in self.pieces)])

    def note(self, claim: Claim, *, from_at: float, until: float) -> None:
        """Record that what the claim took is free from `from_at` to `until` (Unix seconds).

        An interval that ends before `whole_until` is not recorded, because anything may be free until then
        anyway. Beyond 64 pieces all of them are merged into one statement, which costs more checks but never
        misses a promise that could improve.
        """
        if len(self.pieces) >= _MOST_PIECES:
            self.whole_until = max(self.whole_until, until, *(piece.until for piece in self.pieces))
            self.pieces.clear()
        if self.whole_until >= until:
            return
        piece = Piece(queue=claim.queue, usage=claim.usage, spots=claim.spots, from_at=from_at, until=until)
        self.pieces.append(piece)

    def note_all(self) -> None:
        """Record that anything may have come free, as after a change of nodes or quotas."""
        self.pieces.clear()
        self.whole_until = inf

    def give_back(self, taken: FreedCapacity) -> None:
        """Record again what `take` returned, because the check of the promises did not finish.

        What was noted in the meantime is kept too, behind the given pieces.
        """
        self.pieces[:0] = taken.pieces
        self.whole_until = max(self.whole_until, taken.whole_until)

    def take(self) -> FreedCapacity:
        """Return everything recorded so far, and clear the record.

        The caller checks the promises against it, and calls `give_back` if it is interrupted.
        """
        taken = FreedCapacity(self.pieces, self.whole_until)
        self.pieces, self.whole_until = [], -inf
        return taken
