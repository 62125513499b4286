"""What becomes of Workloads whose pods are not ready, by Kueue's rules, on a real control plane."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Options
from tests.integration.manifests import Object, condition, is_true
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady:
  timeout: 10s
  requeuingStrategy: {backoffBaseSeconds: 1}
"""
NOT_READY = {"status": "False", "reason": "WaitForStart", "message": "Not all pods are ready or succeeded"}


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that waits for the pods of what it admits."""
    return Options(config=CONFIG)


def pods_ready(workload: Object) -> Object:
    """Return what a Workload says of its pods."""
    return {key: value for key, value in condition(workload, "PodsReady").items() if key in NOT_READY}


def test_a_job_that_waits_says_from_the_beginning_that_its_pods_are_not_ready(scene: Scene) -> None:
    scene.create_queue(cpus=0)

    scene.create_job("one")

    scene.wait_workload("one", lambda found: pods_ready(found) == NOT_READY, "PodsReady=False")


def test_the_pods_of_a_reservation_that_is_taken_away_are_not_ready(scene: Scene) -> None:
    queue = scene.create_queue()
    scene.create_job("one")
    scene.wait_true("one", "PodsReady")

    scene.rest.patch(
        f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}", {"spec": {"stopPolicy": "HoldAndDrain"}}
    )

    found = scene.wait_workload("one", lambda found: "admission" not in found["status"], "released")
    assert pods_ready(found) == NOT_READY


def test_a_workload_without_owner_is_evicted_in_time_and_its_back_off_ends(scene: Scene) -> None:
    scene.create_queue()
    scene.create_workload("one")
    wait_for(lambda: is_true(scene.workload("one"), "Admitted"), "the admission")

    wait_for(lambda: is_true(scene.workload("one"), "Evicted"), "the eviction")
    evicted = scene.workload("one")
    assert condition(evicted, "Evicted")["reason"] == "PodsReadyTimeout"
    assert "admission" in evicted["status"]
    scene.release("one")

    wait_for(lambda: scene.workload("one")["status"].get("requeueState") == {"count": 1}, "the back-off over")
    wait_for(lambda: is_true(scene.workload("one"), "Admitted"), "the next admission")
