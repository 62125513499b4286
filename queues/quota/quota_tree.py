"""The arithmetic of the quota tree: how much a ClusterQueue may use, and how far up the tree it borrows.

A tree has Cohorts as inner nodes and ClusterQueues as leaves. Each node has one cell per flavor and resource:

        root cohort                 subtree 30   usage 6   (what its children could not cover themselves)
        ├── cohort a                subtree 20   usage 6
        │   ├── ClusterQueue x      nominal 10, lendingLimit 4: local 6 is never lent, 4 are
        │   └── ClusterQueue y      nominal 16
        └── ClusterQueue z          nominal 10

Definitions, each for one cell of node n with parent p:

    subtree(n)    nominal quota of n plus what its children lend to n
    local(n)      the part of subtree(n) that lendingLimit keeps back, max(0, subtree − lendingLimit)
    usage(queue)  what the Workloads of the ClusterQueue hold
    usage(cohort) what the children of the Cohort use beyond their local parts
    available(n)  root: subtree − usage; else max(0, local − usage) + min(available(p), what the
                  borrowingLimit of n still allows)
    potential(n)  the most that n could ever use: local + potential(p), at most subtree + borrowingLimit

Invariant. usage(cohort) = Σ max(0, usage(child) − local(child)) over its children. The usage of every inner
node is thus a function of the leaves alone, whatever the order of changes. `add` serves a request from the
local part first and charges the rest to the parent; `remove` is its exact inverse. A change can therefore be
tried and taken back without a copy of the tree.

Cost. With depth d, `add`, `remove`, `available` and `borrow_height` walk to the root: O(d), and d is rarely
more than four. They end there, because `queues.quota.hierarchy` keeps Cohorts that form a cycle out of any
tree. `shift` changes a nominal quota and recomputes one cell of every node.

Source: Kueue, pkg/cache/scheduler/resource_node.go; Kueue's documentation of Cohort and hierarchical cohorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from api.queueing import ResourceQuota
from queues.quota.resources import FlavorResource, Quantities

_NO_QUOTA = ResourceQuota(nominal=0)


class BorrowHeight(NamedTuple):
    """How far up the tree a request must reach.

    `height` is 0 within the node's own quota, otherwise the height of the smallest cohort subtree that covers
    the request. `can_reclaim`: that subtree has a parent, so quota it has lent could be reclaimed.

    Kueue prefers flavors with a lower height, since such a request takes less from others.
    """

    height: int
    can_reclaim: bool


class QuotaCell:
    """One resource of one flavor at one node, in the resource's unit (milli-CPU, bytes, devices).

    Once the tree is built only `usage` changes, except while `QuotaNode.shift` tries another quota.

    `nominal`, `borrowing_limit` and `lending_limit` are the declared quota, a limit of None meaning no limit.
    `subtree`, `local` and `potential` follow from them and from the rest of the tree; the module's docstring
    defines them. `usage` may exceed `subtree`: by borrowing, or after quota was lowered.
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
        """Compute the quota of this subtree from its nominal quota and what its children lend.

        `from_children` is the sum of the children's `lent`, in the resource's unit. Sets `potential` as for a
        root, so `attach` has to follow for every other node.
        """
        self.subtree = self.nominal + from_children
        # Without a lending limit everything is lent. Only a limit keeps a local part back.
        self.local = 0 if self.lending_limit is None else max(0, self.subtree - self.lending_limit)
        # Correct for a root. `attach` adds what a parent could give.
        self.potential = self.subtree

    def attach(self, parent: QuotaCell) -> None:
        """Connect this cell to its parent's, which must be attached to its own parent already."""
        self.parent = parent
        # Present usage is left out on purpose: potential is the most that an empty cluster could give.
        self.potential = self.local + parent.potential
        if self.borrowing_limit is not None:
            self.potential = min(self.potential, self.subtree + self.borrowing_limit)

    @property
    def lent(self) -> int:
        """The part of the subtree's quota that this node offers to its parent."""
        return self.subtree - self.local

    @property
    def local_available(self) -> int:
        """The free part of what is never lent; never negative."""
        # Computed, not kept: it depends on usage, which changes with every decision.
        return max(0, self.local - self.usage)

    @property
    def available(self) -> int:
        """How much this node may still use, borrowing included.

        In the resource's unit. Negative when usage exceeds quota, as after quota is lowered under running
        Workloads. Walks to the root: O(depth). Source: Kueue, resource_node.go, available().
        """
        # Upwards in one loop, because a chain of Cohorts may be longer than Python's stack: the result is
        # what is free in the local parts passed so far, plus what is available above, bounded by `most`.
        cell, free = self, 0
        most: int | None = None
        while (parent := cell.parent) is not None:
            own = cell.local - cell.usage
            # As `local_available`. Without a lending limit there is no local part.
            if own > 0:
                free += own
                if most is not None:
                    most -= own
            # A borrowing limit bounds what is taken from the parent beyond what this node lends to it. It
            # applies at every level on the way up, so the tightest limit of the path decides.
            if cell.borrowing_limit is not None:
                limit = cell.subtree - cell.local + cell.borrowing_limit
                # What it uses beyond its local part is used in the parent.
                if own < 0:
                    limit += own
                if most is None or limit < most:
                    most = limit
            cell = parent
        # A root has no parent to borrow from. A negative result is correct here, and children need it.
        at_root = cell.subtree - cell.usage
        return free + (at_root if most is None else min(at_root, most))

    def is_borrowing_with(self, amount: int) -> bool:
        """Return whether `amount` more would exceed the quota of this subtree.

        Whether the cohort could cover the excess is not asked: see `available`.
        """
        return self.subtree < self.usage + amount

    def add(self, amount: int) -> None:
        """Charge `amount`: the local part first, the rest to the parent and up to the root.

        Does not check whether the amount is available: trials and recovered Workloads may exceed the quota.
        `amount` is in the resource's unit and not negative; a negative one has no effect. O(depth), and it
        ends at the first node whose local part covers the rest.
        """
        # A loop instead of recursion, because this runs for every Workload that is tried and taken back.
        cell: QuotaCell | None = self
        while cell is not None and amount > 0:
            local_available = cell.local - cell.usage
            cell.usage += amount
            # Negative for a node over its quota, which must not charge its parent more than `amount`.
            if local_available > 0:
                amount -= local_available
            cell = cell.parent

    def remove(self, amount: int) -> None:
        """Release `amount`, the borrowed part first. The exact inverse of `add`.

        The inverse in any order of changes, not only for the last `add`: usage of an inner node is a function
        of the usage of the leaves. O(depth).
        """
        cell: QuotaCell | None = self
        while cell is not None and amount > 0:
            # What this node used beyond its local part, which is what its parent was charged. Where that
            # is negative the parent was charged nothing, and the walk ends.
            stored_in_parent = cell.usage - cell.local
            cell.usage -= amount
            if stored_in_parent < amount:
                amount = stored_in_parent
            cell = cell.parent

    def borrow_height(self, amount: int) -> BorrowHeight:
        """Return how far up the tree `amount` more would have to reach; height 0 within the own quota.

        Source: Kueue, pkg/scheduler/preemption/classical, FindHeightOfLowestSubtreeThatFits.

        Where even the root does not suffice, the height of the root is returned and `can_reclaim` is False.
        Does not look at borrowing limits, as in Kueue. O(depth).
        """
        has_parent = self.parent is not None
        # A ClusterQueue without a Cohort cannot borrow, so its height is 0 whether the request fits or not.
        if not has_parent or not self.is_borrowing_with(amount):
            return BorrowHeight(0, has_parent)
        # The local part serves first, as in `add`.
        remaining = amount - self.local_available
        cell = self
        while cell.parent is not None:
            cell = cell.parent
            if not cell.is_borrowing_with(remaining):
                # The smallest subtree that covers the request. With a parent, it may have lent some quota.
                return BorrowHeight(cell.height, cell.parent is not None)
            remaining -= cell.local_available
        return BorrowHeight(cell.height, False)


