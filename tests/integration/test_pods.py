"""Pods in queues, as users meet them: by themselves and in groups, through an embedded API server.

The pods are made with the gate and the label that the webhook would give them; the webhook itself is tried
on a real control plane in test_serving.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import Cluster
from tests.integration.manifests import LONG, QUEUE_NAME, RUNTIME, Object, condition
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("pods")

KUEUE = "kueue.x-k8s.io/"
GATE = KUEUE + "admission"
CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, pod]
"""


@pytest.fixture(scope="module")
def controller(embedded_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """Give the one controller of this module, leading, with the pod integration on."""
    folder = tmp_path_factory.mktemp("controller")
    lease_namespace = embedded_cluster.new_scene().namespace
    replica = Replica(embedded_cluster.kubeconfig, folder, "--namespace", lease_namespace, config=CONFIG)
    with replica.child:
        replica.wait_leading()
        yield replica
        replica.child.stop()


@pytest.fixture
def scene(embedded_scene: Scene, controller: Replica) -> Scene:
    """Give a scene in which the controller admits."""
    del controller
    return embedded_scene


def make_pod(
    name: str,
    *,
    queue: str | None = "main",
    cpus: object = 1,
    seconds: float = LONG,
    is_held: bool = True,
    labels: Object | None = None,
    annotations: Object | None = None,
    **spec: Any,
) -> Object:
    """Return a pod as the webhook leaves it; `is_held` False: as nobody has held it."""
    held = {KUEUE + "managed": "true"} if is_held else {}
    named = {QUEUE_NAME: queue} if queue is not None else {}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpus}}}
    gates = {"schedulingGates": [{"name": GATE}]} if is_held else {}
    metadata: Object = {
        "name": name,
        "labels": {**held, **named, **(labels or {})},
        "annotations": {RUNTIME: f"{seconds:g}", **(annotations or {})},
    }
    if is_held:
        metadata["finalizers"] = [KUEUE + "managed"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **gates,
            **spec,
        },
    }


def member(name: str, group: str, total: int, **fields: Any) -> Object:
    """Return a pod of a group."""
    labels = {KUEUE + "pod-group-name": group, **fields.pop("labels", {})}
    annotations = {KUEUE + "pod-group-total-count": str(total), **fields.pop("annotations", {})}
    return make_pod(name, labels=labels, annotations=annotations, **fields)


def create(scene: Scene, *pods: Object) -> None:
    """Create pods."""
    for pod in pods:
        scene.rest.create(scene.pods, pod)


def pod_of(scene: Scene, name: str) -> Object | None:
    """Return a pod, None where there is none of this name."""
    return next((one for one in scene.rest.get(scene.pods)["items"] if one["metadata"]["name"] == name), None)


