"""What stands in a pending queue for one Workload, and how far the search for its flavors has come."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

from api.jobs.resource_requests import PodSetRequests
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from queues.pending.ordering import comes_first

LocalQueueKey = tuple[str, str]
_NOBODY = WorkloadKey("", "")


class FlavorScan(msgspec.Struct, frozen=True, kw_only=True):
    """How far the search through the flavors has come, so that the next cycle goes on from there.

    `tried` holds, by pod set, the index of the last flavor tried for each resource; -1: all were tried.
    The scan is outdated when the shape of the Workload or the quota of its tree has changed since.
    `is_second`: it began at the first flavor once more, as none of those behind it would do.
    """

    tried: tuple[Mapping[str, int], ...]
    generation: int
    cycle: int
    shape: bytes
    is_second: bool = False

    @property
    def has_flavors_left(self) -> bool:
        """Whether some flavor has not been looked at yet."""
        return any(index != -1 for of_pod_set in self.tried for index in of_pod_set.values())


class Pending(msgspec.Struct, eq=False, kw_only=True):
    """A Workload in a queue. `retry_at` is the end of its back-off; infinity: until it is told to requeue."""

    workload: Workload
    requests: tuple[PodSetRequests, ...]
    shape: bytes
    queued_at: float
    # Between priority and age: the lower goes first. Who may be evicted may depend on it.
    level: int = 0
    # Whether what fits for it may be another thing than for equal requests of another level.
    is_apart: bool = True
    retry_at: float = 0.0
    scan: FlavorScan | None = None
    # Why Kubernetes would refuse its pods whatever the quota, None: it would not.
    problem: str | None = None
    # For how long it must be out of the way of promises, as far as that is known; it orders nothing.
    seconds: float = inf
    # The sequence number of the heap entry that stands for it; 0: in no heap.
    ticket: int = 0
    # What follows from the Workload is worked out once: each look for a head asks it of many.
    key: WorkloadKey = _NOBODY
    # The instant that orders it among equals: before all of them where it lost its nodes.
    place_at: float = 0.0

    def __post_init__(self) -> None:
        self.key = self.workload.key
        # Minus infinity, so that among several the uid decides and not the age.
        self.place_at = -inf if comes_first(self.workload) else self.queued_at

    @property
    def local_queue(self) -> LocalQueueKey:
        """The LocalQueue that it came by."""
        return self.workload.key.namespace, self.workload.queue_name


def retry_at(workload: Workload) -> float:
    """Return when the Workload may be tried again: 0 at once, infinity while Requeued is False."""
    # The condition outlasts the instant: somebody has to say Requeued=True first.
    if workload.is_false(ConditionType.REQUEUED):
        return inf
    return workload.requeue_at or 0.0
