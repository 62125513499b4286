"""Quota trees from the specs of ClusterQueues and Cohorts, and the Cohorts that form a cycle.

A Cohort that is only referenced, by a ClusterQueue or as a parent, exists without quota and without limits.
Cohorts whose parents lead back to themselves have no root, so no tree can be built: their ClusterQueues
become trees of one node, are listed in `queue_cycles`, and admit nothing until the cycle is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from api.queueing import ClusterQueue, Cohort, ResourceGroup, ResourceQuota
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortHierarchy:
    """The quota trees of a cluster.

    `queue_cycles` and `cohort_cycles` hold, for each ClusterQueue or Cohort that cannot reach
    a root, the cycle
    as "a → b → a".

    `queues` and `cohorts` hold the node of every ClusterQueue and Cohort by name, Cohorts that are only
    referenced included. A ClusterQueue and a Cohort may have the same name.
    """

    queues: Mapping[str, QuotaNode] = field(default_factory=dict)
    cohorts: Mapping[str, QuotaNode] = field(default_factory=dict)
    queue_cycles: Mapping[str, str] = field(default_factory=dict)
    cohort_cycles: Mapping[str, str] = field(default_factory=dict)


def build_hierarchy(cluster_queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort]) -> CohortHierarchy:
    """Return the trees that the specs describe. The result does not depend on the order of the specs.

    No usage is charged yet: the caller charges each Workload that holds quota. Never raises: a cycle of
    Cohorts is an answer (`queue_cycles`, `cohort_cycles`), because the objects of a cluster can form one at
    any time. O(cells of all nodes).
    """
    # Sorted by name, so that children have the same order whatever order the objects arrived in. Sums and
    # messages are then equal too.
    queue_specs = sorted(cluster_queues, key=lambda spec: spec.name)
    parents = _parents(queue_specs, {spec.name: spec for spec in cohorts})
    cohort_cycles = _cycles(parents)
    nodes = _cohort_nodes(parents, cohorts, cohort_cycles)
    queues, queue_cycles = {}, {}
    for spec in queue_specs:
        queues[spec.name] = node = QuotaNode(
            spec.name,
            is_queue=True,
            quotas=to_quotas(spec.resource_groups),
            weight_milli=spec.fair_weight_milli,
        )
        # Not put below a cycle: `build` and every walk to the root would never end.
        if spec.cohort in cohort_cycles:
            queue_cycles[spec.name] = cohort_cycles[spec.cohort]
        elif spec.cohort is not None:
            nodes[spec.cohort].adopt(node)
    for node in (*nodes.values(), *queues.values()):
        # A tree is built from its root. A Cohort in a cycle, and a ClusterQueue below one, is
        # a root by itself here.
        if node.parent is None:
            node.build()
    return CohortHierarchy(
        queues=queues, cohorts=nodes, queue_cycles=queue_cycles, cohort_cycles=cohort_cycles
    )


def to_quotas(groups: tuple[ResourceGroup, ...]) -> dict[FlavorResource, ResourceQuota]:
    """Return the quotas of all groups by flavor and resource.

    Amounts are in the resource's unit. A flavor belongs to one group only, which the validation of the
    ClusterQueue has checked; of a pair that is declared twice, the last declaration counts.
    """
    return {
        FlavorResource(flavor.name, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.resources.items()
    }


def _parents(queue_specs: Iterable[ClusterQueue], cohorts: Mapping[str, Cohort]) -> dict[str, str | None]:
    """Return the parent of every Cohort, declared or only referenced, sorted by name."""
    parents = {spec.cohort: None for spec in queue_specs if spec.cohort is not None}
    # A declaration takes precedence over a reference, which knows no parent.
    named: dict[str, str | None] = {**parents, **{name: spec.parent for name, spec in cohorts.items()}}
    for parent in list(named.values()):
        if parent is not None:
            named.setdefault(parent, None)
    return dict(sorted(named.items()))


def _cycles(parents: Mapping[str, str | None]) -> dict[str, str]:
    """Return the Cohorts that never reach a root, each with the cycle that its parents lead into."""
    found: dict[str, str] = {}
    ended: set[str] = set()
    for name in parents:
        # Followed to a root, to a name whose end is known, or to itself: each name is passed once.
        trail: dict[str, None] = {}
        current: str | None = name
        while current is not None and current not in ended and current not in trail:
            trail[current] = None
            current = parents[current]
        ended.update(trail)
        if current is not None and current in trail:
            found.update(_cycle(list(trail), current))
        elif current in found:
            # The way leads into a cycle that is known: it shows the cycle from the name that it meets first.
            found.update(dict.fromkeys(trail, found[current]))
    return found


def _cycle(trail: list[str], entry: str) -> Iterator[tuple[str, str]]:
    """Yield the names of a trail that ends where it meets itself, each with the cycle."""
    at = trail.index(entry)
    text = " → ".join([*trail[at:], entry])
    # One text for all: a text for each, from the name itself, is quadratic in the length of the cycle.
    return ((name, text) for name in trail)


def _cohort_nodes(
    parents: Mapping[str, str | None], cohorts: Iterable[Cohort], cycles: Mapping[str, str]
) -> dict[str, QuotaNode]:
    """Return a node for every Cohort, connected to its parent unless that leads into a cycle."""
    specs = {spec.name: spec for spec in cohorts}
    nodes = {}
    for name in parents:
        # A Cohort that is referenced but not declared has no quota, no limits and weight 1.
        spec = specs.get(name, Cohort(name=name))
        nodes[name] = QuotaNode(
            name, is_queue=False, quotas=to_quotas(spec.resource_groups), weight_milli=spec.fair_weight_milli
        )
    for name, parent in parents.items():
        if parent is not None and name not in cycles:
            nodes[parent].adopt(nodes[name])
    return nodes
