"""Which demands pods usually make: the mix by which fragmentation is measured.

It is learned from the pods that were placed, and begins again with the Workloads that are running. A
gradient is computed for a fixed mix, because every node has to be judged again under another one. So the mix
is measured again each time that the number of observed pods has grown by a quarter: often while little is
known, seldom later.
"""

from __future__ import annotations

from collections import Counter

from admission.placement.fragmentation import Demand, Gradient

# A new gradient is computed after this growth of the pods observed.
_GROWTH = 1.25
# Beyond this many pods all counts are halved, so that a mix of months ago does not decide for ever.
_MOST_PODS = 100_000


class DemandMix:
    """The demands of pods so far. Before the first one every node is as good: the fullest one is taken."""

    def __init__(self) -> None:
        self._counts: Counter[Demand] = Counter()
        self._total = 0
        # The number of pods at which the next gradient is computed.
        self._next = 1.0
        self._gradient = Gradient({})

    def observe(self, demand: Demand, pods: int) -> None:
        """Count pods of this demand. Those without GPUs use none, and do not count."""
        if not demand.gpus or pods <= 0:
            return
        self._counts[demand] += pods
        self._total += pods
        if self._total > _MOST_PODS:
            self._counts = Counter({one: count // 2 for one, count in self._counts.items() if count > 1})
            self._total = sum(self._counts.values())
            self._next = min(self._next, self._total)

    @property
    def gradient(self) -> Gradient:
        """The gradient by the mix: the same object until the mix has grown by a quarter."""
        if self._total >= self._next:
            self._next = self._total * _GROWTH
            self._gradient = Gradient(self._counts)
        return self._gradient
