"""A cluster of two tenants in virtual time, and the replicas that have led it so far."""

from __future__ import annotations

from queues.reservations.memory_reservations import InMemoryReservationStore
from queues.store.redis_store import RedisReservationStore
from tests.admission.controller.cluster import FakeCluster, Key, Object
from tests.admission.controller.replica import Lease, Replica
from tests.admission.controller.tenancy import LAWS, holds_quota, make_queues, make_workload, run_programs
from tests.admission.controller.virtualtime import VirtualLoop

# All of the cohort that one queue may have: two of them exclude each other.
ALL = 6


class Stage:
    """The cluster and its replicas. After every change the laws of `tenancy` must hold."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.cluster = FakeCluster(self.loop)
        self.cluster.laws += LAWS
        self.store = InMemoryReservationStore()
        # Another store that replicas use in its place.
        self.redis: RedisReservationStore | None = None
        self._lease = Lease()
        self._replicas: list[Replica] = []
        make_queues(self.cluster)
        run_programs(self.cluster, self.loop)

    def start(self) -> Replica:
        """Start a replica that follows."""
        name = f"replica-{len(self._replicas) + 1}"
        replica = Replica(name, self.cluster, self.redis or self.store, self._lease, self.loop)
        replica.start()
        self._replicas.append(replica)
        return replica

    def lead(self) -> Replica:
        """Start a replica that leads from now on."""
        replica = self.start()
        replica.lead(self._lease.number + 1)
        return replica

    def lead_again(self, replica: Replica, *, continues: bool = True) -> None:
        """Let a replica that leads lose its lease and win it back, by default before any other has led."""
        replica.stop_leading()
        replica.lead(self._lease.number + 1, continues=continues)

    def submit(self, name: str, *, cpus: int = ALL, priority: int = 0) -> None:
        """Create a Workload in the queue a."""
        self.cluster.create(make_workload(name, "a", cpus, priority))

    def wait(self, seconds: float) -> None:
        """Let time pass; no law may have been broken."""
        self.loop.run_for(seconds)
        assert self.cluster.broken == []

    def workload(self, name: str) -> Object:
        """Return a Workload as the cluster has it."""
        return self.cluster.objects[key_of(name)]

    def admitted(self) -> list[str]:
        """Return the Workloads that hold quota."""
        return [
            name
            for (kind, _, name), obj in self.cluster.objects.items()
            if kind == "Workload" and holds_quota(obj)
        ]


def key_of(name: str) -> Key:
    """Return the key of a Workload."""
    return "Workload", "team", name
