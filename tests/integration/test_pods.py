"""Pods in queues, as users meet them: by themselves and in groups, through an embedded API server.

The pods are made with the gate and the label that the webhook would give them; the webhook itself is tried
on a real control plane in test_serving.py.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Options
from tests.integration.manifests import condition, make_workload
from tests.integration.pods import (
    CONFIG,
    KUEUE,
    create,
    is_gated,
    is_running,
    make_pod,
    member,
    pod_of,
    wait_condition,
    wait_gone,
    wait_pod,
)
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("pods")


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues pods."""
    return Options(config=CONFIG)


# --- a pod by itself -----------------------------------------------------------------------------


def test_a_pod_in_a_queue_waits_at_the_gate_for_its_quota_and_then_runs(scene: Scene) -> None:
    queue = scene.create_queue(cpus=1)
    create(scene, make_pod("first"))
    first = wait_pod(scene, "first", "Running")
    # Only now: of two of one second that one look finds together, the uid decides which is first.
    create(scene, make_pod("second"))

    assert first["spec"]["nodeSelector"] == {"berth.dev/node-pool": "node"}
    assert first["metadata"]["labels"][KUEUE + "cluster-queue-name"] == queue
    assert scene.wait_pending("second")["reason"] == "WaitingForQuota"
    second = pod_of(scene, "second")
    assert second is not None
    assert is_gated(second)

    scene.rest.delete(f"{scene.pods}/first")
    wait_pod(scene, "second", "Running")


def test_a_pod_runs_on_the_workload_that_it_names_and_that_another_program_creates_later(
    scene: Scene,
) -> None:
    scene.create_queue()
    pod = make_pod("one")
    pod["metadata"]["labels"][KUEUE + "prebuilt-workload-name"] = "late"
    create(scene, pod)
    late = make_workload("late")
    late["spec"]["podSets"][0]["template"] = {"spec": {"containers": pod["spec"]["containers"]}}

    scene.rest.create(scene.workloads, late)

    wait_pod(scene, "one", "Running")
    assert [one["metadata"]["name"] for one in scene.rest.get(scene.workloads)["items"]] == ["late"]


def test_a_pod_that_ended_finishes_its_workload_and_can_be_deleted(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    create(scene, make_pod("short", seconds=0.1))

    finished = scene.wait_true("short", "Finished")

    assert condition(finished, "Finished")["reason"] == "Succeeded"
    wait_for(lambda: not (pod_of(scene, "short") or {})["metadata"].get("finalizers"), "the finalizer off")


def test_a_pod_that_was_never_gated_is_left_alone(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    create(scene, make_pod("free", is_held=False, cpus=2), make_pod("held"))

    wait_pod(scene, "held", "Running")

    wait_pod(scene, "free", "Running")
    assert scene.workloads_of("free") == []


def test_a_preempted_pod_gets_a_reason_and_is_deleted_and_its_quota_goes_to_the_other(scene: Scene) -> None:
    scene.create_queue(cpus=1, preemption={"withinClusterQueue": "LowerPriority"})
    high = scene.create_priority("high", 10)
    create(scene, make_pod("low"))
    wait_pod(scene, "low", "Running")

    create(scene, make_pod("high", labels={KUEUE + "priority-class": high}))

    wait_pod(scene, "high", "Running")
    wait_gone(scene, "low")
    scene.wait_events("low", "Stopped")
    wait_for(lambda: scene.workloads_of("low") == [], "the Workload of low gone")


def test_a_deleted_pod_that_waits_leaves_its_queue(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    create(scene, make_pod("large", cpus=2))
    scene.wait_pending("large", "ExceedsMaxQuota")

    scene.rest.delete(f"{scene.pods}/large")

    wait_gone(scene, "large")
    wait_for(lambda: scene.workloads_of("large") == [], "the Workload gone")


# --- groups --------------------------------------------------------------------------------------


@pytest.mark.covers("001_24")
def test_a_group_starts_when_all_of_it_fits_and_not_a_pod_sooner(scene: Scene) -> None:
    scene.create_queue(cpus=3)
    create(scene, *(member(f"a-{number}", "a", 2) for number in range(2)))
    wait_for(lambda: is_running(scene, "a-0", "a-1"), "group a runs")
    create(scene, *(member(f"b-{number}", "b", 2) for number in range(2)))

    waiting = wait_condition(scene, "b", "QuotaReserved", status="False")
    assert condition(waiting, "QuotaReserved")["reason"] == "WaitingForQuota"
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
    # A pod that comes later does not wait for a group that is not complete.
    wait_pod(scene, "other", "Succeeded")
    first = pod_of(scene, "a-0")
    assert first is not None
    assert is_gated(first)
    assert not any(one["metadata"]["name"] == "a" for one in scene.rest.get(scene.workloads)["items"])

    create(scene, member("a-1", "a", 2))

    wait_for(lambda: is_running(scene, "a-0", "a-1"), "the group runs")


@pytest.mark.covers("004_14")
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
def test_pods_and_groups_share_one_queue_by_priority(scene: Scene, embedded_controller: Replica) -> None:
    cluster_queue = scene.create_queue(cpus=2)
    high = scene.create_priority("high", 10)
    create(scene, make_pod("first", cpus=2))
    wait_pod(scene, "first", "Running")
    create(scene, *(member(f"a-{number}", "a", 2) for number in range(2)))
    wait_condition(scene, "a", "QuotaReserved", status="False")
    create(scene, make_pod("urgent", labels={KUEUE + "priority-class": high}))
    scene.wait_pending("urgent")

    # The members of a group are one entry, wherever other pods came in between.
    pending = embedded_controller.json(f"/v1/clusterqueues/{cluster_queue}/pendingworkloads")["items"]
    urgent = scene.wait_workload("urgent")["metadata"]["name"]
    assert [item["name"] for item in pending] == [urgent, "a"]

    scene.rest.delete(f"{scene.pods}/first")
    wait_pod(scene, "urgent", "Running")
    assert all(is_gated(pod) for name in ("a-0", "a-1") if (pod := pod_of(scene, name)) is not None)
