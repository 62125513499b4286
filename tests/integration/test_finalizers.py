"""What is in use outlives its deletion: a ClusterQueue its Workloads, a flavor the queues that name it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane.rest import RestError
from tests.integration.conftest import Cluster
from tests.integration.manifests import KUEUE, Object, condition, is_true
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

IN_USE = "kueue.x-k8s.io/resource-in-use"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("embedded_cluster", marks=pytest.mark.xdist_group("finalizers")),
        pytest.param("real_cluster", marks=[pytest.mark.real, pytest.mark.xdist_group("kueue")]),
    ],
)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Give a namespace on either server, and a controller that leads."""
    cluster: Cluster = request.getfixturevalue(request.param)
    scene = cluster.new_scene()
    folder = tmp_path_factory.mktemp("controller")
    replica = Replica(cluster.kubeconfig, folder, "--namespace", cluster.new_scene().namespace)
    with replica.child:
        replica.wait_leading()
        yield scene


def find(scene: Scene, path: str) -> Object | None:
    """Return the object, None where it is gone."""
    try:
        return dict(scene.rest.get(path))
    except RestError as error:
        if error.status != 404:
            raise
        return None


def wait_kept(scene: Scene, path: str) -> None:
    """Wait until the object carries the finalizer."""
    wait_for(lambda: IN_USE in scene.rest.get(path)["metadata"].get("finalizers", []), f"{path} to be kept")


def test_a_deleted_queue_admits_no_more_and_goes_with_its_last_workload_and_then_its_flavor(
    scene: Scene,
) -> None:
    name = scene.create_queue()
    queue = f"/apis/{KUEUE}/clusterqueues/{name}"
    flavor = f"/apis/{KUEUE}/resourceflavors/{scene.scoped('main-flavor')}"
    scene.create_workload("running")
    wait_for(lambda: is_true(scene.workload("running"), "Admitted"), "the admission")
    wait_kept(scene, queue)
    wait_kept(scene, flavor)

    scene.rest.delete(flavor)
    scene.rest.delete(queue)
    scene.wait_active(name, reason="Terminating")
    scene.create_workload("late")
    wait_for(lambda: condition(scene.workload("late"), "QuotaReserved"), "a reason on the late one")
    assert not is_true(scene.workload("late"), "QuotaReserved")
    assert scene.cluster_queue(name)["status"]["reservingWorkloads"] == 1
    assert find(scene, flavor) is not None

    scene.rest.delete(f"{scene.workloads}/running")
    wait_for(lambda: find(scene, queue) is None, "the ClusterQueue to go")
    wait_for(lambda: find(scene, flavor) is None, "its flavor to go")
