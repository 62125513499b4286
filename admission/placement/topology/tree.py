"""The tree of a topology: domains by level, leaves at the bottom.

    level 0   block      b0                 b1
    level 1   rack       b0,r0    b0,r1     b1,r0
    level 2   hostname   n0  n1   n2  n3    n4  n5     ◀ leaves

A domain keeps its index for ever, so values computed for domains are lists beside the tree. A domain whose
last node is removed is unhooked, and hooked in again when a node returns: a node that flaps costs only its
path to the root. Children are sorted by their values. Ties are thus broken by name everywhere, and a stable
sort by room keeps that order.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

Values = tuple[str, ...]

NO_PARENT = -1


@dataclass(slots=True, eq=False)
class DomainTree:
    """Domains by index. `depth` is the number of levels; a domain of level depth-1 is a leaf."""

    depth: int
    values: list[Values] = field(default_factory=list)
    level: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    children: list[list[int]] = field(default_factory=list)
    at_level: list[dict[int, None]] = field(default_factory=list)
    _index: dict[Values, int] = field(default_factory=dict)
    # The domains of a level that share a value. Where values nest there is one.
    _named: dict[tuple[int, str], dict[int, None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at_level = [{} for _ in range(self.depth)]

    def __len__(self) -> int:
        return len(self.values)

    def find(self, values: Values) -> int | None:
        """Return the domain with these level values, the widest first; None where it has no nodes."""
        index = self._index.get(values)
        return index if index is not None and self.is_attached(index) else None

    def is_attached(self, index: int) -> bool:
        """Return whether the domain has any node at present."""
        return index in self.at_level[self.level[index]]

    def attach(self, values: Values) -> int:
        """Return the domain with these values, added to the tree together with its ancestors if necessary."""
        index = self._index.get(values)
        if index is None:
            index = self._add(values)
        level = self.level[index]
        # Hooking it in hooks in its ancestors, as far as they are not.
        if index not in self.at_level[level]:
            self.at_level[level][index] = None
            self._named.setdefault((level, values[-1]), {})[index] = None
            # Sorted by values, so that ties are broken by name without another sort.
            if level > 0:
                insort(self.children[self.attach(values[:-1])], index, key=self.values.__getitem__)
        return index

    def detach(self, index: int) -> None:
        """Remove the domain from the tree, and each ancestor that becomes empty."""
        level, value = self.level[index], self.values[index][-1]
        del self.at_level[level][index]
        del self._named[level, value][index]
        parent = self.parent[index]
        # A domain of the widest level has no parent.
        if parent != NO_PARENT:
            self.children[parent].remove(index)
            if not self.children[parent]:
                self.detach(parent)

    def named(self, level: int, value: str) -> tuple[int, ...]:
        """Return the domains of a level whose own label value is this one."""
        return tuple(self._named.get((level, value), ()))

    def ancestor(self, index: int, level: int) -> int:
        """Return the domain at `level` that holds this one."""
        while self.level[index] > level:
            index = self.parent[index]
        return index

    def ancestors(self, leaves: Collection[int], level: int) -> set[int]:
        """Return the domains at `level` that hold any of these leaves."""
        domains = set(leaves)
        for _ in range(self.depth - 1 - level):
            domains = {self.parent[one] for one in domains}
        return domains

    def leaves_below(self, index: int) -> Iterator[int]:
        """Yield the leaves below the domain; the domain itself where it is a leaf."""
        if self.level[index] == self.depth - 1:
            yield index
        for child in self.children[index]:
            yield from self.leaves_below(child)

    def _add(self, values: Values) -> int:
        parent = NO_PARENT
        if len(values) > 1:
            parent = self._index.get(values[:-1], NO_PARENT)
            if parent == NO_PARENT:
                parent = self._add(values[:-1])
        index = self._index[values] = len(self.values)
        self.values.append(values)
        self.level.append(len(values) - 1)
        self.parent.append(parent)
        self.children.append([])
        return index
