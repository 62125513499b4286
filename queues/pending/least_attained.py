"""Least attained service: of equal priority, who has received least goes first, in a few discrete levels.

What a Workload has received is devices × time that it held them, over all its attempts: the second dimension
(how wide it is) counts as much as the first (how long it runs), hence 2D-LAS. Run times of training are
heavy-tailed, so a Workload that has received little will, most likely, soon be done; serving it first comes
close to shortest-first and needs no estimate at all.

Followed to the letter, equals would evict each other at every tick. So what was received counts in levels
alone, and within a level the order is that of age:

    level 0      1 GPU-hour      level 1      10 GPU-hours      level 2
    ────────────────┼──────────────────────────────┼──────────────────────▶

A Workload crosses each end once in its life, so it gives way for others a few times and not for ever. Each
`age_seconds` that it waits takes it one level down again, and below the lowest (FIRST) it comes before all,
so that nobody starves behind a stream of newcomers.

Few levels serve gangs better than many. One of eight GPUs passes 100 GPU-hours within a day, where half of
all GPU time is used; were that a level of its own, gangs would give way there to every smaller Workload on
its long way up, and whoever is widest would wait longest. In a last level that begins early they stand by
age.
Source: Gu et al., Tiresias (NSDI 2019), discretised 2D-LAS.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from math import ceil, inf

# Before every level: who has waited too long.
FIRST = -1
# The same where no service is counted: who has given way and comes back (`savedFirst` of a policy).
RETURNING = -2

# Levels are looked at once a minute, or more often where the minimum run time is short: whether a turn begins
# a little earlier matters to nobody, and a thousand running Workloads would otherwise each wake the queue at
# instants of their own.
_LONGEST_SECONDS = 60.0
_SHORTEST_SECONDS = 1.0
_LOOKS_A_RUN = 10


def devices(amounts: Mapping[str, int]) -> int:
    """Return how many devices the amounts are: those of the extended resource of which there are most.

    Several resources may stand for the same device (a GPU and its network card), so they are not added up.
    0 for CPU and memory alone: such a Workload attains nothing and always has its turn.
    """
    # Zero also for amounts of nothing but Kubernetes' own resources.
    return max((amount for resource, amount in amounts.items() if is_device(resource)), default=0)


def is_device(resource: str) -> bool:
    """Return whether the resource is an extended one, such as nvidia.com/gpu."""
    domain, _, name = resource.partition("/")
    # `kubernetes.io/batch-cpu` and the like are CPU and memory by another name.
    return bool(name) and not domain.endswith("kubernetes.io")


def level_of(received: float, level_ends: tuple[float, ...]) -> int:
    """Return the level of so many device-seconds: the number of level ends that they have reached."""
    return bisect_right(level_ends, received)


def leaves_level_at(received: float, count: int, level_ends: tuple[float, ...], *, now: float) -> float:
    """Return when a Workload that runs on `count` devices reaches the next level, infinity for never."""
    level = level_of(received, level_ends)
    # In the last level it stays; without devices it never moves on.
    if count == 0 or level == len(level_ends):
        return inf
    # In a straight line: it receives `count` device-seconds a second for as long as it runs.
    return now + (level_ends[level] - received) / count


def next_look(at: float, *, minimum_runtime_seconds: float) -> float:
    """Return the first look at levels that is not before `at`."""
    every = max(_SHORTEST_SECONDS, min(_LONGEST_SECONDS, minimum_runtime_seconds / _LOOKS_A_RUN))
    # On a grid of whole looks, so that many Workloads are looked at together.
    return ceil(at / every) * every
