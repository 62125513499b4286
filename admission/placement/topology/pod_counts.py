"""How many pods of one shape fit into every domain, kept up to date along the path of each change.

    leaf    pods = the scarcest of free ÷ request;  leader = 1 where the leader's pod fits
            with_leader = pods that fit beside the leader's
    above   pods = Σ children, each rounded down to whole inner slices;  leader = most of any child
            with_leader = pods - the least that any child loses by taking the leader
    slices  pods ÷ slice size at the slice level, sums above it, 0 below

A shape costs one pass over all leaves when it is first seen. After that only the leaves in the site's logs
are looked at again. A sum above changes by what its child changed by, so a change costs the depth of the
tree and not the width of a rack; a least or a most does not follow from a difference, so where there is a
leader the touched domains are worked out from all their children. Both ways give what a full pass gives.
Source: Kueue, tas_flavor_snapshot.go, fillInCounts, which is that full pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from admission.placement.topology.flavor_topology import Amounts, FlavorTopology
from admission.placement.topology.node_exclusions import NodeExclusions
from admission.placement.topology.ranking import Ranking
from admission.placement.topology.request import NodeRules, PlacementPlan
from queues.profile.capacity_profile import Course, Spot

# Shapes kept for one site. Each costs some integers a domain; the least recently asked for goes first.
MOST_SHAPES = 48
# More pods than any leaf takes.
_MOST_PODS = 1 << 40
_TOPOLOGY_DOMAIN = "topologyDomain"


class Shape(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What the counts depend on. `leader` None: no leader is needed. `is_empty`: as if nothing was placed."""

    per_pod: tuple[tuple[str, int], ...]
    leader: tuple[tuple[str, int], ...] | None
    rules: NodeRules
    slice_level: int
    slice_size: int
    units: tuple[int, ...]
    is_empty: bool


def make_shape(
    per_pod: Amounts, leader: Amounts | None, rules: NodeRules, plan: PlacementPlan, *, is_empty: bool
) -> Shape:
    """Return the shape of a request."""
    return Shape(
        per_pod=_pairs(per_pod),
        leader=None if leader is None else _pairs(leader),
        rules=rules,
        slice_level=plan.slice_level,
        slice_size=plan.slice_size,
        units=plan.units,
        is_empty=is_empty,
    )


