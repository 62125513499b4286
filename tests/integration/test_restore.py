"""A cluster that is restored from a backup of etcd: objects go back, and so do their versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from admission.cli.trial.embedded_cluster import install_kinds
from admission.controller.app import run_controller
from admission.controller.settings import Options
from api.config.berth import Settings
from api.config.loading import ControllerConfig
from api.kube.client import KubeClient
from tests.controlplane import ControlPlane, Rest
from tests.controlplane.definitions import install_definitions
from tests.embedded import EmbeddedCluster
from tests.integration.conftest import Controllers
from tests.integration.replica import SHORT_LEASE, Replica
from tests.integration.scene import Scene
from tests.redisserver import RedisServer

WITHOUT_PORTS = Options(http_port=-1, metrics_port=-1, extender_port=-1, visibility_port=-1, webhook_port=-1)
# After a restore the Lease names a holder that does not know it: it has to run out.
BRIEF_LEASE = {"durationSeconds": 2, "renewSeconds": 0.5, "deadlineSeconds": 1.5}


def run_past_the_backup(scene: Scene) -> None:
    """Use up versions, so that those of the restored server are far below the last ones that were seen."""
    for number in range(100):
        labels = {"metadata": {"labels": {"number": str(number)}}}
        scene.rest.patch(f"/api/v1/namespaces/{scene.namespace}", labels)


# --- the embedded server --------------------------------------------------------------------------


async def test_a_controller_begins_again_when_the_embedded_server_returns_to_an_earlier_state(
    embedded_server: EmbeddedCluster,
) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        await install_kinds(client)
    rest, stop = Rest(embedded_server.url), asyncio.Event()
    scene = Scene(rest, await asyncio.to_thread(create_namespace, rest), pool="node")
    await asyncio.to_thread(scene.create_queue, cpus=2)
    config = ControllerConfig(berth=Settings.model_validate({"lease": BRIEF_LEASE}))
    options = replace(WITHOUT_PORTS, kubeconfig=embedded_server.kubeconfig, config=config)
    begun: list[Mapping[str, str]] = []
    running = asyncio.create_task(run_controller(options, on_listening=begun.append, stop=stop))

    backup = embedded_server.back_up()
    await asyncio.to_thread(admit_one, scene, "lost")
    embedded_server.restore(backup)
    await asyncio.to_thread(admit_one, scene, "later")

    assert len(begun) == 2
    stop.set()
    await running


def create_namespace(rest: Rest) -> str:
    """Create a namespace, and return its name."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
    return str(rest.create("/api/v1/namespaces", body)["metadata"]["name"])


def admit_one(scene: Scene, job: str) -> None:
    """Create a Job that takes all quota, and return when it is admitted."""
    scene.create_job(job, cpus=2)
    scene.wait_admitted(job)


# --- the real one ---------------------------------------------------------------------------------


@pytest.fixture
def start(
    fresh_control_plane: ControlPlane, controllers: Controllers, redis_server: RedisServer
) -> Callable[[], Replica]:
    """Give what starts a controller on the control plane and the Redis of this test."""

    def start() -> Replica:
        kubeconfig, redis = fresh_control_plane.kubeconfig, redis_server.url
        replica = controllers.start(kubeconfig, "--redis", redis, config=SHORT_LEASE)
        replica.wait_ready()
        return replica

    return start


def test_after_etcd_is_restored_jobs_are_admitted_within_the_quota_as_it_is_then(
    fresh_control_plane: ControlPlane, start: Callable[[], Replica]
) -> None:
    plane = fresh_control_plane
    install_definitions(plane.rest)
    scene = Scene(plane.rest, plane.create_namespace(), pool="blue")
    cluster_queue = scene.create_queue(cpus=6)
    leader, follower = start(), start()
    for job in ("kept", "deleted"):
        scene.create_job(job, cpus=2)
    scene.wait_admitted("kept", "deleted")

    backup = plane.back_up_etcd()
    # What comes after the backup is lost: a deletion, and the admission that it makes possible.
    workload = scene.wait_workload("deleted")["metadata"]["name"]
    scene.delete_job("deleted")
    scene.rest.delete(f"{scene.workloads}/{workload}")
    scene.create_job("lost", cpus=4)
    scene.wait_admitted("lost")
    run_past_the_backup(scene)
    plane.restore_etcd(backup)

    scene.create_job("later", cpus=2)
    scene.wait_admitted("later")
    scene.create_job("beyond", cpus=1)
    scene.wait_pending("beyond")
    for replica in (leader, follower):
        replica.wait_logged("cluster_restored")
        replica.wait_ready()
        assert replica.child.is_running()
        view = replica.view_of(cluster_queue)
        assert view is not None
        assert view["admitted"] == 3
