"""Promises outlive their leader and their store; every replica shows the same ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.controller.leadership.plan_reader import USAGE_SECONDS
from admission.controller.leadership.plan_writer import WATCH_SECONDS
from admission.engine.restore_plan import stored_value
from api.keys import EXPECTED_RUNTIME_SECONDS
from api.kube.lease import UNSETTLED_SECONDS
from api.parsing.times import to_rfc3339
from api.workload import WorkloadKey
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.reservations.memory_reservations import InMemoryReservationStore
from queues.reservations.plan import PLAN_TABLES, PlanTable, PlanVersion, PlanWrite
from queues.store.plan_rows import from_row
from tests.admission.controller.cluster import FakeCluster, Object
from tests.admission.controller.replica import LEASE_SECONDS, Lease, Replica
from tests.admission.controller.tenancy import make_object, make_workload
from tests.admission.controller.virtualtime import VirtualLoop, end

GANG, SMALL = WorkloadKey("team", "gang"), WorkloadKey("team", "small")


class Site:
    """One queue of 4 CPUs under backfill, two replicas, and a store between them.

    Of the 4 CPUs 3 are busy for 1,000 seconds, a gang of 4 is promised the end of that, and a small one runs
    on a lease meanwhile.
    """

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.cluster = FakeCluster(self.loop)
        self.store = InMemoryReservationStore()
        self.lease = Lease()
        for obj in _queue():
            self.cluster.create(obj)
        self.first, self.second = self.make("first"), self.make("second")
        self.first.lead(1)
        for name, cpus, seconds in (("running", 3, 1000), ("gang", 4, 300), ("small", 1, 100)):
            self.submit(name, cpus, seconds)
            self.loop.run_for(2.0)

    def make(self, name: str) -> Replica:
        replica = Replica(name, self.cluster, self.store, self.lease, self.loop)
        replica.start()
        return replica

    def submit(self, name: str, cpus: int, seconds: int) -> None:
        workload = make_workload(name, "queue", cpus, 0)
        workload["metadata"]["annotations"] = {EXPECTED_RUNTIME_SECONDS: str(seconds)}
        self.cluster.create(workload)

    def finish(self, name: str) -> None:
        now = to_rfc3339(self.loop.now())
        finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}

        def change(obj: Object) -> None:
            obj["status"]["conditions"].append({**finished, "lastTransitionTime": now})

        self.cluster.edit(("Workload", "team", name), change)

    def stored(self, table: PlanTable) -> dict[object, object]:
        """Return what the store holds of a table."""
        return dict(from_row(table, field, row) for field, row in self.store.tables[table].items())

    def check(self, *replicas: Replica) -> None:
        for replica in replicas:
            replica.check()
            tables = replica.cluster_state.engine.plan.tables()
            for table in PLAN_TABLES:
                known = {key: stored_value(value) for key, value in tables[table].items()}
                assert known == self.stored(table), (replica.name, table)


def _queue() -> Iterator[Object]:
    yield make_object("Namespace", "team", {})
    yield make_object("ResourceFlavor", "default", {})
    quota = {"name": "cpu", "nominalQuota": "4"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    yield make_object("ClusterQueue", "queue", {"namespaceSelector": {}, "resourceGroups": [group]})
    yield make_object("LocalQueue", "queue", {"clusterQueue": "queue"}, namespace="team")
    policy = make_object("AdmissionPolicy", "time", {"backfill": {"mode": "EASY"}, "estimates": {}})
    yield {**policy, "apiVersion": "berth.dev/v1alpha1"}


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    end(site.loop)


def promise(replica: Replica) -> PlannedStart:
    planned = replica.cluster_state.engine.promises.planned(GANG)
    assert planned is not None
    return planned


def count(replica: Replica, metric: str, **labels: str) -> float:
    """Return a counter's sum over the roles."""
    get = replica.metrics.registry.get_sample_value
    return sum(get(metric, {"replica_role": role, **labels}) or 0.0 for role in ("leader", "follower"))


def test_a_promise_and_a_lease_are_in_the_store_and_on_every_replica(site: Site) -> None:
    planned, lease = site.stored(PlanTable.PROMISES)[GANG], site.stored(PlanTable.LEASES)[SMALL]

    assert isinstance(planned, PlannedStart)
    assert isinstance(lease, BackfillLease)
    assert planned == promise(site.first)
    site.loop.run_for(2.0)
    site.check(site.first, site.second)
    assert site.second.cluster_state.engine.promises.is_backfilled(SMALL)


def test_a_promise_outlives_its_leader(site: Site) -> None:
    before = promise(site.first)
    plans = count(site.second, "berth_promises_total", cluster_queue="queue", event="made")

    site.first.crash()
    site.loop.run_for(LEASE_SECONDS)
    site.second.lead(2)
    site.loop.run_for(5.0)

    assert promise(site.second) == before
    site.check(site.second)
    assert count(site.second, "berth_promises_total", cluster_queue="queue", event="made") == plans
    # It is evicted for the promise that another leader made.
    site.loop.run_for(before.start_at - site.loop.now() - 20.0)
    small = site.cluster.objects["Workload", "team", "small"]
    assert any(one["reason"] == "BackfillLeaseExpired" for one in small["status"]["conditions"])


