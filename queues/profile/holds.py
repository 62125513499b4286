"""Holds and moves: what an eviction leaves to be remembered.

A *Hold* keeps freed capacity for one Workload until that Workload starts. A *Move* records that a Workload
was evicted in order to be placed elsewhere, so that it is not moved back and forth. The leader decides
both, and no object of the cluster records them: a store keeps them with the plan
(`queues.reservations.plan`) for the next leader.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.workload import Admission, WorkloadKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The capacity kept for one Workload, at the latest until `until` (Unix seconds).

    `admission` is what the Workload will start with: quota, and nodes where it has a topology. `victims` are
    the Workloads that are evicted for it, sorted so that equal holds are equal rows.

    A hold ends when its Workload is no longer pending, and at `until` in any case, so a Workload that cannot
    start after all does not keep capacity for ever.
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
    """When (Unix seconds) a Workload was last moved, and the policy whose limit the move counts against.

    `is_promotion`: it was moved to a better flavor, which has a limit of its own.
    """

    at: float
    policy: str
    is_promotion: bool = False
