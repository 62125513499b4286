"""What breaks while Jobs arrive: the store, the API server. None of it loses a Job.

On the embedded API server with a real Redis; the real server is restarted under load. Single answers and
watches are `test_broken_answers`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from queues.store.keys import Keys
from tests import parts
from tests.controlplane import ControlPlane
from tests.controlplane.definitions import install_definitions
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import KUEUE, condition, is_true, quota
from tests.integration.nodes import simulated_nodes
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.short_jobs import QUOTA, check_each_ran_once, create_jobs
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness
from tests.redisserver import RedisServer, find_redis


@pytest.fixture
def scene(embedded_scene: Scene) -> Scene:
    """Give a scene of the embedded cluster."""
    return embedded_scene


# --- another writer ----------------------------------------------------------------------------------


def admit_by_hand(scene: Scene, job: str, *, cpus: int) -> None:
    """Admit the Job's Workload as a program would that knows nothing of quota."""
    name = scene.wait_workload(job)["metadata"]["name"]
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": scene.scoped("main-flavor")}}
    status = {
        "admission": {
            "clusterQueue": scene.scoped("main"),
            "podSetAssignments": [{**assignment, "resourceUsage": {"cpu": str(cpus)}}],
        },
        "conditions": [
            {"type": type_, "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": at}
            for type_ in ("QuotaReserved", "Admitted")
        ],
    }
    scene.rest.patch(f"{scene.workloads}/{name}/status", {"status": status})


@pytest.mark.covers("004_03")
def test_a_workload_that_another_writer_admits_beyond_the_quota_is_evicted_and_a_lowered_quota_evicts_none(
    scene: Scene, embedded_cluster: Cluster, own_namespace: str, controllers: Controllers
) -> None:
    cluster_queue = scene.create_queue(cpus=QUOTA)
    replica = controllers.start(embedded_cluster.kubeconfig, "--namespace", own_namespace)
    replica.wait_leading()
    scene.create_job("ours", cpus=QUOTA)
    scene.wait_admitted("ours")
    lowered = [quota(scene.scoped("main-flavor"), nominal=1)]
    scene.rest.patch(f"/apis/{KUEUE}/clusterqueues/{cluster_queue}", {"spec": {"resourceGroups": lowered}})

    scene.create_job("theirs", cpus=1)
    scene.wait_pending("theirs")
    admit_by_hand(scene, "theirs", cpus=1)

    workload = scene.wait_workload(
        "theirs", lambda found: condition(found, "Evicted").get("reason") == "OverAdmitted", "OverAdmitted"
    )
    assert "another writer admitted this workload with 1" in condition(workload, "Evicted")["message"]
    scene.wait_pending("theirs")
    assert is_true(scene.wait_workload("ours"), "Admitted")
    assert not is_true(scene.wait_workload("ours"), "Evicted")
    scene.wait_events(workload["metadata"]["name"], "EvictedDueToOverAdmitted")
    scene.delete_job("ours")
    scene.wait_admitted("theirs")


# --- the store ---------------------------------------------------------------------------------------


@pytest.fixture
def lead(
    embedded_cluster: Cluster, own_namespace: str, controllers: Controllers, redis_server: RedisServer
) -> Callable[..., Replica]:
    """Give what starts a controller on the Redis of this test, with more flags, and waits until it leads."""

    def start(*flags: str) -> Replica:
        own = ("--redis", redis_server.url, "--namespace", own_namespace)
        replica = controllers.start(embedded_cluster.kubeconfig, *own, *flags)
        replica.wait_leading()
        return replica

    return start


def reservations(server: RedisServer) -> int:
    """Return how many reservations Redis holds."""
    with redis.Redis.from_url(server.url) as client:
        return int(client.hlen(Keys("default").reservations))


def decisions(server: RedisServer) -> int:
    """Return how many decisions the log in Redis holds."""
    with redis.Redis.from_url(server.url) as client:
        return int(client.xlen(Keys("default").log))


@pytest.mark.redis
@pytest.mark.parametrize(
    ("lose", "bring_back"),
    [
        pytest.param(RedisServer.pause, RedisServer.resume, id="hangs"),
        pytest.param(RedisServer.stop, RedisServer.start, id="is stopped and started"),
        pytest.param(RedisServer.kill, RedisServer.start, id="is killed and started"),
    ],
)
def test_jobs_are_admitted_while_redis(
    lose: Callable[[RedisServer], None],
    bring_back: Callable[[RedisServer], None],
    scene: Scene,
    witness: Witness,
    lead: Callable[..., Replica],
    redis_server: RedisServer,
) -> None:
    scene.create_queue(cpus=QUOTA)
    replica = lead()
    jobs = create_jobs(scene, "before", 4)
    # Not at every moment: on a machine that halts for a while two calls may go without an answer.
    wait_for(lambda: replica.metric("berth_store_up") == 1, "berth_store_up 1")

    lose(redis_server)
    jobs += create_jobs(scene, "during", 6)
    wait_for(lambda: replica.metric("berth_store_up") == 0, "berth_store_up 0")
    scene.wait_finished(*jobs)
    bring_back(redis_server)
    wait_for(lambda: replica.metric("berth_store_up") == 1, "berth_store_up 1")
    jobs += create_jobs(scene, "after", 4)

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, jobs)
    wait_for(lambda: reservations(redis_server) == 0, "no reservation in Redis")


