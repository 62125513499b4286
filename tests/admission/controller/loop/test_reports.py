"""Reports make way for decisions, in a whole replica."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.controller.loop.pending_messages import REASONS_PER_SECOND
from queues.reservations.memory_reservations import InMemoryReservationStore
from tests.admission.controller.cluster import FakeCluster, Object
from tests.admission.controller.replica import Lease, Replica
from tests.admission.controller.virtualtime import VirtualLoop, end

KUEUE = "kueue.x-k8s.io/v1beta2"
ADMITTED, WAITING = 100, 150


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """The loop that the replica runs on."""
    loop = VirtualLoop()
    yield loop
    end(loop)


@pytest.fixture
def cluster(loop: VirtualLoop) -> FakeCluster:
    """A queue with room for ADMITTED Workloads, and WAITING more."""
    cluster = FakeCluster(loop)
    for obj in objects():
        cluster.create(obj)
    return cluster


@pytest.fixture(autouse=True)
def replica(cluster: FakeCluster, loop: VirtualLoop) -> Iterator[Replica]:
    """A leader that has led for two seconds."""
    replica = Replica("a-replica", cluster, InMemoryReservationStore(), Lease(), loop)
    replica.start()
    replica.lead(1)
    loop.run_for(2.0)
    yield replica
    replica.check()
    replica.crash()


def objects() -> Iterator[Object]:
    """Yield what the cluster holds."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    yield {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}}
    quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(ADMITTED)}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    queue = {"namespaceSelector": {}, "resourceGroups": groups}
    yield {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": queue}
    local = {"name": "q", "namespace": "team"}
    yield {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": "q"}}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    for number in range(ADMITTED + WAITING):
        metadata = {"name": f"w{number:03}", "namespace": "team"}
        spec = {"queueName": "q", "podSets": [pod_set]}
        yield {"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": spec}


def count(cluster: FakeCluster, status: str) -> int:
    """Return how many Workloads have the condition QuotaReserved with this status."""
    conditions = (
        condition
        for key, obj in cluster.objects.items()
        if key[0] == "Workload"
        for condition in obj.get("status", {}).get("conditions", ())
    )
    return sum(one["type"] == "QuotaReserved" and one["status"] == status for one in conditions)


def test_decisions_use_up_the_budget_of_reasons(cluster: FakeCluster) -> None:
    assert count(cluster, "True") == ADMITTED
    # Two seconds have passed since the first admission, and none of the burst is left.
    assert 0 < count(cluster, "False") <= 2 * REASONS_PER_SECOND


def test_every_reason_is_written_in_the_end(cluster: FakeCluster, loop: VirtualLoop) -> None:
    loop.run_for(WAITING / REASONS_PER_SECOND)

    assert count(cluster, "False") == WAITING


def test_what_the_server_takes_is_measured(replica: Replica) -> None:
    sample, labels = replica.metrics.registry.get_sample_value, {"replica_role": "leader"}

    # The replica may send 4 at most. An answer takes 2 to 20 ms.
    assert sample("berth_writes_in_flight_limit", labels) == 4.0
    assert 0.002 < (sample("berth_api_latency_seconds", labels) or 0.0) < 0.02