class QuotaNode:
    """A Cohort or a ClusterQueue in the tree.

    `height` is 0 for a ClusterQueue and for a Cohort without children; any other Cohort is one higher than
    its highest child. `weight_milli` is the fair-sharing weight in thousandths.

    `cells` holds the pairs that this node or one below it declares. `quotas` holds its own declarations only.
    `parent` is None and `root` the node itself until `build` has run on the tree.
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
        "tree_digest",
        "undeclared",
        "weight_milli",
    )

    def __init__(
        self,
        name: str,
        *,
        is_queue: bool,
        quotas: dict[FlavorResource, ResourceQuota],
        weight_milli: int,
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
        # Cells of pairs that no node at or below this one declares, but that are in use all the same.
        self.undeclared: dict[FlavorResource, QuotaCell] = {}
        # The most that the node could ever lend, by resource; None until `queues.quota.fair_sharing` asks.
        self.lendable: dict[str, int] | None = None
        # At a root: the digest of its tree; "" until `queues.quota.tree_digest` asks.
        self.tree_digest = ""

    def adopt(self, child: QuotaNode) -> None:
        """Add `child` below this node. Call `build` on the root afterwards."""
        child.parent = self
        self.children.append(child)

    def build(self) -> None:
        """Compute heights and cells of the whole tree. Call it on the root, before any usage is charged.

        O(cells of all nodes). Usage that was charged before is lost, because every cell is created again.
        """
        self.tree_digest = ""
        nodes = list(self.nodes())
        # Children first: what they lend is part of their parent's subtree.
        for node in reversed(nodes):
            node._build_up()
        for node in nodes:
            node._build_down(self)

    def cell(self, pair: FlavorResource) -> QuotaCell:
        """Return the cell of `pair`; one without quota where no node declares it, as after it was removed.

        Usage of a pair that was removed from the spec must still be charged somewhere, or it would disappear
        from the Cohort while its pods run. The cell is created at the first request and belongs to the same
        path to the root as a declared one.
        """
        # Such cells are kept apart from `cells`, whose keys fair sharing and status read
        # as the declared pairs.
        return self.cells.get(pair) or self._undeclared_cell(pair)

    def available(self, pair: FlavorResource) -> int:
        """Return how much of `pair` this node may still use, borrowing included; may be negative.

        In the resource's unit. Negative where usage exceeds quota. O(depth).
        """
        return self.cell(pair).available

    def add(self, usage: Quantities) -> None:
        """Charge `usage` to this node and, where it borrows, to its ancestors.

        Pairs that no node declares are charged too, to cells without quota. Does not check whether the usage
        fits. O(pairs · depth).
        """
        cells = self.cells
        for pair, amount in usage.items():
            (cells.get(pair) or self._undeclared_cell(pair)).add(amount)

    def remove(self, usage: Quantities) -> None:
        """Release `usage`. The exact inverse of `add`."""
        cells = self.cells
        for pair, amount in usage.items():
            (cells.get(pair) or self._undeclared_cell(pair)).remove(amount)

    def change(self, usage: Quantities) -> None:
        """Charge the positive amounts of `usage` and release the negative ones.

        Used for differences, such as that between two instants of a capacity profile. O(pairs · depth).
        """
        for pair, amount in usage.items():
            cell = self.cells.get(pair) or self._undeclared_cell(pair)
            if amount > 0:
                cell.add(amount)
            else:
                cell.remove(-amount)

    def shift(self, pair: FlavorResource, amount: int) -> None:
        """Raise the nominal quota of `pair` at this node by `amount`, or lower it where `amount` is negative.

        Use this to try another quota; shifting back restores the tree exactly. What each node lends and
        borrows depends on the quota of the whole tree, so the usage of the leaves is removed and charged
        again: O(nodes of the tree). Raises KeyError where this node declares no such quota.
        """
        self.cells[pair].nominal += amount
        # Leaves only: the usage of a Cohort follows from theirs.
        leaves = [queue.cells.get(pair) or queue.undeclared.get(pair) for queue in self.root.queues()]
        used = [(cell, cell.usage) for cell in leaves if cell is not None]
        # Two passes, because sums go up the tree and potentials come down it.
        nodes = list(self.root.nodes())
        for node in reversed(nodes):
            node._sum_up(pair)
        for node in nodes:
            known = node.cells.get(pair) or node.undeclared.get(pair)
            if known is not None and known.parent is not None:
                known.attach(known.parent)
        for cell, usage in used:
            cell.add(usage)

    def fits(self, usage: Quantities) -> bool:
        """Return whether all of `usage` is available now. A request for nothing always fits.

        Each pair is checked by itself, which is exact: pairs do not share quota. O(pairs · depth).
        """
        cells = self.cells
        for pair, amount in usage.items():
            cell = cells.get(pair) or self._undeclared_cell(pair)
            # An amount of 0 fits even where usage exceeds quota and `available` is negative.
            if amount > 0 and amount > cell.available:
                return False
        return True

    def is_within_nominal(self, pairs: Iterable[FlavorResource]) -> bool:
        """Return whether this subtree uses no more than its own quota of every pair.

        Own quota means `subtree`: nominal quota and what the children lend. A node within it does not borrow,
        so Kueue does not reclaim quota of these pairs from its Workloads.
        """
        # A plain loop, because a search for victims asks this of every node of a tree.
        cells = self.cells
        for pair in pairs:
            cell = cells.get(pair) or self._undeclared_cell(pair)
            if cell.usage > cell.subtree:
                return False
        return True

    def ancestors(self) -> Iterator[QuotaNode]:
        """Yield the parent, its parent, and so on up to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def path(self) -> str:
        """Return the names from the root to here, as Kueue's messages write them: /root/.../queue."""
        names = [self.name, *(node.name for node in self.ancestors())]
        return "/" + "/".join(reversed(names))

    def queues(self) -> Iterator[QuotaNode]:
        """Yield the ClusterQueues of this subtree, in the order of the tree.

        The order is that in which children were adopted, which `build_hierarchy` makes the order of names.
        """
        return (node for node in self.nodes() if node.is_queue)

    def nodes(self) -> Iterator[QuotaNode]:
        """Yield the nodes of this subtree, each before its children.

        No recursion: the chain of Cohorts that a tenant may create is longer than Python's stack.
        """
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    def _undeclared_cell(self, pair: FlavorResource) -> QuotaCell:
        """Return the cell of a pair that neither this node nor one below declares."""
        # Up to the first node that has a cell, then down: each new cell is attached to its parent's.
        path: list[QuotaNode] = []
        node: QuotaNode | None = self
        above: QuotaCell | None = None
        while node is not None and above is None:
            above = node.cells.get(pair) or node.undeclared.get(pair)
            if above is None:
                path.append(node)
                node = node.parent
        for one in reversed(path):
            cell = one.undeclared[pair] = QuotaCell(_NO_QUOTA, height=one.height, from_children=0)
            if above is not None:
                cell.attach(above)
            above = cell
        assert above is not None, "this node itself is on the path if it has no cell"
        return above

    def _build_up(self) -> None:
        """Compute height and subtree quotas from those of the children, and create the cells."""
        lent: dict[FlavorResource, int] = dict.fromkeys(self.quotas, 0)
        for child in self.children:
            for pair, cell in child.cells.items():
                lent[pair] = lent.get(pair, 0) + cell.lent
        # A Cohort without children has the height of a leaf: no ClusterQueue borrows through it.
        self.height = 1 + max(child.height for child in self.children) if self.children else 0
        self.cells = {
            pair: QuotaCell(self.quotas.get(pair, _NO_QUOTA), height=self.height, from_children=amount)
            for pair, amount in lent.items()
        }

    def _build_down(self, root: QuotaNode) -> None:
        """Set the root, and connect every cell to its parent's, which must be connected already."""
        self.root = root
        if self.parent is not None:
            for pair, cell in self.cells.items():
                # `cell()` and not `cells`: a parent that no longer declares this pair is still part of the
                # path from the child to the root.
                cell.attach(self.parent.cell(pair))

    def _sum_up(self, pair: FlavorResource) -> None:
        """Recompute the quota of `pair` at this node from that of its children, and set its usage to 0."""
        # `lendable` sums over flavors and is cached; another quota makes it stale.
        self.lendable = None
        cell = self.cells.get(pair) or self.undeclared.get(pair)
        if cell is None:
            return
        of_children = (child.cells.get(pair) or child.undeclared.get(pair) for child in self.children)
        cell.usage = 0
        cell.sum_up(sum(one.lent for one in of_children if one is not None))
