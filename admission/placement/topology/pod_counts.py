"""How many pods of one shape fit into every domain of a site, maintained along the path of each change.

What is computed. For each domain of the tree, in pods of the shape:

    leaf    pods = min over resources of free ÷ request;  leader = 1 where the leader's pod fits
            with_leader = pods that fit beside the leader's
    above   pods = Σ children, each rounded down to whole inner slices;  leader = max over children
            with_leader = pods - the least that any child loses by taking the leader
    slices  pods ÷ slice size at the slice level, sums above it, 0 below

Invariant. After `refresh` every count equals what a full pass over the present tree would give. `_count_all`
is that full pass, and `_count` reaches the same numbers from the changed leaves alone:

- Without a leader each count above a leaf is a sum, so it changes by the difference of its child
  (`_pass_on`). The difference is taken after rounding down to whole inner slices, because only
  whole slices count above.
- With a leader, a maximum and a minimum over the children enter, which do not follow from a difference. The
  domains above a changed leaf are therefore computed from all their children (`_sum_up_with_leader`).

Cost. With n leaves, c changed leaves and depth d: O(n) when a shape is first seen, or when a change log no
longer goes back far enough; afterwards O(c·d) without a leader, and O(c·d·width) with one, whatever n is. The
pass ends because it goes up one level at a time.

Changes are read from the site's logs when a count is asked for, so a shape that is not
asked for costs nothing.
Source: Kueue, tas_flavor_snapshot.go, fillInCounts, which is the full pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from admission.hardware.fit import HardwareRequest
from admission.placement.topology.address_book import AddressRule
from admission.placement.topology.address_room import AddressRoom
from admission.placement.topology.flavor_topology import Amounts, FlavorTopology
from admission.placement.topology.gpu_room import LinkedRoom, SharedRoom, gpu_rooms, size_needed
from admission.placement.topology.leader_room import LeaderRoom
from admission.placement.topology.node_exclusions import NodeExclusions
from admission.placement.topology.preferred_nodes import PreferredNodes
from admission.placement.topology.ranking import Ranking
from admission.placement.topology.request import NodeRules, PlacementPlan, PlacementRequest
from api.jobs.inference_memory import INFERENCE_MEMORY
from queues.profile.capacity_profile import Course, Spot

# Shapes kept for one site. Each costs a few integers per domain; the least recently used is dropped.
MOST_SHAPES = 48
# More pods than any leaf takes.
_MOST_PODS = 1 << 40
_TOPOLOGY_DOMAIN = "topologyDomain"
# All leaves are counted once a fourth of them has changed, but never for a few changed leaves.
_FULL_PASS_SHARE = 4
_FEW = 1_000


class Shape(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Everything that the counts depend on.

    `leader` is None where no leader is needed; `leader_hardware` is what its pod needs, `leader_addresses` is
    given where it has a static address. With `is_empty` the counts are those of the empty cluster.
    """

    per_pod: tuple[tuple[str, int], ...]
    leader: tuple[tuple[str, int], ...] | None
    leader_hardware: HardwareRequest | None
    leader_addresses: AddressRule | None
    rules: NodeRules
    slice_level: int
    slice_size: int
    units: tuple[int, ...]
    is_empty: bool


def make_shape(
    request: PlacementRequest, leader: PlacementRequest | None, plan: PlacementPlan, *, is_empty: bool
) -> Shape:
    """Return the shape of a request.

    Equal requests have equal shapes, in whatever order their resources are.
    """
    return Shape(
        per_pod=_pairs(request.per_pod),
        leader=None if leader is None else _pairs(leader.per_pod),
        leader_hardware=None if leader is None else leader.rules.hardware,
        leader_addresses=None if leader is None else leader.rules.addresses,
        rules=request.rules,
        slice_level=plan.slice_level,
        slice_size=plan.slice_size,
        units=plan.units,
        is_empty=is_empty,
    )


def _pairs(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    """Return the amounts as a sorted tuple, without zeros."""
    # Sorted, so that equal requests are one shape. Zero amounts limit nothing.
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount > 0))


def _lack(resource: str) -> str:
    """Return what to say of a leaf that has too little of a resource; in Kueue's words where it has one."""
    return "GPU memory for inference" if resource == INFERENCE_MEMORY else f'resource "{resource}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRoom:
    """The room of a leaf over time, and the state that it holds for; `nodes` is the nodes' log's end."""

    stamp: object
    nodes: int
    leaf: int | None
    free: tuple[int, ...] | None
    course: Course


