"""The control loop lets all else have its turn within a cycle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.controller.runtime import yield_budget
from admission.scheduler.resumable_cycle import Cycle
from queues.reservations.memory_reservations import InMemoryReservationStore
from tests.admission.controller.cluster import FakeCluster, Object
from tests.admission.controller.replica import Lease, Replica
from tests.admission.controller.virtualtime import VirtualLoop, end

KUEUE = "kueue.x-k8s.io/v1beta2"
QUEUES = ("a", "b", "c")
CROWD = 20


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """The loop that the replica runs on."""
    loop = VirtualLoop()
    yield loop
    end(loop)


@pytest.fixture
def cluster(loop: VirtualLoop) -> FakeCluster:
    """Three ClusterQueues of one cohort, each with a Workload that fits."""
    cluster = FakeCluster(loop)
    for obj in objects():
        cluster.create(obj)
    return cluster


@pytest.fixture
def replica(cluster: FakeCluster, loop: VirtualLoop) -> Iterator[Replica]:
    """A leader of the cluster."""
    replica = Replica("a-replica", cluster, InMemoryReservationStore(), Lease(), loop)
    yield replica
    replica.crash()


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
        yield workload(name, queue=name)


def workload(name: str, *, queue: str) -> Object:
    """Return a Workload of one pod that asks for a CPU."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"queueName": queue, "podSets": [pod_set]}
    metadata = {"name": name, "namespace": "team"}
    return {"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": spec}


def stop(local_queue: Object) -> None:
    """Let no more Workloads of the LocalQueue be admitted."""
    local_queue["spec"]["stopPolicy"] = "Hold"


def admitted(replica: Replica) -> int:
    """Return how many hold quota, for the replica."""
    return replica.cluster_state.engine.statistics().reserving


def waiting(replica: Replica) -> int:
    """Return how many wait in a queue, for the replica."""
    statistics = replica.cluster_state.engine.statistics()
    return statistics.active_pending + statistics.parked_pending


def test_other_tasks_run_during_a_cycle_and_see_no_partial_result(
    replica: Replica, loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every step uses up a slice.
    monkeypatch.setattr(yield_budget, "SLICE_SECONDS", -1.0)
    seen: list[int] = []
    pause = Cycle.pause

    def watch(cycle: Cycle) -> None:
        pause(cycle)
        loop.call_soon(lambda: seen.append(admitted(replica)))

    monkeypatch.setattr(Cycle, "pause", watch)
    replica.start()
    replica.lead(1)
    loop.run_for(5.0)

    replica.check()
    assert admitted(replica) == len(QUEUES)
    # Three are nominated, then three are served: until then nothing is seen of it.
    assert seen[:6] == [0] * 6


def test_other_tasks_run_while_a_changed_spec_moves_many_workloads(
    replica: Replica, cluster: FakeCluster, loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yield_budget, "SLICE_SECONDS", -1.0)
    engine = replica.cluster_state.engine
    for number in range(CROWD):
        cluster.create(workload(f"w{number:02}", queue="a"))
    replica.start()
    replica.lead(1)
    loop.run_for(5.0)
    assert waiting(replica) == CROWD
    seen: list[int] = []

    def watch(*, now: float) -> bool:
        # A few at a time, as if there were thousands.
        has_more = catch_up(4, now=now)
        if has_more:
            loop.call_soon(lambda: seen.append(waiting(replica)))
        return has_more

    catch_up = engine.catch_up
    monkeypatch.setattr(engine, "catch_up", watch)
    cluster.edit(("LocalQueue", "team", "a"), stop)
    loop.run_for(5.0)

    replica.check()
    assert waiting(replica) == 0
    # They leave four by four, the one that runs among the first, and a unit that asks meanwhile does not have
    # the others leave with them.
    assert set(seen) == {CROWD + 1 - 4 * number for number in range(1, 6)}
