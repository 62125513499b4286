"""Least attained service: at equal priority, Workloads that have received less go first, in levels.

The service that a Workload has attained is devices × time that it held them, over all its attempts.
Width counts as much as length, hence 2D-LAS. Run times of training are heavy-tailed, so a Workload
that has received little will most likely be done soon. Serving it first comes close to shortest-first
and needs no estimate.

If attained service were compared exactly, equal Workloads would preempt each other at every tick. It is
therefore compared in levels only, and within a level older Workloads go first:

    level 0      1 GPU-hour      level 1      10 GPU-hours      level 2
    ────────────────┼──────────────────────────────┼──────────────────────▶

A Workload crosses the end of each level once in its life, so it is preempted for others a few times at most.
Each `age_seconds` that it waits lowers its level by one. Below the lowest level (FIRST) it goes before all
others, so no Workload starves behind a stream of new ones.

Few levels serve gangs better than many. A gang of eight GPUs passes 100 GPU-hours within a day, where half of
all GPU time is used. If that were a level of its own, gangs would be preempted there by every smaller
Workload, and the widest would wait longest. In a last level that begins early they are ordered by age.
Source: Gu et al., Tiresias (NSDI 2019), discretised 2D-LAS.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import ceil, inf

# Before every level: a Workload that has waited too long.
FIRST = -1
# The same where no service is counted: a preempted Workload that returns (`savedFirst` of a policy), or one
# that lost its nodes where Workloads are ordered by run time.
RETURNING = -2

# Levels are checked once a minute, or more often where the minimum run time is short. A turn that begins a
# little earlier or later makes no difference, while a thousand running Workloads would otherwise each wake
# the queue at an instant of their own.
_LONGEST_SECONDS = 60.0
_SHORTEST_SECONDS = 1.0
_LOOKS_A_RUN = 10


def devices(amounts: Mapping[str, int]) -> int:
    """Return the number of devices in the amounts: the largest amount of an extended resource.

    Several resources may stand for the same device (a GPU and its network card), so they are not added up. 0
    for CPU and memory alone: such a Workload attains no service and always has its turn.
    """
    # Zero also where all amounts are of Kubernetes' own resources.
    return max((amount for resource, amount in amounts.items() if is_device(resource)), default=0)


def is_device(resource: str) -> bool:
    """Return whether the resource is an extended one, such as nvidia.com/gpu."""
    domain, _, name = resource.partition("/")
    # `kubernetes.io/batch-cpu` and the like are CPU and memory under another name.
    return bool(name) and not domain.endswith("kubernetes.io")


def level_of(received: float, level_ends: tuple[float, ...]) -> int:
    """Return the level of `received` device-seconds: the number of level ends reached."""
    return bisect_right(level_ends, received)


def leaves_level_at(received: float, count: int, level_ends: tuple[float, ...], *, now: float) -> float:
    """Return when a Workload on `count` devices reaches the next level (Unix seconds), inf for never."""
    level = level_of(received, level_ends)
    # The last level has no end, and a Workload without devices never leaves its level.
    if count == 0 or level == len(level_ends):
        return inf
    # It receives `count` device-seconds per second while it runs.
    return now + (level_ends[level] - received) / count


def next_look(at: float, *, minimum_runtime_seconds: float) -> float:
    """Return the first check of levels at or after `at` (Unix seconds)."""
    every = max(_SHORTEST_SECONDS, min(_LONGEST_SECONDS, minimum_runtime_seconds / _LOOKS_A_RUN))
    # Rounded up to a multiple of the interval, so that many Workloads are checked together.
    return ceil(at / every) * every
