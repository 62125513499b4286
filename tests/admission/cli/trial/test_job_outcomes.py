"""What the recorder sees through the API, and what is said of Jobs that did not end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from admission.cli.common.job_manifests import GPU, NewJob, cluster_queue, job, local_queue
from admission.cli.trial.embedded_cluster import create, in_background, install_kinds
from admission.cli.trial.job_outcomes import RunJob, explain_lost, job_results
from admission.cli.trial.recorder import JobTimes, Recorder
from admission.simulation.audit import audit
from admission.simulation.shapes import GangShape
from api.kube.client import KubeClient
from api.kube.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOADS, Resource
from api.workload import WorkloadKey
from tests.embedded import EmbeddedCluster
from tests.integration.waiting import PATIENCE_SECONDS

NAMESPACE = "default"


def has_succeeded(times: JobTimes) -> bool:
    return times.finished_at is not None and not times.has_failed


def make_run_job(name: str) -> RunJob:
    return RunJob(
        key=WorkloadKey(NAMESPACE, name), tenant="a", gpus=1, submitted_at=0.0, duration_seconds=10.0
    )


async def submit(client: KubeClient, name: str) -> dict[str, Any]:
    new_job = NewJob(
        name=name, namespace=NAMESPACE, queue="q", shape=GangShape(pods=1, gpus_per_pod=1), run_seconds=1
    )
    return await create(client, JOBS, job(new_job))


async def queue_up(client: KubeClient, name: str) -> None:
    """Create a Job and its Workload, as a controller would."""
    owner = await submit(client, name)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True}
    await create(
        client,
        WORKLOADS,
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
            },
            "spec": {
                "queueName": "q",
                "podSets": [{"name": "main", "template": owner["spec"]["template"]}],
            },
        },
    )


async def set_status(client: KubeClient, resource: Resource, name: str, status: dict[str, Any]) -> None:
    body = json.dumps({"status": status}).encode()
    await client.merge_patch(resource, name, body, NAMESPACE, subresource="status")


def condition(type_: str, status: str, reason: str = "R", message: str = "") -> dict[str, str]:
    at = "2026-01-01T00:00:00Z"
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }


def held(gpus: int) -> dict[str, Any]:
    assignment = {"name": "main", "flavors": {GPU: "f"}, "resourceUsage": {GPU: str(gpus)}, "count": 1}
    return {
        "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
        "conditions": [condition("QuotaReserved", "True"), condition("Admitted", "True")],
    }


async def until(condition_: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if condition_():
                return
            await asyncio.sleep(0.01)


async def test_every_lost_job_gets_its_own_sentence(embedded_server: EmbeddedCluster) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        await install_kinds(client)
        await create(client, LOCAL_QUEUES, local_queue("q", NAMESPACE, "cq"))
        for name in ("waits", "runs", "done"):
            await queue_up(client, name)
        for name in ("unseen-by-berth", "deleted"):
            await submit(client, name)
        waiting = condition("QuotaReserved", "False", "WaitingForQuota", "3 more needed")
        await set_status(client, WORKLOADS, "waits", {"conditions": [waiting]})
        await set_status(client, WORKLOADS, "runs", held(1))
        recorder = Recorder(client)
        async with in_background(recorder=recorder.run()):
            await recorder.wait_synced()
            await client.delete(JOBS, "deleted", NAMESPACE)
            await set_status(client, JOBS, "done", _completed())
            await until(lambda: has_succeeded(recorder.times(WorkloadKey(NAMESPACE, "done"))))
            await until(lambda: recorder.times(WorkloadKey(NAMESPACE, "deleted")).is_gone)

        names = ("done", "waits", "runs", "unseen-by-berth", "deleted", "refused", "vanished")
        jobs = [make_run_job(name) for name in names]
        refused = {WorkloadKey(NAMESPACE, "refused"): "quota of objects"}

        assert explain_lost(recorder, jobs, refused, now=0.0) == (
            "Job default/waits is lost: it still waits (WaitingForQuota: 3 more needed)",
            "Job default/runs is lost: it was admitted and did not end",
            "Job default/unseen-by-berth is lost: no controller created a Workload for it",
            "Job default/deleted is lost: another client deleted it",
            "Job default/refused is lost: the API server refused it (quota of objects)",
            "and 1 more Jobs are lost",
        )


async def test_recorded_versions_are_audited_and_timed(embedded_server: EmbeddedCluster) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        await install_kinds(client)
        await create(client, CLUSTER_QUEUES, cluster_queue("cq", flavor="f", nominal={GPU: 4}, cohort=None))
        await queue_up(client, "greedy")
        recorder = Recorder(client)
        key = WorkloadKey(NAMESPACE, "greedy")
        async with in_background(recorder=recorder.run()):
            await recorder.wait_synced()
            await set_status(client, WORKLOADS, "greedy", held(5))
            await until(lambda: recorder.times(key).admitted_at is not None)
            await set_status(client, JOBS, "greedy", _completed())
            await until(lambda: has_succeeded(recorder.times(key)))

        (breach,) = audit(recorder.records).exceeded
        (result,) = job_results(recorder, [make_run_job("greedy")], started_at=0.0, pace=2.0)

        assert (breach.used, breach.limit) == (5, 4)
        assert result.finished_at == 2.0 * (recorder.times(key).finished_at or 0.0)
        assert recorder.gaps == 0


def _completed() -> dict[str, Any]:
    at = "2026-01-01T00:00:00Z"
    done = [condition("SuccessCriteriaMet", "True"), condition("Complete", "True")]
    return {"startTime": at, "completionTime": at, "succeeded": 1, "conditions": done}
