"""Where a gang goes by a policy's wishes: candidates by size rule or nearness, then the strategy's choice.

    distributed         one candidate: the pods in turn over all leaves (of the preferred domain where it
                        holds them; of one leaf where latency counts)
    with size rules     a candidate for each set of leaves that the rules allow (`admission.placement.rules`)
    without             a candidate for each domain that holds the gang, on the lowest level that has any (any
                        that is preferred, where the Workload prefers a domain)

A leaf here is a leaf switch: the domain above the nodes, which the tree of the site calls its lowest level.
Only sites whose lowest level is the host are searched: elsewhere nobody knows what a node is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from admission.placement.counts import Counts
from admission.placement.rules import (
    UNLIMITED,
    Demand,
    GangSize,
    Leaf,
    choose_leaves,
    demand,
    leaf_level,
)
from admission.placement.scoring import NEUTRAL_PERFORMANCE, sub_scores
from admission.placement.site import Site
from admission.placement.strategies import SCORE_DIGITS, Candidate, Room, best_candidate, fewest_nodes, spread
from admission.placement.wishes import Strategy, Wishes
from api.policy import DomainRules

NodeShares = list[tuple[int, int]]
_NO_RULES = DomainRules(max_nodes_per_leaf=UNLIMITED, max_gpus_per_leaf=UNLIMITED)


@dataclass(frozen=True, kw_only=True)
class GangSearch:
    """The search for `pods` pods. `counts` say what is free now, `empty` what an empty cluster holds.

    `performance` is how earlier work went, by host.
    """

    site: Site
    counts: Counts
    empty: Counts
    wishes: Wishes
    pods: int
    performance: Mapping[str, float] = field(default_factory=dict)
    # The domains above each domain, as they were asked for.
    _chains: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def find(self) -> NodeShares | str:
        """Return nodes with the pods that each gets, or why there is no place, as a part of a sentence."""
        if self._per_node == 0:
            return f"doesn't allow to fit any of {self.pods} pod(s)"
        if self.wishes.strategy is Strategy.DISTRIBUTED:
            return self._distributed()
        if self._rules is _NO_RULES:
            best = best_candidate(self._nearest(), self.wishes)
            return self._hand_out(best) if best is not None else self._shortage()
        need = demand(self._rules, self.size, self._leaves)
        best = best_candidate(self._by_rules(need), self.wishes)
        return self._hand_out(best) if best is not None else self._rule_shortage(need)

    # --- the ground ---------------------------------------------------------------------------------------

    @cached_property
    def size(self) -> GangSize:
        """How big the gang is, on nodes of which it has all."""
        return GangSize(pods=self.pods, nodes=-(-self.pods // max(self._per_node, 1)))

    @cached_property
    def _per_node(self) -> int:
        tree = self.site.tree
        return max((self.empty.pods[node] for node in tree.at_level[-1]), default=0)

    @cached_property
    def _leaf_level(self) -> int:
        return leaf_level(self.site.levels, self.wishes.rules)

    @cached_property
    def _rules(self) -> DomainRules:
        # In a topology of nodes alone there are no leaves to have rules for.
        has_leaves = len(self.site.levels) > 1
        return self.wishes.rules if self.wishes.rules is not None and has_leaves else _NO_RULES

    @cached_property
    def _leaves(self) -> tuple[Leaf, ...]:
        return tuple(self._leaf(index) for index in self.site.tree.at_level[self._leaf_level])

    def _leaf(self, index: int) -> Leaf:
        tree, rules = self.site.tree, self._rules
        nodes = self._nodes(index)
        return Leaf(
            index=index,
            name=tree.values[index],
            free=self._capped(index, nodes, self.counts),
            capacity=self._capped(index, nodes, self.empty),
            nodes=len(nodes),
            groups=self._groups(tree.parent[index]),
            place=self._place(nodes, rules.adjacency_label),
            is_whole=self._is_unused(nodes),
            is_preferred=self._is_preferred(index),
        )

    def _nodes(self, domain: int) -> list[int]:
        tree = self.site.tree
        # Leaves stand right above the nodes as a rule, and there are thousands of them to ask.
        is_leaf = tree.level[domain] == tree.depth - 2
        return tree.children[domain] if is_leaf else list(tree.leaves_below(domain))

    def _groups(self, parent: int) -> tuple[int, ...]:
        """Return the domains from the widest down to this one; () for none."""
        if parent < 0:
            return ()
        known = self._chains.get(parent)
        if known is None:
            known = self._chains[parent] = (*self._groups(self.site.tree.parent[parent]), parent)
        return known

    def _is_unused(self, nodes: list[int]) -> bool:
        site = self.site
        if self.counts is self.empty or not site.used:
            return True
        return not any(site.used_of(node) for node in nodes)

    def _capped(self, leaf: int, nodes: list[int], counts: Counts) -> int:
        """Return how many pods one gang may put on the leaf."""
        rules, gpus = self._rules, self.wishes.gpus_per_pod
        if len(nodes) <= rules.max_nodes_per_leaf:
            pods = counts.pods[leaf]
        else:
            roomiest = sorted((counts.pods[node] for node in nodes), reverse=True)
            pods = sum(roomiest[: rules.max_nodes_per_leaf])
        return min(pods, rules.max_gpus_per_leaf // gpus) if gpus else pods

    def _place(self, nodes: list[int], label: str | None) -> int | None:
        if label is None:
            return None
        texts = (node.labels.get(label, "") for one in nodes for node in self.site.nodes[one].values())
        return next((int(text) for text in texts if text.isascii() and text.isdigit()), None)

    def _is_preferred(self, domain: int) -> bool:
        """Return whether the domain, or one above it, is the one that the Workload prefers."""
        wanted = self.wishes.preferred_domain
        return bool(wanted) and wanted in self.site.tree.values[domain]

    # --- candidates ---------------------------------------------------------------------------------------

    def _by_rules(self, need: Demand) -> Iterator[Candidate]:
        for group in need.groups:
            chosen = choose_leaves(group, need, self.pods)
            if chosen is not None:
                yield self._candidate(chosen)

    def _nearest(self) -> Iterator[Candidate]:
        """Yield the domains that hold the gang, level by level as long as none will do.

        A wider domain than one that holds the gang has nothing to offer but distance, and the domain that
        the Workload prefers.
        """
        anything = Demand(leaves=UNLIMITED, whole_up_to_nodes=0, is_adjacent=True, groups=())
        groups: Iterable[Callable[[Leaf], object]] = (
            lambda leaf: leaf.index,
            *(_above(level) for level in reversed(range(self._leaf_level))),
            lambda _: None,
        )
        for group_of in groups:
            will_do = False
            for group in _grouped(self._leaves, group_of):
                chosen = choose_leaves(group, anything, self.pods)
                if chosen is not None:
                    candidate = self._candidate(chosen)
                    will_do |= candidate.preferred > 0 or not self.wishes.preferred_domain
                    yield candidate
            if will_do:
                return

    def _candidate(self, chosen: tuple[tuple[Leaf, int], ...]) -> Candidate:
        leaves = [leaf for leaf, _ in chosen]
        depth = self._depth(chosen)
        return Candidate(
            shares=tuple((leaf.index, pods) for leaf, pods in chosen),
            name=tuple(leaf.name for leaf in leaves),
            scores=sub_scores(
                free=sum(self.counts.pods[leaf.index] for leaf in leaves),
                capacity=sum(self.empty.pods[leaf.index] for leaf in leaves),
                pods=self.pods,
                depth=depth,
                levels=len(self.site.levels),
                performance=sum(map(self._performance, leaves)) / len(leaves),
            ),
            depth=depth,
            preferred=sum(leaf.is_preferred for leaf in leaves),
            broken=sum(leaf.is_whole and pods < leaf.capacity for leaf, pods in chosen),
            room_above=tuple(self.counts.pods[domain] for domain in (*leaves[0].groups, leaves[0].index)),
        )

    def _performance(self, leaf: Leaf) -> float:
        """Return how earlier work went on the leaf: the mean of its nodes."""
        if not self.performance:
            return NEUTRAL_PERFORMANCE
        tree = self.site.tree
        hosts = [tree.values[node][-1] for node in self._nodes(leaf.index)]
        return sum(self.performance.get(host, NEUTRAL_PERFORMANCE) for host in hosts) / len(hosts)

    def _depth(self, chosen: tuple[tuple[Leaf, int], ...]) -> int:
        """Return how many levels the narrowest domain around the chosen leaves fixes."""
        first, pods = chosen[0]
        if len(chosen) == 1:
            fits_one = any(self.counts.pods[node] >= pods for node in self._nodes(first.index))
            return len(self.site.levels) if fits_one else self._leaf_level + 1
        shared = 0
        for level in range(self._leaf_level):
            if len({leaf.groups[level] for leaf, _ in chosen}) > 1:
                break
            shared = level + 1
        return shared

    # --- onto nodes ---------------------------------------------------------------------------------------

    def _hand_out(self, candidate: Candidate) -> NodeShares:
        return [
            share for domain, pods in candidate.shares for share in fewest_nodes(self._rooms(domain), pods)
        ]

    def _rooms(self, domain: int) -> list[Room]:
        tree = self.site.tree
        return [
            Room(node=node, pods=self.counts.pods[node], name=tree.values[node])
            for node in self._nodes(domain)
        ]

    def _distributed(self) -> NodeShares | str:
        preferred = [leaf for leaf in self._leaves if leaf.is_preferred]
        for leaves in (preferred, self._leaves):
            if self.wishes.is_latency_sensitive:
                single = [leaf for leaf in leaves if leaf.free >= self.pods]
                best = best_candidate((self._candidate(((one, self.pods),)) for one in single), self.wishes)
                leaves = [leaf for leaf in single if best is not None and leaf.index == best.shares[0][0]]
            # Each pod goes to a leaf of its own while there are any: more leaves than pods are never asked.
            chosen = self._by_score(leaves)[: self.pods]
            shares = spread([self._widest(leaf) for leaf in chosen], self.pods)
            if sum(pods for _, pods in shares) == self.pods:
                return shares
        return self._shortage()

    def _by_score(self, leaves: Iterable[Leaf]) -> list[Leaf]:
        """Return the leaves with room, those first that a single pod would score best."""
        known: dict[tuple[int, int, float], float] = {}

        def score(leaf: Leaf) -> float:
            free, capacity = self.counts.pods[leaf.index], self.empty.pods[leaf.index]
            key = (free, capacity, self._performance(leaf))
            if key not in known:
                levels = len(self.site.levels)
                parts = sub_scores(
                    free=free, capacity=capacity, pods=1, depth=levels, levels=levels, performance=key[2]
                )
                known[key] = round(parts.weighted(self.wishes.weights), SCORE_DIGITS)
            return known[key]

        return sorted((leaf for leaf in leaves if leaf.free), key=lambda leaf: (-score(leaf), leaf.name))

    def _widest(self, leaf: Leaf) -> list[Room]:
        """Return the nodes of the leaf that one gang may use, the roomiest."""
        rooms = sorted(self._rooms(leaf.index), key=lambda one: (-one.pods, one.name))
        return rooms[: self._rules.max_nodes_per_leaf]

    # --- what to say --------------------------------------------------------------------------------------

    def _shortage(self) -> str:
        free = sum(leaf.free for leaf in self._leaves)
        if free:
            return f"allows to fit only {min(free, self.pods)} out of {self.pods} pod(s)"
        return f"doesn't allow to fit any of {self.pods} pod(s)"

    def _rule_shortage(self, need: Demand) -> str:
        size, leaves = self.size, self._leaves
        where = _leaves_text(need)
        gang = f"a gang of {size.nodes} node{'s' if size.nodes != 1 else ''}"
        if not need.groups:
            return f"can never hold {gang} by its size rules, which ask for {where}"
        usable = sum(need.admits(leaf) for leaf in leaves)
        return f"has no room by its size rules: {gang} asks for {where}; {usable} of {len(leaves)} have room"


def _leaves_text(need: Demand) -> str:
    words = [str(need.leaves), "leaves"] if need.leaves != 1 else ["one", "leaf"]
    if need.leaves > 1 and need.is_adjacent:
        words.insert(1, "adjacent")
    return " ".join(words) + (" free of other work" if need.whole_up_to_nodes else "")


def _above(level: int) -> Callable[[Leaf], object]:
    return lambda leaf: leaf.groups[level]


def _grouped(leaves: Iterable[Leaf], group_of: Callable[[Leaf], object]) -> Iterator[list[Leaf]]:
    groups: dict[object, list[Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(group_of(leaf), []).append(leaf)
    yield from groups.values()
