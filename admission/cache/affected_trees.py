"""Which quota trees a change of ClusterQueues concerns, and the hierarchy with only these built again.

A tree is the unit: what a queue may use depends on all of its tree and on nothing outside. A ClusterQueue
that moves concerns the tree that it leaves and the one that it joins. All other trees keep their nodes, with
the usage charged to them, so that a change of one queue costs no more where there are thousands.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from admission.cache.specs import Specs
from queues.quota.hierarchy import CohortHierarchy, build_hierarchy
from queues.quota.quota_tree import QuotaNode


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedTrees:
    """The names of the ClusterQueues and Cohorts in all affected trees, before the change and after it."""

    queues: frozenset[str]
    cohorts: frozenset[str]


def affected_trees(
    changed: Collection[str], specs: Specs, hierarchy: CohortHierarchy
) -> AffectedTrees | None:
    """Return what changes of these ClusterQueues concern; None where that is not known.

    `hierarchy` is that of before, which must have all declared Cohorts. O(nodes of the affected trees).
    """
    # A Cohort in a cycle is in no tree, so its tree does not tell which others belong to it.
    if hierarchy.cohort_cycles:
        return None
    queues, cohorts = set(changed), set()
    roots: dict[QuotaNode, None] = {}
    for name in changed:
        if (node := hierarchy.queues.get(name)) is not None:
            roots[node.root] = None
        spec = specs.cluster_queues.get(name)
        if spec is None or spec.cohort is None:
            continue
        # One that is neither declared nor referenced so far is made for this queue.
        cohorts.add(spec.cohort)
        if (cohort := hierarchy.cohorts.get(spec.cohort)) is not None:
            roots[cohort.root] = None
    for root in roots:
        for node in root.nodes():
            (queues if node.is_queue else cohorts).add(node.name)
    return AffectedTrees(queues=frozenset(queues), cohorts=frozenset(cohorts))


def with_trees_built_again(
    hierarchy: CohortHierarchy, affected: AffectedTrees, specs: Specs
) -> CohortHierarchy:
    """Return the hierarchy with the affected trees built from their specs, without usage.

    The nodes of all other trees are those of `hierarchy`.
    """
    built = build_hierarchy(
        [specs.cluster_queues[name] for name in affected.queues if name in specs.cluster_queues],
        [specs.cohorts[name] for name in affected.cohorts if name in specs.cohorts],
    )
    queues = {name: node for name, node in hierarchy.queues.items() if name not in affected.queues}
    cohorts = {name: node for name, node in hierarchy.cohorts.items() if name not in affected.cohorts}
    return CohortHierarchy(
        # By name, as if all had been built at once.
        queues=dict(sorted({**queues, **built.queues}.items())),
        cohorts=dict(sorted({**cohorts, **built.cohorts}.items())),
    )
