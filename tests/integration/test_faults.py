"""What breaks while Jobs arrive: the store, the API server, single answers, watches. None of it loses a Job.

On the embedded API server, with a real Redis or a proxy that lies; the real server is restarted under load.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest
import redis

from queues.store.keys import Keys
from tests import parts
from tests.controlplane import ControlPlane
from tests.controlplane.definitions import install_definitions
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import KUEUE, condition, is_true, quota
from tests.integration.nodes import simulated_nodes
from tests.integration.proxy import Proxy, Rule
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness
from tests.redisserver import RedisServer

QUOTA = 3


@pytest.fixture
def scene(embedded_scene: Scene) -> Iterator[Scene]:
    """Give a scene whose Jobs end with the test."""
    yield embedded_scene
    embedded_scene.rest.delete(embedded_scene.jobs, {"propagationPolicy": "Background"})


@pytest.fixture
def witness(scene: Scene) -> Iterator[Witness]:
    """Give a witness of all that happens in the scene."""
    with Witness(scene.rest, scene.namespace) as watching:
        yield watching


def create_jobs(scene: Scene, prefix: str, count: int) -> list[str]:
    """Create so many short Jobs and return their names."""
    names = [f"{prefix}-{number}" for number in range(count)]
    for name in names:
        scene.create_job(name, seconds=0.3)
    return names


def check_each_ran_once(witness: Witness, scene: Scene, jobs: list[str]) -> None:
    """Check what happened: every Job started once, and never more of them than the quota allows."""
    witness.catch_up()
    assert {job: witness.starts(job) for job in jobs} == dict.fromkeys(jobs, 1)
    assert {job: len(witness.workload_uids(job)) for job in jobs} == dict.fromkeys(jobs, 1)
    assert witness.peak_reserved(scene.scoped("main")) <= QUOTA
    assert witness.peak_running() <= QUOTA


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
def test_what_another_writer_admits_beyond_the_quota_gives_it_back_and_a_lowered_quota_stops_nobody(
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
    assert replica.metric("berth_store_up") == 1

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
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.get(Keys("default").fence) == b"1"
        assert client.hlen(Keys("default").reservations) == 0


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
    script.write_text(f'#!/bin/sh\nulimit -f 64\nexec {shutil.which("redis-server")} "$@"\n')
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


# --- single answers of the API server ----------------------------------------------------------------


@pytest.fixture
def proxy(embedded_cluster: Cluster) -> Iterator[Proxy]:
    """Give a door to the embedded API server."""
    with Proxy(embedded_cluster.rest.server) as door:
        yield door


@pytest.fixture
def replica(proxy: Proxy, controllers: Controllers, own_namespace: str, tmp_path: Path) -> Replica:
    """Give a controller behind the door, leading."""
    started = controllers.start(proxy.write_kubeconfig(tmp_path), "--namespace", own_namespace)
    started.wait_leading()
    return started


@pytest.mark.covers("004_25")
def test_admitting_lists_nothing_for_all_that_is_known_comes_by_watches(
    scene: Scene, proxy: Proxy, replica: Replica
) -> None:
    assert replica.child.is_running()
    scene.create_queue(cpus=4)
    scene.create_job("first", cpus=1)
    scene.wait_admitted("first")
    kinds = "clusterqueues|localqueues|resourceflavors|workloads|jobs|nodes|pods"
    # One object is read again where its write met a conflict; that is no list.
    lists = proxy.add("GET", rf"/({kinds})(\?(?!.*watch=)|$)")

    for number in range(3):
        scene.create_job(f"job-{number}", cpus=1)
    scene.wait_admitted("job-0", "job-1", "job-2")

    assert lists.seen == 0


# Where admissions are written, and where Jobs are started and stopped.
STATUS = r"/workloads/[^/]+/status"
JOB = r"/jobs/[^/?]+(\?|$)"


@pytest.mark.parametrize(
    "break_",
    [
        pytest.param(
            lambda door: door.add("PUT", STATUS, status=409, times=4), id="admissions meet a conflict"
        ),
        pytest.param(
            lambda door: door.add("PUT", STATUS, status=500, times=4), id="admissions meet an error"
        ),
        pytest.param(
            lambda door: door.add("PUT", STATUS, status=429, times=2, headers={"Retry-After": "1"}),
            id="admissions meet a server that wants a pause",
        ),
        pytest.param(
            lambda door: door.add("PUT", STATUS, is_answer_lost=True, times=4),
            id="answers to admissions get lost",
        ),
        pytest.param(
            lambda door: door.add("PATCH", JOB, is_answer_lost=True, times=4), id="answers to starts get lost"
        ),
        pytest.param(lambda door: door.add("PATCH", JOB, status=503, times=4), id="starts fail"),
        pytest.param(lambda door: door.add("PATCH", JOB, status=409, times=4), id="starts conflict"),
        pytest.param(
            lambda door: door.add("POST", r"/workloads(\?|$)", is_answer_lost=True, times=4),
            id="answers to creations get lost",
        ),
        pytest.param(lambda door: door.add("GET", "watch=", status=410, times=8), id="watches are too old"),
        pytest.param(lambda door: door.add("GET", "watch=", status=500, times=8), id="watches fail"),
    ],
)
def test_every_job_runs_once_though(
    break_: Callable[[Proxy], Rule], scene: Scene, witness: Witness, proxy: Proxy, replica: Replica
) -> None:
    scene.create_queue(cpus=QUOTA)
    scene.create_job("early", seconds=0.3)
    scene.wait_finished("early")

    broken = break_(proxy)
    proxy.cut_watches()
    jobs = create_jobs(scene, "job", 6)

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, ["early", *jobs])
    assert broken.seen > 0
    assert replica.child.is_running()


def test_watches_that_break_again_and_again_lose_nothing(
    scene: Scene, witness: Witness, proxy: Proxy, replica: Replica
) -> None:
    scene.create_queue(cpus=QUOTA)
    jobs: list[str] = []
    for turn in range(5):
        assert proxy.cut_watches() > 0
        jobs += create_jobs(scene, f"turn-{turn}", 2)
        scene.wait_workload(jobs[-1])

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, jobs)
    assert replica.child.is_running()


def test_a_server_that_hangs_costs_the_leader_its_lease_and_no_job(
    scene: Scene, witness: Witness, proxy: Proxy, replica: Replica
) -> None:
    scene.create_queue(cpus=QUOTA)
    gate = Event()
    held: list[Rule] = [proxy.add(method, "", gate=gate) for method in ("GET", "POST", "PUT", "PATCH")]
    proxy.cut_watches()
    jobs = create_jobs(scene, "job", 4)

    replica.wait_logged("stopped_leading")
    for rule in held:
        proxy.remove(rule)
    gate.set()

    scene.wait_finished(*jobs)
    check_each_ran_once(witness, scene, jobs)


@pytest.mark.xdist_group("restart")
def test_a_restarted_api_server_finds_everybody_where_they_were(
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
