"""How many nodes a filter evaluates, and where it begins: `percentageOfNodesToScore` of a profile.

In a large cluster a pod rarely needs the best of all nodes, and kube-scheduler and all extenders score every
node that passes the filter. The filter therefore stops once enough nodes have passed, and the next pod's
evaluation begins where it stopped, so that every node gets its turn. The numbers are kube-scheduler's.

Unlike in kube-scheduler, a profile without this setting evaluates every node: kube-scheduler has already
sampled before it calls an extender, and sampling a sample should be an administrator's choice.

Source: Kubernetes, "Scheduler Performance Tuning"; pkg/scheduler/schedule_one.go, numFeasibleNodesToFind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

EVERY_NODE = 100
# The value for "by the size of the cluster".
_ADAPTIVE = 0
# The least number of nodes to find. A smaller sample saves little and misses much.
_LEAST_NODES = 100
# The adaptive share begins at 50% and loses one point for each 125 nodes, down to 5%.
_ADAPTIVE_SHARE = 50
_NODES_PER_POINT = 125
_LEAST_ADAPTIVE_SHARE = 5


def nodes_to_find(percentage: int, nodes: int) -> int:
    """Return how many passing nodes are enough, of `nodes` in all.

    `percentage` is from 0 to 100; 0 is adaptive: about 50% of 100 nodes, 10% of 5,000, never below 5%. The
    result is at least 100, or all nodes where there are fewer.
    """
    if percentage == _ADAPTIVE:
        percentage = max(_LEAST_ADAPTIVE_SHARE, _ADAPTIVE_SHARE - nodes // _NODES_PER_POINT)
    return min(nodes, max(_LEAST_NODES, nodes * percentage // 100))


class Rotation:
    """Where the next evaluation of each profile begins.

    Unlike kube-scheduler's single position there is one per profile: with one, pods of two profiles that
    alternate could each be given the same half of the nodes for ever.
    """

    def __init__(self) -> None:
        self._looked_at: dict[str, int] = {}

    def order(self, profile: str, nodes: int) -> Sequence[int]:
        """Return the positions 0 to `nodes` - 1 in the order in which they are to be evaluated."""
        start = self._looked_at.get(profile, 0) % nodes if nodes else 0
        return (*range(start, nodes), *range(start))

    def advance(self, profile: str, looked_at: int) -> None:
        """Record that this many nodes were evaluated. The next evaluation begins behind them."""
        self._looked_at[profile] = self._looked_at.get(profile, 0) + looked_at


def look_until(
    enough: int, order: Sequence[int], refused: Callable[[Sequence[int]], Collection[int]]
) -> Sequence[int]:
    """Return the positions evaluated, in order, until `enough` of them passed or none are left.

    `refused` returns which of some positions do not pass. Each call covers as many as would suffice
    if all passed, because a large call costs less per node. Its results for positions behind the last
    one needed are ignored.
    """
    found = done = 0
    while found < enough and done < len(order):
        some = order[done : done + max(enough - found, _LEAST_NODES)]
        out = refused(some)
        for place in some:
            done += 1
            found += place not in out
            if found == enough:
                break
    return order[:done]
