"""Queries: what can be asked of the engine, such as why a Workload waits, what it holds, the state of queues.

A query decides nothing. It sees changed specs at once, and assumed admissions as if they were confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from admission.backfill.planned_starts import PromiseOutcome
from admission.backfill.running_estimates import MeasuredRun, started_at_of
from admission.cache.cache import Cache
from admission.cache.in_use import is_in_use
from admission.cache.workload_record import LocalQueueKey, Problem, queue_problem
from admission.cache.workload_store import WorkloadStore
from admission.calendar.advance_reservations import next_turn_at, reservation_of
from admission.calendar.quota_windows import QuotaInForce
from admission.decisions.decision import Evict
from admission.flavors.topology_assigner import check_tolerations
from admission.placement.topology.domain_usage import DomainUsage, domain_usages
from admission.placement.topology.node_health import NodeFault, host_fault, hosts_of, is_sound
from admission.preemption.device_price import node_device_price
from admission.scheduler.outcomes import required_checks
from admission.status.backlog import Backlog, backlog
from admission.status.explain import PodSetLines, explain
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
from api.disruption_budget import DisruptionBudget
from api.node import NodeInfo
from api.objects import WireToleration
from api.policy import KUEUE, AdmissionPolicy
from api.workload import Admission, PodSetAssignment, Workload, WorkloadKey
from queues.estimates.runtime_estimate import Estimate
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.quota.resources import FlavorResource


class Queries:
    """The methods of an engine that only read. See `admission.engine.engine`."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore) -> None:
        self._cache = cache
        self._workload_store = workload_store

    def workload(self, key: WorkloadKey) -> Workload | None:
        """Return the Workload as last seen, None if it is not known."""
        record = self._workload_store.records.get(key)
        return record.workload if record is not None else None

    def workloads(self) -> Iterator[Workload]:
        """Iterate over all Workloads as last seen. The engine must not change meanwhile."""
        return (record.workload for record in self._workload_store.records.values())

    def cluster_queues(self) -> tuple[str, ...]:
        """Return the names of all ClusterQueues, sorted."""
        return tuple(sorted(self._cache.cluster_queues))

    def policy_of(self, cluster_queue: str) -> AdmissionPolicy:
        """Return the policy that governs the ClusterQueue; `KUEUE`, with every section off, if none does."""
        self._workload_store.see()
        queue = self._cache.queues.get(cluster_queue)
        return queue.policy if queue is not None else KUEUE

    def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        """Return the PodDisruptionBudgets of a namespace, by name."""
        found = sorted(self._cache.budgets.items())
        return tuple(budget for (inside, _), budget in found if inside == namespace)

    def quotas_in_force(self, cluster_queue: str) -> Mapping[FlavorResource, QuotaInForce]:
        """Return the quotas that quota windows have put in place of the ClusterQueue's own."""
        self._workload_store.see()
        queue = self._cache.queues.get(cluster_queue)
        return queue.quotas_in_force if queue is not None else {}

    def admissions(self) -> Iterator[tuple[WorkloadKey, Admission]]:
        """Iterate over the Workloads that hold quota, assumed or confirmed, with their admissions, by key."""
        self._workload_store.see()
        return ((key, held.admission) for key, held in sorted(self._cache.held.items()))

    def members(self, local_queue: LocalQueueKey) -> tuple[WorkloadKey, ...]:
        """Return the Workloads that name this LocalQueue and have not finished."""
        return tuple(self._workload_store.by_local_queue.get(local_queue, ()))

    def is_holding(self, key: WorkloadKey) -> bool:
        """Return whether the Workload holds quota, assumed or confirmed."""
        self._workload_store.see()
        return key in self._cache.held

    def device_price(self, flavor: str, host: str) -> float:
        """Return the price of one device of the flavor per hour; 0 if none is set.

        `host` is the hostname of its node, "" if that is not known. The price of the node comes before that
        of the flavor. See `admission.preemption.device_price`.
        """
        prices = (node_device_price(node) for node in self._cache.topology_cache.nodes_at(host))
        on_nodes = [price for price in prices if price is not None]
        if on_nodes:
            # Two nodes that share a hostname count as one host; the higher price hides no cost.
            return max(on_nodes)
        spec = self._cache.flavors.get(flavor)
        return spec.cost_per_device_hour if spec is not None else 0.0

    def is_waiting(self, key: WorkloadKey, uid: str) -> bool:
        """Return whether the Workload of this uid is pending in a queue and holds no quota."""
        self._workload_store.see()
        record = self._workload_store.records.get(key)
        is_it = record is not None and record.workload.uid == uid and record.queued_in is not None
        return is_it and key not in self._cache.held

    def is_undecided(self, cluster_queue: str) -> bool:
        """Return whether a cycle still has to try Workloads of the ClusterQueue's tree."""
        self._workload_store.settle()
        queue = self._cache.queues.get(cluster_queue)
        if queue is None or queue.tree not in self._workload_store.unsettled:
            return False
        return any(one.pending.has_head() for one in queue.tree.queues if not one.inactive)

    def heir_of(self, victim: WorkloadKey) -> Evict | None:
        """Return the eviction of the Workload that another preemptor has joined, None if there is none.

        The eviction goes on for it. Of several preemptors the one with the highest priority, then
        the first by key.
        """
        heirs = [
            (
                -self._workload_store.records[eviction.preemptor].workload.priority,
                eviction.preemptor,
                eviction,
            )
            for joined in tuple(self._workload_store.joined.values())
            for eviction in joined
            if eviction.key == victim
            and eviction.preemptor is not None
            and self.is_waiting(eviction.preemptor, eviction.preemptor_uid)
        ]
        return min(heirs, key=lambda one: one[:2])[2] if heirs else None

    def is_in_use(self, kind: str, name: str) -> bool:
        """Return whether a ClusterQueue, flavor, topology or check must not be removed yet.

        See `admission.cache.in_use`.
        """
        self._workload_store.see()
        return is_in_use(self._cache, kind, name)

    def planned(self, key: WorkloadKey) -> PlannedStart | None:
        """Return the start promised to the Workload, None if it has no promise."""
        promise = self._cache.schedule_plan.promises.get(key)
        return promise.planned if promise is not None else None

    def plan(self) -> tuple[tuple[PlannedStart, ...], tuple[BackfillLease, ...]]:
        """Return all promises, the highest rank first, and all leases, by Workload key."""
        schedule_plan = self._cache.schedule_plan
        promises = tuple(promise.planned for promise in schedule_plan.promises.in_order())
        return promises, tuple(schedule_plan.leases[key] for key in sorted(schedule_plan.leases))

    @property
    def keeps_time(self) -> bool:
        """Whether a policy with backfill governs a ClusterQueue, or the calendar must be respected."""
        return self._cache.schedule_plan.is_on

    def take_kept(self) -> tuple[PromiseOutcome, ...]:
        """Return the promises kept since the last call. Each is returned once, so that it is counted once."""
        kept = tuple(self._cache.schedule_plan.kept)
        self._cache.schedule_plan.kept.clear()
        return kept

    def take_measured(self) -> tuple[MeasuredRun, ...]:
        """Return the runs that have ended since the last call, with their estimates, each once."""
        measured = tuple(self._cache.schedule_plan.lengths.measured)
        self._cache.schedule_plan.lengths.measured.clear()
        return measured

    def estimate(self, workload: Workload) -> Estimate | None:
        """Return how long the Workload is expected to run, None if there is no estimate."""
        local_queue = self._cache.local_queues.get((workload.key.namespace, workload.queue_name))
        policy = self.policy_of(local_queue.cluster_queue) if local_queue is not None else KUEUE
        held, estimator = self._cache.held.get(workload.key), self._cache.schedule_plan.lengths.estimator
        if held is None:
            return estimator.estimate(workload, policy)
        return estimator.running_estimate(workload, policy, started_at=started_at_of(held))

    def waits_for(self, key: WorkloadKey, limit: int) -> tuple[tuple[WorkloadKey, float], ...]:
        """Return the Workloads that a promised one waits for, with their expected ends, the earliest first.

        These hold quota or nodes that it was promised and end before its start. At most `limit` of them;
        empty if it has no promise.
        """
        schedule_plan = self._cache.schedule_plan
        promise = schedule_plan.promises.get(key)
        queue = self._cache.queues.get(promise.planned.cluster_queue) if promise is not None else None
        if promise is None or queue is None:
            return ()
        # A Workload that shares neither quota nor nodes with it is not waited for.
        wanted, found = promise.claim, []
        for claim in schedule_plan.profile.claims():
            other = self._cache.queues.get(claim.queue)
            shares_quota = (
                other is not None and other.tree is queue.tree and claim.usage.keys() & wanted.usage.keys()
            )
            is_near = shares_quota or bool(claim.spots.keys() & wanted.spots.keys())
            if claim.is_running and is_near and claim.ends_at <= promise.planned.start_at:
                found.append((claim.holder, claim.ends_at))
        return tuple(sorted(found, key=lambda one: (one[1], one[0]))[:limit])

    def is_backfilled(self, key: WorkloadKey) -> bool:
        """Return whether the Workload overtook a promise, and so runs on a lease."""
        return key in self._cache.schedule_plan.leases

    def expected_start(self, key: WorkloadKey) -> float | None:
        """Return when the Workload is expected to start (Unix seconds), None if that is not known."""
        planned = self.planned(key)
        if planned is not None:
            return planned.start_at
        expected = self._cache.schedule_plan.expected.get(key)
        return expected[0] if expected is not None else self._reserved_start(key)

    def _reserved_start(self, key: WorkloadKey) -> float | None:
        """Return when the reservation that a pending Workload has joined begins, None if it joined none."""
        record = self._workload_store.joining.get(key)
        kept = self._cache.reservations.joined_by(record.workload) if record is not None else None
        is_ahead = kept is not None and kept.start_at > self._cache.schedule_plan.now
        return kept.start_at if kept is not None and is_ahead else None

    def expected_after(self, key: WorkloadKey) -> float | None:
        """Return before when the Workload is not expected to start (Unix seconds), if no start is known.

        It waits behind those Workloads of its ClusterQueue whose starts were computed. None if it does not,
        or if no starts were computed. This is a lower bound by turns only; backfill may start it earlier.
        """
        record = self._workload_store.records.get(key)
        if record is None or record.queued_in is None or self.expected_start(key) is not None:
            return None
        return self._cache.schedule_plan.expected_after.get(record.queued_in)

    def queue_problem(self, workload: Workload) -> Problem | None:
        """Return why the Workload cannot be tried at all, and what to do; None if it only has to wait."""
        self._workload_store.see()
        record = self._workload_store.records.get(workload.key)
        return queue_problem(self._cache, workload, record.request_error if record is not None else None)

    def turns_at(self, workload: Workload) -> float | None:
        """Return when the reservation that a pending Workload names next begins or ends; None for never."""
        if reservation_of(workload) is None or workload.has_quota_reservation:
            return None
        local_queue = self._cache.local_queues.get((workload.key.namespace, workload.queue_name))
        policy = self.policy_of(local_queue.cluster_queue) if local_queue is not None else KUEUE
        return next_turn_at(workload, policy, now=self._cache.schedule_plan.now)

    def required_checks(self, workload: Workload) -> tuple[str, ...]:
        """Return the admission checks that the Workload must pass.

        If it holds quota, those of its assigned flavors; otherwise those that apply to every flavor.
        """
        self._workload_store.see()
        held = self._cache.held.get(workload.key)
        if held is not None:
            queue = self._cache.queues.get(held.admission.cluster_queue)
            return required_checks(queue.spec.checks, held.admission) if queue is not None else ()
        local_queue = self._cache.local_queues.get((workload.key.namespace, workload.queue_name))
        spec = self._cache.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
        # Without a ClusterQueue the required checks are not known, and none are written.
        if spec is None:
            return ()
        # As long as no flavor is assigned, only checks that apply to every flavor are certain.
        flavors = {flavor.name for group in spec.resource_groups for flavor in group.flavors}
        general = (rule.name for rule in spec.checks if not rule.on_flavors or rule.on_flavors >= flavors)
        return tuple(sorted(general))

    def node(self, name: str) -> NodeInfo | None:
        """Return a node as last seen, None if it is not known."""
        return self._cache.topology_cache.nodes.get(name)

    def label_problems(self, node: str) -> list[str]:
        """Return what is wrong with a node's labels for the topologies that it belongs to, as messages."""
        self._workload_store.see()
        return self._cache.topology_cache.label_problems(node)

    def is_in_place(self, key: WorkloadKey, pod_set: str, node: str) -> bool:
        """Return whether a node is in a domain that the Workload's pod set was given.

        Also True if that cannot be decided: the Workload holds no quota, was not placed, or the node is not
        known. A false alarm would be worse than a late one.
        """
        held, found = self._cache.held.get(key), self._cache.topology_cache.nodes.get(node)
        if held is None or found is None:
            return True
        topology = next((one.topology for one in held.admission.pod_sets if one.name == pod_set), None)
        if topology is None:
            return True
        values = tuple(found.labels.get(level, "") for level in topology.levels)
        return any(domain.values == values for domain in topology.domains)

    @property
    def node_count(self) -> int:
        """The number of nodes known."""
        return len(self._cache.topology_cache.nodes)

    def tenants(self, host: str) -> tuple[WorkloadKey, ...]:
        """Return the Workloads that have pods assigned to this host, as far as assignments name hosts."""
        return tuple(self._cache.tenants.get(host, ()))

    def node_faults(self, workload: Workload) -> tuple[NodeFault, ...]:
        """Return the faults of the nodes that the Workload's pods were placed on, by name, each node once."""
        faults: dict[str, NodeFault] = {}
        topology_cache, admission = self._cache.topology_cache, workload.admission
        for one in admission.pod_sets if admission is not None else ():
            tolerations: tuple[WireToleration, ...] | None = None
            for host in hosts_of(one.topology) if one.topology is not None else ():
                nodes = topology_cache.nodes_at(host)
                # As a rule there is one sound node of that name. Two nodes with the same hostname label are
                # a fault in themselves.
                if len(nodes) == 1 and is_sound(nodes[0]):
                    continue
                # Computed for the first node that needs it, since most Workloads have no faulty node.
                if tolerations is None:
                    tolerations = self._tolerations(workload, one)
                fault = host_fault(host, nodes, tolerations)
                if fault is not None:
                    faults[host] = fault
        return tuple(faults[host] for host in sorted(faults))

    def _tolerations(self, workload: Workload, assignment: PodSetAssignment) -> tuple[WireToleration, ...]:
        """Return what the pods tolerate: their own tolerations, and those of their flavors and checks."""
        own = [one.template.spec for one in workload.pod_sets if one.name == assignment.name]
        of_pods = (own[0].tolerations or ()) if own and own[0] is not None else ()
        return (*of_pods, *self.flavor_injection(assignment)[1], *check_tolerations(workload, assignment))

    def flavor_injection(
        self, assignment: PodSetAssignment
    ) -> tuple[dict[str, str], tuple[WireToleration, ...]]:
        """Return the node labels and tolerations of the pod set's flavors, for its pod template."""
        labels: dict[str, str] = {}
        tolerations: list[WireToleration] = []
        for name in sorted(set(assignment.flavors.values())):
            flavor = self._cache.flavors.get(name)
            if flavor is not None:
                labels.update(flavor.node_labels)
                # Each value once: several flavors of a pod set may add the same toleration.
                tolerations += [one for one in flavor.tolerations if one not in tolerations]
        return labels, tuple(tolerations)

    def is_domain(self, value: str) -> bool:
        """Return whether a topology has a domain of this label value; True if no topology is known."""
        return self._cache.topology_cache.has_domain(value)

    def cluster_queue_of(self, workload: Workload) -> str:
        """Return the ClusterQueue of the Workload's LocalQueue, "" if there is no such LocalQueue."""
        local_queue = self._cache.local_queues.get((workload.key.namespace, workload.queue_name))
        return local_queue.cluster_queue if local_queue is not None else ""

    def explanation(self, workload: Workload) -> tuple[PodSetLines, ...]:
        """Return what a cycle would consider for each pod set; empty if the Workload cannot be tried."""
        self._workload_store.see()
        record = self._workload_store.records.get(workload.key)
        queue = self._cache.queues.get(self.cluster_queue_of(workload))
        if record is None or queue is None:
            return ()
        return explain(self._cache.snapshot(), queue, workload, record.requests)

    def pending(self, cluster_queue: str) -> tuple[PendingWorkloadView, ...]:
        """Return the Workloads pending in the ClusterQueue, parked ones included, in queue order."""
        self._workload_store.see()
        queue = self._cache.queues.get(cluster_queue)
        if queue is None:
            return ()
        return tuple(
            PendingWorkloadView(
                key=one.key,
                priority=one.workload.priority,
                local_queue=(one.key.namespace, one.workload.queue_name),
                queued_at=one.queued_at,
                is_parked=queue.pending.is_parked(one.key),
            )
            for one in queue.pending.in_order()
        )

    def cluster_queue_view(self, name: str) -> ClusterQueueView | None:
        """Return the ClusterQueue's status, None if it does not exist."""
        self._workload_store.see()
        queue = self._cache.queues.get(name)
        return cluster_queue_view(queue) if queue is not None else None

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
        """Return the Cohorts above the ClusterQueue, from its own to the root; empty if it has none."""
        self._workload_store.see()
        queue = self._cache.queues.get(cluster_queue)
        return tuple(node.name for node in queue.node.ancestors()) if queue is not None else ()

    def local_queue_view(self, namespace: str, name: str) -> LocalQueueView | None:
        """Return the LocalQueue's status, None if it does not exist."""
        self._workload_store.see()
        members = self._workload_store.by_local_queue.get((namespace, name), {})
        return local_queue_view(self._cache, (namespace, name), members)

    def cohort_view(self, name: str) -> CohortView | None:
        """Return the Cohort's status, None if it neither exists nor is named."""
        self._workload_store.see()
        return cohort_view(self._cache, name)

    def domain_usages(self) -> Iterator[DomainUsage]:
        """Yield the usage of the lowest domains of all topologies, flavor by flavor."""
        topology_cache = self._cache.topology_cache
        for flavor in sorted(self._cache.flavors):
            if topology_cache.has_topology(flavor):
                yield from domain_usages(topology_cache.search(flavor).site, flavor)

    def policy_view(self, name: str) -> PolicyView | None:
        """Return the AdmissionPolicy's status, None if it does not exist."""
        self._workload_store.see()
        return policy_view(self._cache, name)
