"""How many pods of one shape fit into every domain, kept up to date leaf by leaf.

    leaf    pods = the scarcest of free ÷ request;  leader = 1 where the leader's pod fits
            with_leader = pods that fit beside the leader's
    above   pods = Σ children, each rounded down to whole inner slices;  leader = most of any child
            with_leader = pods - the least that any child loses by taking the leader
    slices  pods ÷ slice size at the slice level, sums above it, 0 below

A shape costs one pass over all leaves when it is first seen. After that only the leaves in the site's log
are looked at again, and the domains above them. Source: Kueue, tas_flavor_snapshot.go, fillInCounts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.placement.request import NodeRules, Plan
from admission.placement.site import Amounts, Site
from api.node import NodeInfo
from api.selectors import find_untolerated, matches_node, taint_text

# Shapes kept for one site. Each costs some integers a domain; the least recently asked for goes first.
MOST_SHAPES = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the counts depend on. `leader` None: no leader is needed. `is_empty`: as if nothing was placed."""

    per_pod: tuple[tuple[str, int], ...]
    leader: tuple[tuple[str, int], ...] | None
    rules: NodeRules
    slice_level: int
    slice_size: int
    units: tuple[int, ...]
    is_empty: bool


def make_shape(
    per_pod: Amounts, leader: Amounts | None, rules: NodeRules, plan: Plan, *, is_empty: bool
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
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount > 0))


