"""How much of a node's free GPUs later pods can use, and how much less once a pod is placed there.

Theory of operation. A free GPU that no likely pod can use is *fragmented*. Which pods are likely is the
*mix*: the demands of earlier pods, with how often each was made. Of a node n, with p(m) the share of
demand m:

    fragmented(n) = Σ p(m) · (free GPU of n that m cannot use)

    m cannot use        where
    all that is free    the node has too little CPU, or too few whole GPUs, for a single pod of m
    the GPUs in part    m needs whole GPUs
    the GPUs that have  m needs a share of one GPU that is larger
    less than m needs

A pod goes where `fragmented` rises least: down the steepest gradient. Source: Weng et al., "Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023.

This sees a lack of CPU only when not one pod more fits. Work that needs much CPU for each GPU has then long
used up the CPU of nodes whose GPUs will never be used. So a second term is added, in the same unit: free GPU
that the node's free CPU cannot feed, at the CPU per GPU that the mix needs on average.

    stranded(n) = max(0, free GPU of n - free CPU of n ÷ CPU per GPU of the mix)

Cost. What a demand can use of given GPUs does not depend on CPU, so the demands are sorted by CPU, and for
each state of the GPUs the sums over the first demands are kept: a node costs one bisection.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from api.jobs.gpu_share import WHOLE

# The demands that are told apart; rarer ones are left out. Each costs a step for each new state of GPUs.
_MOST_DEMANDS = 200
# States of GPUs that are kept. Nodes are of few kinds, and few mixes of pods are on them.
_MOST_STATES = 50_000
# Differences below this many milli are rounding errors and no preference.
_DIGITS = 6


class Demand(NamedTuple):
    """What one pod needs: milli-CPU, a number of GPUs, and the milli of each.

    `milli` is WHOLE for whole GPUs, and less for a share of one.
    """

    milli_cpu: int
    gpus: int = 0
    milli: int = WHOLE


class NodeState(NamedTuple):
    """What a node has free: milli-CPU, and the milli of each of its GPUs, in ascending order."""

    milli_cpu: int
    gpus: tuple[int, ...] = ()


class Rise(NamedTuple):
    """What placing a pod costs, lowest first: milli of GPU made useless, then what is left of the node.

    Of equally good nodes the fullest one is taken, so that empty ones stay whole.
    """

    useless: float
    free_gpu: int
    free_cpu: int


class Gradient:
    """Fragmentation by one mix of demands, which does not change.

    `feeds_gpus`: whether GPUs count that the CPU cannot feed. Without it this is the published gradient.
    """

    def __init__(self, mix: Mapping[Demand, int], *, feeds_gpus: bool = True) -> None:
        asking = {demand: count for demand, count in mix.items() if demand.gpus and count > 0}
        kept = dict(Counter(asking).most_common(_MOST_DEMANDS))
        total = sum(kept.values())
        self._demands = [(demand, count / total) for demand, count in sorted(kept.items())]
        self._cpus = [demand.milli_cpu for demand, _ in self._demands]
        self._usable: dict[tuple[int, ...], list[float]] = {}
        cpu = sum(demand.milli_cpu * count for demand, count in kept.items())
        gpu = sum(demand.gpus * demand.milli * count for demand, count in kept.items())
        # Milli of GPU that one milli of CPU feeds; None where no demand needs CPU.
        self._fed_per_cpu = gpu / cpu if feeds_gpus and cpu else None

    def fragmented(self, node: NodeState) -> float:
        """Return how many milli of the node's free GPUs a pod of the mix cannot use, on average."""
        sums = self._usable.get(node.gpus)
        if sums is None:
            if len(self._usable) >= _MOST_STATES:
                self._usable.clear()
            sums = self._usable[node.gpus] = self._sums(node.gpus)
        return sum(node.gpus) - sums[bisect_right(self._cpus, node.milli_cpu)]

    def stranded(self, node: NodeState) -> float:
        """Return how many milli of the node's free GPUs its free CPU cannot feed."""
        if self._fed_per_cpu is None:
            return 0.0
        return max(0.0, sum(node.gpus) - node.milli_cpu * self._fed_per_cpu)

    def rise(self, node: NodeState, demand: Demand) -> tuple[Rise, NodeState] | None:
        """Return the cost of a pod on the node and what the node has left; None where it does not fit.

        Of several GPUs that hold a share, the one with the lowest cost.
        """
        before = self.fragmented(node) + self.stranded(node)
        return min(
            (
                (
                    Rise(
                        round(self.fragmented(after) + self.stranded(after) - before, _DIGITS),
                        sum(after.gpus),
                        after.milli_cpu,
                    ),
                    after,
                )
                for after in outcomes(node, demand)
            ),
            default=None,
        )

    def _sums(self, gpus: tuple[int, ...]) -> list[float]:
        """Return how much of these GPUs the first demands use on average, for each number of demands."""
        sums = [0.0]
        for demand, share in self._demands:
            sums.append(sums[-1] + share * usable(gpus, demand))
        return sums


def usable(gpus: tuple[int, ...], demand: Demand) -> int:
    """Return how many milli of these free GPUs pods of this demand can use, whatever their CPU."""
    if demand.milli < WHOLE:
        return sum([free for free in gpus if free >= demand.milli])
    whole = gpus.count(WHOLE)
    return whole * WHOLE if whole >= demand.gpus else 0


def outcomes(node: NodeState, demand: Demand) -> Iterator[NodeState]:
    """Yield what the node has left once the pod is there, for each different choice of GPUs."""
    left = node.milli_cpu - demand.milli_cpu
    if left < 0:
        return
    gpus = node.gpus
    if not demand.gpus:
        yield NodeState(left, gpus)
    elif demand.milli >= WHOLE:
        if gpus.count(WHOLE) >= demand.gpus:
            # Free GPUs are the last ones, because the milli ascend.
            yield NodeState(left, (0,) * demand.gpus + gpus[: len(gpus) - demand.gpus])
    else:
        for free in sorted({free for free in gpus if free >= demand.milli}):
            at = gpus.index(free)
            yield NodeState(left, tuple(sorted((*gpus[:at], free - demand.milli, *gpus[at + 1 :]))))
