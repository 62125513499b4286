"""Groups of a LeaderWorkerSet as its own controller makes them: admitted whole, preempted one by one.

On a control plane of its own, since it brings a definition of the kind. Without that controller, which no
machine is asked to have, `test_serving` plays it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.controller.http.ca_injector import WEBHOOKS
from tests import parts
from tests.controlplane import AssetsMissing, ControlPlane, find_assets
from tests.controlplane.owner_controllers import (
    LEADER_WORKER_SETS,
    ControllerAssets,
    OwnerController,
    find_controller,
)
from tests.integration.conftest import Cluster, Options
from tests.integration.leadersets import GROUP, make_leader_worker_set
from tests.integration.manifests import KUEUE, Object, condition
from tests.integration.pods import is_gated
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.test_serving import (
    CONFIG,
    GROUP_NAME,
    PRIORITY,
    REGISTRATION,
    create_budget,
    create_policy,
    groups_of,
    is_asked,
    is_trusting,
    pods_of,
    ready,
    registration,
    wait_ready,
)
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("leaderworkerset")]


@pytest.fixture(scope="module")
def assets() -> ControllerAssets:
    """Give the controller's program where it was built."""
    try:
        return find_controller(LEADER_WORKER_SETS)
    except AssetsMissing as error:
        parts.skip_optional(str(error))


@pytest.fixture(scope="module")
def control_plane(
    assets: ControllerAssets, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Give a control plane on which no other test has defined the kind."""
    del assets
    parts.need("controlplane")
    with ControlPlane(find_assets(), tmp_path_factory.mktemp("controlplane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def sets(
    assets: ControllerAssets,
    control_plane: ControlPlane,
    real_cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OwnerController]:
    """Give the controller of LeaderWorkerSets, at work on the cluster."""
    del real_cluster
    folder = tmp_path_factory.mktemp("leaderworkerset")
    with OwnerController(assets, control_plane, folder) as controller:
        yield controller


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues what serves, and has a webhook."""
    return Options(config=CONFIG, flags=("--webhook-port", "0"))


@pytest.fixture
def scene(
    sets: OwnerController, real_cluster: Cluster, real_controller: Replica, real_scene: Scene
) -> Iterator[Scene]:
    """Give a scene in which both controllers work."""
    del sets
    rest = real_cluster.rest
    rest.create(REGISTRATION, registration(f"{real_controller.urls()['webhook']}/mutate"))
    wait_for(lambda: is_trusting(rest.get(REGISTRATION)["items"][-1]), "the webhook being trusted")
    wait_for(lambda: is_asked(real_scene), "the webhook being asked")
    yield real_scene
    # The garbage collector may not know the kind yet, as it has just been defined.
    for group, plural in ((GROUP, "leaderworkersets"), ("apps", "statefulsets")):
        path = f"/apis/{group}/v1/namespaces/{real_scene.namespace}/{plural}"
        rest.delete(path, {"propagationPolicy": "Background"})
    # While both controllers are there to let them go.
    wait_for(lambda: not rest.get(real_scene.pods)["items"], "all pods gone")
    rest.delete(f"{REGISTRATION}/{WEBHOOKS}")


def serving(name: str, *, replicas: int, size: int, floor: int) -> Object:
    """Return a LeaderWorkerSet of inference, of which `floor` groups are to stay."""
    body = make_leader_worker_set(name, replicas=replicas, size=size)
    for template in ("leaderTemplate", "workerTemplate"):
        metadata = body["spec"]["leaderWorkerTemplate"][template]["metadata"]
        metadata["labels"]["berth.dev/workload-type"] = "inference"
        metadata["annotations"]["berth.dev/min-replicas"] = str(floor)
    return body


def test_groups_are_admitted_whole_and_preempted_one_by_one_down_to_their_floor(scene: Scene) -> None:
    queue = scene.create_queue(cpus=6, preemption={"withinClusterQueue": "LowerPriority"})
    create_policy(scene, queue)
    high = scene.create_priority("high", 10)
    collection = f"/apis/{GROUP}/v1/namespaces/{scene.namespace}/leaderworkersets"
    scene.rest.create(collection, serving("big", replicas=3, size=2, floor=2))
    wait_ready(scene, "big", 6)
    before = groups_of(scene)
    assert [one["metadata"]["annotations"]["berth.dev/replica-of"] for one in before.values()] == [
        "LeaderWorkerSet/big"
    ] * 3

    scene.create_job("train", cpus=1, labels={PRIORITY: high})
    scene.wait_admitted("train")

    # The set has created the group again. One place is free, and neither leader nor worker takes it.
    def waiting() -> list[str]:
        return [pod["metadata"]["labels"][GROUP_NAME] for pod in pods_of(scene, "big") if is_gated(pod)]

    wait_for(lambda: len(waiting()) == 2, "a group at the gate")
    assert len(set(waiting())) == 1
    assert ready(scene, "big") == 4

    # No other group may go for it, though it has the right.
    scene.create_job("greedy", cpus=2, labels={PRIORITY: high})
    scene.wait_pending("greedy")
    assert ready(scene, "big") == 4

    scene.delete_job("greedy")
    scene.delete_job("train")
    wait_ready(scene, "big", 6)
    assert groups_of(scene).keys() == before.keys()


def test_of_a_drained_queue_as_many_groups_go_as_their_budget_lets_go_and_none_by_halves(
    scene: Scene,
) -> None:
    queue = scene.create_queue(cpus=6)
    create_policy(scene, queue)
    collection = f"/apis/{GROUP}/v1/namespaces/{scene.namespace}/leaderworkersets"
    scene.rest.create(collection, serving("big", replicas=3, size=2, floor=0))
    wait_ready(scene, "big", 6)
    create_budget(scene, "big", 3)
    fewest = [6]

    def words() -> list[str]:
        fewest[0] = min(fewest[0], ready(scene, "big"))
        found = [condition(one, "berth.dev/DisruptionAllowed") for one in groups_of(scene).values()]
        return sorted(one["status"] for one in found if one)

    # All are evicted in one moment, and three pods may go: that is one group, and half of another.
    scene.rest.patch(f"/apis/{KUEUE}/clusterqueues/{queue}", {"spec": {"stopPolicy": "HoldAndDrain"}})
    wait_for(lambda: words() == ["False", "False"], "two groups kept, and one gone")

    def waiting() -> set[str]:
        words()
        return {pod["metadata"]["labels"][GROUP_NAME] for pod in pods_of(scene, "big") if is_gated(pod)}

    wait_for(lambda: len(waiting()) == 1, "a group at the gate")
    serving_groups = [
        pod["metadata"]["labels"][GROUP_NAME] for pod in pods_of(scene, "big") if not is_gated(pod)
    ]
    assert sorted(serving_groups.count(name) for name in set(serving_groups)) == [2, 2]
    assert ready(scene, "big") == fewest[0] == 4

    scene.rest.patch(f"/apis/{KUEUE}/clusterqueues/{queue}", {"spec": {"stopPolicy": "None"}})
    wait_ready(scene, "big", 6)
