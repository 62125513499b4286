"""The placement of a gang by a policy's options: candidates by size rule or distance, and their order.

    distributed         one candidate: the pods in turn over all leaves (of the preferred domain where it
                        holds them; of one leaf where latency counts)
    with size rules     a candidate for each set of leaves that the rules allow (`admission.placement.rules`)
    without             a candidate for each domain that holds the gang, on the lowest level that has any
                        (with a preferred domain, up to the lowest level on which it holds the gang)

Only sites whose lowest level is the host are searched: on others a leaf may be several nodes.

A search is kept for the next gang of the same shape, size and options. Its candidates are judged again only
where one of their leaves has changed (`CandidateLeaves`, `TopCandidate`). Which sets of leaves may hold the
gang follows from the empty cluster alone, so they are valid until a node is added, removed or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest

from admission.placement.candidate_leaves import NO_RULES, CandidateLeaves, room_of
from admission.placement.packing import PackedNodes
from admission.placement.rules import UNLIMITED, Demand, GangSize, Leaf, choose_leaves, demand
from admission.placement.scoring import NEUTRAL_PERFORMANCE, sub_scores
from admission.placement.strategies import (
    SCORE_DIGITS,
    DomainCandidate,
    DomainRoom,
    fewest_nodes,
    score_order,
    spread,
)
from admission.placement.top_candidate import CandidateFamily, RankedCandidate, TopCandidate
from admission.placement.topology.placement_options import PlacementOptions, Strategy
from admission.placement.topology.pod_counts import PodCounts
from queues.steps import Steps

NodeShares = list[tuple[int, int]]
# Without size rules any set of leaves is allowed.
_ANYTHING = Demand(leaves=UNLIMITED, whole_up_to_nodes=0, is_adjacent=True, groups=())


@dataclass(slots=True, eq=False, kw_only=True)
class GangSearch:
    """The search for a gang of `pods` pods. `performance` is the score of earlier runs, by host.

    Kept between searches with equal options and size, so that only leaves that have changed are judged again.
    """

    offers: CandidateLeaves
    options: PlacementOptions
    pods: int
    performance: Mapping[str, float] = field(default_factory=dict)
    # For the strategy packed: the nodes by what they lose to fragmentation.
    packing: PackedNodes | None = None
    _read_to: int = -1
    _capacity_read: int = -1
    _demand: Demand | None = None
    _by_rules: TopCandidate | None = None
    # Without size rules, the candidates of each width used so far: leaves, the domains above them, all.
    _by_width: dict[int, TopCandidate] = field(default_factory=dict)
    # What the gang would take of each group that holds it, as judged last: groups are judged at each change.
    _picks: dict[tuple[int, ...], tuple[tuple[Leaf, int], ...]] = field(default_factory=dict)
    # The sort key of each leaf for a single pod, for distributed gangs.
    _marks: dict[int, tuple[float, tuple[str, ...]]] = field(default_factory=dict)

    def preparing(self) -> Steps[None]:
        """Do in steps what `find` would do at once: evaluate the leaves, and judge the candidates.

        A `find` afterwards costs little, provided that the site has not changed much in between.
        """
        if (packing := self._anywhere()) is not None:
            yield from packing.preparing()
            return
        yield from self.offers.refreshing()
        self._refresh()
        contest = self._first_contest()
        if contest is not None:
            yield from contest.judging()

    def find(self) -> NodeShares | str:
        """Return nodes with the pods that each gets, or the reason for no place as a part of a sentence.

        The nodes are indexes of leaves of the site's tree, and the pods add up to the whole gang. Takes no
        place.
        """
        if (packing := self._anywhere()) is not None:
            return packing.anywhere(self.pods) or f"doesn't allow to fit any of {self.pods} pod(s)"
        # Bring the leaves and the cached candidates up to date first.
        self.offers.refresh()
        self._refresh()
        per_node = self._per_node
        if per_node == 0:
            return f"doesn't allow to fit any of {self.pods} pod(s)"
        if self.options.strategy is Strategy.DISTRIBUTED:
            return self._distributed()
        if self.offers.rules is NO_RULES:
            nearest = self._nearest()
            return self._hand_out(nearest) if nearest is not None else self._shortage()
        need, contest = self._ruled(per_node)
        best = contest.best()
        return self._hand_out(best[1]) if best else self._rule_shortage(need, self._size(per_node))

    def _anywhere(self) -> PackedNodes | None:
        """Return the nodes that a packed pod may choose from by itself; None where domains matter."""
        # A single pod is near to nothing, so that only the nodes matter.
        is_free = self.pods == 1 and not self.options.preferred_domain
        return self.packing if is_free else None

    # --- the leaves' offers --------------------------------------------------------------------------------

    @property
    def _counts(self) -> PodCounts:
        return self.offers.counts

    @property
    def _per_node(self) -> int:
        """How many pods the largest node takes when it is empty."""
        return self.offers.empty.most_on_a_leaf()

    def _leaves(self) -> Iterable[Leaf]:
        return self.offers.leaves.values()

    def _refresh(self) -> None:
        """Drop what is cached about leaves that have changed."""
        offers = self.offers
        changed = offers.changes.since(self._read_to)
        self._read_to = offers.changes.end
        if changed is None or self._capacity_read != offers.capacity_changes:
            # Leaves appeared, disappeared, or have another capacity, so other groups may hold the gang.
            self._capacity_read = offers.capacity_changes
            self._demand = self._by_rules = None
            self._by_width.clear()
            self._picks.clear()
            self._marks.clear()
            return
        for contest in (*self._by_width.values(), self._by_rules):
            # Only candidates with a changed leaf are judged again; all other keys are still valid.
            if contest is not None:
                contest.changed(changed)
        for leaf in changed:
            self._marks.pop(leaf, None)

    def _size(self, per_node: int) -> GangSize:
        """Return the size that the rules look at: pods, and nodes where each takes `per_node` pods."""
        # The nodes that it needs when it fills each node of the largest size.
        return GangSize(pods=self.pods, nodes=-(-self.pods // per_node))

    def _ruled(self, per_node: int) -> tuple[Demand, TopCandidate]:
        """Return what the size rules require, and the candidates that meet it."""
        # Kept for the next gang of this size, because both follow from the empty cluster alone.
        if self._demand is None or self._by_rules is None:
            leaves = sorted(self._leaves(), key=lambda leaf: leaf.name)
            self._demand = need = demand(self.offers.rules, self._size(per_node), leaves)
            groups = (tuple([leaf.index for leaf in group]) for group in need.groups)
            self._by_rules = self._contest(groups, need)
        return self._demand, self._by_rules

    def _first_contest(self) -> TopCandidate | None:
        """Return the candidates that `find` looks at first, None where it needs none."""
        per_node = self._per_node
        if per_node == 0 or self.options.strategy is Strategy.DISTRIBUTED:
            return None
        return self._of_width(0) if self.offers.rules is NO_RULES else self._ruled(per_node)[1]

    # --- candidates ---------------------------------------------------------------------------------------

    def _contest(self, groups: Iterable[tuple[int, ...]], need: Demand) -> TopCandidate:
        """Return the comparison of these groups of leaves for what the gang needs."""
        return TopCandidate(
            tuple(groups),
            lambda group: self._judge(group, need),
            lambda around: room_of(self._counts, around),
        )

    def _chosen(self, group: tuple[int, ...], need: Demand) -> tuple[tuple[Leaf, int], ...] | None:
        """Return the leaves of the group that would be used and the pods on each, None where it does not hold
        all.
        """
        known, free = self.offers.leaves, 0
        # In a full cluster most groups have too little room, whatever the rules require.
        for one in group:
            free += known[one].free
        if free < self.pods:
            return None
        return choose_leaves([known[one] for one in group], need, self.pods)

    def _judge(self, group: tuple[int, ...], need: Demand) -> RankedCandidate | None:
        """Return the place of a group in the order, None where it does not hold the gang."""
        chosen = self._chosen(group, need)
        if chosen is None:
            self._picks.pop(group, None)
            return None
        self._picks[group] = chosen
        first, avoids = chosen[0][0], self.options.avoids_fragmentation
        candidate = self._candidate(chosen)
        # A leaf that no other Workload uses and the gang does not fill is broken up by the gang.
        broken = sum([leaf.is_whole and pods < leaf.capacity for leaf, pods in chosen])
        room = self._counts.pods[first.index]
        # What many groups share forms the family, the rest the key.
        return RankedCandidate(
            CandidateFamily(
                sum([leaf.is_preferred for leaf, _ in chosen]),
                broken if avoids else 0,
                first.groups if avoids else (),
            ),
            (room if avoids else 0, *score_order(candidate, self.options)),
        )

    def _nearest(self) -> tuple[int, ...] | None:
        """Return the best domain that holds the gang, from the narrowest level upwards; None without one.

        A wider domain than one that holds the gang only adds distance, unless it is the domain
        that the Workload prefers.
        """
        level = self.offers.level
        best = None
        for width in range(level + 2):
            found = self._of_width(width).best()
            if found is not None:
                best = found if best is None else min(best, found)
                is_preferred = found[0][0] != 0
                # Continue upwards only while a preferred domain has not been found.
                if is_preferred or not self.options.preferred_domain:
                    break
        return best[1] if best is not None else None

    def _of_width(self, width: int) -> TopCandidate:
        """Return the candidates of a width: 0 for each leaf by itself, 1 for each domain above leaves, …"""
        # Kept by width, because equal gangs ask repeatedly.
        contest = self._by_width.get(width)
        if contest is None:
            groups = _grouped(self._leaves(), _group_of(width, self.offers.level))
            contest = self._by_width[width] = self._contest(groups, _ANYTHING)
        return contest

    def _candidate(self, chosen: tuple[tuple[Leaf, int], ...]) -> DomainCandidate:
        """Return the leaves with the criteria by which the strategy compares them."""
        offers = self.offers
        leaves = [leaf for leaf, _ in chosen]
        depth = self._depth(chosen)
        pods, empty = self._counts.pods, offers.empty.pods
        return DomainCandidate(
            name=tuple([leaf.name for leaf in leaves]),
            scores=sub_scores(
                free=sum([pods[leaf.index] for leaf in leaves]),
                capacity=sum([empty[leaf.index] for leaf in leaves]),
                pods=self.pods,
                depth=depth,
                levels=len(offers.site.levels),
                performance=self._mean_performance(leaves),
            ),
            depth=depth,
        )

    def _mean_performance(self, leaves: list[Leaf]) -> float:
        """Return the mean of the leaves' performance scores."""
        # Neutral in sum where no run has been measured yet.
        if not self.performance:
            return NEUTRAL_PERFORMANCE
        return sum(map(self._performance, leaves)) / len(leaves)

    def _performance(self, leaf: Leaf) -> float:
        """Return the performance score of the leaf: the mean of its nodes."""
        if not self.performance:
            return NEUTRAL_PERFORMANCE
        values = self.offers.site.tree.values
        hosts = [values[node][-1] for node in self.offers.nodes(leaf.index)]
        return sum(self.performance.get(host, NEUTRAL_PERFORMANCE) for host in hosts) / len(hosts)

    def _depth(self, chosen: tuple[tuple[Leaf, int], ...]) -> int:
        """Return how many levels the narrowest domain around the chosen leaves fixes."""
        first, pods = chosen[0]
        if len(chosen) == 1:
            room = self._counts.pods
            fits_one = max([room[node] for node in self.offers.nodes(first.index)], default=0) >= pods
            # On one leaf the gang may even fit on one node, which fixes all levels.
            return len(self.offers.site.levels) if fits_one else self.offers.level + 1
        shared = 0
        for level in range(self.offers.level):
            if len({leaf.groups[level] for leaf, _ in chosen}) > 1:
                break
            shared = level + 1
        # The levels that all chosen leaves share, from the widest down.
        return shared

    # --- onto nodes ---------------------------------------------------------------------------------------

    def _hand_out(self, group: tuple[int, ...]) -> NodeShares:
        """Return the nodes of the best group and the pods that each gets."""
        return [share for leaf, pods in self._picks[group] for share in self._on_nodes(leaf, pods)]

    def _on_nodes(self, leaf: Leaf, pods: int) -> NodeShares:
        """Return the nodes of the leaf that are used and the pods on each."""
        room = self._counts.pods
        if pods == room[leaf.index]:
            # The gang takes all that is free, so there is nothing to choose.
            return [(node, room[node]) for node in self.offers.nodes(leaf.index) if room[node]]
        if self.packing is not None:
            roomiest = [room.node for room in self._widest(leaf.index)]
            return self.packing.within(roomiest, pods) or fewest_nodes(self._rooms(leaf.index), pods)
        return fewest_nodes(self._rooms(leaf.index), pods)

    def _rooms(self, domain: int) -> list[DomainRoom]:
        """Return the nodes of a domain that have room, and how many pods each holds."""
        values, pods = self.offers.site.tree.values, self._counts.pods
        return [
            DomainRoom(node=node, pods=pods[node], name=values[node])
            for node in self.offers.nodes(domain)
            if pods[node]
        ]

    def _distributed(self) -> NodeShares | str:
        """Return a placement over as many leaves and nodes as possible, or the reason for none."""
        if self.options.is_latency_sensitive:
            # One leaf or none, because latency takes precedence over spreading.
            single = self._nearest_leaf()
            turns = [single] if single is not None else []
        else:
            # First the preferred domain, if it holds all pods; then all leaves.
            turns = [[leaf for leaf in self._leaves() if leaf.is_preferred], [*self._leaves()]]
        for leaves in turns:
            # Each pod goes to a leaf of its own while there are any, so at most `pods` leaves are used.
            with_room = [(self._mark(leaf), leaf.index) for leaf in leaves if leaf.free]
            chosen = nsmallest(self.pods, with_room)
            shares = spread([self._widest(index) for _, index in chosen], self.pods)
            # A gang that fits only in part is not started.
            if sum(pods for _, pods in shares) == self.pods:
                return shares
        return self._shortage()

    def _nearest_leaf(self) -> list[Leaf] | None:
        """Return the one leaf that suits the gang best, None where no leaf holds it."""
        best = self._of_width(0).best()
        return None if best is None else [self.offers.leaves[best[1][0]]]

    def _mark(self, leaf: Leaf) -> tuple[float, tuple[str, ...]]:
        """Return the leaf's sort key for a single pod, which is what the leaf gets in a turn."""
        known = self._marks.get(leaf.index)
        if known is None:
            levels = len(self.offers.site.levels)
            scores = sub_scores(
                free=self._counts.pods[leaf.index],
                capacity=self.offers.empty.pods[leaf.index],
                pods=1,
                depth=levels,
                levels=levels,
                performance=self._performance(leaf),
            )
            score = round(scores.weighted(self.options.weights), SCORE_DIGITS)
            known = self._marks[leaf.index] = (-score, leaf.name)
        return known

    def _widest(self, leaf: int) -> list[DomainRoom]:
        """Return the roomiest nodes of the leaf, as many as one gang may use."""
        rooms = sorted(self._rooms(leaf), key=lambda one: (-one.pods, one.name))
        return rooms[: self.offers.rules.max_nodes_per_leaf]

    # --- what to say --------------------------------------------------------------------------------------

    def _shortage(self) -> str:
        """Return how many of the pods fit, in Kueue's words."""
        free = sum(leaf.free for leaf in self._leaves())
        if free:
            return f"allows to fit only {min(free, self.pods)} out of {self.pods} pod(s)"
        return f"doesn't allow to fit any of {self.pods} pod(s)"

    def _rule_shortage(self, need: Demand, size: GangSize) -> str:
        """Return what the size rules ask for, and how many leaves would do."""
        where = _leaves_text(need)
        gang = f"a gang of {size.nodes} node{'s' if size.nodes != 1 else ''}"
        if not need.groups:
            return f"can never hold {gang} by its size rules, which ask for {where}"
        leaves = [*self._leaves()]
        # The message states the requirement, and how many leaves have room.
        usable = sum(need.admits(leaf) for leaf in leaves)
        return f"has no room by its size rules: {gang} asks for {where}; {usable} of {len(leaves)} have room"


def _leaves_text(need: Demand) -> str:
    """Return the number and kind of leaves that are needed, in words."""
    words = [str(need.leaves), "leaves"] if need.leaves != 1 else ["one", "leaf"]
    if need.leaves > 1 and need.is_adjacent:
        words.insert(1, "adjacent")
    return " ".join(words) + (" free of other work" if need.whole_up_to_nodes else "")


def _group_of(width: int, level: int) -> Callable[[Leaf], object]:
    """Return the function from a leaf to its group: itself at width 0, the common one at the widest."""
    if width == 0:
        return lambda leaf: leaf.index
    if width > level:
        return lambda _: None
    return lambda leaf: leaf.groups[level - width]


def _grouped(leaves: Iterable[Leaf], group_of: Callable[[Leaf], object]) -> Iterator[tuple[int, ...]]:
    """Yield the leaves in groups of equal `group_of`."""
    groups: dict[object, list[int]] = {}
    for leaf in leaves:
        groups.setdefault(group_of(leaf), []).append(leaf.index)
    return (tuple(group) for group in groups.values())
