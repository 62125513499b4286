"""Elastic objects of Ray's kinds whose workers the autoscaler adds and removes, run by KubeRay.

The autoscaler would run in the pod of the head. Simulated nodes run nothing: the test writes what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api import keys
from api.jobs.owners.paths import value_at
from api.jobs.owners.ray import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from api.jobs.owners.row import OwnerKind
from tests import parts
from tests.controlplane import ControlPlane
from tests.controlplane.owner_controllers import CONTROLLERS, OwnerController, find_controller
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import LONG, QUEUE_NAME, Object, condition, is_true
from tests.integration.owners import is_asked_for, template
from tests.integration.ray_network import SERVE_CONFIG, RayNetwork, job_id
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("owners")]

CONFIG = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, {RAY_CLUSTER.framework}, {RAY_JOB.framework}, {RAY_SERVICE.framework}]
"""
KINDS = (RAY_CLUSTER, RAY_JOB, RAY_SERVICE)


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues Ray's kinds."""
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
    for row in (RAY_JOB, RAY_SERVICE, RAY_CLUSTER):
        real_scene.rest.delete(path_of(real_scene, row), {"propagationPolicy": "Background"})


def path_of(scene: Scene, row: OwnerKind, name: str = "") -> str:
    """Return the path of an object of a kind, or of all in the namespace."""
    collection = f"/apis/ray.io/v1/namespaces/{scene.namespace}/{row.plural}"
    return f"{collection}/{name}" if name else collection


def spec_of(row: OwnerKind, cluster: Object) -> Object:
    """Return the spec of an object of a kind whose RayCluster has this one. The submitter takes a CPU."""
    if row is RAY_CLUSTER:
        return {**cluster, "suspend": True}
    if row is RAY_SERVICE:
        return {"serveConfigV2": SERVE_CONFIG, "rayClusterConfig": {**cluster, "suspend": True}}
    return {
        "suspend": True,
        "jobId": job_id(LONG),
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": cluster,
        "submitterPodTemplate": template(LONG),
    }


def create(scene: Scene, row: OwnerKind, workers: int) -> None:
    """Create an object with a head and so many workers of a CPU each; the autoscaler takes one as well."""
    cluster = {
        "rayVersion": "2.9.0",
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
    spec = spec_of(row, cluster)
    body = {"apiVersion": "ray.io/v1", "kind": row.kind, "metadata": metadata, "spec": spec}
    scene.rest.create(path_of(scene, row), body)


def autoscale(scene: Scene, workers: int, *, without: list[str] | None = None) -> None:
    """Set the number of workers as Ray's autoscaler does, which names those that it removes."""
    (cluster,) = scene.rest.get(path_of(scene, RAY_CLUSTER))["items"]
    (group,) = cluster["spec"]["workerGroupSpecs"]
    changed = {**group, "replicas": workers, "scaleStrategy": {"workersToDelete": without or []}}
    path = path_of(scene, RAY_CLUSTER, cluster["metadata"]["name"])
    scene.rest.patch(path, {"spec": {"workerGroupSpecs": [changed]}})


def slices(scene: Scene) -> dict[int, str]:
    """Return how the slices of the object stand, by their number of workers."""
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
    return [
        one
        for one in scene.rest.get(scene.pods)["items"]
        if "ray.io/cluster" in one["metadata"]["labels"] and not one["metadata"].get("deletionTimestamp")
    ]


def is_suspended(scene: Scene, row: OwnerKind) -> bool:
    """Return whether the object is suspended."""
    return bool(value_at(scene.rest.get(path_of(scene, row, "ray")), row.suspend))


def running_and_gated(scene: Scene) -> tuple[int, int]:
    """Return how many pods of the RayCluster run, and how many wait at their gate."""
    found = ray_pods(scene)
    gated = [one for one in found if one["spec"].get("schedulingGates")]
    return sum(one["status"].get("phase") == "Running" for one in found), len(gated)


@pytest.mark.parametrize("row", KINDS, ids=str)
def test_rays_autoscaler_adds_workers_as_far_as_there_is_quota_and_removes_them(
    scene: Scene, row: OwnerKind
) -> None:
    if not is_asked_for(row.kind, by_default=row is RAY_CLUSTER):
        parts.skip_optional(f"BERTH_KINDS={row.kind} tries it")
    scene.create_queue(cpus=6 if row is RAY_JOB else 5)
    create(scene, row, workers=1)
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
    assert not is_suspended(scene, row)
    assert "Stopped" not in scene.reasons_about("ray")

    (admitted,) = [
        one for one in scene.workloads_of("ray") if is_true(one, "Admitted") and not is_true(one, "Finished")
    ]
    slice_ = f"{scene.workloads}/{admitted['metadata']['name']}"
    scene.rest.patch(slice_, {"spec": {"active": False}})
    scene.rest.wait(slice_, lambda found: "admission" not in found["status"])
    assert is_suspended(scene, row)
    wait_for(lambda: not ray_pods(scene), "its pods gone")

    scene.rest.patch(slice_, {"spec": {"active": True}})
    # The cluster of a RayService keeps the workers that the autoscaler has added.
    wait_for(lambda: running_and_gated(scene) in ((2, 0), (3, 0)), "the head and its workers again")
    assert not is_suspended(scene, row)
