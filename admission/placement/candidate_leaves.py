"""The leaves of a site as gangs of one shape see them, updated as the site changes.

A leaf in this module is a leaf switch: the domain above the nodes. (The site's tree calls the nodes its
leaves.) What a leaf offers follows from its nodes alone, so only leaves whose nodes appear in the site's logs
are evaluated again. Searches that cache results by leaf read here which leaves have changed since.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from admission.placement.rules import UNLIMITED, Leaf, leaf_level
from admission.placement.topology.changelog import ChangeLog
from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.pod_counts import PodCounts
from api.policy import DomainRules
from queues.steps import Steps, finish

# Leaves evaluated without a pause, at about twenty microseconds each.
_LEAVES_AT_ONCE = 200
NO_RULES = DomainRules(max_nodes_per_leaf=UNLIMITED, max_gpus_per_leaf=UNLIMITED)


class Terms(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What distinguishes gangs on the same leaf. `rules` is None without rules by size.

    Hashable, because leaves are kept for each combination of shape and terms. An empty `preferred_domain`
    prefers none.
    """

    rules: DomainRules | None
    gpus_per_pod: int
    preferred_domain: str


@dataclass(slots=True, eq=False, kw_only=True)
class CandidateLeaves:
    """Leaves by index. `counts` are those of the present, `empty` those of the empty cluster.

    `changes` lists the leaves whose value has changed. `capacity_changes` counts how often a leaf appeared,
    disappeared, or changed the number of pods that it holds when empty.
    """

    site: FlavorTopology
    counts: PodCounts
    empty: PodCounts
    terms: Terms
    leaves: dict[int, Leaf] = field(default_factory=dict)
    changes: ChangeLog = field(default_factory=ChangeLog)
    capacity_changes: int = 0
    level: int = field(init=False)
    rules: DomainRules = field(init=False)
    _nodes_read: int = -1
    _uses_read: int = -1
    # Leaves that have changed and have not been evaluated since. Of those in the first set the nodes have
    # changed, of the others only what Workloads take of the nodes.
    _rebuilt: set[int] = field(default_factory=set)
    _outdated: set[int] = field(default_factory=set)
    # The domains above each domain, computed once.
    _chains: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # A topology that has only nodes has no leaves for rules to apply to.
        has_leaves = len(self.site.levels) > 1
        rules = self.terms.rules
        self.level = leaf_level(self.site.levels, rules)
        self.rules = rules if rules is not None and has_leaves else NO_RULES

    def refresh(self) -> None:
        """Evaluate again the leaves whose nodes have changed. The counts must be up to date."""
        finish(self.refreshing())

    def refreshing(self) -> Steps[None]:
        """Do what `refresh` does, in steps.

        One step for each `_LEAVES_AT_ONCE` leaves. A step that is never taken is caught up by the next
        `refresh`.
        """
        self._read_logs()
        hooked = self.site.tree.at_level[self.level]
        # Sorted, so that results that depend on their order are the same each time.
        for number, index in enumerate(sorted(self._outdated)):
            if number % _LEAVES_AT_ONCE == _LEAVES_AT_ONCE - 1:
                yield
            known = self.leaves.get(index)
            if known is None or index in self._rebuilt:
                self._rebuild(index, is_there=index in hooked)
            else:
                self.leaves[index] = self._used(known)
            # Reported even where the value is equal: its pods may be on other nodes, or
            # nodes may score otherwise.
            self.changes.add(index)
            self._rebuilt.discard(index)
            self._outdated.discard(index)

    def _read_logs(self) -> None:
        """Note which leaves have to be evaluated again, by what the site has logged since the last time."""
        nodes, uses = self.site.nodes_log, self.site.uses_log
        # Both logs, because a leaf depends on its nodes and on their use.
        if self._nodes_read == nodes.end and self._uses_read == uses.end:
            return
        changed, used = nodes.since(self._nodes_read), uses.since(self._uses_read)
        self._nodes_read, self._uses_read = nodes.end, uses.end
        tree = self.site.tree
        if changed is None or used is None:
            # A log no longer goes back far enough: evaluate every known and every present leaf.
            self._rebuilt.update(self.leaves, tree.at_level[self.level])
        else:
            self._rebuilt |= tree.ancestors(changed, self.level)
            self._outdated |= tree.ancestors(used, self.level)
        self._outdated |= self._rebuilt

    def _rebuild(self, index: int, *, is_there: bool) -> None:
        """Evaluate one leaf whose nodes have changed."""
        known = self.leaves.get(index)
        leaf = self._leaf(index) if is_there else None
        if leaf is None:
            self.leaves.pop(index, None)
        else:
            self.leaves[index] = leaf
        # Its capacity, its number of nodes and its place in the row decide which candidates exist.
        if known is None or leaf is None or _lasting(known) != _lasting(leaf):
            self.capacity_changes += 1

    def _used(self, leaf: Leaf) -> Leaf:
        """Return the leaf with what Workloads now leave of it."""
        nodes = self.nodes(leaf.index)
        return structs.replace(
            leaf, free=self._capped(leaf.index, nodes, self.counts), is_whole=self._is_unused(nodes)
        )

    def _leaf(self, index: int) -> Leaf:
        """Return what the leaf offers now, from its nodes."""
        tree = self.site.tree
        nodes = self.nodes(index)
        return Leaf(
            index=index,
            name=tree.values[index],
            free=self._capped(index, nodes, self.counts),
            capacity=self._capped(index, nodes, self.empty),
            nodes=len(nodes),
            groups=self._groups(tree.parent[index]),
            place=self._place(nodes, self.rules.adjacency_label),
            is_whole=self._is_unused(nodes),
            is_preferred=self._is_preferred(index),
        )

    def nodes(self, domain: int) -> list[int]:
        """Return the nodes of a domain."""
        tree = self.site.tree
        # A shortcut for the usual case: leaves right above the nodes, of which there may be thousands.
        is_leaf = tree.level[domain] == tree.depth - 2
        return tree.children[domain] if is_leaf else list(tree.leaves_below(domain))

    def _groups(self, parent: int) -> tuple[int, ...]:
        """Return the domains from the widest down to this one; () for none."""
        # Cached, because all leaves below a domain share its chain, which never changes.
        if parent < 0:
            return ()
        known = self._chains.get(parent)
        if known is None:
            known = self._chains[parent] = (*self._groups(self.site.tree.parent[parent]), parent)
        return known

    def _is_unused(self, nodes: list[int]) -> bool:
        """Return whether no Workload runs on these nodes."""
        used = self.site.used
        # On the empty cluster no node is used.
        if self.counts is self.empty or not used:
            return True
        return used.keys().isdisjoint(map(self.site.names.__getitem__, nodes))

    def _capped(self, leaf: int, nodes: list[int], counts: PodCounts) -> int:
        """Return how many pods one gang may place on the leaf."""
        rules, gpus = self.rules, self.terms.gpus_per_pod
        if len(nodes) <= rules.max_nodes_per_leaf:
            pods = counts.pods[leaf]
        # One gang may use only so many nodes of a leaf: count the roomiest ones.
        else:
            roomiest = sorted([counts.pods[node] for node in nodes], reverse=True)
            pods = sum(roomiest[: rules.max_nodes_per_leaf])
        return min(pods, rules.max_gpus_per_leaf // gpus) if gpus else pods

    def _place(self, nodes: list[int], label: str | None) -> int | None:
        """Return the number that the adjacency label gives the leaf, None where it gives none."""
        if label is None:
            return None
        texts = (node.labels.get(label, "") for one in nodes for node in self.site.nodes[one].values())
        return next((int(text) for text in texts if text.isascii() and text.isdigit()), None)

    def _is_preferred(self, domain: int) -> bool:
        """Return whether the domain, or one above it, is the Workload's preferred domain."""
        wanted = self.terms.preferred_domain
        return bool(wanted) and wanted in self.site.tree.values[domain]


def _lasting(leaf: Leaf) -> tuple[object, ...]:
    """Return the properties of a leaf that do not depend on its present use."""
    return leaf.capacity, leaf.nodes, leaf.place


def room_of(counts: PodCounts, domains: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many pods each of the domains has room for."""
    return tuple([counts.pods[one] for one in domains])
