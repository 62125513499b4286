"""The quota tree's arithmetic: how much a ClusterQueue may use, and how far up the tree it borrows.

A tree has Cohorts inside and ClusterQueues as leaves. Each node has one cell per flavor and resource:

        root cohort                 subtree 30   usage 6   (what its children could not cover themselves)
        ├── cohort a                subtree 20   usage 6
        │   ├── ClusterQueue x      nominal 10, lendingLimit 4: local 6 is never lent, 4 are
        │   └── ClusterQueue y      nominal 16
        └── ClusterQueue z          nominal 10

- subtree(n) is n's own nominal quota and what its children lend upward.
- local(n) is the part of subtree(n) that is not lent to the parent (beyond lendingLimit).
- usage(queue) is what its Workloads hold; usage(cohort) is what its children use beyond their local parts.

A request is served from the local part first, and what is left climbs to the parent. Adding and removing
are mirror images in any order, since the usage of every node is a function of the leaves alone. That is why
trying a change and taking it back needs no copy of the tree.

Source: Kueue, pkg/cache/scheduler/resource_node.go; kueue-docs "Cohort" and "Hierarchical cohorts".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from api.queueing import ResourceQuota
from queues.quota.resources import FlavorResource, Quantities

_NO_QUOTA = ResourceQuota(nominal=0)


class BorrowHeight(NamedTuple):
    """How far up the tree a request must reach.

    `height` is 0 within the own quota, else the height of the smallest cohort subtree that covers it.
    `can_reclaim` says that capacity lent away below that node could be taken back.
    """

    height: int
    can_reclaim: bool


class QuotaCell:
    """One resource of one flavor at one node.

    Everything but `usage` is fixed once the tree is built; `QuotaNode.shift` is a look at another quota.
    """

    __slots__ = (
        "borrowing_limit",
        "height",
        "lending_limit",
        "local",
        "nominal",
        "parent",
        "potential",
        "subtree",
        "usage",
    )

    def __init__(self, quota: ResourceQuota, *, height: int, from_children: int) -> None:
        self.parent: QuotaCell | None = None
        self.height = height
        self.nominal = quota.nominal
        self.borrowing_limit = quota.borrowing_limit
        self.lending_limit = quota.lending_limit
        self.usage = 0
        self.sum_up(from_children)

    def sum_up(self, from_children: int) -> None:
        """Work out what this subtree has, from its nominal quota and what its children lend it."""
        self.subtree = self.nominal + from_children
        # Without a lending limit all of it is lent: what stays local is only what a limit keeps back.
        self.local = 0 if self.lending_limit is None else max(0, self.subtree - self.lending_limit)
        # Until it has a parent; `attach` adds what the parent could give.
        self.potential = self.subtree

    def attach(self, parent: QuotaCell) -> None:
        """Hang this cell below its parent's, whose own parent is attached already."""
        self.parent = parent
        # Never what is used at the moment: potential is the most it could have on an empty cluster.
        self.potential = self.local + parent.potential
        if self.borrowing_limit is not None:
            self.potential = min(self.potential, self.subtree + self.borrowing_limit)

    @property
    def lent(self) -> int:
        """What this node offers to its parent."""
        return self.subtree - self.local

    @property
    # Not kept but worked out: usage changes with every decision, and is the only thing that does.
    def local_available(self) -> int:
        """What is free of the part that is never lent; never negative."""
        return max(0, self.local - self.usage)

    @property
    def available(self) -> int:
        """What this node may still use, borrowing included.

        In the resource's unit. Negative where usage exceeds quota, as after quota is lowered under running
        Workloads. Walks to the root. Source: Kueue, resource_node.go, available().
        """
        parent = self.parent
        if parent is None:
            # A root borrows from nobody; below zero is a real answer here, and children pass it on.
            return self.subtree - self.usage
        from_parent = parent.available
        # A borrowing limit bounds what is taken from the parent, counted from what this node has stored
        # there. Applied at every level on the way up, so the tightest limit of the path decides.
        if self.borrowing_limit is not None:
            stored_in_parent = self.subtree - self.local
            used_in_parent = max(0, self.usage - self.local)
            from_parent = min(from_parent, stored_in_parent - used_in_parent + self.borrowing_limit)
        return max(0, self.local - self.usage) + from_parent

    def is_borrowing_with(self, amount: int) -> bool:
        """Return whether `amount` more would exceed what this subtree has of its own."""
        return self.subtree < self.usage + amount

    def add(self, amount: int) -> None:
        """Charge `amount`: the local part first, the rest to the parent."""
        # A loop instead of recursion: this runs for every Workload that is tried and taken back.
        cell: QuotaCell | None = self
        while cell is not None and amount > 0:
            # Never negative, else a node over its quota would pass on more than it was given.
            local_available = max(0, cell.local - cell.usage)
            cell.usage += amount
            amount -= local_available
            cell = cell.parent

    def remove(self, amount: int) -> None:
        """Give `amount` back, the borrowed part first; the mirror image of `add`."""
        cell: QuotaCell | None = self
        while cell is not None and amount > 0:
            # What this node used beyond its local part, and so had charged to the parent. Where
            # that is negative nothing was, and the walk ends.
            stored_in_parent = cell.usage - cell.local
            cell.usage -= amount
            amount = min(amount, stored_in_parent)
            cell = cell.parent

    def borrow_height(self, amount: int) -> BorrowHeight:
        """Return how far up `amount` more would have to reach.

        A queue within its quota is at 0.
        Source: Kueue, pkg/scheduler/preemption/classical, FindHeightOfLowestSubtreeThatFits.
        """
        has_parent = self.parent is not None
        # A root's own queue has nowhere to borrow, so it is at 0 and fits or does not.
        if not has_parent or not self.is_borrowing_with(amount):
            return BorrowHeight(0, has_parent)
        # The local part serves first, exactly as `add` would charge it.
        remaining = amount - self.local_available
        cell = self
        while cell.parent is not None:
            cell = cell.parent
            if not cell.is_borrowing_with(remaining):
                # The first subtree that covers it. One with a parent may have lent some of that away.
                return BorrowHeight(cell.height, cell.parent is not None)
            remaining -= cell.local_available
        return BorrowHeight(cell.height, False)


