"""Node tenants: which Workloads that hold quota have pods on which hosts."""

from __future__ import annotations

from admission.placement.topology.node_health import hosts_of
from admission.placement.topology_cache import TopologyCache
from admission.snapshot.held_workload import HeldWorkload
from api.keys import ADDRESS
from api.workload import WorkloadKey


class NodeTenants:
    """The Workloads placed on each host, and what they use of the topology cache's nodes."""

    def __init__(self, topology_cache: TopologyCache) -> None:
        self._by_host: dict[str, dict[WorkloadKey, None]] = {}
        self._topology_cache = topology_cache

    def occupy(self, held: HeldWorkload) -> None:
        """Count the places of the Workload as taken.

        Call it once for each Workload and place. Assignments that do not name hosts are counted, but not
        listed by host.
        """
        self._note_placed(held, is_placed=True)
        self._topology_cache.usage.use(held.places, sign=1)
        self._topology_cache.learn(held.places)
        for place in held.places:
            for host in hosts_of(place.assignment):
                self._by_host.setdefault(host, {})[held.key] = None

    def vacate(self, held: HeldWorkload) -> None:
        """Count the places of the Workload as free."""
        self._note_placed(held, is_placed=False)
        self._topology_cache.usage.use(held.places, sign=-1)
        for place in held.places:
            for host in hosts_of(place.assignment):
                of_host = self._by_host.get(host, {})
                of_host.pop(held.key, None)
                # Empty entries are removed, since hosts come and go in an autoscaled cluster.
                if not of_host:
                    self._by_host.pop(host, None)

    def _note_placed(self, held: HeldWorkload, *, is_placed: bool) -> None:
        """Note whether pods with static addresses have places."""
        if any(ADDRESS in place.per_pod for place in held.places):
            self._topology_cache.note_placed(held.key, is_placed=is_placed)

    def on(self, host: str) -> tuple[WorkloadKey, ...]:
        """Return the Workloads that have pods assigned to this host, as far as assignments name hosts."""
        return tuple(self._by_host.get(host, ()))
