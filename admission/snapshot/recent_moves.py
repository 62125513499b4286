"""Who was moved to another place of late, so that moving stays within its bounds.

A part of the plan (`queues.reservations.plan`): whoever leads next goes on with the same hour, else a
controller that is started anew again and again would move the same Workload every time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from api.workload import WorkloadKey
from queues.profile.holds import Move
from queues.tracked import Tracked

_HOUR = 3600.0


class RecentMoves:
    """The moves of the last hour, by who was moved. Instants are Unix seconds."""

    def __init__(self) -> None:
        # One a Workload is enough: nobody is moved again within the hour that counts.
        self.of: Tracked[WorkloadKey, Move] = Tracked()

    def note(self, key: WorkloadKey, *, policy: str, at: float) -> None:
        """Count the move of a Workload against the policy that asked for it."""
        for old in [key for key, move in self.of.items() if move.at <= at - _HOUR]:
            del self.of[old]
        self.of[key] = Move(at=at, policy=policy)

    def adopt(self, moves: Mapping[WorkloadKey, Move], *, now: float, is_whole: bool) -> None:
        """Take in the moves that another leader has made; `is_whole`: in place of those known here."""
        if is_whole:
            self.of.clear()
        for key, move in moves.items():
            known = self.of.get(key)
            if move.at > now - _HOUR and (known is None or known.at < move.at):
                self.of[key] = move

    def has_moved(self, key: WorkloadKey, *, now: float) -> bool:
        """Return whether the Workload was moved within the hour: nobody is moved to and fro."""
        move = self.of.get(key)
        return move is not None and move.at > now - _HOUR

    def number(self, policy: str, *, now: float) -> int:
        """Return how many were moved for this policy within the hour."""
        return sum(1 for _ in self._times(policy, now))

    def next_at(self, policy: str, *, now: float) -> float | None:
        """Return when the first of this policy's moves is an hour old, None where there are none."""
        first = min(self._times(policy, now), default=None)
        return None if first is None else first + _HOUR

    def _times(self, policy: str, now: float) -> Iterator[float]:
        return (move.at for move in self.of.values() if move.policy == policy and move.at > now - _HOUR)
