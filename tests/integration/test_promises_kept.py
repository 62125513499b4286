"""A promised start while Redis and the leader fail: it does not move, and is back at once.

On the embedded API server with a real Redis. The work in the way runs for an hour, so that nothing but an
accident could move the promise while a test looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from queues.reservations.plan import PlanTable
from queues.store.keys import Keys
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import LONG, make_job
from tests.integration.replica import SHORT_LEASE, Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.redisserver import RedisServer

pytestmark = pytest.mark.redis

CPUS = 4
POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
EXPECTED = "berth.dev/expected-runtime-seconds"
KEYS = Keys("default")


@pytest.fixture
def scene(embedded_scene: Scene) -> Iterator[Scene]:
    """Give a queue under backfill, whose Jobs and policy end with the test."""
    queue = embedded_scene.create_queue(cpus=CPUS)
    policy = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": embedded_scene.scoped("time")},
        "spec": {"clusterQueues": {"names": [queue]}, "backfill": {"mode": "EASY"}},
    }
    embedded_scene.rest.create(POLICIES, policy)
    yield embedded_scene
    embedded_scene.rest.delete(f"{POLICIES}/{embedded_scene.scoped('time')}")
    embedded_scene.rest.delete(embedded_scene.jobs, {"propagationPolicy": "Background"})


def submit(scene: Scene, name: str, *, cpus: int, says: int, priority: str | None = None) -> None:
    """Create a Job that runs long and declares `says` seconds."""
    labels = {} if priority is None else {"kueue.x-k8s.io/priority-class": priority}
    job = make_job(name, cpus=cpus, seconds=LONG, labels=labels)
    job["metadata"]["annotations"] = {EXPECTED: str(says)}
    scene.rest.create(scene.jobs, job)


def make_promise(scene: Scene, leader: Replica) -> Any:
    """Fill the queue, have a gang promised a start and a small Job run ahead of it; return the plan."""
    submit(scene, "running", cpus=CPUS - 1, says=3600)
    scene.wait_admitted("running")
    # Of one priority the younger one overtakes, and what is created within one second is of one age.
    submit(scene, "gang", cpus=CPUS, says=600, priority=scene.create_priority("high", 100))
    wait_for(lambda: bool(leader.json("/v1/plan")["promises"]), "a promise")
    submit(scene, "small", cpus=1, says=60)
    scene.wait_admitted("small")
    wait_for(lambda: bool(leader.json("/v1/plan")["leases"]), "a lease")
    return leader.json("/v1/plan")


def rows(server: RedisServer) -> dict[str, int]:
    """Return how many promises and leases Redis holds."""
    with redis.Redis.from_url(server.url) as client:
        return {
            table.value: int(client.hlen(KEYS.table(table)))
            for table in (PlanTable.PROMISES, PlanTable.LEASES)
        }


ALL_THERE = {"promises": 1, "leases": 1}


def test_promises_survive_every_fault_of_redis(
    scene: Scene,
    embedded_cluster: Cluster,
    own_namespace: str,
    controllers: Controllers,
    redis_server: RedisServer,
) -> None:
    flags = ("--redis", redis_server.url, "--namespace", own_namespace)
    leader = controllers.start(embedded_cluster.kubeconfig, *flags)
    leader.wait_leading()
    plan = make_promise(scene, leader)
    wait_for(lambda: rows(redis_server) == ALL_THERE, "promise and lease in Redis")

    def kill_and_start(server: RedisServer) -> None:
        server.kill()
        wait_for(lambda: leader.metric("berth_store_up") == 0, "the loss noticed")
        server.start()

    def pause_and_resume(server: RedisServer) -> None:
        server.pause()
        wait_for(lambda: leader.metric("berth_store_up") == 0, "the loss noticed")
        server.resume()

    accidents: tuple[Callable[[RedisServer], None], ...] = (
        RedisServer.flush,
        kill_and_start,
        pause_and_resume,
        RedisServer.flush,
    )
    for accident in accidents:
        accident(redis_server)
        wait_for(lambda: rows(redis_server) == ALL_THERE, f"the plan back after {accident.__name__}")
        wait_for(lambda: leader.metric("berth_store_up") == 1, "berth_store_up 1")
        assert leader.json("/v1/plan") == plan, accident.__name__


def test_a_new_leader_keeps_the_promise_and_followers_show_it(
    scene: Scene,
    embedded_cluster: Cluster,
    own_namespace: str,
    controllers: Controllers,
    redis_server: RedisServer,
) -> None:
    flags = ("--redis", redis_server.url, "--namespace", own_namespace)
    leader = controllers.start(embedded_cluster.kubeconfig, *flags, config=SHORT_LEASE)
    leader.wait_leading()
    plan = make_promise(scene, leader)
    follower = controllers.start(embedded_cluster.kubeconfig, *flags, config=SHORT_LEASE)
    follower.wait_ready()
    wait_for(lambda: follower.json("/v1/plan") == plan, "the leader's plan on the follower")
    (promised,) = plan["promises"]
    shown = follower.json(f"/v1/workloads/{promised['namespace']}/{promised['name']}")
    assert shown["expectedStart"] == promised["startAt"]

    leader.child.kill()
    follower.wait_leading()
    follower.wait_logged("plan-taken-over", "promises=1", "leases=1")

    decisions = follower.json("/v1/decisions?what=Plan")["items"]
    assert follower.json("/v1/plan") == plan
    submit(scene, "another", cpus=1, says=7200)
    scene.wait_pending("another")
    assert follower.json("/v1/plan") == plan
    assert follower.json("/v1/decisions?what=Plan")["items"] == decisions
