"""How many pods with static addresses each host takes, by the pools of its nodes.

A pool belongs to several hosts, such as those of a rack. What is left of it is handed out to its hosts before
they are counted, the roomiest first, so that the counts of racks and blocks are sums as for everything else:

    pool with 4 left     host   room for   counts as
                         n1     6          4
                         n2     3          0

A gang that fits by these counts has its addresses. Pods that should be spread over the hosts of one pool are
nearer to each other than they could be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.placement.topology.address_book import AddressBook, AddressPool, AddressRule
from admission.placement.topology.flavor_topology import FlavorTopology
from api.keys import ADDRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRoom:
    """The room for pods of the rule. `is_empty`: without placed pods, but with all reservations."""

    site: FlavorTopology
    rule: AddressRule
    is_empty: bool
    # How many pods each leaf had room for when all were counted last.
    _counted: dict[int, int] = field(default_factory=dict)
    # How many addresses of each pool these are together.
    _handed_out: Counter[str] = field(default_factory=Counter)

    @property
    def lack(self) -> str:
        """What a leaf lacks that has enough of every resource."""
        return "static addresses"

    @property
    def _book(self) -> AddressBook:
        return self.site.addresses

    def at(self, leaf: int) -> int:
        """Return how many pods the leaf had addresses for when all leaves were counted."""
        return self._counted.get(leaf, 0)

    def limit(self, pods: list[int]) -> None:
        """Lower the number of pods of each leaf to the addresses that it is given."""
        self._counted.clear()
        self._handed_out.clear()
        values = self.site.tree.values
        for text, pool in sorted(self._book.pools().items()):
            left = self._left(text, pool)
            found = {self.site.find_leaf((host,)) for host in pool.hosts.values()}
            leaves = [leaf for leaf in found if leaf is not None]
            for leaf in sorted(leaves, key=lambda one: (-pods[one], values[one])):
                pods[leaf] = self._counted[leaf] = min(pods[leaf], left)
                left -= pods[leaf]
                self._handed_out[text] += pods[leaf]

    def left_at(self, leaf: int) -> int:
        """Return how many addresses the pool of the leaf has left for the pods, wherever they go."""
        text = self._pool_at(leaf)
        return self._left(text, self._book.pools()[text]) if text else 0

    def has_own_at(self, leaf: int) -> bool:
        """Return whether the pods have addresses of the leaf's pool already."""
        return self._pool_at(leaf) in dict(self.rule.own)

    def new_at(self, leaf: int) -> int:
        """Return how many addresses of the leaf's pool were counted that the pods do not have yet."""
        text = self._pool_at(leaf)
        return max(0, self._handed_out[text] - dict(self.rule.own).get(text, 0))

    def _pool_at(self, leaf: int) -> str:
        return next(filter(None, map(self._book.pool_of, self.site.nodes[leaf])), "")

    def has_for(self, pods: Mapping[str, int]) -> bool:
        """Return whether the pools have addresses for this many pods on each of some hosts."""
        return all(
            sum([pods.get(host, 0) for host in {*pool.hosts.values()}]) <= self._left(text, pool)
            for text, pool in self._book.pools().items()
        )

    def _left(self, text: str, pool: AddressPool) -> int:
        return self._book.left(text, self.rule, placed=0 if self.is_empty else self._placed(pool))

    def _placed(self, pool: AddressPool) -> int:
        """Return how many pods with addresses are placed on the hosts of the pool, of whatever flavor."""
        used = self.site.used
        return sum(used.get((host,), {}).get(ADDRESS, 0) for host in {*pool.hosts.values()})
