"""A controller on a Redis with replicas: the primary is killed while Jobs wait for quota."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from queues.store.keys import Keys
from tests import parts
from tests.integration.conftest import Cluster, Controllers
from tests.integration.replica import SHORT_LEASE
from tests.integration.scene import Scene
from tests.integration.witness import Witness
from tests.redisgroups import Group, cluster_group, sentinel_group

pytestmark = [pytest.mark.real, pytest.mark.redis, pytest.mark.xdist_group("failover")]


def two_replicas(folder: Path) -> AbstractContextManager[Group]:
    """Run a primary with two replicas, so that one is left to acknowledge writes."""
    return sentinel_group(folder, replicas=2)


def a_cluster(folder: Path) -> AbstractContextManager[Group]:
    """Run a cluster of three primaries, of which one has a replica."""
    return cluster_group(folder, key=Keys("default").fence)


@pytest.mark.parametrize(
    ("start", "flags"),
    [
        pytest.param(two_replicas, ["--redis-replicas", "1"], id="by a Sentinel, with WAIT"),
        pytest.param(a_cluster, [], id="in a cluster"),
    ],
)
def test_quota_is_given_once_when_a_replica_takes_the_place_of_redis(
    start: Callable[[Path], AbstractContextManager[Group]],
    flags: Sequence[str],
    real_cluster: Cluster,
    real_scene: Scene,
    controllers: Controllers,
    tmp_path: Path,
) -> None:
    parts.need("redis")
    jobs = [f"job-{number}" for number in range(6)]
    queue = real_scene.create_queue(cpus=2)
    own = ("--namespace", real_cluster.new_scene().namespace, *flags)
    with start(tmp_path) as group, Witness(real_scene.rest, real_scene.namespace) as witness:
        leader = controllers.start(real_cluster.kubeconfig, "--redis", group.url, *own, config=SHORT_LEASE)
        leader.wait_leading()
        for job in jobs:
            real_scene.create_job(job, cpus=2, seconds=0.3)
        real_scene.wait_finished(jobs[0])

        group.primary.kill()

        group.wait_promoted()
        real_scene.wait_finished(*jobs)
        leader.wait_logged("store-back")
        witness.catch_up()
        assert {job: witness.starts(job) for job in jobs} == dict.fromkeys(jobs, 1)
        assert witness.peak_reserved(queue) <= 2
        assert witness.peak_running() <= 2
