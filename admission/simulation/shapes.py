"""From a number of GPUs to pods, and from a list of Jobs to a speed at which replaying them ends in time.

The same rules hold for replaying on an API server and for simulating on a virtual clock, so that the two can
be compared.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

from admission.simulation.traces import TraceJob

# A pod is on one node; the machines of the traces have eight GPUs, as do most of today's.
MOST_GPUS_PER_POD = 8
# Caps the default speed: beyond it a second of the machine is ten minutes of the trace.
FASTEST = 600
# Of the eight minutes a replay may take; the rest is for starting, ending, and what the estimate leaves out.
_TARGET_SECONDS = 400.0
# Jobs a second that two cores carry easily with the API server, its stand-ins and the controller on them.
_BUSY_SUBMITS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangShape:
    """`pods` equal pods of `gpus_per_pod`. On `whole_nodes` each pod has its node to itself."""

    pods: int
    gpus_per_pod: int
    whole_nodes: bool = False


def gang_shape(gpus: int, *, most_per_pod: int = MOST_GPUS_PER_POD) -> GangShape:
    """Return how a gang of `gpus` is cut into pods.

    One pod up to `most_per_pod`; above that pods of the largest divisor of `gpus` that is not above it, each
    on a whole node: 12 is 2 × 6, 16 is 2 × 8, 17 is 17 × 1. A Job without GPUs is one pod without any.
    """
    if gpus <= most_per_pod:
        return GangShape(pods=1, gpus_per_pod=gpus)
    per_pod = next(size for size in range(most_per_pod, 0, -1) if gpus % size == 0)
    return GangShape(pods=gpus // per_pod, gpus_per_pod=per_pod, whole_nodes=True)


def estimated_end(jobs: Sequence[TraceJob], *, gpus: int) -> float:
    """Return when the last Job ends, in trace seconds, if `gpus` were one pool and the machine took no time.

    Whoever came first and fits starts first. Fragmentation over nodes is not in it, so the truth is
    rather later. A Job larger than the pool is left out. Work is O(Jobs × sizes of gangs).
    """
    pool = _Pool(gpus)
    for place, job in enumerate(sorted(jobs, key=attrgetter("submitted_at"))):
        if job.gpus <= gpus:
            pool.advance(job.submitted_at)
            pool.submit(place, job)
    pool.advance(math.inf)
    return pool.end


def default_speed(jobs: Sequence[TraceJob], *, gpus: int) -> float:
    """Return how many trace seconds pass in one real second, unless the user says otherwise.

    As slow as lets the replay end within `_TARGET_SECONDS` (a delay of the machine then weighs least in the
    waits), but not so slow that fewer than `_BUSY_SUBMITS` Jobs come in a second: beyond that a
    slower run shows nothing new. At most `FASTEST`, at least 1, in whole numbers.
    """
    ends = estimated_end(jobs, gpus=gpus) / _TARGET_SECONDS
    span = max((job.submitted_at for job in jobs), default=0.0)
    comes = span * _BUSY_SUBMITS / max(1, len(jobs))
    return float(min(FASTEST, max(1, math.ceil(max(ends, comes)))))


@dataclass(slots=True)
class _Pool:
    """GPUs that belong to no node, and the Jobs that wait for them, by size and place in the trace."""

    free: int
    end: float = 0.0
    waiting: dict[int, deque[tuple[int, TraceJob]]] = field(default_factory=dict)
    running: list[tuple[float, int]] = field(default_factory=list)

    def submit(self, place: int, job: TraceJob) -> None:
        self.waiting.setdefault(job.gpus, deque()).append((place, job))
        self._start(job.submitted_at)

    def advance(self, until: float) -> None:
        """Let everything end that ends up to `until`, and start what fits then."""
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
