"""The demo's cluster and its Jobs: three teams, sixteen nodes, and half a minute of work arriving.

    cohort research   3 racks of 4 nodes × 8 GPUs "a100"     speech 48 + vision 48 of nominal quota
    (no cohort)       1 rack of 4 nodes × 8 GPUs "l40s"      web 32

Speech comes first, with large gangs, while vision has nothing to do: speech borrows what vision leaves. Then
vision comes and gets its own back as speech's Jobs end. Web has a queue of its own all the time and can
borrow from nobody.

Every Job says how long it may run: twice as long as it does, as careful people would. So whoever must wait
for room is promised a start that lies late rather than early, and what is short runs in the gap before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

GPUS_PER_NODE = 8
NODES_PER_RACK = 4
RACK_LABEL = "example.com/rack"
# How many times its run time a Job declares.
# People ask for more time than they need, so promises are kept early; twice is modest by what is published.
_CAUTION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Equal simulated nodes."""

    name: str
    nodes: int
    gpu_product: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A tenant: namespace, LocalQueue and ClusterQueue of one name."""

    name: str
    pool: str
    gpus: int
    cohort: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """One Job; `at_seconds` after the beginning it is created. Seconds are those of speed 1."""

    team: str
    name: str
    pods: int
    gpus_per_pod: int
    run_seconds: float
    at_seconds: float

    @property
    def declared_seconds(self) -> float:
        """How long its owner says that it runs."""
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
# `speech` begins and borrows what `vision` leaves idle, then `vision` comes and both wait. The large ones of
# each team are there to be promised a start, the many small ones to fill the gaps before it.
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
    """Return all Jobs in the order of their arrival; the same ones every time."""
    return tuple(sorted(_all_jobs(), key=lambda job: (job.at_seconds, job.team, job.name)))


def gpus() -> int:
    """Return how many GPUs all nodes have."""
    return sum(pool.nodes for pool in POOLS) * GPUS_PER_NODE


def _all_jobs() -> Iterator[DemoJob]:
    for wave in _WAVES:
        for number in range(wave.count):
            # Evenly over the wave and without chance: two runs of the demo are comparable.
            share = number / max(1, wave.count - 1)
            yield DemoJob(
                team=wave.team,
                name=f"{wave.name}-{number + 1}",
                pods=wave.pods,
                gpus_per_pod=wave.gpus_per_pod,
                run_seconds=wave.run_seconds,
                at_seconds=round(wave.first + share * (wave.last - wave.first), 2),
            )
