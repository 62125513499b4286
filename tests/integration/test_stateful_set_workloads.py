"""The Workload of a StatefulSet, which exists without pods of the set: on both API servers.

No webhook is asked, so that no pod of the set waits for its queue, and none is part of its group.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.jobs.stateful_set import StatefulSet
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import KUEUE as API
from tests.integration.manifests import LONG, QUEUE_NAME, RUNTIME, Object, condition, is_true
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stateful")

CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, pod, statefulset]
"""
ON_HOLD = ("False", "OnHold", "StatefulSet scaled to zero; workload on hold")


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues StatefulSets."""
    return Options(config=CONFIG)


@pytest.fixture
def scene(cluster: Cluster, controller: Replica) -> Iterator[Scene]:
    """Give a scene on the cluster whose turn it is; its sets end with the test."""
    assert controller.child.is_running()
    found = cluster.new_scene()
    yield found
    cluster.rest.delete(sets_of(found), {"propagationPolicy": "Background"})


def sets_of(scene: Scene) -> str:
    """Return the path of the StatefulSets."""
    return f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets"


def create_set(scene: Scene, *, replicas: int = 2) -> StatefulSet:
    """Create the StatefulSet chat, whose pods request one CPU each, as the webhook leaves it."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": 1}}}
    annotations = {RUNTIME: f"{LONG:g}", "kueue.x-k8s.io/pod-suspending-parent": "statefulset"}
    spec = {
        "replicas": replicas,
        "serviceName": "chat",
        "selector": {"matchLabels": {"app": "chat"}},
        "template": {
            "metadata": {"labels": {"app": "chat"}, "annotations": annotations},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        },
    }
    metadata = {"name": "chat", "labels": {QUEUE_NAME: "main"}}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
    uid = scene.rest.create(sets_of(scene), body)["metadata"]["uid"]
    return StatefulSet(namespace=scene.namespace, name="chat", uid=uid)


def scale(scene: Scene, replicas: int) -> None:
    """Change the number of replicas."""
    scene.rest.patch(f"{sets_of(scene)}/chat", {"spec": {"replicas": replicas}})


def create_group(scene: Scene, name: str, *, owner: StatefulSet | None = None) -> None:
    """Create the Workload of a group of one pod; `owner` is the set that owns it."""
    container = {"name": "c", "image": "i"}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    metadata: Object = {"name": name, "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}}
    if owner is not None:
        reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner.name, "uid": owner.uid}
        metadata["ownerReferences"] = [reference]
    spec = {"queueName": "main", "podSets": [pod_set]}
    body = {"apiVersion": API, "kind": "Workload", "metadata": metadata, "spec": spec}
    scene.rest.create(scene.workloads, body)


def names(scene: Scene) -> list[str]:
    """Return the names of all Workloads of groups."""
    items = scene.rest.get(scene.workloads)["items"]
    return [one["metadata"]["name"] for one in items if one["metadata"]["name"].startswith("statefulset-")]


def why(workload: Object) -> tuple[str, str, str]:
    """Return status, reason and message of QuotaReserved."""
    found = condition(workload, "QuotaReserved")
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def wait_for_group(scene: Scene, name: str, type_: str = "Admitted") -> Object:
    """Return the Workload of a group once this condition is True."""
    path = f"{scene.workloads}/{name}"
    wait_for(lambda: scene.rest.exists(path) and is_true(scene.rest.get(path), type_), f"{name} {type_}")
    return dict(scene.rest.get(path))


def test_its_workload_has_the_uid_in_its_name_and_is_admitted_and_held_with_the_set(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    chat = create_set(scene)

    workload = wait_for_group(scene, chat.group)
    assert [one["uid"] for one in workload["metadata"]["ownerReferences"]] == [chat.uid]
    assert [(one["name"], one["count"]) for one in workload["spec"]["podSets"]] == [("main", 2)]

    scale(scene, 0)
    scene.create_job("train", cpus=2)
    scene.wait_admitted("train")
    held = scene.workload(chat.group)
    assert why(held) == ON_HOLD
    assert "admission" not in held["status"]

    scale(scene, 1)
    wait_for(lambda: why(scene.workload(chat.group))[1] == "WaitingForQuota", "the set waits for quota")
    scene.delete_job("train")
    again = wait_for_group(scene, chat.group)
    assert again["metadata"]["uid"] == workload["metadata"]["uid"]
    assert again["spec"]["podSets"][0]["count"] == 1


def test_a_workload_of_the_older_name_is_used_and_no_other_is_made(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    older = StatefulSet(namespace=scene.namespace, name="chat", uid="").older_group
    create_group(scene, older)
    wait_for_group(scene, older)

    chat = create_set(scene)

    def owners() -> list[str]:
        found = scene.workload(older)["metadata"].get("ownerReferences", ())
        return [one["uid"] for one in found]

    wait_for(lambda: owners() == [chat.uid], "the set owns it")
    assert names(scene) == [older]


def test_a_second_workload_of_a_set_is_deleted(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    chat = create_set(scene)
    wait_for_group(scene, chat.group)

    create_group(scene, chat.older_group, owner=chat)

    wait_for(lambda: names(scene) == [chat.group], "one Workload")


def test_the_workload_goes_with_the_set(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    chat = create_set(scene)
    wait_for_group(scene, chat.group)

    scene.rest.delete(f"{sets_of(scene)}/chat", {"propagationPolicy": "Background"})

    wait_for(lambda: names(scene) == [], "its Workload gone")
    # Its quota is free.
    scene.create_job("train", cpus=2)
    scene.wait_admitted("train")
