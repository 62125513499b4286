"""The demo's cluster and its Jobs: three teams, sixteen nodes, and half a minute of work arriving.

    cohort research   3 racks of 4 nodes × 8 GPUs "a100"     speech 48 + vision 48 of nominal quota
    (no cohort)       1 rack of 4 nodes × 8 GPUs "l40s"      web 32

Speech submits first, with large gangs, while vision is idle: speech borrows vision's idle quota. Then vision
submits and gets its own quota back as speech's Jobs end. Web has no cohort and cannot borrow.

Every Job declares twice its run time, as cautious users do. So a Job that must wait is promised a start that
is rather late than early, and short Jobs run in the gap before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

GPUS_PER_NODE = 8
NODES_PER_RACK = 4
RACK_LABEL = "example.com/rack"
# The factor by which Jobs overestimate their run time. Users request more time than they need, so promises
# are kept early. Published factors are higher than two.
_CAUTION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A group of equal simulated nodes."""

    name: str
    nodes: int
    gpu_product: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A tenant, whose namespace, LocalQueue and ClusterQueue have the same name."""

    name: str
    pool: str
    gpus: int
    cohort: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """One Job, created `at_seconds` after the start. Seconds are those at speed 1."""

    team: str
    name: str
    pods: int
    gpus_per_pod: int
    run_seconds: float
    at_seconds: float

    @property
    def declared_seconds(self) -> float:
        """Return the run time that its owner declares, in seconds."""
        return self.run_seconds * _CAUTION


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wave:
    team: str
    name: str
    count: int
    pods: int
    gpus_per_pod: int
    run_seconds: float
    first: float
    last: float


POOLS = (
    NodePool(name="a100", nodes=12, gpu_product="NVIDIA-A100-SXM4-80GB"),
    NodePool(name="l40s", nodes=4, gpu_product="NVIDIA-L40S"),
)
TEAMS = (
    Team(name="speech", pool="a100", gpus=48, cohort="research"),
    Team(name="vision", pool="a100", gpus=48, cohort="research"),
    Team(name="web", pool="l40s", gpus=32, cohort=None),
)
# `speech` starts and borrows `vision`'s idle quota, then `vision` submits and both wait. The large Jobs of
# each team get promised starts, and the many small ones fill the gaps before them.
_WAVES = (
    _Wave(team="speech", name="pretrain", count=4, pods=2, gpus_per_pod=8, run_seconds=16, first=0, last=4),
    _Wave(team="speech", name="finetune", count=10, pods=1, gpus_per_pod=4, run_seconds=11, first=1, last=12),
    _Wave(team="speech", name="eval", count=12, pods=1, gpus_per_pod=1, run_seconds=6, first=2, last=28),
    _Wave(team="vision", name="detect", count=6, pods=1, gpus_per_pod=8, run_seconds=12, first=9, last=16),
    _Wave(team="vision", name="sweep", count=14, pods=1, gpus_per_pod=2, run_seconds=8, first=10, last=30),
    _Wave(team="vision", name="segment", count=2, pods=4, gpus_per_pod=8, run_seconds=10, first=18, last=24),
    _Wave(team="web", name="embed", count=10, pods=1, gpus_per_pod=4, run_seconds=9, first=0, last=27),
    _Wave(team="web", name="rank", count=8, pods=1, gpus_per_pod=2, run_seconds=7, first=3, last=29),
    _Wave(team="web", name="batch", count=2, pods=2, gpus_per_pod=8, run_seconds=10, first=6, last=20),
)


def jobs() -> tuple[DemoJob, ...]:
    """Return all Jobs in the order of their arrival. Every call returns the same Jobs."""
    return tuple(sorted(_all_jobs(), key=lambda job: (job.at_seconds, job.team, job.name)))


def gpus() -> int:
    """Return the number of GPUs of all nodes together."""
    return sum(pool.nodes for pool in POOLS) * GPUS_PER_NODE


def _all_jobs() -> Iterator[DemoJob]:
    for wave in _WAVES:
        for number in range(wave.count):
            # Spread the Jobs evenly over the wave. Without randomness, two runs of the demo are comparable.
            share = number / max(1, wave.count - 1)
            yield DemoJob(
                team=wave.team,
                name=f"{wave.name}-{number + 1}",
                pods=wave.pods,
                gpus_per_pod=wave.gpus_per_pod,
                run_seconds=wave.run_seconds,
                at_seconds=round(wave.first + share * (wave.last - wave.first), 2),
            )
