"""Jobs run on simulated nodes, on the embedded server and on a real control plane."""

from __future__ import annotations

import json

from api.kube.resources import JOBS, NODES, PODS

from .conftest import GPU, Cluster, JsonObject, has


def phases(pods: list[JsonObject]) -> list[str]:
    return sorted(pod["status"]["phase"] for pod in pods)


def are_running(count: int, pods: list[JsonObject]) -> bool:
    return phases(pods) == ["Running"] * count


async def test_a_job_runs_and_completes(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", completions=3, parallelism=2))

    job = await cluster.wait_job("j", lambda job: has(job, "Complete"))

    status = job["status"]
    assert (status["succeeded"], status.get("failed", 0), status.get("active", 0)) == (3, 0, 0)
    assert status["startTime"] <= status["completionTime"]
    pods = await cluster.pods()
    assert phases(pods) == ["Succeeded"] * 3
    assert {pod["spec"]["nodeName"] for pod in pods} <= set(cluster.nodes)


async def test_a_pod_is_ready_while_it_runs(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", seconds=100))

    job = await cluster.wait_job("j", lambda job: job["status"].get("ready") == 1)

    (pod,) = await cluster.pods()
    state = pod["status"]["containerStatuses"][0]
    assert job["status"]["active"] == 1
    assert (state["ready"], "running" in state["state"]) == (True, True)
    assert pod["status"]["podIP"]


async def test_an_indexed_job_completes_each_index_once(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", completions=3, parallelism=3, completionMode="Indexed"))

    job = await cluster.wait_job("j", lambda job: has(job, "Complete"))

    key = "batch.kubernetes.io/job-completion-index"
    pods = await cluster.pods()
    assert job["status"]["completedIndexes"] == "0-2"
    assert sorted(pod["metadata"]["annotations"][key] for pod in pods) == ["0", "1", "2"]
    assert sorted(pod["metadata"]["labels"][key] for pod in pods) == ["0", "1", "2"]


async def test_a_job_that_fails_too_often_has_failed(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", exit_code=3, backoffLimit=0))

    job = await cluster.wait_job("j", lambda job: has(job, "Failed"))

    failed = next(each for each in job["status"]["conditions"] if each["type"] == "Failed")
    (pod,) = await cluster.pods()
    assert (failed["reason"], job["status"]["failed"]) == ("BackoffLimitExceeded", 1)
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_suspending_stops_the_pods_and_resuming_starts_new_ones(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", seconds=40, completions=2, parallelism=2))
    await cluster.wait_pods(lambda pods: are_running(2, pods))

    await cluster.patch("j", suspend=True)
    stopped = await cluster.wait_job("j", lambda job: has(job, "Suspended"))
    await cluster.wait_pods(lambda pods: not pods)
    await cluster.patch("j", suspend=False)
    job = await cluster.wait_job("j", lambda job: has(job, "Complete"))

    assert stopped["status"].get("active", 0) == 0
    assert "startTime" not in stopped["status"]
    assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (2, 0)


async def test_a_suspended_job_can_be_steered_and_then_runs_there(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", suspend=True))
    target = cluster.nodes[1]

    steered = {**cluster.selector, "kubernetes.io/hostname": target}
    await cluster.patch("j", template={"spec": {"nodeSelector": steered}})
    await cluster.patch("j", suspend=False)
    await cluster.wait_job("j", lambda job: has(job, "Complete"))

    assert [pod["spec"]["nodeName"] for pod in await cluster.pods()] == [target]


async def test_more_than_fits_waits_and_says_why(cluster: Cluster) -> None:
    await cluster.create(cluster.job("big", gpus=5))

    def is_unschedulable(pods: list[JsonObject]) -> bool:
        conditions = pods[0]["status"].get("conditions", ()) if pods else ()
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    (pod,) = await cluster.wait_pods(is_unschedulable)

    scheduled = next(each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    assert scheduled["message"].startswith("0/")
    assert f"2 Insufficient {GPU}" in scheduled["message"]


async def test_what_waited_runs_when_there_is_room(cluster: Cluster) -> None:
    for name in "abc":
        await cluster.create(cluster.job(name, gpus=4, seconds=10))

    for name in "abc":
        await cluster.wait_job(name, lambda job: has(job, "Complete"))

    # Three of four GPUs each on two nodes: never more than one of them on a node at a time.
    assert {pod["spec"]["nodeName"] for pod in await cluster.pods()} == set(cluster.nodes)


async def test_a_deleted_job_takes_its_pods_along(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", seconds=1000))
    await cluster.wait_pods(lambda pods: are_running(1, pods))

    await cluster.client.delete(JOBS, "j", cluster.namespace)

    await cluster.wait_pods(lambda pods: not pods)
    await cluster.wait_gone("j")


async def test_a_deadline_ends_the_job(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", seconds=1000, activeDeadlineSeconds=1))

    job = await cluster.wait_job("j", lambda job: has(job, "Failed"))

    failed = next(each for each in job["status"]["conditions"] if each["type"] == "Failed")
    assert failed["reason"] == "DeadlineExceeded"


async def test_a_finished_job_goes_when_its_time_is_up(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", ttlSecondsAfterFinished=1))

    await cluster.wait_job("j", lambda job: has(job, "Complete"))
    await cluster.wait_gone("j")
    assert await cluster.pods() == []


async def test_a_pod_that_is_deleted_is_replaced(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", seconds=1000))
    (first,) = await cluster.wait_pods(lambda pods: are_running(1, pods))

    await cluster.client.delete(PODS, first["metadata"]["name"], cluster.namespace)

    def is_replaced(pods: list[JsonObject]) -> bool:
        return bool(pods) and all(pod["metadata"]["uid"] != first["metadata"]["uid"] for pod in pods)

    await cluster.wait_pods(is_replaced)


async def test_pods_on_a_vanished_node_go_nowhere_until_it_is_back(cluster: Cluster) -> None:
    await cluster.create(cluster.job("j", seconds=20))
    (pod,) = await cluster.wait_pods(lambda pods: are_running(1, pods))
    node = pod["spec"]["nodeName"]

    await _set_ready(cluster, node, ready=False)
    await cluster.create(cluster.job("other", gpus=4))
    await cluster.wait_job("other", lambda job: has(job, "Complete"))
    still = await cluster.get(JOBS, "j")
    await _set_ready(cluster, node, ready=True)
    await cluster.wait_job("j", lambda job: has(job, "Complete"))

    assert not has(still, "Complete")


async def _set_ready(cluster: Cluster, name: str, *, ready: bool) -> None:
    """Make a node lost or ready by its annotation; return once its condition shows that."""
    body = {"metadata": {"annotations": {"berth.dev/simulated-ready": None if ready else "false"}}}
    await cluster.client.merge_patch(NODES, name, json.dumps(body).encode())

    def shows(node: JsonObject) -> bool:
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        return bool(conditions["Ready"] == ("True" if ready else "Unknown"))

    await cluster.wait(lambda: cluster.get(NODES, name), shows)
