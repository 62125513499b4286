"""A rolling restart under load, on a real control plane: as `kubectl rollout restart` does it.

Two replicas share a lease and a Redis. Jobs arrive all the time, while one replica after the other is stopped
in order and replaced. One Job runs throughout: each leader has to count what leaders before it have admitted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import Cluster, Controllers
from tests.integration.replica import SHORT_LEASE
from tests.integration.scene import Scene
from tests.integration.witness import Witness
from tests.redisserver import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.redis, pytest.mark.xdist_group("failover")]

QUOTA = 3
RESIDENT = "resident"


@pytest.fixture
def witness(real_scene: Scene) -> Iterator[Witness]:
    """Give a witness of the scene's namespace."""
    with Witness(real_scene.rest, real_scene.namespace) as watching:
        yield watching


def test_a_rolling_restart_under_load_runs_every_job_once_within_the_quota(
    real_cluster: Cluster,
    real_scene: Scene,
    controllers: Controllers,
    redis_server: RedisServer,
    witness: Witness,
) -> None:
    flags = ("--redis", redis_server.url, "--namespace", real_cluster.new_scene().namespace)
    queue = real_scene.create_queue(cpus=QUOTA)
    replicas = [controllers.start(real_cluster.kubeconfig, *flags, config=SHORT_LEASE) for _ in range(2)]
    for replica in replicas:
        replica.wait_ready()
    real_scene.create_job(RESIDENT)
    real_scene.wait_admitted(RESIDENT)
    jobs: list[str] = []

    def submit() -> None:
        """Create more Jobs than fit at once."""
        for _ in range(2 * QUOTA):
            jobs.append(f"job-{len(jobs)}")
            real_scene.create_job(jobs[-1], seconds=0.3)

    submit()
    real_scene.wait_admitted(jobs[0])
    for replica in replicas:
        submit()
        replica.child.stop()
        submit()
        assert replica.wait_exit() == 0
        controllers.start(real_cluster.kubeconfig, *flags, config=SHORT_LEASE).wait_ready()

    real_scene.wait_finished(*jobs)
    witness.catch_up()
    assert not real_scene.job(RESIDENT)["spec"]["suspend"]
    jobs.append(RESIDENT)
    assert {job: witness.starts(job) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: len(witness.workload_uids(job)) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: len(witness.pod_uids(job)) for job in jobs} == dict.fromkeys(jobs, 1)
    assert witness.peak_reserved(queue) == QUOTA
    assert witness.peak_running() <= QUOTA
