"""Owners that only claim to account for an object: the API server verifies none, so the quota must hold."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Options
from tests.integration.manifests import Object, condition, is_true, make_job
from tests.integration.pods import CONFIG, create, make_pod, pod_of, wait_pod
from tests.integration.scene import Scene

pytestmark = pytest.mark.xdist_group("pods")


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues pods."""
    return Options(config=CONFIG)


def reference(scene: Scene, job: str) -> Object:
    """Return the reference that makes this Job the controller of what carries it."""
    uid = scene.job(job)["metadata"]["uid"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}


@pytest.mark.parametrize(
    "is_finished", [False, True], ids=["that is admitted", "that is admitted and has finished"]
)
def test_jobs_that_name_a_job_as_their_owner_get_only_the_quota_that_is_left(
    scene: Scene, is_finished: bool
) -> None:
    scene.create_queue(cpus=2)
    scene.create_job("parent", **({"seconds": 0.1} if is_finished else {}))
    if is_finished:
        scene.wait_finished("parent")
    scene.wait_true("parent", "Admitted")
    children = ["first", "second", "third"]

    for name in children:
        job = make_job(name, suspend=False)
        job["metadata"]["ownerReferences"] = [reference(scene, "parent")]
        scene.rest.create(scene.jobs, job)

    admitted = [name for name in children if _gets_quota(scene, name)]
    assert len(admitted) == (2 if is_finished else 1)
    scene.wait_admitted(*admitted)
    assert [name for name in children if not scene.job(name)["spec"]["suspend"]] == admitted
    for name in children:
        scene.wait_events(name, "OwnerNotCounted")


def _gets_quota(scene: Scene, job: str) -> bool:
    """Return whether the Job got quota, once its Workload says so."""
    found = scene.wait_workload(job, lambda workload: bool(condition(workload, "QuotaReserved")))
    return is_true(found, "QuotaReserved")


def test_an_owner_that_is_added_to_a_running_pod_does_not_free_its_quota(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    create(scene, make_pod("first"))
    wait_pod(scene, "first", "Running")

    # A Node, whose static pods are in no queue.
    node = scene.rest.get("/api/v1/nodes")["items"][0]["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["name"], "uid": node["uid"], "controller": True}
    scene.rest.patch(f"{scene.pods}/first", {"metadata": {"ownerReferences": [owner]}})
    create(scene, make_pod("second"))

    assert scene.wait_pending("second")["reason"] == "WaitingForQuota"
    first = pod_of(scene, "first")
    assert first is not None
    assert first["status"]["phase"] == "Running"
