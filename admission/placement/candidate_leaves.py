"""The leaves of a site as gangs of one shape see them, kept as the site changes.

A leaf here is a leaf switch: the domain above the nodes, which the tree of the site calls its lowest level.
What a leaf offers follows from its nodes alone, so only leaves whose nodes are in the site's logs are looked
at again. Searches that remember something about leaves read here which have changed since.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from admission.placement.rules import UNLIMITED, Leaf, leaf_level
from admission.placement.topology.changelog import ChangeLog
from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.pod_counts import PodCounts
from api.policy import DomainRules
from queues.steps import Steps, finish

# Leaves that are looked at without a pause, at some twenty microseconds each.
_LEAVES_AT_ONCE = 200
NO_RULES = DomainRules(max_nodes_per_leaf=UNLIMITED, max_gpus_per_leaf=UNLIMITED)


class Terms(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What makes a difference between gangs on the same leaf. `rules` None: no rules by size."""

    rules: DomainRules | None
    gpus_per_pod: int
    preferred_domain: str


@dataclass(slots=True, eq=False, kw_only=True)
class CandidateLeaves:
    """Leaves by index. `counts` say what is free now, `empty` what an empty cluster holds.

    `changes` are the leaves that are another value than before; `capacity_changes` counts how often any of
    them came, went, or holds another number of pods when it is empty.
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
    # Leaves that have changed and have not been looked at since.
    _outdated: set[int] = field(default_factory=set)
    # The domains above each domain, as they were asked for.
    _chains: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Rules about leaves need leaves; in a topology of nodes alone there are none.
        # In a topology of nodes alone there are no leaves to have rules for.
        has_leaves = len(self.site.levels) > 1
        rules = self.terms.rules
        self.level = leaf_level(self.site.levels, rules)
        self.rules = rules if rules is not None and has_leaves else NO_RULES

    def refresh(self) -> None:
        """Look again at the leaves whose nodes have changed. The counts must be up to date."""
        finish(self.refreshing())

    def refreshing(self) -> Steps[None]:
        """As `refresh`, in steps."""
        self._read_logs()
        hooked = self.site.tree.at_level[self.level]
        # Sorted, so that what is worked out in their order is the same each time.
        for number, index in enumerate(sorted(self._outdated)):
            if number % _LEAVES_AT_ONCE == _LEAVES_AT_ONCE - 1:
                yield
            self._look_at(index, is_there=index in hooked)
            self._outdated.discard(index)

    def _read_logs(self) -> None:
        nodes, uses = self.site.nodes_log, self.site.uses_log
        # Both logs: a leaf changes by what its nodes are and by what is on them.
        if self._nodes_read == nodes.end and self._uses_read == uses.end:
            return
        changed, used = nodes.since(self._nodes_read), uses.since(self._uses_read)
        self._nodes_read, self._uses_read = nodes.end, uses.end
        tree = self.site.tree
        if changed is None or used is None:
            # Forgotten history: all that is known and all that is there.
            self._outdated.update(self.leaves, tree.at_level[self.level])
        else:
            self._outdated.update([tree.ancestor(node, self.level) for node in changed | used])

    def _look_at(self, index: int, *, is_there: bool) -> None:
        known = self.leaves.get(index)
        leaf = self._leaf(index) if is_there else None
        if leaf is None:
            self.leaves.pop(index, None)
        else:
            self.leaves[index] = leaf
        # What it could hold, how many nodes, where it stands: any of these asks for other candidates.
        if known is None or leaf is None or _standing(known) != _standing(leaf):
            self.capacity_changes += 1
        # Also one that looks the same: its pods may lie otherwise on its nodes, or have gone better there.
        self.changes.add(index)

    def _leaf(self, index: int) -> Leaf:
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
        # Leaves stand right above the nodes as a rule, and there are thousands of them to ask.
        is_leaf = tree.level[domain] == tree.depth - 2
        return tree.children[domain] if is_leaf else list(tree.leaves_below(domain))

    def _groups(self, parent: int) -> tuple[int, ...]:
        """Return the domains from the widest down to this one; () for none."""
        # The chain above a domain is asked for by all its leaves, and never changes.
        if parent < 0:
            return ()
        known = self._chains.get(parent)
        if known is None:
            known = self._chains[parent] = (*self._groups(self.site.tree.parent[parent]), parent)
        return known

    def _is_unused(self, nodes: list[int]) -> bool:
        used = self.site.used
        # On the empty cluster nobody uses anything.
        if self.counts is self.empty or not used:
            return True
        names = self.site.names
        return not any(names[node] in used for node in nodes)

    def _capped(self, leaf: int, nodes: list[int], counts: PodCounts) -> int:
        """Return how many pods one gang may put on the leaf."""
        rules, gpus = self.rules, self.terms.gpus_per_pod
        if len(nodes) <= rules.max_nodes_per_leaf:
            pods = counts.pods[leaf]
        # The roomiest nodes that one gang may take, where a leaf has more of them than that.
        else:
            roomiest = sorted([counts.pods[node] for node in nodes], reverse=True)
            pods = sum(roomiest[: rules.max_nodes_per_leaf])
        return min(pods, rules.max_gpus_per_leaf // gpus) if gpus else pods

    def _place(self, nodes: list[int], label: str | None) -> int | None:
        if label is None:
            return None
        texts = (node.labels.get(label, "") for one in nodes for node in self.site.nodes[one].values())
        return next((int(text) for text in texts if text.isascii() and text.isdigit()), None)

    def _is_preferred(self, domain: int) -> bool:
        """Return whether the domain, or one above it, is the one that the Workload prefers."""
        wanted = self.terms.preferred_domain
        return bool(wanted) and wanted in self.site.tree.values[domain]


def _standing(leaf: Leaf) -> tuple[object, ...]:
    """Return what of a leaf does not depend on who is there now."""
    return leaf.capacity, leaf.nodes, leaf.place


def room_of(counts: PodCounts, domains: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many pods each of the domains takes."""
    return tuple([counts.pods[one] for one in domains])
