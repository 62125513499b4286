"""The Workloads that were moved in the last hour, by consolidation or to a better flavor: moves have limits.

They are part of the plan (`queues.reservations.plan`), so a new leader continues with the same hour.
Otherwise a controller that restarts again and again could move the same Workload after every restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from api.workload import WorkloadKey
from queues.profile.holds import Move
from queues.tracked import Tracked

_HOUR = 3600.0


class RecentMoves:
    """The moves of the last hour, by the Workload that was moved. Instants are Unix seconds."""

    def __init__(self) -> None:
        # One move for each Workload is enough: it is not moved again within the hour that counts.
        self.of: Tracked[WorkloadKey, Move] = Tracked()

    def note(self, key: WorkloadKey, *, policy: str, at: float, is_promotion: bool = False) -> None:
        """Count the move of a Workload against the limits of the policy that asked for it.

        `is_promotion`: it moves to a better flavor, else for a gang; each has its own limit. Moves older than
        an hour are dropped on the occasion.
        """
        for old in [key for key, move in self.of.items() if move.at <= at - _HOUR]:
            del self.of[old]
        self.of[key] = Move(at=at, policy=policy, is_promotion=is_promotion)

    def adopt(self, moves: Mapping[WorkloadKey, Move], *, now: float, is_whole: bool) -> None:
        """Add the moves that another leader has made; `is_whole`: they replace those known here.

        Of two moves of one Workload the later one counts.
        """
        if is_whole:
            self.of.clear()
        for key, move in moves.items():
            known = self.of.get(key)
            if move.at > now - _HOUR and (known is None or known.at < move.at):
                self.of[key] = move

    def has_moved(self, key: WorkloadKey, *, now: float) -> bool:
        """Return whether the Workload was moved within the last hour, and so must not be moved again."""
        move = self.of.get(key)
        return move is not None and move.at > now - _HOUR

    def number(self, policy: str, *, now: float, is_promotion: bool = False) -> int:
        """Return how many Workloads were moved for this policy within the last hour."""
        return sum(1 for _ in self._times(policy, now, is_promotion))

    def next_at(self, policy: str, *, now: float) -> float | None:
        """Return when the first of this policy's moves for gangs is an hour old (Unix seconds), else None.

        From then on the policy's limit allows another move.
        """
        first = min(self._times(policy, now, False), default=None)
        return None if first is None else first + _HOUR

    def _times(self, policy: str, now: float, is_promotion: bool) -> Iterator[float]:
        """Yield when this policy's moves of the last hour were made."""
        return (
            move.at
            for move in self.of.values()
            if move.policy == policy and move.is_promotion is is_promotion and move.at > now - _HOUR
        )