def test_a_promise_outlives_its_leader_while_the_store_is_away(site: Site) -> None:
    site.loop.run_for(3.0)
    before = promise(site.first)

    site.second.store.is_away = True
    site.first.crash()
    site.loop.run_for(LEASE_SECONDS)
    site.second.lead(2)
    site.loop.run_for(10.0)
    assert promise(site.second) == before

    site.second.store.is_away = False
    site.loop.run_for(10.0)
    assert promise(site.second) == before
    site.check(site.second)


def test_a_promise_outlives_its_leader_and_its_store_at_once(site: Site) -> None:
    site.loop.run_for(3.0)
    before, lease = promise(site.first), site.stored(PlanTable.LEASES)[SMALL]

    site.store.flush()
    site.first.crash()
    site.loop.run_for(LEASE_SECONDS)
    site.second.lead(2)
    # It waits until no write of the first can be stored any more.
    site.loop.run_for(UNSETTLED_SECONDS + 10.0)

    assert promise(site.second) == before
    assert site.stored(PlanTable.LEASES)[SMALL] == lease
    site.check(site.second)


def test_promises_are_written_again_to_an_emptied_store(site: Site) -> None:
    before = promise(site.first)
    site.store.flush()
    site.loop.run_for(10.0)

    assert promise(site.first) == before
    site.check(site.first)
    assert count(site.first, "berth_store_plan_writes_total", result="rewritten") >= 2


@pytest.mark.parametrize("table", PLAN_TABLES[:2])
def test_rows_that_were_lost_without_an_error_come_back(site: Site, table: PlanTable) -> None:
    site.store.tables[table].clear()
    site.loop.run_for(10.0)

    assert site.stored(table)
    site.check(site.first)


def test_unreadable_values_are_counted_and_written_over(site: Site) -> None:
    site.first.crash()
    site.store.tables[PlanTable.PROMISES]["team/other"] = b"garbage"
    site.store.tables[PlanTable.NODES]["node"] = b"2\n\x90"
    site.store.foreign.add(PlanTable.EXPECTED)
    site.second.lead(2)
    site.loop.run_for(10.0)

    site.check(site.second)
    ignored = {
        fault: count(site.second, "berth_store_ignored_values_total", table=table, fault=fault)
        for table, fault in (("promises", "Corrupt"), ("nodes", "OtherSchema"), ("expected", "Foreign"))
    }
    assert ignored == {"Corrupt": 1, "OtherSchema": 1, "Foreign": 1}
    assert site.store.tables[PlanTable.NODES] == {}
    assert site.store.foreign == set()
    assert promise(site.second)


def test_what_runs_have_taught_outlives_their_workloads(site: Site) -> None:
    site.finish("small")
    site.loop.run_for(10.0)
    site.cluster.delete(("Workload", "team", "small"))
    site.first.crash()
    third = site.make("third")
    assert not third.cluster_state.engine.plan.tables()[PlanTable.RUNS]
    third.lead(2)
    site.loop.run_for(10.0)

    (runs,) = third.cluster_state.engine.plan.tables()[PlanTable.RUNS].values()
    assert len(runs) == 1
    assert len(site.store.tables[PlanTable.RUNS]) == 1


def test_what_deleted_workloads_used_outlives_their_leader_and_is_shown_by_followers(site: Site) -> None:
    site.finish("small")
    site.loop.run_for(1.0)
    site.cluster.delete(("Workload", "team", "small"))
    site.loop.run_for(USAGE_SECONDS + 2 * WATCH_SECONDS)
    (row,) = site.stored(PlanTable.USAGE).values()

    assert (getattr(row, "workloads", 0), getattr(row, "waited", 0.0) >= 0) == (1, True)
    assert site.second.cluster_state.engine.workloads.deleted_usage() == site.stored(PlanTable.USAGE)
    site.first.crash()
    third = site.make("third")
    third.lead(2)
    site.loop.run_for(10.0)
    assert third.cluster_state.engine.workloads.deleted_usage() == site.stored(PlanTable.USAGE)


def test_nothing_is_written_while_nothing_changes(site: Site) -> None:
    site.loop.run_for(60.0)
    version = site.store.version
    site.loop.run_for(60.0)

    assert site.store.version == version


def test_a_store_that_was_rebuilt_behind_its_back_is_written_again(site: Site) -> None:
    before = promise(site.first)
    # Another hand under the same fence, as of `berth store rebuild --force`.
    site.store.version = PlanVersion(1, 5000)
    site.store.tables[PlanTable.PROMISES].clear()
    site.loop.run_for(10.0)

    assert promise(site.first) == before
    site.check(site.first)


def test_a_write_that_was_turned_away_twice_is_made_whole(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, turned_away = site.store.write_plan, [False, False]

    async def answer(what: PlanWrite, *, fence: int) -> bool:
        return turned_away.pop() if turned_away else await write(what, fence=fence)

    monkeypatch.setattr(site.store, "write_plan", answer)
    site.finish("small")
    site.loop.run_for(2 * WATCH_SECONDS)

    assert turned_away == []
    assert site.stored(PlanTable.LEASES) == {}
    site.check(site.first)