@dataclass(slots=True, eq=False)
class PodCounts:
    """Counts by domain, for one shape on one site.

    Without a leader `pods_with_leader` and `slices_with_leader` are the same lists as `pods` and `slices`.
    """

    site: FlavorTopology
    shape: Shape
    refusals: NodeExclusions
    pods: list[int] = field(default_factory=list)
    slices: list[int] = field(default_factory=list)
    leader: list[int] = field(default_factory=list)
    pods_with_leader: list[int] = field(default_factory=list)
    slices_with_leader: list[int] = field(default_factory=list)
    # Why leaves take no pod, and how many leaves there are per reason. `_unexplained` holds
    # leaves whose reason may have changed since. Only messages need reasons, so they are updated
    # when a message is written.
    _excluded: dict[int, str] = field(default_factory=dict)
    _reasons: Counter[str] = field(default_factory=Counter)
    _unexplained: set[int] = field(default_factory=set)
    _nodes_read: int = -1
    _uses_read: int = -1
    # For each requested resource: the site's column of free amounts, the amount per pod, and the reason to
    # report where it lacks. The site maintains its columns, so a count only reads them.
    _columns: tuple[tuple[list[int], int, str], ...] = field(init=False)
    # The room in islands, and on GPUs of which pods have shares; nothing for pods without GPUs.
    _gpu_rooms: tuple[LinkedRoom | SharedRoom, ...] = ()
    # The room by pools of static addresses, None for pods without one.
    _addressed: AddressRoom | None = None
    # The room for the leader, None without one.
    _leader_room: LeaderRoom | None = None
    _preferred: PreferredNodes = field(init=False)
    _rankings: dict[int, Ranking] = field(default_factory=dict)
    # How many leaves have room for each number of pods; None until the largest is asked for.
    _leaves_by_room: Counter[int] | None = None
    # How many pods all leaves have room for; None until it is asked for.
    _on_leaves: int | None = None
    # The room of leaves over time, by spot, for repeated questions (`admission.placement.topology.pod_room`).
    courses: dict[Spot, RecordedRoom] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._preferred = PreferredNodes(self.site, self.shape.rules.affinity)
        shape = self.shape
        size = size_needed(dict(shape.per_pod), shape.rules.hardware)
        self._gpu_rooms = gpu_rooms(self.site, size, is_empty=shape.is_empty)
        column = self.site.capacity if self.shape.is_empty else self.site.free
        if shape.rules.addresses is not None and self.site.is_by_host:
            rule = shape.rules.addresses
            self._addressed = AddressRoom(site=self.site, rule=rule, is_empty=shape.is_empty)
        self._columns = tuple((column(one), amount, _lack(one)) for one, amount in shape.per_pod)
        if shape.leader is None:
            self.pods_with_leader, self.slices_with_leader = self.pods, self.slices
            return
        self._leader_room = LeaderRoom(
            site=self.site,
            amounts=dict(shape.leader),
            hardware=shape.leader_hardware,
            addresses=shape.leader_addresses,
            per_pod=dict(shape.per_pod),
            rooms=self._gpu_rooms,
            addressed=self._addressed,
            is_empty=shape.is_empty,
        )

    def refresh(self) -> None:
        """Bring the counts up to date with the site's logs.

        O(changed leaves · depth), or one pass over all domains where a log no longer goes back far enough.
        """
        nodes, uses = self.site.nodes_log, self.site.uses_log
        # Use by Workloads does not affect the counts of the empty cluster, so that log is not read for them.
        uses_end = 0 if self.shape.is_empty else uses.end
        if self._nodes_read == nodes.end and self._uses_read == uses_end:
            return
        # None where a log no longer goes back far enough. Everything is then counted again.
        changed = nodes.since(self._nodes_read)
        used = set[int]() if self.shape.is_empty else uses.since(self._uses_read)
        self._nodes_read, self._uses_read = nodes.end, uses_end
        self.refusals.refresh()
        # New domains get their place in the lists before anything is counted.
        self._extend(len(self.site.tree) - len(self.pods))
        # Both ways give the same numbers; only the cost differs. A full pass goes column by column, so it is
        # the cheaper one long before all leaves have changed, as when all nodes are labelled again.
        many = len(self.site.tree.at_level[-1]) // _FULL_PASS_SHARE
        is_far = changed is None or used is None or len(changed) + len(used) > max(many, _FEW)
        # A leaf may have the addresses that another one leaves.
        is_addressed = self._addressed is not None or (
            self._leader_room is not None and self._leader_room.has_addresses
        )
        if changed is None or used is None or is_far or is_addressed:
            self._count_all()
        else:
            self._count(changed | used)

    @property
    def scores(self) -> list[int] | None:
        """How well each domain suits the pods' preferred node affinity, None where they prefer no nodes."""
        return self._preferred.scores(self.refusals.by_leaf)

    def ranking(self, level: int) -> Ranking:
        """Return the ranking by room of the domains of a level, which must be at or above the slice level."""
        ranking = self._rankings.get(level)
        if ranking is None:
            tree = self.site.tree
            # Kept and updated with each change, because later requests of this shape ask for the same order.
            ranking = self._rankings[level] = Ranking(self.slices, self.pods, tree.values)
            ranking.fill(tree.at_level[level])
        return ranking

    def most_on_a_leaf(self) -> int:
        """Return how many pods the roomiest leaf holds; 0 without leaves."""
        # Counted and not ranked: 20,000 nodes have only a few distinct rooms, and sorting all nodes takes
        # longer than counting them.
        if self._leaves_by_room is None:
            self._leaves_by_room = Counter([self.pods[leaf] for leaf in self.site.tree.at_level[-1]])
        return max(self._leaves_by_room, default=0)

    def on_leaves(self) -> int:
        """Return how many pods all leaves together have room for, each considered by itself.

        Not the counts of the widest domains, which may be rounded down to whole slices.
        """
        if self._on_leaves is None:
            self._on_leaves = sum([self.pods[leaf] for leaf in self.site.tree.at_level[-1]])
        return self._on_leaves

    def _extend(self, missing: int) -> None:
        """Add empty entries for domains that are new in the tree."""
        for column in (self.pods, self.slices, self.leader):
            column.extend([0] * missing)
        if self.shape.leader is not None:
            self.pods_with_leader.extend([0] * missing)
            self.slices_with_leader.extend([0] * missing)

    # --- following changes --------------------------------------------------------------------------------

    def _count_all(self) -> None:
        """Count every leaf, then sum up level by level."""
        tree = self.site.tree
        leaves = tree.at_level[-1]
        # Reasons are computed when a message needs them, so that counting is fast.
        self._unexplained.update(leaves, self._excluded)
        self._leaves_by_room = self._on_leaves = None
        self._recount_all()
        if self.shape.leader is not None:
            # The leaves come first, then the sums above them.
            for leaf in leaves:
                self._count_leader(leaf)
        for level in range(tree.depth - 2, -1, -1):
            for domain in tree.at_level[level]:
                self._sum_up(domain, level)
        for level, ranking in self._rankings.items():
            ranking.fill(tree.at_level[level])

    def _count(self, leaves: Collection[int]) -> None:
        """Count these leaves again, and the domains above those that have changed."""
        self._unexplained.update(leaves)
        changed = self._recount(leaves)
        self._follow_rooms(changed)
        # With a leader the counts above do not follow from differences: any changed child may become, or
        # cease to be, the best host of the leader.
        if self.shape.leader is not None:
            self._sum_up_with_leader(leaves)
            return
        level = self.site.tree.depth - 1
        while changed:
            ranking = self._rankings.get(level)
            if ranking is not None:
                ranking.changed(changed)
            # The widest level has no parents.
            if level == 0:
                break
            changed = self._pass_on(level, changed)
            level -= 1

    def _recount_all(self) -> None:
        """Count pods and slices of all leaves, as `_recount` does, but column by column.

        At 20,000 nodes this is fast enough to run without a pause.
        """
        # Start without a limit; each resource lowers the number.
        pods = [_MOST_PODS] * len(self.pods)
        for column, amount, _ in self._columns:
            pods = list(map(min, pods, [free // amount if free > 0 else 0 for free in column]))
        # Refused leaves take no pod, whatever is free on them.
        for leaf in self.refusals.by_leaf:
            pods[leaf] = 0
        for room in self._rooms():
            room.limit(pods)
        # In place, because rankings and other readers hold these lists.
        self.pods[:] = pods
        if self.shape.slice_level == self.site.tree.depth - 1:
            size = self.shape.slice_size
            self.slices[:] = pods if size == 1 else [count // size for count in pods]

    def _rooms(self) -> tuple[LinkedRoom | SharedRoom | AddressRoom, ...]:
        """Return what limits the pods of a leaf beyond its amounts: nothing, for most shapes."""
        needed = [room for room in self._gpu_rooms if room.is_needed]
        # Addresses come last: they are handed out to leaves by the room that these have otherwise.
        return (*needed, self._addressed) if self._addressed is not None else tuple(needed)

    def _follow_rooms(self, before: Mapping[int, tuple[int, int]]) -> None:
        """Update what is counted of all leaves after these changed. A new leaf had room for 0."""
        if self._on_leaves is not None:
            self._on_leaves += sum([self.pods[leaf] - had for leaf, (had, _) in before.items()])
        rooms = self._leaves_by_room
        if rooms is None:
            return
        # Each leaf leaves its former room and joins its present one.
        for leaf, (had, _) in before.items():
            rooms[had] -= 1
            if rooms[had] <= 0:
                del rooms[had]
            rooms[self.pods[leaf]] += 1

    def _recount(self, leaves: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Count pods and slices of these leaves. Return the former counts of those that have changed.

        A leaf without nodes has nothing free, so its count is 0.
        """
        pods, slices, refused, columns = self.pods, self.slices, self.refusals.by_leaf, self._columns
        has_slices, rooms = self.shape.slice_level == self.site.tree.depth - 1, self._rooms()
        before: dict[int, tuple[int, int]] = {}
        for leaf in leaves:
            fewest = 0 if leaf in refused else _MOST_PODS
            # A leaf that is used beyond its capacity has a negative column. It counts as 0.
            for column, amount, _ in columns:
                count = column[leaf] // amount
                if count < fewest:
                    fewest = count
            if fewest < 0:
                fewest = 0
            if rooms and fewest:
                fewest = min(fewest, *[room.at(leaf) for room in rooms])
            if fewest != pods[leaf]:
                # Only changed leaves are passed on, with their former counts.
                before[leaf] = pods[leaf], slices[leaf]
                pods[leaf] = fewest
                if has_slices:
                    slices[leaf] = fewest // self.shape.slice_size
        return before

    def _pass_on(self, level: int, before: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Add the changes of domains of `level` to the domains above. `before` holds their former counts.

        Return the former counts of the domains above.
        """
        pods, slices, parents = self.pods, self.slices, self.site.tree.parent
        unit, size = self.shape.units[level], self.shape.slice_size
        is_sliced, is_above_slices = level - 1 == self.shape.slice_level, level <= self.shape.slice_level
        above: dict[int, tuple[int, int]] = {}
        for domain, (had_pods, had_slices) in before.items():
            parent = parents[domain]
            # Recorded once, before the first child adds its difference.
            if parent not in above:
                above[parent] = pods[parent], slices[parent]
            if unit == 1:
                pods[parent] += pods[domain] - had_pods
            else:
                # Each child is rounded down to whole inner slices, before and after: an incomplete
                # slice does not count above.
                pods[parent] += pods[domain] // unit * unit - had_pods // unit * unit
            if is_above_slices:
                slices[parent] += slices[domain] - had_slices
        if is_sliced:
            for parent in above:
                slices[parent] = pods[parent] // size
        return above

    def _sum_up_with_leader(self, leaves: Iterable[int]) -> None:
        """Count these leaves with and without a leader, and sum up the domains above them."""
        tree = self.site.tree
        above: dict[int, None] = {}
        for leaf in leaves:
            self._count_leader(leaf)
            above[tree.parent[leaf]] = None
        for level in range(tree.depth - 2, -1, -1):
            # From the parents of the leaves upwards, so that children come before their parents.
            touched, above = above, {}
            for domain in touched:
                self._sum_up(domain, level)
                above[tree.parent[domain]] = None

    # --- by summing up ------------------------------------------------------------------------------------

    def _count_leader(self, leaf: int) -> None:
        """Count whether a leaf holds the leader, and how many pods beside it."""
        room = self._leader_room
        beside = None if room is None or leaf in self.refusals.by_leaf else room.beside(leaf)
        self.leader[leaf] = int(beside is not None)
        self.pods_with_leader[leaf] = beside or 0
        if self.shape.slice_level == self.site.tree.depth - 1:
            self._count_slices(leaf)

    def _count_slices(self, domain: int) -> None:
        """Compute the whole slices that fit into a domain of the slice level."""
        size = self.shape.slice_size
        self.slices[domain] = self.pods[domain] // size
        if self.shape.leader is not None:
            self.slices_with_leader[domain] = self.pods_with_leader[domain] // size

    def _sum_up(self, domain: int, level: int) -> None:
        """Compute the counts of a domain from those of its children."""
        shape, children = self.shape, self.site.tree.children[domain]
        unit, pods = shape.units[level + 1], self.pods
        if unit == 1:
            # Without inner slices this is a plain sum, which is nearly always the case.
            pods[domain] = sum([pods[child] for child in children])
        else:
            pods[domain] = sum([pods[child] // unit * unit for child in children])
        if shape.leader is not None:
            self.leader[domain] = max((self.leader[child] for child in children), default=0)
            # The leader will go to the child that loses least by it.
            columns = pods, self.pods_with_leader
            lost = min([self.loss(child, columns, unit) for child in children], default=0)
            self.pods_with_leader[domain] = max(0, pods[domain] - unit * lost)
        if level == shape.slice_level:
            self._count_slices(domain)
        elif level < shape.slice_level:
            slices = self.slices
            slices[domain] = sum([slices[child] for child in children])
            if shape.leader is not None:
                columns = slices, self.slices_with_leader
                lost = min([self.loss(child, columns) for child in children], default=0)
                self.slices_with_leader[domain] = max(0, slices[domain] - lost)

    def loss(self, domain: int, columns: tuple[list[int], list[int]], unit: int = 1) -> int:
        """Return how many units fewer a domain takes if it takes the leader; more than any where it cannot.

        `columns` hold what it takes, without and with the leader. `unit` entries of them are one unit.
        """
        if not self.leader[domain]:
            return _MOST_PODS
        plain, beside = columns
        return plain[domain] // unit - beside[domain] // unit

    # --- what to say --------------------------------------------------------------------------------------

    def refusal(self, leaf: int) -> str:
        """Return why a leaf takes no pod; empty where it takes some, or has no nodes.

        In Kueue's words, which the message of a Workload counts: a taint, a selector, or the resource that
        lacks.
        """
        if leaf not in self.site.tree.at_level[-1] or self.pods[leaf] > 0:
            return ""
        known = self.refusals.by_leaf.get(leaf)
        if known is not None:
            return known
        # The first lacking resource by name, so that the same state always gives the same reason.
        for column, amount, lack in self._columns:
            if column[leaf] < amount:
                return lack
        # None lacks: the free GPUs are in no one island, or are free in part only.
        return next((room.lack for room in self._rooms() if not room.at(leaf)), "")

    def pods_after(self, leaf: int, change: Amounts) -> int:
        """Return how many pods would fit on the leaf if `change` more of it were taken.

        Amounts are in canonical units; a negative `change` frees. 0 for a leaf that refuses the pods.
        """
        if leaf in self.refusals.by_leaf:
            return 0
        fewest = _MOST_PODS
        for (column, amount, _), (resource, _) in zip(self._columns, self.shape.per_pod, strict=True):
            fewest = min(fewest, (column[leaf] - change.get(resource, 0)) // amount)
        # What is taken at another time is known by amounts alone, and not which GPUs and islands it leaves.
        if fewest > 0 and not change and (rooms := self._rooms()):
            fewest = min(fewest, *[room.at(leaf) for room in rooms])
        return max(fewest, 0)

    def free_for(self, leaf: int) -> tuple[int, ...] | None:
        """Return what the leaf has free of each requested resource, None where it refuses the pods."""
        if leaf in self.refusals.by_leaf:
            return None
        return tuple([column[leaf] for column, _, _ in self._columns])

    def describe_exclusions(self, within: Mapping[int, None] | None = None) -> str:
        """Return the number of leaves, and how many were excluded for which reason, as Kueue words it.

        `within` limits the reasons to these leaves; the others then count as outside of the domain.
        """
        total = len(self.site.tree.at_level[-1])
        if within is None:
            self._update_reasons()
            reasons = self._reasons
        else:
            reasons = Counter(self.refusal(leaf) for leaf in within)
            reasons[_TOPOLOGY_DOMAIN] = total - len(within)
        parts = [f"{name}: {count}" for name, count in sorted(reasons.items()) if name and count]
        return f"Total nodes: {total}" + (f"; excluded: {', '.join(parts)}" if parts else "")

    def _update_reasons(self) -> None:
        """Update the number of leaves per reason for leaves that changed since the last call."""
        for leaf in self._unexplained:
            known, refusal = self._excluded.pop(leaf, ""), self.refusal(leaf)
            self._reasons[known] -= 1
            self._reasons[refusal] += 1
            if refusal:
                self._excluded[leaf] = refusal
        self._unexplained.clear()
