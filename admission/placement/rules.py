"""Domain rules: on how many leaves a gang of so many nodes is placed, and which leaves those can be.

A *leaf* is the domain right above the nodes (the switch that they share), unless the policy names another
level. The standard rules follow from one sentence: **as few leaves as can ever hold the gang, all below the
narrowest domain that can ever hold them.** With leaves of four nodes:

    nodes      1    2    3    4         5-7          8             9-12     13-15    16
    leaves     1    1    1    1 whole   2 adjacent   2 whole,      3 adj.   4 adj.   4 whole,
                                                     adjacent                        adjacent

    more       as few leaves as hold them, below one spine while any spine has that many leaves, otherwise
               below the narrowest domain that has; adjacent means below the same spine

"Can ever" is decided on the empty cluster: a gang waits for its leaf and is not split because the leaf is
busy at present. It is decided on the nodes that exist, so a rack that lost a node relaxes the rule instead
of blocking the gang for ever. A *whole* leaf has no other Workload: a gang that fills its leaves shares
them with no other.

With an adjacency label leaves are numbered in a row, and leaves with consecutive numbers are adjacent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from api.policy import DomainRules, SizeRule

# No limit on the number of leaves or nodes.
UNLIMITED = 1 << 40


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """One leaf as a gang sees it, in pods of the gang.

    `free` and `capacity` are capped by what one gang may use of a leaf. `groups` are the domains
    above it, the widest first. `place` is its number in the row, None without one. `is_whole`: no
    other Workload uses it.
    """

    index: int
    name: tuple[str, ...]
    free: int
    capacity: int
    nodes: int
    groups: tuple[int, ...] = ()
    place: int | None = None
    is_whole: bool = True
    is_preferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSize:
    """The size of a gang: its pods, and the nodes that it needs if it fills each of them.

    Nodes are rounded up: nine pods on nodes of eight need two.
    """

    pods: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the rules require for a gang: at most `leaves` leaves.

    Leaves of at most `whole_up_to_nodes` nodes must have no other Workload. `groups` are the sets of leaves
    to choose from; without any the gang can never fit.
    """

    leaves: int
    whole_up_to_nodes: int
    is_adjacent: bool
    groups: tuple[tuple[Leaf, ...], ...]

    def admits(self, leaf: Leaf) -> bool:
        """Return whether the gang may use the leaf in its present state."""
        return leaf.free > 0 and (leaf.is_whole or leaf.nodes > self.whole_up_to_nodes)


def leaf_level(levels: Sequence[str], rules: DomainRules | None) -> int:
    """Return the level of the leaves: the policy's, otherwise the one above the nodes, if there is one.

    Levels are counted from 0, the widest. 0 for a topology with a single level.
    """
    named = rules.leaf_level if rules is not None else None
    # A named level that this topology lacks is ignored, because one policy may apply to
    # queues with several topologies.
    if named is not None and named in levels[:-1]:
        return levels.index(named)
    return max(0, len(levels) - 2)


def own_rule(rules: DomainRules, nodes: int) -> SizeRule | None:
    """Return the policy's own rule for a gang of this many nodes, None where the standard rules apply."""
    return next((rule for rule in rules.size_rules if nodes <= rule.max_nodes), None)


def demand(rules: DomainRules, size: GangSize, leaves: Sequence[Leaf]) -> Demand:
    """Return what the rules require for the gang, given these leaves.

    An empty `groups` means that no group of leaves can ever hold the gang. O(leaves), so it is kept as long
    as no leaf changes its capacity.
    """
    own = own_rule(rules, size.nodes)
    rule = own or SizeRule(max_nodes=size.nodes)
    groups = list(_groups(rules, rule, leaves, size.pods))
    # Counted on empty leaves, because the rules do not depend on present use.
    fewest = min((_fewest(group, size.pods) for group in groups), default=0)
    limit = rule.leaves if rule.leaves is not None else fewest
    return Demand(
        leaves=limit,
        whole_up_to_nodes=_whole_up_to(rules, own, size.nodes),
        is_adjacent=rule.is_adjacent,
        # A group that would need more leaves than allowed can never be chosen.
        groups=tuple(group for group in groups if _fewest(group, size.pods) <= limit),
    )


def _whole_up_to(rules: DomainRules, own: SizeRule | None, nodes: int) -> int:
    """Return up to how many nodes a leaf has to be free of other work for the gang; 0: it need not be."""
    if own is not None:
        return UNLIMITED if own.is_complete else 0
    # A leaf with more nodes than one gang may use is never filled by one gang.
    return rules.max_nodes_per_leaf if nodes % rules.max_nodes_per_leaf == 0 else 0