@dataclass(slots=True, eq=False)
class Counts:
    """Counts by domain, for one shape on one site. Without a leader the last two are the lists above."""

    site: Site
    shape: Shape
    pods: list[int] = field(default_factory=list)
    slices: list[int] = field(default_factory=list)
    leader: list[int] = field(default_factory=list)
    pods_with_leader: list[int] = field(default_factory=list)
    slices_with_leader: list[int] = field(default_factory=list)
    # Why a leaf takes no pod, by leaf.
    excluded: dict[int, str] = field(default_factory=dict)
    _read_to: int = -1
    # Whether every node without taints may be used, so that only taints are to be looked at.
    _takes_all: bool = field(init=False)

    def __post_init__(self) -> None:
        if self.shape.leader is None:
            self.pods_with_leader, self.slices_with_leader = self.pods, self.slices
        rules = self.shape.rules
        self._takes_all = not rules.node_selector and rules.affinity is None and rules.bandwidth is None

    def refresh(self) -> None:
        """Read the log: look again at what has changed since the last time."""
        site = self.site
        end = site.log_begins + len(site.log)
        if self._read_to == end:
            return
        missing = len(site.tree) - len(self.pods)
        if missing:
            self._extend(missing)
        if self._read_to < site.log_begins:
            self._count(site.tree.at_level[-1])
        else:
            self._count(set(site.log[self._read_to - site.log_begins :]))
        self._read_to = end

    def _extend(self, missing: int) -> None:
        for column in (self.pods, self.slices, self.leader):
            column.extend([0] * missing)
        if self.shape.leader is not None:
            self.pods_with_leader.extend([0] * missing)
            self.slices_with_leader.extend([0] * missing)

    def _count(self, leaves: Iterable[int]) -> None:
        tree = self.site.tree
        lowest = tree.at_level[-1]
        above: dict[int, None] = {}
        for leaf in leaves:
            if leaf in lowest:
                self._count_leaf(leaf)
            else:
                self.excluded.pop(leaf, None)
            if tree.depth > 1:
                above[tree.parent[leaf]] = None
        for level in range(tree.depth - 2, -1, -1):
            touched, above = above, {}
            hooked = tree.at_level[level]
            for domain in touched:
                if domain in hooked:
                    self._sum_up(domain, level)
                above[tree.parent[domain]] = None

    def _count_leaf(self, leaf: int) -> None:
        shape, site = self.shape, self.site
        refusal = self._refusal(site.nodes[leaf]) if site.is_by_host else None
        free = site.capacity[leaf]
        used = None if shape.is_empty else site.used_of(leaf)
        pods, scarcest = (0, "") if refusal is not None else _fitting(free, used, shape.per_pod)
        if refusal is None and pods == 0:
            refusal = f'resource "{scarcest}"'
        if refusal is None:
            self.excluded.pop(leaf, None)
        else:
            self.excluded[leaf] = refusal
        self.pods[leaf] = pods
        if shape.leader is not None:
            self._count_leader(leaf, pods, free, used)
        if shape.slice_level == site.tree.depth - 1:
            self._count_slices(leaf)

    def _count_leader(self, leaf: int, pods: int, free: Amounts, used: Amounts | None) -> None:
        leader = self.shape.leader or ()
        is_refused = pods == 0 and not self.excluded.get(leaf, "").startswith("resource")
        hosts = not is_refused and _fitting(free, used, leader)[0] > 0
        self.leader[leaf] = int(hosts)
        taken = dict(used or {})
        for resource, amount in leader:
            taken[resource] = taken.get(resource, 0) + amount
        self.pods_with_leader[leaf] = _fitting(free, taken, self.shape.per_pod)[0] if hosts else 0

    def _count_slices(self, domain: int) -> None:
        size = self.shape.slice_size
        self.slices[domain] = self.pods[domain] // size
        if self.shape.leader is not None:
            self.slices_with_leader[domain] = self.pods_with_leader[domain] // size

    def _refusal(self, nodes: Mapping[str, NodeInfo]) -> str | None:
        """Return why the node of a leaf may not be used, in the words of the field, None where it may."""
        rules = self.shape.rules
        for node in nodes.values():
            if node.taints:
                taint = find_untolerated(node.taints, rules.tolerations)
                if taint is not None:
                    return f'taint "{taint_text(taint)}"'
            if not self._takes_all:
                has_selected, meets = matches_node(
                    dict(rules.node_selector), rules.affinity, name=node.name, labels=node.labels
                )
                if not has_selected:
                    return "nodeSelector"
                if not meets:
                    return "affinity"
                if rules.bandwidth is not None and not rules.bandwidth.is_met(node.labels):
                    return "networkBandwidth"
        return None

    def _sum_up(self, domain: int, level: int) -> None:
        shape, children = self.shape, self.site.tree.children[domain]
        unit, pods = shape.units[level + 1], self.pods
        if unit == 1:
            self.pods[domain] = sum([pods[child] for child in children])
        else:
            self.pods[domain] = sum([pods[child] // unit * unit for child in children])
        if shape.leader is not None:
            self.leader[domain] = max(self.leader[child] for child in children)
            lost = self._least_loss(children, self.pods, self.pods_with_leader)
            self.pods_with_leader[domain] = 0 if lost is None else self.pods[domain] - lost
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
        return min((plain[one] - beside[one] for one in children if self.leader[one]), default=None)

    def describe_exclusions(self, within: Mapping[int, None] | None = None) -> str:
        """Return how many leaves there are, and how many were left out for which reason."""
        lowest = self.site.tree.at_level[-1]
        reasons = Counter(
            "topologyDomain" if within is not None and leaf not in within else self.excluded[leaf]
            for leaf in lowest
            if leaf in self.excluded or (within is not None and leaf not in within)
        )
        text = f"Total nodes: {len(lowest)}"
        if reasons:
            text += "; excluded: " + ", ".join(f"{name}: {count}" for name, count in sorted(reasons.items()))
        return text


def _fitting(
    capacity: Amounts, used: Amounts | None, request: tuple[tuple[str, int], ...]
) -> tuple[int, str]:
    """Return how many times `request` fits into what is free, and the resource that is scarcest."""
    fewest, scarcest = -1, ""
    for resource, amount in request:
        free = capacity.get(resource, 0)
        if used:
            free -= used.get(resource, 0)
        count = free // amount if free > 0 else 0
        if fewest < 0 or count < fewest:
            fewest, scarcest = count, resource
            if count == 0:
                break
    return max(fewest, 0), scarcest
