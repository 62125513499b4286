"""`berth apiserver`: a cluster to try things on."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

from admission.cli.common.errors import ExitCode
from admission.cli.common.job_manifests import NewJob, job
from admission.cli.trial.embedded_cluster import create
from admission.simulation.shapes import GangShape
from api.kube.client import KubeClient
from api.kube.resources import CLUSTER_QUEUES, JOBS, NODES
from api.objects.common import NamedObject
from tests.integration.waiting import PATIENCE_SECONDS


async def test_it_is_ready_when_the_kubeconfig_is_there_and_runs_jobs(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "admission.cli", "apiserver", "--nodes", "3x4"),
        *("--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        assert (await server.stdout.readline()).decode() == f"KUBECONFIG={kubeconfig}\n"
        async with await KubeClient.connect(str(kubeconfig)) as client:
            nodes = await client.list(NODES, type_=NamedObject)
            assert [node.metadata.name for node in nodes.items] == ["node-0", "node-1", "node-2"]
            assert json.loads(await client.request("GET", CLUSTER_QUEUES.path()))["items"] == []

            shape = GangShape(pods=3, gpus_per_pod=4, whole_nodes=True)
            new_job = NewJob(name="gang", namespace="default", queue="", shape=shape, run_seconds=0.1)
            await create(client, JOBS, {**job(new_job), "spec": {**job(new_job)["spec"], "suspend": False}})
            await _wait_succeeded(client, "gang", pods=3)
    finally:
        server.send_signal(signal.SIGINT)
        assert await server.wait() == ExitCode.INTERRUPTED


async def _wait_succeeded(client: KubeClient, name: str, *, pods: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for line in client.watch(JOBS.path("default"), {}, idle_seconds=30):
            if line:
                status = json.loads(line)["object"]["status"]
                if status.get("succeeded") == pods:
                    return
