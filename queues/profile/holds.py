"""What evictions leave for later as values: room that is kept for whoever they were made for, and moves.

A *Hold* keeps freed room for one Workload until it starts. A *Move* says that a Workload was evicted to get
another place, so that nobody is moved to and fro. Both are decided by the leader and stand on no object of
the cluster: a store keeps them with the plan (`queues.reservations.plan`) for whoever leads next.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.workload import Admission, WorkloadKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What one Workload keeps, until when (Unix seconds) at the latest, and who gives way for it.

    `admission` is what it will start with: quota, and places where it has any. `victims` are in order, so
    that equal holds are equal rows.
    """

    key: WorkloadKey
    uid: str
    cluster_queue: str
    priority: int
    admission: Admission
    victims: tuple[WorkloadKey, ...]
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """When (Unix seconds) a Workload was moved last, and the policy against whose bound that counts."""

    at: float
    policy: str
