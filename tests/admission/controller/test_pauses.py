"""The brain lets all else have its turn within a cycle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.controller import pace
from admission.cycle import Cycle
from queues.memory import InMemoryReservationStore
from tests.admission.controller.cluster import FakeCluster, Object
from tests.admission.controller.replica import Lease, Replica
from tests.admission.controller.virtualtime import VirtualLoop, end

KUEUE = "kueue.x-k8s.io/v1beta2"
QUEUES = ("a", "b", "c")


@pytest.fixture
def replica() -> Iterator[Replica]:
    """A leader of three ClusterQueues of one cohort, each with a Workload that fits."""
    loop = VirtualLoop()
    cluster = FakeCluster(loop)
    for obj in objects():
        cluster.create(obj)
    replica = Replica("a-replica", cluster, InMemoryReservationStore(), Lease(), loop)
    yield replica
    replica.crash()
    end(loop)


def objects() -> Iterator[Object]:
    """Yield what the cluster holds."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    yield {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}}
    for name in QUEUES:
        quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        queue = {"cohortName": "cohort", "namespaceSelector": {}, "resourceGroups": groups}
        yield {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": queue}
        local = {"name": name, "namespace": "team"}
        yield {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": name}}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
        spec = {"queueName": name, "podSets": [pod_set]}
        yield {"apiVersion": KUEUE, "kind": "Workload", "metadata": local, "spec": spec}


def admitted(replica: Replica) -> int:
    """Return how many hold quota, for the replica."""
    return replica.knowledge.engine.statistics().reserving


def test_others_have_their_turn_within_a_cycle_and_see_no_half_of_it(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every step uses up a slice.
    monkeypatch.setattr(pace, "SLICE_SECONDS", -1.0)
    seen: list[int] = []
    pause = Cycle.pause

    def watch(cycle: Cycle) -> None:
        pause(cycle)
        loop.call_soon(lambda: seen.append(admitted(replica)))

    monkeypatch.setattr(Cycle, "pause", watch)
    loop = replica._loop
    replica.start()
    replica.lead(1)
    loop.run_for(5.0)

    replica.check()
    assert admitted(replica) == len(QUEUES)
    # Three are nominated, then three are served: until then nothing is seen of it.
    assert seen[:6] == [0] * 6
