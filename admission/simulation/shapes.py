"""Maps numbers of GPUs to pods, and a list of Jobs to a speed at which a replay ends in time.

Replays on an API server and simulations on a virtual clock use the same rules, so that they can be compared.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

from admission.simulation.traces import TraceJob

# A pod runs on one node. The machines of the traces have eight GPUs, like most current ones.
MOST_GPUS_PER_POD = 8
# The maximum of the default speed, at which a second of latency counts as ten minutes of the trace.
FASTEST = 600
# The share of the eight minutes of a replay for its Jobs. The rest is for start, cleanup
# and the estimate's error.
_TARGET_SECONDS = 400.0
# Jobs per second that two cores can handle together with API server, simulated components and controller.
_BUSY_SUBMITS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangShape:
    """A gang of `pods` equal pods with `gpus_per_pod` GPUs, each on a whole node with `whole_nodes`."""

    pods: int
    gpus_per_pod: int
    whole_nodes: bool = False


def gang_shape(gpus: int, *, most_per_pod: int = MOST_GPUS_PER_POD) -> GangShape:
    """Return the pods of a gang with `gpus` GPUs.

    Up to `most_per_pod` GPUs it is one pod. Above that, pods have as many GPUs as the largest divisor of
    `gpus` that is at most `most_per_pod`, each on a whole node: 12 is 2 × 6, 16 is 2 × 8, 17 is 17 × 1. A Job
    without GPUs is one pod.
    """
    if gpus <= most_per_pod:
        return GangShape(pods=1, gpus_per_pod=gpus)
    per_pod = next(size for size in range(most_per_pod, 0, -1) if gpus % size == 0)
    return GangShape(pods=gpus // per_pod, gpus_per_pod=per_pod, whole_nodes=True)


def estimated_end(jobs: Sequence[TraceJob], *, gpus: int) -> float:
    """Return when the last Job ends, in trace seconds, if `gpus` were one pool and there were no latency.

    The first submitted Job that fits starts first. The estimate ignores fragmentation over nodes, so the true
    end is later. A Job larger than the pool is ignored. The cost is O(Jobs × sizes of gangs).
    """
    pool = _Pool(gpus)
    for place, job in enumerate(sorted(jobs, key=attrgetter("submitted_at"))):
        if job.gpus <= gpus:
            pool.advance(job.submitted_at)
            pool.submit(place, job)
    pool.advance(math.inf)
    return pool.end


def default_speed(jobs: Sequence[TraceJob], *, gpus: int) -> float:
    """Return how many trace seconds pass in one real second by default: a whole number from 1 to `FASTEST`.

    It is the lowest speed at which the replay ends within `_TARGET_SECONDS`, because latency then has the
    least weight in the waits. But it is not so low that fewer than `_BUSY_SUBMITS` Jobs arrive per second,
    because a slower run would show nothing more.
    """
    ends = estimated_end(jobs, gpus=gpus) / _TARGET_SECONDS
    span = max((job.submitted_at for job in jobs), default=0.0)
    comes = span * _BUSY_SUBMITS / max(1, len(jobs))
    return float(min(FASTEST, max(1, math.ceil(max(ends, comes)))))


@dataclass(slots=True)
class _Pool:
    """A pool of GPUs without nodes, and the Jobs that wait for them, by size and position in the trace."""

    free: int
    end: float = 0.0
    waiting: dict[int, deque[tuple[int, TraceJob]]] = field(default_factory=dict)
    running: list[tuple[float, int]] = field(default_factory=list)

    def submit(self, place: int, job: TraceJob) -> None:
        self.waiting.setdefault(job.gpus, deque()).append((place, job))
        self._start(job.submitted_at)

    def advance(self, until: float) -> None:
        """End all Jobs that end up to `until`, and start the Jobs that fit then."""
        while self.running and self.running[0][0] <= until:
            now, gpus = heapq.heappop(self.running)
            self.free += gpus
            self._start(now)

    def _start(self, now: float) -> None:
        while fitting := [queue[0] for size, queue in self.waiting.items() if queue and size <= self.free]:
            _, job = min(fitting, key=itemgetter(0))
            self.waiting[job.gpus].popleft()
            self.free -= job.gpus
            self.end = max(self.end, now + job.duration_seconds)
            heapq.heappush(self.running, (now + job.duration_seconds, job.gpus))