def choose_leaves(group: Iterable[Leaf], need: Demand, pods: int) -> tuple[tuple[Leaf, int], ...] | None:
    """Return leaves of the group with the pods that each gets, None where there is no room.

    The roomiest leaves first, so that few are used; the last one is the tightest that holds the rest.
    Preferred leaves go first where that needs no more leaves than allowed.
    """
    usable = list(filter(need.admits, group))
    # An attempt with preferred leaves first, which may need more leaves than allowed.
    if any(leaf.is_preferred for leaf in usable):
        chosen = _fill(sorted(usable, key=lambda one: (not one.is_preferred, *_roomiest(one))), need, pods)
        if chosen is not None:
            return chosen
    return _fill(sorted(usable, key=_roomiest), need, pods)


def _roomiest(leaf: Leaf) -> tuple[int, tuple[str, ...]]:
    """Return the sort key by which the leaf with the most room comes first."""
    return -leaf.free, leaf.name


def _fill(leaves: list[Leaf], need: Demand, pods: int) -> tuple[tuple[Leaf, int], ...] | None:
    """Return the leaves that are used and the pods on each; None where they do not hold all."""
    chosen: list[tuple[Leaf, int]] = []
    rest = pods
    for position, leaf in enumerate(leaves):
        if rest <= 0 or len(chosen) >= need.leaves:
            break
        if leaf.free >= rest:
            # The tightest leaf for the last part, so that roomier ones stay free for the next gang.
            candidates = [one for one in leaves[position:] if one.free >= rest]
            leaf = min(candidates, key=lambda one: (not one.is_preferred, one.free, one.name))
        taken = min(leaf.free, rest)
        chosen.append((leaf, taken))
        rest -= taken
    return tuple(chosen) if rest <= 0 else None


def _groups(
    rules: DomainRules, rule: SizeRule, leaves: Sequence[Leaf], pods: int
) -> Iterator[tuple[Leaf, ...]]:
    """Yield the narrowest sets of leaves that can ever hold the gang."""
    # A single leaf that holds the gang is nearer than any set of several.
    single = [leaf for leaf in leaves if leaf.capacity >= pods]
    if single:
        yield from ((leaf,) for leaf in single)
        return
    if not rule.is_adjacent:
        yield tuple(leaves)
    # Nodes without the label have no row, so that one policy serves clusters with and without it.
    elif rules.adjacency_label is not None and any(leaf.place is not None for leaf in leaves):
        yield from _rows(leaves, pods)
    else:
        yield from _siblings(leaves, pods)


def _siblings(leaves: Sequence[Leaf], pods: int) -> Iterator[tuple[Leaf, ...]]:
    """Yield the leaves below each domain of the narrowest level at which a domain can hold the gang."""
    depth = max((len(leaf.groups) for leaf in leaves), default=0)
    # From the leaves upwards to the first level that holds the gang: a wider one only adds distance.
    for level in reversed(range(depth)):
        by_domain: dict[int, list[Leaf]] = {}
        for leaf in leaves:
            by_domain.setdefault(leaf.groups[level], []).append(leaf)
        fitting = [tuple(group) for group in by_domain.values() if _capacity(group) >= pods]
        if fitting:
            yield from fitting
            return
    if _capacity(leaves) >= pods:
        yield tuple(leaves)


def _rows(leaves: Sequence[Leaf], pods: int) -> Iterator[tuple[Leaf, ...]]:
    """Yield the shortest runs of adjacent leaves that can ever hold the gang."""
    by_place: Mapping[int, Leaf] = {leaf.place: leaf for leaf in leaves if leaf.place is not None}
    runs = [run for place in sorted(by_place) if (run := _run(by_place, place, pods))]
    # All runs of the shortest length are candidates. Present room decides among them.
    shortest = min((len(run) for run in runs), default=0)
    yield from (run for run in runs if len(run) == shortest)


def _run(by_place: Mapping[int, Leaf], place: int, pods: int) -> tuple[Leaf, ...]:
    """Return the adjacent leaves from `place` on that hold the gang, () where the row ends before."""
    run: list[Leaf] = []
    held = 0
    while held < pods:
        leaf = by_place.get(place + len(run))
        # A gap in the row: the leaves behind it are not adjacent.
        if leaf is None:
            return ()
        run.append(leaf)
        held += leaf.capacity
    return tuple(run)


def _fewest(group: Iterable[Leaf], pods: int) -> int:
    """Return how many empty leaves of the group hold the gang; UNLIMITED where all of them do not."""
    count, held = 0, 0
    for capacity in sorted((leaf.capacity for leaf in group), reverse=True):
        if held >= pods:
            break
        count, held = count + 1, held + capacity
    return count if held >= pods else UNLIMITED


def _capacity(group: Iterable[Leaf]) -> int:
    """Return how many pods the leaves of a group hold when they are empty."""
    return sum(leaf.capacity for leaf in group)
