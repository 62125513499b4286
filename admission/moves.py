"""Who was moved to another place of late, so that moving stays within its bounds.

Kept by this process alone: whoever leads next begins a new hour.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from api.workload import WorkloadKey

_HOUR = 3600.0


class _Move(NamedTuple):
    at: float
    policy: str
    key: WorkloadKey


@dataclass(slots=True)
class Moves:
    """The moves of the last hour, the oldest first. Instants are Unix seconds."""

    _moves: list[_Move] = field(default_factory=list)

    def note(self, key: WorkloadKey, *, policy: str, at: float) -> None:
        """Count the move of a Workload against the policy that asked for it."""
        self._moves = [move for move in self._moves if move.at > at - _HOUR]
        self._moves.append(_Move(at, policy, key))

    def has_moved(self, key: WorkloadKey, *, now: float) -> bool:
        """Return whether the Workload was moved within the hour: nobody is moved to and fro."""
        return any(move.key == key and move.at > now - _HOUR for move in self._moves)

    def number(self, policy: str, *, now: float) -> int:
        """Return how many were moved for this policy within the hour."""
        return sum(move.policy == policy and move.at > now - _HOUR for move in self._moves)

    def next_at(self, policy: str, *, now: float) -> float | None:
        """Return when the first of this policy's moves is an hour old, None where there are none."""
        ends = [move.at + _HOUR for move in self._moves if move.policy == policy and move.at > now - _HOUR]
        return min(ends, default=None)
