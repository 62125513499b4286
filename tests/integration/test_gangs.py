"""Gangs as a user meets them: whole or not at all, and only where a Job asks to be queued."""

from __future__ import annotations

import pytest

from tests.integration.manifests import KUEUE, condition, is_true, quota
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("gangs")

GPU = "nvidia.com/gpu"


@pytest.mark.covers("001_24", "004_13")
def test_of_sixteen_pods_none_starts_until_there_is_room_for_all(scene: Scene) -> None:
    name = scene.create_queue(cpus=15)
    scene.create_job("gang", pods=16)
    scene.wait_pending("gang", "ExceedsMaxQuota")
    assert scene.job("gang")["spec"]["suspend"] is True
    assert scene.pods_of("gang") == []

    groups = [quota(scene.scoped("main-flavor"), nominal=16)]
    scene.rest.patch(f"/apis/{KUEUE}/clusterqueues/{name}", {"spec": {"resourceGroups": groups}})

    scene.wait_admitted("gang")
    wait_for(lambda: len(scene.pods_of("gang")) == 16, "all pods of the gang")


@pytest.mark.covers("001_54")
def test_four_replicas_of_one_gpu_are_admitted_together(scene: Scene) -> None:
    flavor = scene.create_flavor()
    scene.create_local_queue("gpu", scene.create_cluster_queue("gpu", quota(flavor, GPU, 4)))
    resources = {"limits": {GPU: 1}, "requests": {GPU: 1}}
    container = {"name": "main", "image": "none", "resources": resources}

    scene.create_job("four", queue="gpu", pods=4, containers=[container])

    scene.wait_admitted("four")
    admission = scene.wait_workload("four")["status"]["admission"]
    (assigned,) = admission["podSetAssignments"]
    assert (assigned["count"], assigned["resourceUsage"]) == (4, {GPU: "4"})


@pytest.mark.covers("001_22")
def test_a_single_pod_does_not_wait_for_the_gang_before_it(scene: Scene) -> None:
    scene.create_queue(cpus=4)
    scene.create_job("running", cpus=2)
    scene.wait_admitted("running")
    scene.create_job("gang", pods=3)
    scene.wait_pending("gang")

    scene.create_job("single")

    scene.wait_admitted("single")
    assert scene.pods_of("gang") == []


@pytest.mark.covers("001_36")
def test_a_job_is_managed_where_it_names_a_queue_and_can_be_started_by_hand_without_one(scene: Scene) -> None:
    scene.create_queue()
    scene.create_job("outside", queue=None)
    scene.create_job("inside")
    scene.wait_admitted("inside")
    assert scene.workloads_of("outside") == []

    scene.rest.patch(f"{scene.jobs}/outside", {"spec": {"suspend": False}})

    wait_for(lambda: scene.pods_of("outside"), "the pod of the Job that was started by hand")
    assert scene.job("outside")["spec"]["suspend"] is False


@pytest.mark.covers("004_16")
def test_a_gang_is_evicted_whole(scene: Scene) -> None:
    scene.create_queue(cpus=4, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scene.create_priority("low", 1), scene.create_priority("high", 2)
    scene.create_job("gang", pods=4, labels={"kueue.x-k8s.io/priority-class": low})
    scene.wait_admitted("gang")
    wait_for(lambda: len(scene.pods_of("gang")) == 4, "all pods of the gang")

    scene.create_job("urgent", labels={"kueue.x-k8s.io/priority-class": high})

    scene.wait_admitted("urgent")
    evicted = scene.wait_workload("gang", lambda found: "admission" not in found["status"], "released")
    assert (is_true(evicted, "Evicted"), condition(evicted, "Evicted")["reason"]) == (True, "Preempted")
    wait_for(lambda: not scene.pods_of("gang"), "no pod of the gang")


@pytest.mark.covers("004_12", "004_15")
def test_the_object_of_a_group_comes_and_goes_with_its_job(scene: Scene) -> None:
    scene.create_queue()
    scene.create_job("group", pods=2)
    name = scene.wait_workload("group")["metadata"]["name"]
    assert [one["count"] for one in scene.workload(name)["spec"]["podSets"]] == [2]

    scene.delete_job("group")

    wait_for(lambda: not scene.rest.get(scene.workloads)["items"], "no Workload")
