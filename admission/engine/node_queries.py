"""What can be asked about nodes, the pods placed on them, and what flavors add to those pods.

A query decides nothing. It sees changed specs at once, and assumed admissions as if they were confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator

from admission.cache.cache import Cache
from admission.cache.workload_store import WorkloadStore
from admission.flavors.hardware_needs import hardware_need
from admission.flavors.topology_assigner import check_tolerations
from admission.hardware.fit import misfit
from admission.placement.topology.domain_room import DomainRoom, domain_rooms
from admission.placement.topology.domain_usage import DomainUsage, domain_usages
from admission.placement.topology.node_health import NodeFault, host_fault, hosts_of, is_healthy
from api.disruption_budget import DisruptionBudget
from api.jobs.resource_requests import gpus_of, pod_requests
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.objects.common import WireToleration
from api.workload import PodSetAssignment, Workload, WorkloadKey


class NodeQueries:
    """Answers queries about nodes and what is placed on them."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore) -> None:
        self._cache = cache
        self._workload_store = workload_store

    def node(self, name: str) -> NodeInfo | None:
        """Return a node as last seen, None if it is not known."""
        return self._cache.topology_cache.nodes.get(name)

    def label_problems(self, node: str) -> list[str]:
        """Return what is wrong with a node's labels on hardware and for its topologies, as messages.

        So are GPUs that several of its pods record. A node without some of a topology's level labels is not
        used for it.
        """
        self._workload_store.see()
        return self._cache.topology_cache.label_problems(node)

    def misfits_on(self, name: str) -> str:
        """Return which placed Workloads the node's hardware would refuse now, as a sentence; "" for none."""
        cache = self._cache
        node = cache.topology_cache.nodes.get(name)
        if node is None:
            return ""
        hardware, snapshot = cache.topology_cache.hardware.of(node), cache.snapshot()
        found: dict[WorkloadKey, str] = {}
        host = node.labels.get(HOSTNAME, name)
        for key in self.tenants(host):
            held = cache.held.get(key)
            queue = cache.queues.get(held.admission.cluster_queue) if held is not None else None
            if held is None or queue is None:
                continue
            there = {
                one.name
                for one in held.admission.pod_sets
                if one.topology is not None and host in hosts_of(one.topology)
            }
            for pod_set in held.workload.pod_sets:
                spec = pod_set.template.spec
                if pod_set.name not in there or spec is None:
                    continue
                need = hardware_need(snapshot, queue, held.workload, pod_set, gpus_of(pod_requests(spec)))
                if need is not None and (refused := misfit(need, hardware)) is not None:
                    found[key] = str(refused)
        if not found:
            return ""
        first, words = min(found.items())
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return (
            f"node {name} has other hardware than when work was placed on it: it would refuse"
            f" Workload {first}{more} now ({words}); running pods stay, and later decisions use what it has"
        )

    def take_recorded_on(self) -> tuple[str, ...]:
        """Return the nodes whose pods have recorded other GPUs since the last call."""
        return self._cache.topology_cache.take_recorded_on()

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
        return self._cache.tenants.on(host)

    def node_faults(self, workload: Workload) -> tuple[NodeFault, ...]:
        """Return the faults of the nodes that the Workload's pods were placed on, by name, each node once.

        Empty without an admission or without places. Tolerations of the pods, their flavors and checks count:
        a tolerated taint is no fault.
        """
        faults: dict[str, NodeFault] = {}
        topology_cache, admission = self._cache.topology_cache, workload.admission
        for one in admission.pod_sets if admission is not None else ():
            tolerations: tuple[WireToleration, ...] | None = None
            for host in hosts_of(one.topology) if one.topology is not None else ():
                nodes = topology_cache.nodes.at_host(host)
                # As a rule there is one sound node of that name. Two nodes with the same hostname label are
                # a fault in themselves.
                if len(nodes) == 1 and is_healthy(nodes[0]):
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
        """Return the node labels and tolerations of the pod set's flavors, for its pod template.

        Of two flavors with the same label the last by name counts. A flavor that was deleted adds nothing.
        """
        labels: dict[str, str] = {}
        tolerations: list[WireToleration] = []
        for name in sorted(set(assignment.flavors.values())):
            flavor = self._cache.specs.flavors.get(name)
            if flavor is not None:
                labels.update(flavor.node_labels)
                # Each value once: several flavors of a pod set may add the same toleration.
                tolerations += [one for one in flavor.tolerations if one not in tolerations]
        return labels, tuple(tolerations)

    def is_domain(self, value: str) -> bool:
        """Return whether a topology has a domain of this label value; True if no topology is known."""
        return self._cache.topology_cache.has_domain(value)

    def domain_usages(self) -> Iterator[DomainUsage]:
        """Yield the usage of the lowest domains of all topologies, flavor by flavor.

        Domains and amounts are those of the nodes as they are now; a lazy iterator, so use it before the next
        change.
        """
        topology_cache = self._cache.topology_cache
        for flavor in sorted(self._cache.specs.flavors):
            if topology_cache.has_topology(flavor):
                yield from domain_usages(topology_cache.topology(flavor), flavor)

    def domain_rooms(self) -> Iterator[DomainRoom]:
        """Yield what is free in the domains above the nodes, flavor by flavor; lazy, like `domain_usages`."""
        topology_cache = self._cache.topology_cache
        for flavor in sorted(self._cache.specs.flavors):
            if topology_cache.has_topology(flavor):
                yield from domain_rooms(topology_cache.topology(flavor), flavor)

    def device_price(self, flavor: str, host: str) -> float:
        """Return the price of one device of the flavor per hour, as `Cache.device_price` does."""
        return self._cache.device_price(flavor, host)

    def disruption_budgets(self, namespace: str) -> tuple[DisruptionBudget, ...]:
        """Return the PodDisruptionBudgets of a namespace, by name."""
        found = sorted(self._cache.specs.budgets.items())
        return tuple(budget for (inside, _), budget in found if inside == namespace)
