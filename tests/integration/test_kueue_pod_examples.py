"""What Kueue's documentation shows of pods and of what serves is admitted and bound as its author wrote it.

On a real control plane, whose webhook holds the pods. The controller of LeaderWorkerSets is played.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from admission.controller.http.ca_injector import WEBHOOKS
from tests.controlplane.definitions import install_crds
from tests.integration import leadersets
from tests.integration.conftest import Cluster, Options
from tests.integration.leadersets import GROUP, LeaderWorkerSetPlayer
from tests.integration.manifests import QUEUE_NAME, Object, is_true
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.test_kueue_examples import create_queue, documents, title
from tests.integration.test_serving import (
    CONFIG,
    GROUP_NAME,
    REGISTRATION,
    is_asked,
    is_trusting,
    registration,
)
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("serving")]

EXAMPLES = documents(Path(__file__).with_name("kueue_pod_examples.yaml"))
PLURALS = {
    "Pod": "pods",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "LeaderWorkerSet": "leaderworkersets",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What becomes of an example: so many pods, and for each Workload the number of pods in it."""

    name: str
    pods: int
    workloads: Sequence[int]


WANTED = (
    Want(name="plain-pod-", pods=1, workloads=[1]),
    Want(name="equals", pods=2, workloads=[2]),
    Want(name="roles", pods=2, workloads=[2]),
    # Each replica is on its own.
    Want(name="web", pods=3, workloads=[1, 1, 1]),
    Want(name="shards", pods=3, workloads=[3]),
    # Each leader with its workers.
    Want(name="inference", pods=6, workloads=[3, 3]),
)


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues what serves, and has a webhook."""
    return Options(config=CONFIG, flags=("--webhook-port", "0"))


@pytest.fixture(scope="module")
def asked(real_cluster: Cluster, real_controller: Replica) -> Iterator[Cluster]:
    """Give the cluster, which asks the controller's webhook about what serves."""
    rest = real_cluster.rest
    install_crds(rest, [leadersets.DEFINITION])
    rest.create(REGISTRATION, registration(f"{real_controller.urls()['webhook']}/mutate"))
    rest.wait(f"{REGISTRATION}/{WEBHOOKS}", is_trusting)
    scene = real_cluster.new_scene()
    wait_for(lambda: is_asked(scene), "the webhook being asked")
    yield real_cluster
    rest.delete(f"{REGISTRATION}/{WEBHOOKS}")


@pytest.fixture
def scene(asked: Cluster) -> Iterator[Scene]:
    """Give a namespace with a queue; what serves in it ends with the test."""
    scene = asked.new_scene()
    create_queue(scene, "user-queue")
    yield scene
    for version, plural in ((f"{GROUP}/v1", "leaderworkersets"), ("apps/v1", "deployments")):
        scene.rest.delete(collection(scene, version, plural), {"propagationPolicy": "Background"})
    scene.rest.delete(collection(scene, "apps/v1", "statefulsets"), {"propagationPolicy": "Background"})
    scene.rest.delete(scene.pods)


def collection(scene: Scene, version: str, plural: str) -> str:
    """Return the path of all objects of a kind in the scene."""
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{base}/namespaces/{scene.namespace}/{plural}"


def name_of(example: Object) -> str:
    """Return the name of the group of a pod, or of an object that is on its own."""
    return (example["metadata"]["labels"] or {}).get(GROUP_NAME) or title(example)


@pytest.mark.parametrize("want", [pytest.param(one, id=one.name) for one in WANTED])
def test_an_example_of_pods_is_admitted_and_bound(scene: Scene, want: Want) -> None:
    for one in EXAMPLES:
        if name_of(one) == want.name:
            scene.rest.create(collection(scene, one["apiVersion"], PLURALS[one["kind"]]), one)
    player = LeaderWorkerSetPlayer(scene, want.name) if want.name == "inference" else None

    def bound() -> bool:
        if player is not None:
            player.play()
        pods = scene.rest.get(scene.pods)["items"]
        return len(pods) == want.pods and all(pod["spec"].get("nodeName") for pod in pods)

    wait_for(bound, f"{want.pods} pods bound")
    workloads = scene.rest.get(scene.workloads)["items"]
    counts = [sum(one["count"] for one in found["spec"]["podSets"]) for found in workloads]
    assert sorted(counts) == want.workloads
    assert all(is_true(found, "Admitted") for found in workloads)


def test_every_example_is_tried() -> None:
    assert {name_of(one) for one in EXAMPLES} == {want.name for want in WANTED}
    assert {one["kind"] for one in EXAMPLES} == {*PLURALS}
    assert all(QUEUE_NAME in one["metadata"]["labels"] for one in EXAMPLES)
