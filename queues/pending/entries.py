"""The entry of one Workload in a pending queue, and the progress of the search for its flavors."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

from api.jobs.resource_requests import PodSetRequests
from api.reasons import INADMISSIBLE, ConditionType
from api.workload import Workload, WorkloadKey
from queues.pending.ordering import comes_first

LocalQueueKey = tuple[str, str]
_NO_WORKLOAD = WorkloadKey("", "")


class FlavorScan(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of the search through the flavors, so that the next cycle continues it.

    `tried` holds for each pod set the index of the last flavor tried per resource; -1: all were tried. The
    scan is stale once the shape of the Workload or the quota of its tree has changed. `is_second`: it started
    again at the first flavor, because none of the later ones fitted.
    """

    tried: tuple[Mapping[str, int], ...]
    generation: int
    cycle: int
    shape: bytes
    is_second: bool = False

    @property
    def has_flavors_left(self) -> bool:
        """Whether some flavor has not been tried yet."""
        return any(index != -1 for of_pod_set in self.tried for index in of_pod_set.values())


class Pending(msgspec.Struct, eq=False, kw_only=True):
    """A Workload in a queue. `retry_at` is the end of its back-off; infinity: until Requeued is True."""

    workload: Workload
    requests: tuple[PodSetRequests, ...]
    shape: bytes
    queued_at: float
    # Compared between priority and age; the lower goes first. It may also decide which
    # Workloads it can preempt.
    level: int = 0
    # Whether its level alone may change what fits, compared with an equal request of another level.
    is_apart: bool = True
    retry_at: float = 0.0
    scan: FlavorScan | None = None
    # Why Kubernetes would reject its pods whatever the quota; None where it would not.
    problem: str | None = None
    # For how many seconds it may hold capacity that promises need, as far as known. It does not affect order.
    seconds: float = inf
    # The sequence number of its heap entry; 0 where it has none.
    ticket: int = 0
    # Values derived from the Workload are computed once, because each search for a head reads many.
    key: WorkloadKey = _NO_WORKLOAD
    # The instant that orders it among equals; minus infinity where it lost its nodes.
    place_at: float = 0.0

    def __post_init__(self) -> None:
        self.key = self.workload.key
        # Minus infinity, so that the uid and not the age orders several of them.
        self.place_at = -inf if comes_first(self.workload) else self.queued_at

    @property
    def local_queue(self) -> LocalQueueKey:
        """The LocalQueue that the Workload was submitted to."""
        return self.workload.key.namespace, self.workload.queue_name


def retry_at(workload: Workload) -> float:
    """Return when the Workload may be tried again: 0 for at once, infinity while Requeued is False."""
    requeued = workload.conditions.get(ConditionType.REQUEUED)
    # The condition outlasts the instant: the Workload waits until Requeued is set to True. No writer sets it
    # for one whose requests could not be counted: that it can be queued at all says that they can be now.
    if requeued is not None and not requeued.status and requeued.reason != INADMISSIBLE:
        return inf
    return workload.requeue_at or 0.0
