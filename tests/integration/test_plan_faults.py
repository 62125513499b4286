"""Whatever Redis suffers, whenever: admissions go on, each Job runs once, and the plan is kept and restored.

On the real control plane with a real Redis, under one leader that lives through all of it. Each test has two
gangs, one promised a start before the accident and one in its midst, work in their way that runs for an hour,
so that nothing but an accident could move the promises, and Jobs that come and go beside them all the while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import redis

from queues.reservations.plan import SCHEMA, PlanTable
from queues.store.keys import Keys
from tests import parts
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import LONG, make_job
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness
from tests.redisserver import RedisServer, Snapshot

pytestmark = [pytest.mark.real, pytest.mark.redis, pytest.mark.xdist_group("planfaults")]

POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
EXPECTED = "berth.dev/expected-runtime-seconds"
KEYS = Keys("default")
# Of each queue with a gang, and of the one beside them.
CPUS, FLOWING = 4, 3


@dataclass(frozen=True, slots=True)
class Leader:
    """The one leader of the module, its Redis, and what that held before any promise was made."""

    replica: Replica
    server: RedisServer
    snapshot: Snapshot

    def is_store_up(self) -> bool:
        """Return whether the leader reaches its Redis, by its metric."""
        return self.replica.metric("berth_store_up") == 1

    def wait_lost(self) -> None:
        """Return when the leader has noticed that its Redis is away."""
        wait_for(lambda: not self.is_store_up(), "the loss noticed")


@pytest.fixture(scope="module")
def leader(real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leader]:
    """Give a leader whose Redis the tests may do anything to."""
    parts.need("redis")
    folder = tmp_path_factory.mktemp("leader")
    (folder / "redis").mkdir()
    controllers = Controllers(folder)
    with RedisServer(folder / "redis") as server:
        flags = ("--redis", server.url, "--namespace", real_cluster.new_scene().namespace)
        replica = controllers.start(real_cluster.kubeconfig, *flags)
        replica.wait_leading()
        yield Leader(replica, server, server.take_snapshot())
        assert replica.child.is_running()
        controllers.stop()


@pytest.fixture
def scene(leader: Leader, real_scene: Scene) -> Iterator[Scene]:
    """Give two queues under backfill that are nearly full, and one beside them."""
    assert leader.replica.child.is_running()
    queues = [real_scene.create_queue(name, cpus=CPUS) for name in ("first", "second")]
    real_scene.create_queue("beside", cpus=FLOWING)
    # Of one priority the younger one overtakes, and what is created within one second is of one age.
    real_scene.create_priority("high", 100)
    policy = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": queues[0]},
        "spec": {"clusterQueues": {"names": queues}, "backfill": {"mode": "EASY"}},
    }
    real_scene.rest.create(POLICIES, policy)
    real_scene.rest.wait(f"{POLICIES}/{queues[0]}", lambda found: bool(found.get("status")))
    for queue in ("first", "second"):
        submit(real_scene, f"running-{queue}", queue=queue, cpus=CPUS - 1, says=3600)
    real_scene.wait_admitted("running-first", "running-second")
    yield real_scene
    real_scene.rest.delete(f"{POLICIES}/{queues[0]}")


def submit(scene: Scene, name: str, *, queue: str, says: int, **fields: Any) -> None:
    """Create a Job that runs for an hour and declares `says` seconds."""
    job = make_job(name, queue=queue, seconds=LONG, annotations={EXPECTED: str(says)}, **fields)
    scene.rest.create(scene.jobs, job)


def submit_gang(scene: Scene, queue: str) -> None:
    """Create the Job of a queue that is to be promised a start."""
    labels = {"kueue.x-k8s.io/priority-class": scene.scoped("high")}
    submit(scene, f"gang-{queue}", queue=queue, cpus=CPUS, says=600, labels=labels)


def flow(scene: Scene, prefix: str) -> list[str]:
    """Create short Jobs in the queue beside, and return their names."""
    names = [f"{prefix}-{number}" for number in range(FLOWING)]
    for name in names:
        scene.create_job(name, queue="beside", seconds=0.3)
    return names


def plan_of(scene: Scene, replica: Replica) -> dict[str, list[Any]]:
    """Return promises and leases of the scene, as a replica shows them."""
    plan = replica.json("/v1/plan")
    return {
        table: [row for row in plan[table] if row["namespace"] == scene.namespace]
        for table in ("promises", "leases")
    }


def wait_planned(scene: Scene, replica: Replica, **wanted: int) -> dict[str, list[Any]]:
    """Return the plan once it has that many `promises` and `leases`."""

    def probe() -> dict[str, list[Any]] | None:
        plan = plan_of(scene, replica)
        return plan if {table: len(rows) for table, rows in plan.items()} == wanted else None

    return wait_for(probe, f"{wanted}")


def wait_stored(scene: Scene, leader: Leader, plan: dict[str, list[Any]]) -> None:
    """Return when Redis holds a readable row of each promise and lease, and no reservation is left there."""

    wanted = {
        table: {f"{scene.namespace}/{row['name']}".encode() for row in plan[table.value]}
        for table in (PlanTable.PROMISES, PlanTable.LEASES)
    }

    def held() -> tuple[dict[PlanTable, dict[bytes, bytes]], dict[bytes, bytes]]:
        with redis.Redis.from_url(leader.server.url) as client:
            tables = {table: client.hgetall(KEYS.table(table)) for table in wanted}
            return tables, client.hgetall(KEYS.reservations)

    def is_stored() -> bool:
        tables, reservations = held()
        for table, rows in tables.items():
            ours = {field for field in rows if field.startswith(f"{scene.namespace}/".encode())}
            if ours != wanted[table] or not all(rows[one].startswith(b"%d\n" % SCHEMA) for one in ours):
                return False
        return not reservations

    wait_for(is_stored, lambda: f"{wanted} in Redis, and no reservation; it holds {held()}")


# --- what happens to Redis: each returns when the worst is over, `during` is done at its height -------------

During = Callable[[], None]


def is_flushed(leader: Leader, during: During) -> None:
    leader.server.flush()
    during()


def is_killed_and_comes_back_empty(leader: Leader, during: During) -> None:
    leader.server.kill()
    during()
    leader.wait_lost()
    leader.server.restore(None)


def hangs(leader: Leader, during: During) -> None:
    leader.server.pause()
    during()
    leader.wait_lost()
    leader.server.resume()


def comes_back_from_an_old_snapshot(leader: Leader, during: During) -> None:
    leader.server.kill()
    during()
    leader.wait_lost()
    leader.server.restore(leader.snapshot)


def holds_data_of_another_program(leader: Leader, during: During) -> None:
    with redis.Redis.from_url(leader.server.url) as client:
        client.set(KEYS.fence, "abc")
        client.delete(KEYS.log)
        client.set(KEYS.log, "a string")
        during()
        leader.wait_lost()
        # The log names each, and nothing of it is written over. An administrator deletes them.
        for key in (KEYS.fence, KEYS.log):
            wait_for(partial(_is_named, leader, key), f"the log names {key}")
            client.delete(key)


def _is_named(leader: Leader, key: str) -> bool:
    return f"{key} in the store does not hold" in leader.replica.child.log.read_text()


def is_overwritten(row: bytes, version: bytes) -> Callable[[Leader, During], None]:
    def befall(leader: Leader, during: During) -> None:
        with redis.Redis.from_url(leader.server.url) as client:
            for table in PlanTable:
                for field in client.hkeys(KEYS.table(table)):
                    client.hset(KEYS.table(table), field, row)
                client.hset(KEYS.table(table), "unknown/knows", row)
            client.hset(KEYS.reservations, "unknown/knows/this", row)
            client.set(KEYS.plan, version)
        during()

    return befall


@pytest.mark.parametrize(
    "befall",
    [
        pytest.param(is_flushed, id="it is flushed"),
        pytest.param(is_killed_and_comes_back_empty, id="it is killed and comes back empty"),
        pytest.param(hangs, id="it hangs"),
        pytest.param(comes_back_from_an_old_snapshot, id="it comes back from an old snapshot"),
        pytest.param(holds_data_of_another_program, id="its keys hold data of another program"),
        pytest.param(is_overwritten(b"\xff garbage", b"garbage"), id="its rows are garbage"),
        pytest.param(is_overwritten(b"2\n\x80", b"2 9 9"), id="a newer Berth wrote its rows"),
    ],
)
def test_the_plan_is_kept_and_admissions_go_on_though(
    befall: Callable[[Leader, During], None], scene: Scene, leader: Leader
) -> None:
    replica = leader.replica
    jobs: list[str] = []

    def during() -> None:
        jobs.extend(flow(scene, "during"))
        submit_gang(scene, "second")

    with Witness(scene.rest, scene.namespace) as witness:
        jobs += flow(scene, "before")
        submit_gang(scene, "first")
        wait_planned(scene, replica, promises=1, leases=0)
        submit(scene, "small", queue="first", says=60)
        before = wait_planned(scene, replica, promises=1, leases=1)
        wait_stored(scene, leader, before)

        befall(leader, during)

        jobs += flow(scene, "after")
        plan = wait_planned(scene, replica, promises=2, leases=1)
        wait_stored(scene, leader, plan)
        wait_for(leader.is_store_up, "berth_store_up 1")
        scene.wait_finished(*jobs)
        assert plan_of(scene, replica) == plan
        witness.catch_up()

    assert plan["leases"] == before["leases"]
    assert before["promises"][0] in plan["promises"]
    assert {job: witness.starts(job) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: len(witness.workload_uids(job)) for job in jobs} == dict.fromkeys(jobs, 1)
    for queue, most in (("first", CPUS), ("second", CPUS), ("beside", FLOWING)):
        assert witness.peak_reserved(scene.scoped(queue)) <= most
    # No Job was stopped, and no gang has started.
    names = ("running-first", "running-second", "small", "gang-first", "gang-second")
    assert [witness.starts(name) for name in names] == [0, 0, 1, 0, 0]
