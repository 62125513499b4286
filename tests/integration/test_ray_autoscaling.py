"""An elastic RayCluster whose workers Ray's autoscaler adds and removes, run by KubeRay on a real cluster.

The autoscaler would run in the pod of the head. Simulated nodes run nothing: the test writes what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api import keys
from api.jobs.owners.ray import RAY_CLUSTER
from tests import parts
from tests.controlplane import ControlPlane
from tests.controlplane.owner_controllers import CONTROLLERS, OwnerController, find_controller
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import LONG, QUEUE_NAME, Object, condition, is_true
from tests.integration.owners import template
from tests.integration.ray_network import RayNetwork
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("owners")]

CONFIG = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, {RAY_CLUSTER.framework}]
"""


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues RayClusters."""
    return Options(config=CONFIG)


@pytest.fixture(scope="module")
def kuberay(
    control_plane: ControlPlane, real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnerController]:
    """Give KubeRay, at work on the cluster."""
    del real_cluster
    parts.need("owners")
    folder, assets = tmp_path_factory.mktemp("kuberay"), find_controller(CONTROLLERS["kuberay"])
    with (
        RayNetwork() as network,
        OwnerController(assets, control_plane, folder, environment=network.environment) as running,
    ):
        yield running


@pytest.fixture
def scene(kuberay: OwnerController, real_controller: Replica, real_scene: Scene) -> Iterator[Scene]:
    """Give a namespace that both controllers serve."""
    assert kuberay.child.is_running()
    assert real_controller.child.is_running()
    yield real_scene
    real_scene.rest.delete(path_of(real_scene), {"propagationPolicy": "Background"})


def path_of(scene: Scene, name: str = "") -> str:
    """Return the path of a RayCluster, or of all in the namespace."""
    collection = f"/apis/ray.io/v1/namespaces/{scene.namespace}/rayclusters"
    return f"{collection}/{name}" if name else collection


def create(scene: Scene, workers: int) -> None:
    """Create a RayCluster of a head and so many workers of a CPU each; the autoscaler takes one as well."""
    spec = {
        "rayVersion": "2.9.0",
        "suspend": True,
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"resources": {"requests": {"cpu": 1}}},
        "headGroupSpec": {"rayStartParams": {}, "template": template(LONG)},
        "workerGroupSpecs": [
            {
                "groupName": "small",
                "replicas": workers,
                "minReplicas": 0,
                "maxReplicas": 8,
                "rayStartParams": {},
                "template": template(LONG),
            }
        ],
    }
    metadata = {
        "name": "ray",
        "labels": {QUEUE_NAME: "main"},
        "annotations": {keys.ELASTIC_JOB: "true"},
    }
    body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}
    scene.rest.create(path_of(scene), body)


def autoscale(scene: Scene, workers: int, *, without: list[str] | None = None) -> None:
    """Set the number of workers as Ray's autoscaler does, which names those that it removes."""
    (group,) = scene.rest.get(path_of(scene, "ray"))["spec"]["workerGroupSpecs"]
    changed = {**group, "replicas": workers, "scaleStrategy": {"workersToDelete": without or []}}
    scene.rest.patch(path_of(scene, "ray"), {"spec": {"workerGroupSpecs": [changed]}})


def slices(scene: Scene) -> dict[int, str]:
    """Return how the slices of the RayCluster stand, by their number of workers."""
    return {
        one["spec"]["podSets"][1]["count"]: str(condition(one, "Finished")["reason"])
        if is_true(one, "Finished")
        else "admitted"
        if is_true(one, "Admitted")
        else "waits"
        for one in scene.workloads_of("ray")
    }


def ray_pods(scene: Scene) -> list[Object]:
    """Return the pods of the RayCluster that do not end."""
    return [one for one in scene.pods_of("ray") if not one["metadata"].get("deletionTimestamp")]


def running_and_gated(scene: Scene) -> tuple[int, int]:
    """Return how many pods of the RayCluster run, and how many wait at their gate."""
    found = ray_pods(scene)
    gated = [one for one in found if one["spec"].get("schedulingGates")]
    return sum(one["status"].get("phase") == "Running" for one in found), len(gated)


def test_rays_autoscaler_adds_workers_as_far_as_there_is_quota_and_removes_them(scene: Scene) -> None:
    scene.create_queue(cpus=5)
    create(scene, workers=1)
    wait_for(lambda: running_and_gated(scene) == (2, 0), "the head and a worker")
    scene.create_job("other")
    scene.wait_admitted("other")

    autoscale(scene, 3)

    # A CPU more than there is quota for: the cluster runs on, and the workers that it adds wait.
    wait_for(
        lambda: (slices(scene), running_and_gated(scene)) == ({1: "admitted", 3: "waits"}, (2, 2)),
        "two workers to wait",
    )

    scene.delete_job("other")

    wait_for(lambda: running_and_gated(scene) == (4, 0), "the head and three workers")
    wait_for(lambda: slices(scene) == {1: "WorkloadSliceReplaced", 3: "admitted"}, "the first replaced")

    workers = [one["metadata"]["name"] for one in ray_pods(scene) if "worker" in one["metadata"]["name"]]
    autoscale(scene, 2, without=workers[:1])
    scene.create_job("next")

    scene.wait_admitted("next")
    wait_for(lambda: running_and_gated(scene) == (3, 0), "the head and the workers that stay")
    assert slices(scene) == {1: "WorkloadSliceReplaced", 2: "admitted"}
    assert scene.rest.get(path_of(scene, "ray"))["spec"]["suspend"] is False
    assert "Stopped" not in scene.reasons_about("ray")
