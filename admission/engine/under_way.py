"""What is under way in the engine, and how a change of what is known ends it.

A cycle and a check of promises work on the state itself and pause between two steps. Whoever changes
that state calls `begin_change` first, which takes back the trial of an unfinished cycle and drops the check.
"""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.cache.workload_store import WorkloadStore
from admission.scheduler.resumable_cycle import Cycle
from queues.profile.capacity_profile import CapacityProfile
from queues.steps import Steps


class UnderWay:
    """The unfinished cycle and check of promises, and the statuses that a change of specs has touched."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore) -> None:
        self._cache = cache
        self._workload_store = workload_store
        self.touched_cohorts: set[str] = set()
        self.touched_policies: set[str] = set()
        self.cycle: Cycle | None = None
        # The check of promises, and the profile on which the last one was completed since the last change.
        self.settling: Steps[None] | None = None
        self.settled: CapacityProfile | None = None

    def begin_change(self, now: float) -> None:
        """Prepare for a change of what is known: a cycle under way ends first."""
        self._workload_store.now = now
        if now >= self._cache.next_boundary_at:
            # A quota window begins or ends, which has the effect of an edited ClusterQueue; or a reservation
            # does, which may let other Workloads start.
            self._cache.specs.invalidate()
            self.specs_changed()
        # Removed first: an interrupt may apply decisions, and those must not find a cycle under way.
        cycle, self.cycle = self.cycle, None
        looking, self.settling, self.settled = self.settling, None, None
        if looking is not None:
            looking.close()
        if cycle is not None:
            for queue in cycle.interrupt():
                self._workload_store.unsettled[queue.tree] = None

    def specs_changed(self) -> None:
        """Mark the statuses of all queues as touched, since a change of specs may show in any of them."""
        # All are marked although few are affected: statuses are compared before they are written.
        self._workload_store.touched_queues.update(self._cache.specs.cluster_queues)
        self._workload_store.touched_local_queues.update(self._cache.specs.local_queues)
        self.touched_cohorts.update(self._cache.specs.cohorts)
        self.touched_policies.update(self._cache.specs.policies)
