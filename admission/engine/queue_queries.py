"""What can be asked about ClusterQueues, LocalQueues, Cohorts and policies.

A query decides nothing. It sees changed specs at once, and assumed admissions as if they were confirmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from admission.cache.cache import Cache
from admission.cache.in_use import is_in_use
from admission.cache.workload_store import WorkloadStore
from admission.engine.explain_pending import reason_of
from admission.snapshot.queue_state import QueueState
from admission.status.backlog import Backlog, backlog
from admission.status.check_status import CheckView, check_view, provisioning_config
from admission.status.object_problems import ObjectProblem, object_problems
from admission.status.quota_use import QuotaUse, quota_use
from admission.status.turns import positions
from admission.status.views import (
    ClusterQueueView,
    CohortView,
    LocalQueueView,
    PendingWorkloadView,
    PolicyView,
    cluster_queue_view,
    cohort_view,
    local_queue_view,
    policy_view,
)
from api.keys import PROVISIONING_CONTROLLER
from api.policy import KUEUE, AdmissionPolicy
from api.provisioning import ProvisioningConfig
from api.queueing import ClusterQueue, LocalQueue
from api.reasons import CANNOT_START, ConditionType
from api.workload import Workload, WorkloadKey
from queues.quota.resources import FlavorResource


class QueueQueries:
    """Answers queries about queues, Cohorts and policies."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore) -> None:
        self._cache = cache
        self._workload_store = workload_store

    def cluster_queues(self) -> tuple[str, ...]:
        """Return the names of all ClusterQueues, sorted."""
        return tuple(sorted(self._cache.specs.cluster_queues))

    def policy_of(self, cluster_queue: str) -> AdmissionPolicy:
        """Return the policy that governs the ClusterQueue; `KUEUE`, with every section off, if none does.

        Of several policies that select the ClusterQueue the one with the highest precedence governs, then the
        first by name.
        """
        self._workload_store.see()
        queue = self._cache.queues.get(cluster_queue)
        return queue.policy if queue is not None else KUEUE

    def spec(self, cluster_queue: str) -> ClusterQueue | None:
        """Return the ClusterQueue as last seen, None if it does not exist."""
        return self._cache.specs.cluster_queues.get(cluster_queue)

    def local_queues(self, namespace: str) -> tuple[LocalQueue, ...]:
        """Return the LocalQueues of a namespace, by name."""
        found = sorted(self._cache.specs.local_queues.items())
        return tuple(queue for (inside, _), queue in found if inside == namespace)

    def all_local_queues(self) -> tuple[LocalQueue, ...]:
        """Return all LocalQueues, by namespace and name."""
        return tuple(queue for _, queue in sorted(self._cache.specs.local_queues.items()))

    def namespaces(self) -> frozenset[str]:
        """Return the namespaces that have a LocalQueue: Workloads of others wait in no queue."""
        return frozenset(namespace for namespace, _ in self._cache.specs.local_queues)

    def namespaces_of(self, cluster_queue: str) -> frozenset[str]:
        """Return the namespaces whose LocalQueues lead to the ClusterQueue."""
        found = self._cache.specs.local_queues.values()
        return frozenset(queue.namespace for queue in found if queue.cluster_queue == cluster_queue)

    def is_undecided(self, cluster_queue: str) -> bool:
        """Return whether a cycle still has to try Workloads of the ClusterQueue's tree.

        Until then it is open whether an eviction that was asked for is still needed.
        """
        self._workload_store.settle()
        queue = self._cache.queues.get(cluster_queue)
        return queue is not None and self._workload_store.trees.has_heads(queue.tree)

    def is_in_use(self, kind: str, name: str) -> bool:
        """Return whether a ClusterQueue, flavor, topology or check must not be removed yet.

        See `admission.cache.in_use`.
        """
        self._workload_store.see()
        return is_in_use(self._cache, kind, name)

    def pending(self, cluster_queue: str) -> tuple[PendingWorkloadView, ...]:
        """Return the Workloads pending in the ClusterQueue, parked ones included, in queue order.

        Empty for an unknown ClusterQueue.
        """
        return tuple(self.iter_pending(cluster_queue))

    def iter_pending(self, cluster_queue: str) -> Iterator[PendingWorkloadView]:
        """Yield the same views, with the order of the first one: a caller may pause between two of them."""
        self._workload_store.see()
        queue = self._cache.queues.get(cluster_queue)
        if queue is None:
            return
        for one in queue.pending.in_order():
            yield PendingWorkloadView(
                key=one.key,
                priority=one.workload.priority,
                local_queue=(one.key.namespace, one.workload.queue_name),
                queued_at=one.queued_at,
                is_parked=queue.pending.members.is_parked(one.key),
                can_start=self.can_start(one.key),
            )

    def can_start(self, key: WorkloadKey) -> bool:
        """Return whether a pending Workload may start as it is, now or later.

        False for the reasons of `CANNOT_START`, unless it is promised a start: a quota window may help it.
        """
        record = self._workload_store.index.records.get(key)
        queue = self._cache.queues.get(record.queued_in or "") if record is not None else None
        if record is None or queue is None or key in self._cache.schedule_plan.promises:
            return True
        known = reason_of(queue, record)
        if known is not None:
            return known[0] not in CANNOT_START
        # Not tried here yet, as on a follower: its object shows the reason that was found last.
        shown = record.workload.conditions.get(ConditionType.QUOTA_RESERVED)
        return shown is None or shown.status or shown.reason not in CANNOT_START

    def positions(self, pending: Iterable[PendingWorkloadView]) -> dict[WorkloadKey, int]:
        """Return the position, from 1, of each that can start. `pending` is all of a queue, in its order."""
        plan = self._cache.schedule_plan
        return positions((one.key, plan.expected_start(one.key)) for one in pending if one.can_start)

    def all_positions(self, cluster_queue: str) -> dict[WorkloadKey, int]:
        """Return the same of all that are pending in the ClusterQueue; empty for an unknown one."""
        self._workload_store.see()
        queue, plan = self._cache.queues.get(cluster_queue), self._cache.schedule_plan
        if queue is None:
            return {}
        return positions((key, plan.expected_start(key)) for key in self._startable(queue))

    def _startable(self, queue: QueueState) -> Iterator[WorkloadKey]:
        """Yield what is pending in the queue and may start as it is, in the queue's order."""
        records, reason_of = self._workload_store.index.records, queue.pending.members.class_reason
        for one in queue.pending.in_order():
            # A list asks this of all that waits, and for nearly all one of these two reasons is known.
            known = records[one.key].last_wait or reason_of(one)
            is_usual = known is not None and known[0] not in CANNOT_START
            if is_usual or self.can_start(one.key):
                yield one.key

    def cluster_queue_view(self, name: str) -> ClusterQueueView | None:
        """Return the ClusterQueue's status, None if it does not exist."""
        self._workload_store.see()
        queue = self._cache.queues.get(name)
        return cluster_queue_view(queue) if queue is not None else None

    def is_borrowing(self, cluster_queue: str, pair: FlavorResource) -> bool:
        """Return whether the ClusterQueue uses more of the pair than its own quota."""
        self._workload_store.see()
        queue = self._cache.queues.get(cluster_queue)
        return queue is not None and queue.node.cell(pair).usage > queue.node.cell(pair).nominal

    def backlog(self, name: str) -> Backlog | None:
        """Return a summary of the Workloads pending in the ClusterQueue, None if it does not exist."""
        self._workload_store.see()
        queue = self._cache.queues.get(name)
        return backlog(queue.pending) if queue is not None else None

    def cohorts(self) -> tuple[str, ...]:
        """Return the names of all Cohorts, sorted, including those that exist only by being named."""
        self._workload_store.see()
        return tuple(sorted(self._cache.hierarchy.cohorts))

    def cohorts_above(self, cluster_queue: str) -> tuple[str, ...]:
        """Return the Cohorts above the ClusterQueue, from its own to the root; empty if it has none.

        For a ClusterQueue whose Cohorts form a cycle the result is empty: it belongs to no tree.
        """
        self._workload_store.see()
        queue = self._cache.queues.get(cluster_queue)
        return tuple(node.name for node in queue.node.ancestors()) if queue is not None else ()

    def local_queue_view(self, namespace: str, name: str) -> LocalQueueView | None:
        """Return the LocalQueue's status, None if it does not exist."""
        self._workload_store.see()
        members = self._workload_store.index.members((namespace, name))
        return local_queue_view(self._cache, (namespace, name), members)

    def cohort_view(self, name: str) -> CohortView | None:
        """Return the Cohort's status, None if it neither exists nor is named."""
        self._workload_store.see()
        return cohort_view(self._cache, name)

    def quota_use(self, cluster_queue: str) -> Mapping[FlavorResource, QuotaUse]:
        """Return what becomes of the ClusterQueue's quota; empty if it does not exist."""
        self._workload_store.see()
        queue = self._cache.queues.get(cluster_queue)
        return quota_use(queue.node) if queue is not None else {}

    def cohort_quota_use(self, cohort: str) -> Mapping[FlavorResource, QuotaUse]:
        """Return what becomes of the quota of all that is below the Cohort; empty if it does not exist."""
        self._workload_store.see()
        node = self._cache.hierarchy.cohorts.get(cohort)
        return quota_use(node) if node is not None else {}

    def policy_view(self, name: str) -> PolicyView | None:
        """Return the AdmissionPolicy's status, None if it does not exist."""
        self._workload_store.see()
        return policy_view(self._cache, name)

    def problems(self) -> Iterator[ObjectProblem]:
        """Iterate over the objects that are of no use as they are. The engine must not change meanwhile."""
        self._workload_store.see()
        return object_problems(self._cache)

    def provisioning_configs(self, checks: Iterable[str]) -> dict[str, ProvisioningConfig | None]:
        """Return the settings of those checks that ask the autoscaler for nodes; None: they are missing."""
        specs = self._cache.specs
        found = (specs.checks[name] for name in checks if name in specs.checks)
        return {
            check.name: provisioning_config(specs, check)
            for check in found
            if check.controller_name == PROVISIONING_CONTROLLER
        }

    def provisioning_check(self, name: str) -> CheckView | None:
        """Return whether a check can ask the cluster's autoscaler; None for another check."""
        check = self._cache.specs.checks.get(name)
        if check is None or check.controller_name != PROVISIONING_CONTROLLER:
            return None
        return check_view(self._cache.specs, check)

    def cluster_queue_of(self, workload: Workload) -> str:
        """Return the ClusterQueue of the Workload's LocalQueue, "" if there is no such LocalQueue."""
        local_queue = self._cache.specs.local_queues.get((workload.key.namespace, workload.queue_name))
        return local_queue.cluster_queue if local_queue is not None else ""
