"""Past usage decides between the LocalQueues of a ClusterQueue, and survives the controller."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import is_true, quota
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

# Sampled often, forgotten slowly: what was used before the restart still counts long after it.
CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
admissionFairSharing: {usageHalfLifeTime: 10m, usageSamplingInterval: 1s}
"""


@pytest.fixture(
    params=[
        pytest.param("embedded_cluster", id="embedded"),
        pytest.param(
            "real_cluster", id="real", marks=[pytest.mark.real, pytest.mark.xdist_group("real-fair-sharing")]
        ),
    ]
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Give the embedded API server, then the real one."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Cluster)
    return found


@pytest.fixture
def start(cluster: Cluster, controllers: Controllers) -> Callable[[], Replica]:
    """Give the means to start one controller after the other, under the same lease."""
    lease = cluster.new_scene().namespace

    def start() -> Replica:
        replica = controllers.start(cluster.kubeconfig, "--namespace", lease, config=CONFIG)
        replica.wait_leading()
        return replica

    return start


@pytest.fixture
def scene(cluster: Cluster) -> Scene:
    """Give a ClusterQueue of 5 CPUs with two LocalQueues that take turns by usage."""
    scene = cluster.new_scene()
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    groups = quota(scene.create_flavor(), nominal=5)
    cluster_queue = scene.create_cluster_queue("main", groups, admissionScope=scope)
    for name in ("busy", "idle"):
        scene.create_local_queue(name, cluster_queue)
    return scene


def consumed(scene: Scene, queue: str) -> dict[str, str] | None:
    sharing = scene.local_queue(queue).get("status", {}).get("fairSharing", {})
    past = sharing.get("admissionFairSharingStatus")
    return None if past is None else dict(past["consumedResources"])


def wait_admitted(scene: Scene, name: str) -> None:
    wait_for(lambda: is_true(scene.workload(name), "Admitted"), f"{name} is admitted")


def test_past_usage_decides_after_a_restart_too(scene: Scene, start: Callable[[], Replica]) -> None:
    first = start()
    scene.create_workload("before", queue="busy", cpus=1)
    wait_admitted(scene, "before")
    wait_for(lambda: consumed(scene, "busy"), "the usage in the LocalQueue's status")
    first.child.stop()

    # Without the past the older and more important of the two would go first.
    scene.create_workload("of-busy", queue="busy", cpus=4, priority=9)
    scene.create_workload("of-idle", queue="idle", cpus=4)
    second = start()

    wait_admitted(scene, "of-idle")
    assert not is_true(scene.workload("of-busy"), "QuotaReserved")
    metric = "kueue_local_queue_admission_fair_sharing_usage"
    assert second.metric(metric, cluster_queue=scene.scoped("main"), namespace=scene.namespace) > 0


def test_every_local_queue_shows_its_past_usage_from_the_beginning(
    cluster: Cluster, start: Callable[[], Replica]
) -> None:
    """Also where its ClusterQueue is not ordered by it; what is covered and not used is 0, as in Kueue."""
    scene = cluster.new_scene()
    start()
    cluster_queue = scene.create_cluster_queue("plain", quota(scene.create_flavor(), nominal=5))

    scene.create_local_queue("unused", cluster_queue)

    wait_for(lambda: consumed(scene, "unused") == {"cpu": "0"}, "the usage in the LocalQueue's status")
