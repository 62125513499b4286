"""Domain rules: on how many leaves a gang of so many nodes goes, and which leaves those can be.

A *leaf* is the domain right above the nodes (the switch that they share), unless the policy names another
level. The standard rules follow from one sentence: **as few leaves as can ever hold the gang, all below the
narrowest domain that can ever hold them.** With leaves of four nodes:

    nodes      1    2    3    4         5-7          8             9-12     13-15    16
    leaves     1    1    1    1 whole   2 adjacent   2 whole,      3 adj.   4 adj.   4 whole,
                                                     adjacent                        adjacent

    more       as few leaves as hold them, below one spine while any spine has so many leaves, else below the
               narrowest domain that has; adjacent means below the same spine

"Can ever" is judged on the empty cluster: a gang waits for its leaf instead of being torn because the leaf is
busy today. It is judged on the nodes that are there, so that a rack that lost a node shrinks the rule instead
of holding the gang for ever. A *whole* leaf is free of other Workloads: a gang that fills the leaves it gets
shares them with nobody.

With an adjacency label leaves stand in a row, and those are adjacent whose numbers follow one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from api.policy import DomainRules, SizeRule

# Any number of leaves or nodes: no cap.
UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One leaf as a gang sees it, in pods of the gang.

    `free` and `capacity` are capped by what one gang may take of a leaf. `groups` are the domains above it,
    widest first; `place` its number in the row, None without one. `is_whole`: no other Workload is there.
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
    """How big a gang is: in pods, and in nodes if each node were its own."""

    pods: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the rules ask for a gang: at most `leaves` leaves, free of others if they have so few nodes.

    `groups` are the sets of leaves among which it may choose; none: the gang can never fit.
    """

    leaves: int
    whole_up_to_nodes: int
    is_adjacent: bool
    groups: tuple[tuple[Leaf, ...], ...]

    def admits(self, leaf: Leaf) -> bool:
        """Return whether the leaf may be used at all as it is now."""
        return leaf.free > 0 and (leaf.is_whole or leaf.nodes > self.whole_up_to_nodes)


def leaf_level(levels: Sequence[str], rules: DomainRules | None) -> int:
    """Return the level of the leaves: the policy's, else the one above the nodes; without one the nodes."""
    named = rules.leaf_level if rules is not None else None
    # A named level that this topology does not have is passed over: a policy may be bound
    # to queues of several.
    if named is not None and named in levels[:-1]:
        return levels.index(named)
    return max(0, len(levels) - 2)


def own_rule(rules: DomainRules, nodes: int) -> SizeRule | None:
    """Return the policy's own rule for a gang of so many nodes, None where the standard ones apply."""
    return next((rule for rule in rules.size_rules if nodes <= rule.max_nodes), None)


def demand(rules: DomainRules, size: GangSize, leaves: Sequence[Leaf]) -> Demand:
    """Return what the rules ask for the gang among these leaves."""
    own = own_rule(rules, size.nodes)
    rule = own or SizeRule(max_nodes=size.nodes)
    groups = list(_groups(rules, rule, leaves, size.pods))
    # In leaves that are empty: rules are about what can be, not about today.
    fewest = min((_fewest(group, size.pods) for group in groups), default=0)
    limit = rule.leaves if rule.leaves is not None else fewest
    return Demand(
        leaves=limit,
        whole_up_to_nodes=_whole_up_to(rules, own, size.nodes),
        is_adjacent=rule.is_adjacent,
        # A group that would need more leaves than are allowed can never be chosen, so it is none.
        groups=tuple(group for group in groups if _fewest(group, size.pods) <= limit),
    )


def _whole_up_to(rules: DomainRules, own: SizeRule | None, nodes: int) -> int:
    if own is not None:
        return UNLIMITED if own.is_complete else 0
    # A leaf of more nodes than one gang may take is never one gang's alone.
    return rules.max_nodes_per_leaf if nodes % rules.max_nodes_per_leaf == 0 else 0


def choose_leaves(group: Iterable[Leaf], need: Demand, pods: int) -> tuple[tuple[Leaf, int], ...] | None:
    """Return leaves of the group with the pods that each gets, None where there is no room.

    Roomiest first, so that they are few; the last one is the tightest that holds the rest. Preferred ones
    go before all others, where that needs no more leaves than allowed.
    """
    usable = [leaf for leaf in group if need.admits(leaf)]
    # Preferred leaves first, if that takes no more of them than allowed.
    if any(leaf.is_preferred for leaf in usable):
        chosen = _fill(sorted(usable, key=lambda one: (not one.is_preferred, *_roomiest(one))), need, pods)
        if chosen is not None:
            return chosen
    return _fill(sorted(usable, key=_roomiest), need, pods)


def _roomiest(leaf: Leaf) -> tuple[int, tuple[str, ...]]:
    return -leaf.free, leaf.name


def _fill(leaves: list[Leaf], need: Demand, pods: int) -> tuple[tuple[Leaf, int], ...] | None:
    chosen: list[tuple[Leaf, int]] = []
    rest = pods
    for position, leaf in enumerate(leaves):
        if rest <= 0 or len(chosen) >= need.leaves:
            break
        if leaf.free >= rest:
            # For the last part the tightest leaf that holds it, so that the roomiest stay for the next gang.
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
    # One leaf holds it all: no set of several can be as near.
    single = [leaf for leaf in leaves if leaf.capacity >= pods]
    if single:
        yield from ((leaf,) for leaf in single)
        return
    if not rule.is_adjacent:
        yield tuple(leaves)
    elif rules.adjacency_label is not None:
        yield from _rows(leaves, pods)
    else:
        yield from _siblings(leaves, pods)


def _siblings(leaves: Sequence[Leaf], pods: int) -> Iterator[tuple[Leaf, ...]]:
    """Yield the leaves below each domain of the narrowest level on which any domain can hold the gang."""
    depth = max((len(leaf.groups) for leaf in leaves), default=0)
    # From the leaves upwards, and on the first level that holds the gang: wider would be farther for nothing.
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
    """Yield the shortest runs of neighbours that can ever hold the gang."""
    standing: Mapping[int, Leaf] = {leaf.place: leaf for leaf in leaves if leaf.place is not None}
    runs = [run for place in sorted(standing) if (run := _run(standing, place, pods))]
    # All runs of the shortest length are candidates; which one, today's room decides.
    shortest = min((len(run) for run in runs), default=0)
    yield from (run for run in runs if len(run) == shortest)


def _run(standing: Mapping[int, Leaf], place: int, pods: int) -> tuple[Leaf, ...]:
    """Return the neighbours from this place on that hold the gang, () where the row ends before."""
    run: list[Leaf] = []
    held = 0
    while held < pods:
        leaf = standing.get(place + len(run))
        # A gap in the row: what comes after it is no neighbour.
        if leaf is None:
            return ()
        run.append(leaf)
        held += leaf.capacity
    return tuple(run)


def _fewest(group: Iterable[Leaf], pods: int) -> int:
    """Return how many leaves of the group hold the gang when they are empty, UNLIMITED where all do not."""
    count, held = 0, 0
    for capacity in sorted((leaf.capacity for leaf in group), reverse=True):
        if held >= pods:
            break
        count, held = count + 1, held + capacity
    return count if held >= pods else UNLIMITED


def _capacity(group: Iterable[Leaf]) -> int:
    return sum(leaf.capacity for leaf in group)
