"""Gangs by PodGroup as users meet them: the minimum starts together, the rest as room comes.

Each test runs on the embedded server and on a real control plane, whose kube-scheduler binds the pods. The
definition of the kind comes after the controller has started, as where scheduler-plugins is installed later.
"""

from __future__ import annotations

import pytest

from tests.controlplane.definitions import install_crds
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import KUEUE as GROUP
from tests.integration.manifests import condition
from tests.integration.podgroups import DEFINITION, LABEL, make_pod_group, path
from tests.integration.pods import CONFIG, create, is_gated, make_pod, pod_of, wait_pod
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("pod-groups")

NOWHERE = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues pods and reads PodGroups."""
    return Options(config=CONFIG, settings="podGroups: true\n")


@pytest.fixture
def scene(cluster: Cluster, controller: Replica) -> Scene:
    """Give a namespace that the controller serves; PodGroups are defined from the first test on."""
    assert controller.child.is_running()
    install_crds(cluster.rest, [DEFINITION])
    return cluster.new_scene()


def create_gang(scene: Scene, name: str, count: int, **fields: object) -> None:
    """Create pods of this PodGroup, named after it."""
    labels = {LABEL: name}
    create(scene, *(make_pod(f"{name}-{index}", labels=labels, **fields) for index in range(count)))  # type: ignore[arg-type]


def create_group(scene: Scene, name: str, **spec: object) -> None:
    """Create a PodGroup."""
    scene.rest.create(path(scene.namespace), make_pod_group(name, **spec))


def gated(scene: Scene) -> list[str]:
    """Return the pods at the gate, by name."""
    return sorted(one["metadata"]["name"] for one in scene.rest.get(scene.pods)["items"] if is_gated(one))


@pytest.mark.covers("004_12", "004_13")
def test_the_minimum_of_a_gang_starts_together_and_the_rest_when_there_is_room(scene: Scene) -> None:
    name = scene.create_queue(cpus=3)
    create_group(scene, "gang", minMember=3)
    create_gang(scene, "gang", 4)

    wait_for(lambda: len(gated(scene)) == 1, "three of the four pods at work")
    (waiting,) = gated(scene)
    assert scene.wait_pending(waiting)["reason"] == "WaitingForQuota"
    for index in {0, 1, 2, 3} - {int(waiting.rsplit("-")[-1])}:
        wait_pod(scene, f"gang-{index}", "Running")

    flavor = scene.rest.get(f"/apis/{GROUP}/clusterqueues/{name}")["spec"]["resourceGroups"]
    flavor[0]["flavors"][0]["resources"][0]["nominalQuota"] = "4"
    scene.rest.patch(f"/apis/{GROUP}/clusterqueues/{name}", {"spec": {"resourceGroups": flavor}})

    wait_pod(scene, waiting, "Running")


def test_a_gang_of_less_room_than_its_minimum_starts_no_pod(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    create_group(scene, "gang", minMember=3)
    create_gang(scene, "gang", 4)

    found = scene.rest.wait(
        f"{scene.workloads}/gang", lambda one: condition(one, "QuotaReserved").get("status") == "False"
    )

    assert condition(found, "QuotaReserved")["reason"] == "ExceedsMaxQuota"
    assert len(gated(scene)) == 4


@pytest.mark.covers("004_15")
def test_a_gang_waits_for_its_pod_group_and_says_so(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    create_gang(scene, "late", 2)
    scene.wait_events("late-0", "PodGroupUnknown")
    assert len(gated(scene)) == 2

    create_group(scene, "late", minMember=2)

    for name in ("late-0", "late-1"):
        wait_pod(scene, name, "Running")


@pytest.mark.covers("001_21")
def test_pods_of_one_job_name_start_once_their_minimum_is_there(scene: Scene) -> None:
    scene.create_queue(cpus=4)
    annotations = {"berth.dev/min-replicas": "2"}
    create(scene, make_pod("a-0", labels={"job-name": "a"}, annotations=annotations))
    # Behind it in the queue, and admitted before it: so it was looked at, and held back.
    create(scene, make_pod("other"))
    wait_pod(scene, "other", "Running")
    assert gated(scene) == ["a-0"]

    create(scene, make_pod("a-1", labels={"job-name": "a"}, annotations=annotations))

    for name in ("a-0", "a-1"):
        wait_pod(scene, name, "Running")


@pytest.mark.covers("001_26", "004_14")
def test_a_gang_without_nodes_is_released_after_its_time_and_the_next_gets_its_quota(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    create_group(scene, "stuck", minMember=2, scheduleTimeoutSeconds=5)
    create_gang(scene, "stuck", 2, **NOWHERE)
    scene.rest.wait(
        f"{scene.workloads}/stuck", lambda one: condition(one, "Admitted").get("status") == "True"
    )

    create(scene, make_pod("next", cpus=2))

    wait_pod(scene, "next", "Running")
    scene.wait_events("stuck", "EvictedDueToPodsReadyTimeoutDueToWaitForMinMember")
    stuck = [pod_of(scene, f"stuck-{index}") for index in range(2)]
    # One that was not yet let go when its time was over is still at its gate.
    assert all(pod is None or is_gated(pod) or pod["metadata"].get("deletionTimestamp") for pod in stuck)


@pytest.mark.covers("001_23")
def test_a_job_that_names_a_pod_group_starts_with_its_minimum(scene: Scene) -> None:
    scene.create_queue(cpus=3)
    create_group(scene, "gang", minMember=2)

    scene.create_job("train", pods=4, labels={LABEL: "gang"})

    scene.wait_admitted("train")
    assert scene.job("train")["spec"]["parallelism"] == 3
