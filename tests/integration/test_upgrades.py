"""A rolling restart under load, on a real control plane: as `kubectl rollout restart` does it.

Two replicas share a lease and a Redis. Jobs arrive all the time, while one replica after the other is stopped
in order and replaced. One Job runs throughout: each leader has to count what leaders before it have admitted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from queues.reservations.plan import PlanTable
from queues.store.keys import Keys
from tests.integration.conftest import Cluster, Controllers
from tests.integration.replica import BERTH, SHORT_LEASE, Replica
from tests.integration.scene import Scene
from tests.integration.test_definition_skew import add, definitions
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness
from tests.redisserver import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.redis, pytest.mark.xdist_group("failover")]

QUOTA = 3
RESIDENT = "resident"
LATER = (sys.executable, "-m", "tests.integration.next_release")


@pytest.fixture
def witness(real_scene: Scene) -> Iterator[Witness]:
    """Give a witness of the scene's namespace."""
    with Witness(real_scene.rest, real_scene.namespace) as watching:
        yield watching


def has_stored_runs(redis_server: RedisServer) -> bool:
    """Return whether the store holds a learned run time."""
    with redis_server.client() as client:
        return bool(client.exists(Keys("default").table(PlanTable.RUNS)))


def roll_under_load(
    scene: Scene,
    witness: Witness,
    redis_server: RedisServer,
    replicas: list[Replica],
    start: Callable[[], Replica],
) -> list[Replica]:
    """Replace each of two replicas while Jobs arrive, and check what ran. Return those that were started.

    The first of them leave a plan in the store.
    """
    queue = scene.create_queue(cpus=QUOTA)
    for replica in replicas:
        replica.wait_ready()
    scene.create_job(RESIDENT)
    scene.wait_admitted(RESIDENT)
    jobs: list[str] = []

    def submit() -> None:
        """Create more Jobs than fit at once."""
        for _ in range(2 * QUOTA):
            jobs.append(f"job-{len(jobs)}")
            scene.create_job(jobs[-1], seconds=0.3)

    submit()
    scene.wait_admitted(jobs[0])
    # Reservations last only until the API server has the admission, and learned run times are written every
    # few seconds: a leader that was stopped at once could leave nothing.
    wait_for(lambda: has_stored_runs(redis_server), "run times in the store")
    started = list[Replica]()
    for replica in replicas:
        submit()
        replica.child.stop()
        submit()
        assert replica.wait_exit() == 0
        started.append(start())
        started[-1].wait_ready()

    scene.wait_finished(*jobs)
    witness.catch_up()
    assert not scene.job(RESIDENT)["spec"]["suspend"]
    jobs.append(RESIDENT)
    assert {job: witness.starts(job) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: len(witness.workload_uids(job)) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: len(witness.pod_uids(job)) for job in jobs} == dict.fromkeys(jobs, 1)
    assert witness.peak_reserved(queue) == QUOTA
    assert witness.peak_running() <= QUOTA
    return started


def test_a_rolling_restart_under_load_runs_every_job_once_within_the_quota(
    real_cluster: Cluster,
    real_scene: Scene,
    controllers: Controllers,
    redis_server: RedisServer,
    witness: Witness,
) -> None:
    flags = ("--redis", redis_server.url, "--namespace", real_cluster.new_scene().namespace)

    def start() -> Replica:
        return controllers.start(real_cluster.kubeconfig, *flags, config=SHORT_LEASE)

    roll_under_load(real_scene, witness, redis_server, [start(), start()], start)


@pytest.mark.parametrize(
    "is_upgrade", [True, False], ids=["to a later release", "back to an earlier release"]
)
def test_a_change_of_release_under_load_runs_every_job_once_within_the_quota(
    is_upgrade: bool,
    real_cluster: Cluster,
    real_scene: Scene,
    controllers: Controllers,
    redis_server: RedisServer,
    witness: Witness,
) -> None:
    """The later release stores in another schema. Its definitions have more fields, and stay as they are."""
    flags = ("--redis", redis_server.url, "--namespace", real_cluster.new_scene().namespace)

    def start(*, is_later: bool) -> Replica:
        program = LATER if is_later else (BERTH,)
        return controllers.start(real_cluster.kubeconfig, *flags, config=SHORT_LEASE, program=program)

    with definitions(real_scene.rest, add):
        before = [start(is_later=not is_upgrade) for _ in range(2)]
        after = roll_under_load(real_scene, witness, redis_server, before, lambda: start(is_later=is_upgrade))

    # The first of them to lead met the plan that the other release had stored.
    assert any(replica.has_logged("store-value-ignored") for replica in after)
    for replica in (*before, *after):
        assert "Traceback" not in replica.log()