class QuotaNode:
    """A Cohort or a ClusterQueue in the tree.

    `height` is 0 for a ClusterQueue; a Cohort is one higher than its highest child. `weight_milli` is the
    fair-sharing weight in thousandths.
    """

    __slots__ = (
        "cells",
        "children",
        "height",
        "is_queue",
        "lendable",
        "name",
        "parent",
        "quotas",
        "root",
        "undeclared",
        "weight_milli",
    )

    def __init__(
        self,
        name: str,
        *,
        is_queue: bool,
        quotas: dict[FlavorResource, ResourceQuota],
        weight_milli: int = 1000,
    ) -> None:
        self.name = name
        self.is_queue = is_queue
        self.quotas = quotas
        self.weight_milli = weight_milli
        self.parent: QuotaNode | None = None
        self.root: QuotaNode = self
        self.children: list[QuotaNode] = []
        self.height = 0
        self.cells: dict[FlavorResource, QuotaCell] = {}
        # Cells of pairs that nobody at or below this node declares but somebody uses all the same.
        self.undeclared: dict[FlavorResource, QuotaCell] = {}
        # The most it could ever give by resource, worked out when first asked (`queues.quota.fair_sharing`).
        self.lendable: dict[str, int] | None = None

    def adopt(self, child: QuotaNode) -> None:
        """Take `child` below this node. `build` is due afterwards."""
        child.parent = self
        self.children.append(child)

    def build(self) -> None:
        """Work out heights and cells of the whole tree; call it on the root, with no usage charged."""
        self._build_up()
        self._build_down(self)

    def cell(self, pair: FlavorResource) -> QuotaCell:
        """Return the cell of `pair`, one without quota where none is declared (it was taken away in use)."""
        # Kept apart from `cells`, whose keys are the declared pairs: fair sharing and status walk over those.
        return self.cells.get(pair) or self._undeclared_cell(pair)

    def available(self, pair: FlavorResource) -> int:
        """Return how much of `pair` this node may still use, borrowing included; may be negative."""
        return self.cell(pair).available

    def add(self, usage: Quantities) -> None:
        """Charge `usage` to this node and, where it borrows, to its ancestors."""
        cells = self.cells
        for pair, amount in usage.items():
            (cells.get(pair) or self._undeclared_cell(pair)).add(amount)

    def remove(self, usage: Quantities) -> None:
        """Give `usage` back; the mirror image of `add`."""
        cells = self.cells
        for pair, amount in usage.items():
            (cells.get(pair) or self._undeclared_cell(pair)).remove(amount)

    def change(self, usage: Quantities) -> None:
        """Charge what is above 0 of `usage`, and give back what is below."""
        for pair, amount in usage.items():
            cell = self.cells.get(pair) or self._undeclared_cell(pair)
            if amount > 0:
                cell.add(amount)
            else:
                cell.remove(-amount)

    def shift(self, pair: FlavorResource, amount: int) -> None:
        """Raise the nominal quota of this node by `amount` of `pair`, or lower it where that is negative.

        For a look at another quota; shifting back restores the tree exactly. What is lent and borrowed
        depends on the quota all over the tree, so the usage of the leaves, which alone is given, is taken off
        and charged anew: O(nodes of the tree). Raises KeyError where this node declares no such quota.
        """
        self.cells[pair].nominal += amount
        # Leaves only: the usage of a cohort is a function of theirs, and charged anew with them.
        leaves = [queue.cells.get(pair) or queue.undeclared.get(pair) for queue in self.root.queues()]
        used = [(cell, cell.usage) for cell in leaves if cell is not None]
        # Sums go up the tree, potentials come down it, so the two walks cannot be one.
        self.root._sum_up(pair)
        self.root._attach(pair)
        for cell, usage in used:
            cell.add(usage)

    def fits(self, usage: Quantities) -> bool:
        """Return whether all of `usage` is available now; a request for nothing always is."""
        cells = self.cells
        for pair, amount in usage.items():
            cell = cells.get(pair) or self._undeclared_cell(pair)
            # Where usage exceeds quota, nothing is free, and that is no obstacle to a request for nothing.
            if amount > 0 and amount > cell.available:
                return False
        return True

    def is_within_nominal(self, pairs: Iterable[FlavorResource]) -> bool:
        """Return whether this subtree uses no more than its own quota of every pair."""
        # Asked of every node of a tree when victims are sought, so without a generator for each.
        cells = self.cells
        for pair in pairs:
            cell = cells.get(pair) or self._undeclared_cell(pair)
            if cell.usage > cell.subtree:
                return False
        return True

    def ancestors(self) -> Iterator[QuotaNode]:
        """Return the parent, its parent, up to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def path(self) -> str:
        """Return the names from the root to here, as Kueue's messages write them: /root/.../queue."""
        names = [self.name, *(node.name for node in self.ancestors())]
        return "/" + "/".join(reversed(names))

    def queues(self) -> Iterator[QuotaNode]:
        """Return the ClusterQueues of this subtree, in the order of the tree."""
        if self.is_queue:
            yield self
        for child in self.children:
            yield from child.queues()

    def _undeclared_cell(self, pair: FlavorResource) -> QuotaCell:
        cell = self.undeclared.get(pair)
        if cell is None:
            cell = self.undeclared[pair] = QuotaCell(_NO_QUOTA, height=self.height, from_children=0)
            if self.parent is not None:
                cell.attach(self.parent.cell(pair))
        return cell

    def _build_up(self) -> None:
        lent: dict[FlavorResource, int] = dict.fromkeys(self.quotas, 0)
        # Children first: what they lend is part of this node's subtree.
        for child in self.children:
            child._build_up()
            for pair, cell in child.cells.items():
                lent[pair] = lent.get(pair, 0) + cell.lent
        # A cohort without children has the height of a leaf; nobody borrows through it.
        self.height = 1 + max(child.height for child in self.children) if self.children else 0
        self.cells = {
            pair: QuotaCell(self.quotas.get(pair, _NO_QUOTA), height=self.height, from_children=amount)
            for pair, amount in lent.items()
        }

    def _build_down(self, root: QuotaNode) -> None:
        self.root = root
        if self.parent is not None:
            for pair, cell in self.cells.items():
                # `cell` and not `cells`: a parent whose quota for this pair was taken away still
                # stands between child and root.
                cell.attach(self.parent.cell(pair))
        for child in self.children:
            child._build_down(root)

    def _sum_up(self, pair: FlavorResource) -> int:
        """Work out anew what this subtree has of `pair`, as if nobody used any. Returns what it lends."""
        lent = sum(child._sum_up(pair) for child in self.children)
        # It is summed over flavors and remembered; another quota makes it another number.
        self.lendable = None
        cell = self.cells.get(pair) or self.undeclared.get(pair)
        if cell is None:
            return 0
        cell.usage = 0
        cell.sum_up(lent)
        return cell.lent

    def _attach(self, pair: FlavorResource) -> None:
        cell = self.cells.get(pair) or self.undeclared.get(pair)
        if cell is not None and cell.parent is not None:
            cell.attach(cell.parent)
        for child in self.children:
            child._attach(pair)
