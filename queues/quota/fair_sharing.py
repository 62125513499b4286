"""The dominant resource share: how much of the lendable quota a ClusterQueue or Cohort has borrowed.

For a node n with a parent, over the resources r (all flavors together):

    borrowed(r) = Σ max(0, usage − subtree quota)           what n uses beyond its own
    lendable(r) = Σ potential(parent)                       the most its parent could ever give
    share       = max over r of borrowed(r) · 1000 / lendable(r), divided by n's weight

The node with the smallest share is served first, and the node with the largest share is preempted
first. A node of weight 0 that borrows has an infinite share; two such nodes are compared by their
shares before the weight.
Source: Kueue, pkg/cache/scheduler/fair_sharing.go; KEP 1714.

Cost. One pass over the cells of the node. The denominator is computed once for each node and kept in
`QuotaNode.lendable` until a quota of the tree changes; usage does not change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf

from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource

# How an infinite share is written: the largest number that the API can carry.
MAX_SHARE = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DominantShare:
    """A dominant resource share. Shares are compared by `order`.

    `order` is the weighted share and, for infinite shares only, the share before the weight. `borrowed` holds
    the pairs of flavor and resource whose usage exceeds the node's own quota.

    The default value is the share of a node that borrows nothing: 0, without pairs.
    """

    order: tuple[float, float] = (0.0, 0.0)
    borrowed: frozenset[FlavorResource] = frozenset()

    @property
    def is_infinite(self) -> bool:
        """Whether a node of weight 0 borrows."""
        return self.order[0] == inf

    @property
    def is_borrowing(self) -> bool:
        """Whether anything is used beyond the node's own quota, even where its share is 0."""
        return bool(self.borrowed)

    def is_borrowing_any(self, pairs: Iterable[FlavorResource]) -> bool:
        """Return whether usage of one of `pairs` exceeds the node's own quota.

        Pairs that the node does not declare never count, because `borrowed` holds declared pairs only.
        """
        return not self.borrowed.isdisjoint(pairs)

    @property
    def exact(self) -> float:
        """The share with its fraction, in thousandths; infinite for a node of weight 0 that borrows."""
        return self.order[0]

    def rounded(self) -> int:
        """Return the share as the status shows it: rounded up, `MAX_SHARE` for infinity.

        In thousandths, as in `status.fairSharing.weightedShare`: for a node of weight 1, 1000 means that it
        has borrowed as much of one resource as its parent could ever lend.
        """
        return MAX_SHARE if self.is_infinite else ceil(self.order[0])


_NO_SHARE = DominantShare()


def dominant_resource_share(node: QuotaNode) -> DominantShare:
    """Return the node's share of what its parent could lend; no share for a root, which cannot borrow.

    Reads the present usage, trials included, so a caller that tries a Workload on the tree gets the share
    with it. A node whose borrowed resources no other node could lend, as after a quota was deleted, has a
    share of 0 but still counts as borrowing. O(cells of the node).
    Source: Kueue, pkg/cache/scheduler/fair_sharing.go, dominantResourceShare.
    """
    if node.parent is None:
        return _NO_SHARE
    by_resource: dict[str, int] = {}
    pairs = []
    # Declared pairs only, as in Kueue: usage of a pair that is no longer declared does
    # not count as borrowing.
    for pair, cell in node.cells.items():
        beyond = cell.usage - cell.subtree
        if beyond > 0:
            by_resource[pair.resource] = by_resource.get(pair.resource, 0) + beyond
            pairs.append(pair)
    if not pairs:
        return _NO_SHARE
    lendable = _lendable(node.parent)
    # A resource that no node could lend has no share, so borrowing it counts as 0.
    ratio = max(
        (amount * 1000 / lendable[name] for name, amount in by_resource.items() if lendable[name] > 0),
        default=0.0,
    )
    # Two numbers, because infinity alone would make all nodes of weight 0 equal.
    weighted = (inf, ratio) if node.weight_milli == 0 else (ratio / (node.weight_milli / 1000), 0.0)
    return DominantShare(order=weighted, borrowed=frozenset(pairs))


def _lendable(node: QuotaNode) -> Mapping[str, int]:
    """Return the most that the node could ever lend, by resource, all flavors together."""
    if node.lendable is None:
        lendable: dict[str, int] = {}
        # Over the root's pairs, because the node could be given what is declared anywhere above it.
        for pair in node.root.cells:
            lendable[pair.resource] = lendable.get(pair.resource, 0) + node.cell(pair).potential
        node.lendable = lendable
    return node.lendable
