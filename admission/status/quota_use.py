"""What becomes of the quota of a ClusterQueue or Cohort: used, borrowed, lent, exceeded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queues.quota.quota_tree import QuotaCell, QuotaNode
from queues.quota.resources import FlavorResource


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUse:
    """One resource of one flavor at a node of the quota tree, in the resource's unit.

    `nominal` is the node's own quota with that of all nodes below it, as far as they lend it to the node.
    `used` is what ClusterQueues at or below it use. `borrowed` of that comes from above, `lent` is what
    others use of its quota. `over` is use beyond all that it may use; `available` is what it may still use,
    never negative.
    """

    nominal: int
    used: int
    borrowed: int
    lent: int
    over: int
    available: int
    borrowing_limit: int | None
    lending_limit: int | None


def quota_use(node: QuotaNode) -> Mapping[FlavorResource, QuotaUse]:
    """Return the use of each pair that the node or one below it declares, sorted."""
    return {pair: _use(node, pair) for pair in sorted(node.cells)}


def _use(node: QuotaNode, pair: FlavorResource) -> QuotaUse:
    cell = node.cells[pair]
    available = cell.available
    borrowed = max(0, cell.usage - cell.subtree)
    return QuotaUse(
        nominal=cell.subtree,
        used=sum(queue.cell(pair).usage for queue in node.queues()),
        borrowed=borrowed,
        lent=_lent(node, pair),
        # A node within its own quota is not over it, though others may have taken too much.
        over=min(-available, borrowed) if available < 0 else 0,
        available=max(0, available),
        borrowing_limit=cell.borrowing_limit,
        lending_limit=cell.lending_limit,
    )


def _lent(node: QuotaNode, pair: FlavorResource) -> int:
    """Return what siblings use of this node's quota.

    No record says whose quota is borrowed. What siblings borrow is taken from the parent's own quota first,
    as nothing else is charged to that, and the rest from each sibling in proportion to what it leaves unused.
    """
    parent = node.parent
    if parent is None:
        return 0
    cells = [child.cells[pair] for child in parent.children if pair in child.cells]
    borrowed = sum(max(0, cell.usage - cell.subtree) for cell in cells)
    lent = borrowed - parent.cell(pair).nominal
    unused = sum(map(_unused, cells))
    if lent <= 0 or not unused:
        return 0
    own = _unused(node.cells[pair])
    return min(own, lent * own // unused)


def _unused(cell: QuotaCell) -> int:
    """Return how much of what the node offers to others it does not use itself."""
    return max(0, min(cell.lent, cell.subtree - cell.usage))