def is_gated(pod: Object) -> bool:
    """Tell whether a pod waits at the gate."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def wait_pod(scene: Scene, name: str, phase: str) -> Object:
    """Return a pod once it is in this phase."""

    def probe() -> Object | None:
        pod = pod_of(scene, name)
        return pod if pod is not None and pod["status"]["phase"] == phase else None

    return wait_for(probe, f"pod {name} {phase}")


def wait_gone(scene: Scene, *names: str) -> None:
    """Return when none of these pods is there."""
    for name in names:
        wait_for(lambda name=name: pod_of(scene, name) is None, f"pod {name} gone")  # type: ignore[misc]


def wait_condition(scene: Scene, workload: str, type_: str, *, status: str = "True") -> Object:
    """Return a Workload once its condition has this status."""

    def probe() -> Object | None:
        items = scene.rest.get(scene.workloads)["items"]
        found = next((one for one in items if one["metadata"]["name"] == workload), None)
        return found if condition(found, type_).get("status") == status else None

    return wait_for(probe, f"Workload {workload} {type_}={status}")


# --- a pod by itself -----------------------------------------------------------------------------


def test_a_pod_in_a_queue_waits_at_the_gate_for_its_quota_and_then_runs(scene: Scene) -> None:
    queue = scene.create_queue(cpus=1)
    create(scene, make_pod("first"), make_pod("second"))

    first = wait_pod(scene, "first", "Running")
    assert first["spec"]["nodeSelector"] == {"berth.dev/node-pool": "node"}
    assert first["metadata"]["labels"][KUEUE + "cluster-queue-name"] == queue
    second = pod_of(scene, "second")
    assert second is not None
    assert is_gated(second)
    assert scene.wait_pending("second")["reason"] == "WaitingForQuota"

    scene.rest.delete(f"{scene.pods}/first")
    wait_pod(scene, "second", "Running")


def test_a_pod_that_ended_finishes_its_workload_and_keeps_nobody_from_deleting_it(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    create(scene, make_pod("short", seconds=0.1))

    finished = scene.wait_true("short", "Finished")

    assert condition(finished, "Finished")["reason"] == "Succeeded"
    wait_for(lambda: not (pod_of(scene, "short") or {})["metadata"].get("finalizers"), "the finalizer off")


def test_a_pod_that_nobody_held_is_left_alone(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    create(scene, make_pod("free", is_held=False, cpus=2), make_pod("held"))

    wait_pod(scene, "held", "Running")

    wait_pod(scene, "free", "Running")
    assert scene.workloads_of("free") == []


def test_a_preempted_pod_is_told_why_and_deleted_and_its_quota_goes_to_the_other(scene: Scene) -> None:
    scene.create_queue(cpus=1, preemption={"withinClusterQueue": "LowerPriority"})
    high = scene.create_priority("high", 10)
    create(scene, make_pod("low"))
    wait_pod(scene, "low", "Running")

    create(scene, make_pod("high", labels={KUEUE + "priority-class": high}))

    wait_pod(scene, "high", "Running")
    wait_gone(scene, "low")
    assert "Stopped" in scene.reasons_about("low")
    wait_for(lambda: scene.workloads_of("low") == [], "the Workload of low gone")


def test_a_deleted_pod_that_waits_leaves_its_queue(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    create(scene, make_pod("large", cpus=2))
    scene.wait_pending("large", "ExceedsMaxQuota")

    scene.rest.delete(f"{scene.pods}/large")

    wait_gone(scene, "large")
    wait_for(lambda: scene.workloads_of("large") == [], "the Workload gone")


# --- groups --------------------------------------------------------------------------------------


def is_running(scene: Scene, *names: str) -> bool:
    """Tell whether all these pods run."""
    pods = [pod_of(scene, name) for name in names]
    return all(pod is not None and pod["status"]["phase"] == "Running" for pod in pods)


@pytest.mark.covers("001_21", "001_24")
def test_a_group_starts_when_all_of_it_fits_and_not_a_pod_sooner(scene: Scene) -> None:
    scene.create_queue(cpus=3)
    create(scene, *(member(f"a-{number}", "a", 2) for number in range(2)))
    wait_for(lambda: is_running(scene, "a-0", "a-1"), "group a runs")
    create(scene, *(member(f"b-{number}", "b", 2) for number in range(2)))

    told = wait_condition(scene, "b", "QuotaReserved", status="False")
    assert condition(told, "QuotaReserved")["reason"] == "WaitingForQuota"
    # One CPU is free, and none of the two takes it.
    assert all(is_gated(pod) for name in ("b-0", "b-1") if (pod := pod_of(scene, name)) is not None)

    for name in ("a-0", "a-1"):
        scene.rest.delete(f"{scene.pods}/{name}")
    wait_for(lambda: is_running(scene, "b-0", "b-1"), "group b runs")


def test_a_group_finishes_with_its_last_pod(scene: Scene) -> None:
    scene.create_queue(cpus=3)
    create(scene, *(member(f"a-{number}", "a", 2, seconds=0.1) for number in range(2)))

    finished = wait_condition(scene, "a", "Finished")

    assert condition(finished, "Finished")["message"] == "Pods succeeded: 2/2."


@pytest.mark.covers("001_23", "004_13")
def test_members_are_held_until_the_last_of_them_is_there_and_then_let_go_together(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    create(scene, member("a-0", "a", 2), make_pod("other", seconds=1))
    # Whoever comes later is not in the way of a group that is not complete.
    wait_pod(scene, "other", "Succeeded")
    first = pod_of(scene, "a-0")
    assert first is not None
    assert is_gated(first)
    assert not any(one["metadata"]["name"] == "a" for one in scene.rest.get(scene.workloads)["items"])

    create(scene, member("a-1", "a", 2))

    wait_for(lambda: is_running(scene, "a-0", "a-1"), "the group runs")


@pytest.mark.covers("001_26", "004_14")
def test_an_evicted_group_holds_nothing_and_comes_back_with_new_pods(scene: Scene) -> None:
    scene.create_queue(cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
    high = scene.create_priority("high", 10)
    create(scene, *(member(f"a-{number}", "a", 2) for number in range(2)))
    wait_for(lambda: is_running(scene, "a-0", "a-1"), "the group runs")
    create(scene, make_pod("high", cpus=2, seconds=2, labels={KUEUE + "priority-class": high}))
    wait_condition(scene, "a", "WaitingForReplacementPods")

    create(scene, *(member(f"new-{number}", "a", 2) for number in range(2)))

    wait_pod(scene, "high", "Succeeded")
    wait_for(lambda: is_running(scene, "new-0", "new-1"), "the group runs again")
    wait_gone(scene, "a-0", "a-1")


@pytest.mark.covers("001_22")
def test_a_pod_without_a_group_passes_by_itself(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    create(scene, member("a-0", "a", 2), make_pod("alone"))

    wait_pod(scene, "alone", "Running")


@pytest.mark.covers("004_11", "004_18")
def test_pods_and_groups_stand_in_one_queue_by_priority(scene: Scene, controller: Replica) -> None:
    cluster_queue = scene.create_queue(cpus=2)
    high = scene.create_priority("high", 10)
    create(scene, make_pod("first", cpus=2))
    wait_pod(scene, "first", "Running")
    create(scene, *(member(f"a-{number}", "a", 2) for number in range(2)))
    wait_condition(scene, "a", "QuotaReserved", status="False")
    create(scene, make_pod("urgent", labels={KUEUE + "priority-class": high}))
    scene.wait_pending("urgent")

    # The members of a group are one entry, wherever other pods came in between.
    pending = controller.json(f"/v1/clusterqueues/{cluster_queue}/pendingworkloads")["items"]
    urgent = scene.wait_workload("urgent")["metadata"]["name"]
    assert [item["name"] for item in pending] == [urgent, "a"]

    scene.rest.delete(f"{scene.pods}/first")
    wait_pod(scene, "urgent", "Running")
    assert all(is_gated(pod) for name in ("a-0", "a-1") if (pod := pod_of(scene, name)) is not None)