@pytest.mark.redis
def test_a_flushed_redis_gets_its_fence_back_and_no_job_is_lost(
    scene: Scene,
    witness: Witness,
    lead: Callable[..., Replica],
    redis_server: RedisServer,
) -> None:
    scene.create_queue(cpus=QUOTA)
    replica = lead()
    jobs = create_jobs(scene, "before", 4)

    redis_server.flush()
    jobs += create_jobs(scene, "between", 4)
    redis_server.flush()
    jobs += create_jobs(scene, "after", 4)

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, jobs)
    wait_for(lambda: replica.log().count(" fence-seeded ") >= 2, "the fence seeded again")
    wait_for(lambda: reservations(redis_server) == 0, "no reservation in Redis")
    with redis.Redis.from_url(redis_server.url) as client:
        fence = client.get(Keys("default").fence)
    # Its own number, also where it has lost its lease on a busy machine and won it back under a higher one.
    assert fence is not None
    replica.wait_logged("deciding", f"fence={fence.decode()}")


@pytest.mark.redis
def test_a_required_store_stops_admission_while_it_is_lost(
    scene: Scene,
    witness: Witness,
    lead: Callable[..., Replica],
    redis_server: RedisServer,
) -> None:
    scene.create_queue(cpus=QUOTA)
    replica = lead("--require-store")
    jobs = create_jobs(scene, "before", 2)
    scene.wait_finished(*jobs)

    redis_server.pause()
    jobs += create_jobs(scene, "during", 3)
    replica.wait_logged("store-required")
    wait_for(lambda: replica.metric("berth_store_up") == 0, "berth_store_up 0")
    assert [job for job in jobs if is_true(scene.workload_of(job), "Admitted")] == jobs[:2]
    redis_server.resume()

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, jobs)


@pytest.mark.redis
def test_a_controller_that_starts_while_redis_is_away_admits_and_uses_it_once_it_is_back(
    scene: Scene,
    witness: Witness,
    lead: Callable[..., Replica],
    redis_server: RedisServer,
) -> None:
    scene.create_queue(cpus=QUOTA)
    redis_server.stop()
    replica = lead()
    jobs = create_jobs(scene, "during", 3)
    scene.wait_finished(*jobs)
    replica.wait_logged("store-lost", "starting without it")

    redis_server.start()
    replica.wait_logged("fence-seeded")
    wait_for(lambda: replica.metric("berth_store_up") == 1, "berth_store_up 1")
    jobs += create_jobs(scene, "after", 3)

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, jobs)
    wait_for(lambda: decisions(redis_server) >= 3, "the decisions in Redis")


@pytest.mark.redis
def test_a_disk_that_fills_under_the_embedded_store_is_named_and_costs_no_job(
    scene: Scene,
    witness: Witness,
    embedded_cluster: Cluster,
    own_namespace: str,
    controllers: Controllers,
    tmp_path: Path,
) -> None:
    parts.need("redis")
    script = tmp_path / "redis-server"
    # No file may grow beyond 32 KiB: some ten reservations.
    script.write_text(f'#!/bin/sh\nulimit -f 64\nexec {find_redis()[0]} "$@"\n')
    script.chmod(0o700)
    scene.create_queue(cpus=QUOTA)
    replica = controllers.start(
        embedded_cluster.kubeconfig,
        *("--namespace", own_namespace, "--store-directory", str(tmp_path / "store")),
        environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    replica.wait_leading()

    jobs = create_jobs(scene, "job", 30)

    replica.wait_logged("store-lost", f"{tmp_path / 'store'}", "free space")
    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, jobs)
    assert replica.metric("berth_store_up") == 0


@pytest.mark.redis
def test_a_new_lease_starts_above_the_fence_that_redis_knows(
    scene: Scene,
    lead: Callable[..., Replica],
    redis_server: RedisServer,
) -> None:
    scene.create_queue(cpus=QUOTA)
    with redis.Redis.from_url(redis_server.url) as client:
        client.set(Keys("default").fence, 41)

    replica = lead()

    replica.wait_logged("deciding", "fence=42")
    scene.create_job("one", seconds=0.3)
    scene.wait_finished("one")


# --- the API server itself ---------------------------------------------------------------------------


@pytest.mark.xdist_group("restart")
def test_a_restarted_api_server_finds_every_job_as_it_was(
    fresh_control_plane: ControlPlane, controllers: Controllers, tmp_path: Path
) -> None:
    parts.need("controllers")
    plane = fresh_control_plane
    install_definitions(plane.rest)
    plane.start_controllers()
    scene = Scene(plane.rest, plane.create_namespace(), pool="blue")
    scene.create_queue(cpus=QUOTA)
    replica = controllers.start(plane.kubeconfig)
    replica.wait_leading()

    with (
        simulated_nodes(plane.kubeconfig, tmp_path, "blue:1:64"),
        Witness(plane.rest, scene.namespace) as witness,
    ):
        jobs = create_jobs(scene, "before", 5)
        scene.wait_workload(jobs[-1])
        plane.kill_apiserver()
        plane.restart_apiserver()
        jobs += create_jobs(scene, "after", 3)

        scene.wait_finished(*jobs, timeout_seconds=60)
        check_each_ran_once(witness, scene, jobs)
    assert replica.child.is_running()
