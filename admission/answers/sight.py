"""Sight: what a caller may see. Names of Workloads by the namespaces that it may list, all else counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from admission.engine.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a caller may see: everything, or these namespaces and the queues that serve them."""

    sees_all: bool = False
    namespaces: frozenset[str] = frozenset()

    def sees(self, namespace: str) -> bool:
        """Return whether the caller may see the Workloads of the namespace by name."""
        return self.sees_all or namespace in self.namespaces


EVERYTHING = Sight(sees_all=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A sight, with the objects without a namespace that it reaches in a cluster.

    These are the ClusterQueues that LocalQueues of its namespaces lead to, the Cohorts above these, and the
    flavors of both.
    """

    sight: Sight
    cluster_queues: frozenset[str] = field(default_factory=frozenset)
    cohorts: frozenset[str] = field(default_factory=frozenset)
    flavors: frozenset[str] = field(default_factory=frozenset)

    def sees_cluster_queue(self, name: str) -> bool:
        """Return whether the caller may see the ClusterQueue."""
        return self.sight.sees_all or name in self.cluster_queues

    def sees_cohort(self, name: str) -> bool:
        """Return whether the caller may see the Cohort."""
        return self.sight.sees_all or name in self.cohorts

    def sees_flavor(self, name: str) -> bool:
        """Return whether the caller may see the nodes of the flavor, as counts."""
        return self.sight.sees_all or name in self.flavors


def scope_of(engine: Engine, sight: Sight) -> Scope:
    """Return what the sight reaches in the engine's cluster."""
    if sight.sees_all:
        return Scope(sight=sight)
    queues = {
        queue.cluster_queue
        for namespace in sight.namespaces
        for queue in engine.queues.local_queues(namespace)
    }
    specs = [spec for name in queues if (spec := engine.queues.spec(name)) is not None]
    return Scope(
        sight=sight,
        cluster_queues=frozenset(spec.name for spec in specs),
        cohorts=frozenset(above for name in queues for above in engine.queues.cohorts_above(name)),
        flavors=frozenset(
            flavor.name for spec in specs for group in spec.resource_groups for flavor in group.flavors
        ),
    )
