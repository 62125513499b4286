"""How many nodes are looked for, and at which the look begins: `percentageOfNodesToScore` of a profile.

In a large cluster a pod seldom needs the best of all nodes, and every node that passes the filter is scored
by kube-scheduler and by all extenders. So the filter stops once it has found enough, and the next pod's
begins where it stopped, so that every node has its turn. The numbers are kube-scheduler's.

Unlike there, a profile that says nothing has every node looked at: kube-scheduler has taken a sample of its
own before it asks an extender, and a share of a share is for an administrator to choose.

Source: Kubernetes, "Scheduler Performance Tuning"; pkg/scheduler/schedule_one.go, numFeasibleNodesToFind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

EVERY_NODE = 100
# The word for "by the size of the cluster".
_ADAPTIVE = 0
# So many are looked for however small the share: below, a sample saves nothing and misses much.
_LEAST_NODES = 100
# An adaptive share begins at half of the nodes and loses a hundredth for each so many, down to the least.
_ADAPTIVE_SHARE = 50
_NODES_PER_POINT = 125
_LEAST_ADAPTIVE_SHARE = 5


def nodes_to_find(percentage: int, nodes: int) -> int:
    """Return how many nodes that pass are enough, of `nodes` in all.

    `percentage` is from 0 to 100; 0 is adaptive: about 50% of 100 nodes, 10% of 5,000, never below 5%. At
    least 100 nodes are looked for, or all where there are fewer.
    """
    if percentage == _ADAPTIVE:
        percentage = max(_LEAST_ADAPTIVE_SHARE, _ADAPTIVE_SHARE - nodes // _NODES_PER_POINT)
    return min(nodes, max(_LEAST_NODES, nodes * percentage // 100))


class Rotation:
    """Where the next look of each profile begins.

    One for each profile, unlike kube-scheduler's single one: pods of two names that come in turns would each
    meet the same half of the nodes for ever.
    """

    def __init__(self) -> None:
        self._looked_at: dict[str, int] = {}

    def order(self, profile: str, nodes: int) -> Sequence[int]:
        """Return the places 0 to `nodes` - 1 in the order in which they are to be looked at."""
        start = self._looked_at.get(profile, 0) % nodes if nodes else 0
        return (*range(start, nodes), *range(start))

    def advance(self, profile: str, looked_at: int) -> None:
        """Take note that so many were looked at: the next look begins behind them."""
        self._looked_at[profile] = self._looked_at.get(profile, 0) + looked_at


def look_until(
    enough: int, order: Sequence[int], refused: Callable[[Sequence[int]], Collection[int]]
) -> Sequence[int]:
    """Return the places that were looked at, in order, until `enough` of them passed or there are no more.

    `refused` says which of some places do not pass. It is asked about as many at once as would do if all
    passed, since a look at many costs each of them less; what it says of those behind the last one needed is
    unused.
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
