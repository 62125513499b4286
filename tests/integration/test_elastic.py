"""Elastic Jobs on a real control plane: their pods run as far as their slices have quota for them."""

from __future__ import annotations

import pytest

from api import keys
from tests.integration.manifests import Object, condition, is_true, make_job
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]


def scale(scene: Scene, pods: int) -> None:
    scene.rest.patch(f"{scene.jobs}/sweep", {"spec": {"parallelism": pods}})


def slices(scene: Scene) -> dict[int, str]:
    """Return how the slices of the Job stand, by their number of pods."""
    return {one["spec"]["podSets"][0]["count"]: _state(one) for one in scene.workloads_of("sweep")}


def _state(workload: Object) -> str:
    if is_true(workload, "Finished"):
        return str(condition(workload, "Finished")["reason"])
    return "admitted" if is_true(workload, "Admitted") else "waits"


def pods(scene: Scene) -> tuple[int, int]:
    """Return how many pods of the Job run, and how many wait at their gate."""
    found = [one for one in scene.pods_of("sweep") if not one["metadata"].get("deletionTimestamp")]
    gated = [one for one in found if one["spec"].get("schedulingGates")]
    return sum(one["status"].get("phase") == "Running" for one in found), len(gated)


def used(scene: Scene, queue: str) -> str:
    """Return the CPUs in use by the status of the ClusterQueue."""
    (flavor,) = scene.cluster_queue(queue)["status"]["flavorsUsage"]
    return str(flavor["resources"][0]["total"])


def test_a_running_job_gets_more_pods_and_fewer(scene: Scene) -> None:
    queue = scene.create_queue(cpus=4)
    job = make_job("sweep", pods=2, annotations={keys.ELASTIC_JOB: "true"})
    job["spec"]["completions"] = 50
    scene.rest.create(scene.jobs, job)
    wait_for(lambda: pods(scene) == (2, 0), "two pods")
    scene.create_job("other")
    scene.wait_admitted("other")

    scale(scene, 4)

    # One more than there is quota for: the Job runs on, and what it adds waits.
    wait_for(lambda: (slices(scene), pods(scene)) == ({2: "admitted", 4: "waits"}, (2, 2)), "more to wait")

    scene.delete_job("other")

    wait_for(lambda: pods(scene) == (4, 0), "four pods")
    wait_for(lambda: slices(scene) == {2: "WorkloadSliceReplaced", 4: "admitted"}, "the first replaced")
    wait_for(lambda: used(scene, queue) == "4", "each pod counted once")

    scale(scene, 1)
    scene.create_job("next", pods=3)

    scene.wait_admitted("next")
    wait_for(lambda: (slices(scene)[1], pods(scene)) == ("admitted", (1, 0)), "one pod")
    assert scene.job("sweep")["spec"]["suspend"] is False


def test_a_gate_that_is_removed_while_the_job_is_suspended_is_there_again_when_it_starts(
    scene: Scene,
) -> None:
    """So the removal needs no refusal, which would also meet tools that apply their own template again."""
    scene.create_queue(cpus=2)
    scene.create_job("first", pods=2)
    scene.wait_admitted("first")
    job = make_job("sweep", pods=2, annotations={keys.ELASTIC_JOB: "true"})
    job["spec"]["completions"] = 50
    gate = [{"name": keys.ELASTIC_GATE}]
    job["spec"]["template"]["spec"]["schedulingGates"] = gate
    scene.rest.create(scene.jobs, job)
    scene.wait_pending("sweep")

    template = {"spec": {"schedulingGates": None}}
    scene.rest.patch(f"{scene.jobs}/sweep", {"spec": {"template": template}})
    assert "schedulingGates" not in scene.job("sweep")["spec"]["template"]["spec"]
    scene.delete_job("first")
    wait_for(lambda: pods(scene) == (2, 0), "two pods")
    assert scene.job("sweep")["spec"]["template"]["spec"]["schedulingGates"] == gate

    scale(scene, 3)

    wait_for(lambda: (slices(scene), pods(scene)) == ({2: "admitted", 3: "waits"}, (2, 1)), "one to wait")
    assert "Stopped" not in scene.reasons_about("sweep")