def _pairs(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    # Sorted, so that equal requests are one shape; what is not asked for is nothing to be scarce of.
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount > 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """How the room of a leaf will change, and what that holds for: `nodes` is the end of the nodes' log."""

    stamp: object
    nodes: int
    leaf: int | None
    free: tuple[int, ...] | None
    course: Course


@dataclass(slots=True, eq=False)
class PodCounts:
    """Counts by domain, for one shape on one site. Without a leader the last two are the lists above."""

    site: FlavorTopology
    shape: Shape
    refusals: NodeExclusions
    pods: list[int] = field(default_factory=list)
    slices: list[int] = field(default_factory=list)
    leader: list[int] = field(default_factory=list)
    pods_with_leader: list[int] = field(default_factory=list)
    slices_with_leader: list[int] = field(default_factory=list)
    # Why leaves take no pod, and how many there are of each reason; `_untold` may have changed since. Only
    # people ask for it, so it is not kept up with each change.
    _excluded: dict[int, str] = field(default_factory=dict)
    _reasons: Counter[str] = field(default_factory=Counter)
    _untold: set[int] = field(default_factory=set)
    _nodes_read: int = -1
    _uses_read: int = -1
    # What is free of each resource asked for, how much a pod takes of it, and what to say where it lacks.
    _columns: tuple[tuple[list[int], int, str], ...] = field(init=False)
    # A column is a list of the site's, kept up by the site itself: reading it is all that a count costs.
    _leader_columns: tuple[tuple[list[int], int, int], ...] = field(init=False)
    _rankings: dict[int, Ranking] = field(default_factory=dict)
    # How many leaves have room for so many pods, once somebody has asked for the most.
    _leaves_by_room: Counter[int] | None = None
    # How the room of leaves will change, by spot, for who asks again and again (`podroom`).
    courses: dict[Spot, Noted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape, column = self.shape, self.site.capacity if self.shape.is_empty else self.site.free
        self._columns = tuple((column(one), amount, f'resource "{one}"') for one, amount in shape.per_pod)
        # One number for each leaf and resource, read in place.
        per_pod, leader = dict(shape.per_pod), dict(shape.leader or ())
        # What the leader takes, and what each pod beside it does.
        # Beside the leader a node must take its pod and the leader's at once.
        self._leader_columns = tuple(
            (column(one), leader.get(one, 0), per_pod.get(one, 0)) for one in {**leader, **per_pod}
        )
        if shape.leader is None:
            self.pods_with_leader, self.slices_with_leader = self.pods, self.slices

    def refresh(self) -> None:
        """Read the logs: look again at what has changed since the last time."""
        nodes, uses = self.site.nodes_log, self.site.uses_log
        # What Workloads do is nothing to the empty cluster.
        # The two logs are apart for this: judging the empty cluster stays free of what runs.
        uses_end = 0 if self.shape.is_empty else uses.end
        if self._nodes_read == nodes.end and self._uses_read == uses_end:
            return
        # None where the log has forgotten: then everything is looked at once.
        changed = nodes.since(self._nodes_read)
        used = set[int]() if self.shape.is_empty else uses.since(self._uses_read)
        self._nodes_read, self._uses_read = nodes.end, uses_end
        self.refusals.refresh()
        # Domains that have come since have a place in the lists before anything is counted.
        self._extend(len(self.site.tree) - len(self.pods))
        # Either way the numbers come out the same; only the cost differs.
        if changed is None or used is None:
            self._count_all()
        else:
            self._count(changed | used)

    def ranking(self, level: int) -> Ranking:
        """Return the domains of a level, at or above that of slices, by their room."""
        ranking = self._rankings.get(level)
        if ranking is None:
            tree = self.site.tree
            # Kept: the next request of this shape asks the same order.
            ranking = self._rankings[level] = Ranking(self.slices, self.pods, tree.values)
            ranking.fill(tree.at_level[level])
        return ranking

    def most_on_a_leaf(self) -> int:
        """Return how many pods the roomiest leaf holds."""
        # Not by a ranking: of 20,000 nodes a few rooms are different, and putting all in order takes
        # longer than counting them.
        if self._leaves_by_room is None:
            self._leaves_by_room = Counter([self.pods[leaf] for leaf in self.site.tree.at_level[-1]])
        return max(self._leaves_by_room, default=0)

    def _extend(self, missing: int) -> None:
        for column in (self.pods, self.slices, self.leader):
            column.extend([0] * missing)
        if self.shape.leader is not None:
            self.pods_with_leader.extend([0] * missing)
            self.slices_with_leader.extend([0] * missing)

    # --- following changes --------------------------------------------------------------------------------

    def _count_all(self) -> None:
        tree = self.site.tree
        leaves = tree.at_level[-1]
        # Reasons are worked out when somebody asks why; counting is what must be fast.
        self._untold.update(leaves, self._excluded)
        self._leaves_by_room = None
        self._recount_all()
        if self.shape.leader is not None:
            # Leaves first, and then the sums above them.
            for leaf in leaves:
                self._count_leader(leaf)
        for level in range(tree.depth - 2, -1, -1):
            for domain in tree.at_level[level]:
                self._sum_up(domain, level)
        for level, ranking in self._rankings.items():
            ranking.fill(tree.at_level[level])

    def _count(self, leaves: Collection[int]) -> None:
        """Look at these leaves again, and at the domains above those that have changed."""
        self._untold.update(leaves)
        changed = self._recount(leaves)
        self._follow_rooms(changed)
        # With a leader nothing follows from differences: which child is the best to host it may
        # change with any of them.
        if self.shape.leader is not None:
            self._sum_up_with_leader(leaves)
            return
        level = self.site.tree.depth - 1
        while changed:
            ranking = self._rankings.get(level)
            if ranking is not None:
                ranking.changed(changed)
            # The root has nobody above it.
            if level == 0:
                break
            changed = self._pass_on(level, changed)
            level -= 1

    def _recount_all(self) -> None:
        """Count pods and slices of all leaves, as `_recount` does, column by column.

        At 20,000 nodes that is the difference between one pause and none.
        """
        # As many as fit before anything limits; the scarcest resource decides.
        pods = [_MOST_PODS] * len(self.pods)
        for column, amount, _ in self._columns:
            pods = list(map(min, pods, [free // amount if free > 0 else 0 for free in column]))
        # Refused leaves hold nothing, whatever is free on them.
        for leaf in self.refusals.by_leaf:
            pods[leaf] = 0
        # Rankings and other readers have these very lists; a new list would leave them behind.
        # In place, since others hold on to the lists.
        self.pods[:] = pods
        if self.shape.slice_level == self.site.tree.depth - 1:
            size = self.shape.slice_size
            self.slices[:] = pods if size == 1 else [count // size for count in pods]

    def _follow_rooms(self, before: Mapping[int, tuple[int, int]]) -> None:
        """Count leaves by the room that they have now; those that have come had none."""
        rooms = self._leaves_by_room
        if rooms is None:
            return
        for leaf, (had, _) in before.items():
            # What is gone is taken from its room, and what has come is put into its own.
            rooms[had] -= 1
            if rooms[had] <= 0:
                del rooms[had]
            rooms[self.pods[leaf]] += 1

    def _recount(self, leaves: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Count pods and slices of these leaves. Returns what those that have changed held before.

        Domains above the leaves have nothing free of their own, and so has a leaf without nodes.
        """
        pods, slices, refused, columns = self.pods, self.slices, self.refusals.by_leaf, self._columns
        has_slices = self.shape.slice_level == self.site.tree.depth - 1
        before: dict[int, tuple[int, int]] = {}
        for leaf in leaves:
            fewest = 0 if leaf in refused else _MOST_PODS
            # A leaf that used more than it has counts as none and not as minus one.
            for column, amount, _ in columns:
                count = column[leaf] // amount
                if count < fewest:
                    fewest = count
            fewest = max(fewest, 0)
            if fewest != pods[leaf]:
                # Only what changed goes upwards, with what it was.
                before[leaf] = pods[leaf], slices[leaf]
                pods[leaf] = fewest
                if has_slices:
                    slices[leaf] = fewest // self.shape.slice_size
        return before

    def _pass_on(self, level: int, before: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Add to the domains above by what those of `level` have changed since they held `before`.

        Returns what the domains above held before.
        """
        pods, slices, parents = self.pods, self.slices, self.site.tree.parent
        unit, size = self.shape.units[level], self.shape.slice_size
        is_sliced, is_above_slices = level - 1 == self.shape.slice_level, level <= self.shape.slice_level
        above: dict[int, tuple[int, int]] = {}
        for domain, (had_pods, had_slices) in before.items():
            parent = parents[domain]
            # Remembered once, before the first child has added its difference.
            if parent not in above:
                above[parent] = pods[parent], slices[parent]
            # Each child is rounded down to whole inner slices first: what does not make up a slice
            # is worth nothing above.
            pods[parent] += pods[domain] // unit * unit - had_pods // unit * unit
            if is_above_slices:
                slices[parent] += slices[domain] - had_slices
        if is_sliced:
            for parent in above:
                slices[parent] = pods[parent] // size
        return above

    def _sum_up_with_leader(self, leaves: Iterable[int]) -> None:
        tree = self.site.tree
        above: dict[int, None] = {}
        for leaf in leaves:
            self._count_leader(leaf)
            above[tree.parent[leaf]] = None
        for level in range(tree.depth - 2, -1, -1):
            # From the leaves' parents upwards; each level is worked out after all of its children.
            touched, above = above, {}
            for domain in touched:
                self._sum_up(domain, level)
                above[tree.parent[domain]] = None

    # --- by summing up ------------------------------------------------------------------------------------

    def _count_leader(self, leaf: int) -> None:
        is_refused = leaf in self.refusals.by_leaf
        hosts = not is_refused and all(
            column[leaf] >= leader for column, leader, _ in self._leader_columns if leader
        )
        self.leader[leaf] = int(hosts)
        # Only resources that a pod asks for limit how many fit beside the leader.
        beside = [
            max(0, (column[leaf] - leader) // amount)
            for column, leader, amount in self._leader_columns
            if amount
        ]
        self.pods_with_leader[leaf] = min(beside, default=0) if hosts else 0
        if self.shape.slice_level == self.site.tree.depth - 1:
            self._count_slices(leaf)

    def _count_slices(self, domain: int) -> None:
        size = self.shape.slice_size
        self.slices[domain] = self.pods[domain] // size
        if self.shape.leader is not None:
            self.slices_with_leader[domain] = self.pods_with_leader[domain] // size

    def _sum_up(self, domain: int, level: int) -> None:
        shape, children = self.shape, self.site.tree.children[domain]
        unit, pods = shape.units[level + 1], self.pods
        if unit == 1:
            # The plain sum where a slice is one pod, which is nearly always.
            pods[domain] = sum([pods[child] for child in children])
        else:
            pods[domain] = sum([pods[child] // unit * unit for child in children])
        if shape.leader is not None:
            self.leader[domain] = max((self.leader[child] for child in children), default=0)
            lost = self._least_loss(children, self.pods, self.pods_with_leader)
            # By the child that loses least: there the leader will go.
            self.pods_with_leader[domain] = 0 if lost is None else pods[domain] - lost
        if level == shape.slice_level:
            self._count_slices(domain)
        elif level < shape.slice_level:
            slices = self.slices
            slices[domain] = sum([slices[child] for child in children])
            if shape.leader is not None:
                lost = self._least_loss(children, slices, self.slices_with_leader)
                self.slices_with_leader[domain] = 0 if lost is None else slices[domain] - lost

    def _least_loss(self, children: list[int], plain: list[int], beside: list[int]) -> int | None:
        """Return the least that a child loses by taking the leader, None where none can."""
        # None, where no child can host it, is not zero: then the domain cannot either.
        return min((plain[one] - beside[one] for one in children if self.leader[one]), default=None)

    # --- what to say --------------------------------------------------------------------------------------

    def refusal(self, leaf: int) -> str:
        """Return why a leaf takes no pod, empty where it takes some or has no nodes."""
        if leaf not in self.site.tree.at_level[-1] or self.pods[leaf] > 0:
            return ""
        known = self.refusals.by_leaf.get(leaf)
        if known is not None:
            return known
        # The first resource that lacks, by name, so that the same node is always told alike.
        return next((lack for column, amount, lack in self._columns if column[leaf] < amount), "")

    def pods_after(self, leaf: int, change: Amounts) -> int:
        """Return how many pods would fit into the leaf if so much more of it was taken."""
        if leaf in self.refusals.by_leaf:
            return 0
        fewest = _MOST_PODS
        for (column, amount, _), (resource, _) in zip(self._columns, self.shape.per_pod, strict=True):
            fewest = min(fewest, (column[leaf] - change.get(resource, 0)) // amount)
        return max(fewest, 0)

    def free_for(self, leaf: int) -> tuple[int, ...] | None:
        """Return what the leaf has free of what the shape asks for, None for one that is refused."""
        if leaf in self.refusals.by_leaf:
            return None
        return tuple([column[leaf] for column, _, _ in self._columns])

    def describe_exclusions(self, within: Mapping[int, None] | None = None) -> str:
        """Return how many leaves there are, and how many were left out for which reason."""
        total = len(self.site.tree.at_level[-1])
        if within is None:
            self._tell_apart()
            reasons = self._reasons
        else:
            reasons = Counter(self.refusal(leaf) for leaf in within)
            reasons[_TOPOLOGY_DOMAIN] = total - len(within)
        told = [f"{name}: {count}" for name, count in sorted(reasons.items()) if name and count]
        return f"Total nodes: {total}" + (f"; excluded: {', '.join(told)}" if told else "")

    # Only leaves that changed since somebody asked last.
    def _tell_apart(self) -> None:
        """Bring the numbers by reason up to date."""
        for leaf in self._untold:
            known, refusal = self._excluded.pop(leaf, ""), self.refusal(leaf)
            self._reasons[known] -= 1
            self._reasons[refusal] += 1
            if refusal:
                self._excluded[leaf] = refusal
        self._untold.clear()
