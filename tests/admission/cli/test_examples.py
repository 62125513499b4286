"""The files in examples/ do what their heads say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.cli.__main__ import main
from admission.cli.commands.apiserver import simulated_nodes
from admission.cli.common.arguments import NodeCounts
from admission.cli.trial.embedded_cluster import create, install_kinds
from admission.cli.trial.in_process_controller import run_inner_controller
from admission.cli.trial.replay_plan import make_plan
from admission.simulation.traces import read_trace
from api.kube.client import KubeClient
from api.kube.resources import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from tests.embedded import EmbeddedCluster

EXAMPLES = Path(__file__).parents[3] / "examples"
RESOURCES = {
    resource.kind: resource
    for resource in (
        CLUSTER_QUEUES,
        JOBS,
        LOCAL_QUEUES,
        NAMESPACES,
        RESOURCE_FLAVORS,
        WORKLOAD_PRIORITY_CLASSES,
        WORKLOADS,
    )
}


def read(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


async def test_an_api_server_takes_all_of_them(embedded_server: EmbeddedCluster) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        await install_kinds(client)
        for manifest in (*read("queues.yaml"), *read("workloads.yaml")):
            await create(client, RESOURCES[manifest["kind"]], manifest)
        for name, namespace in (("job.yaml", "vision"), ("gang.yaml", "speech")):
            for manifest in read(name):
                manifest["metadata"]["namespace"] = namespace
                stored = await create(client, JOBS, manifest)
                assert stored["spec"]["suspend"] is True


async def test_the_controller_admits_their_jobs(embedded_server: EmbeddedCluster) -> None:
    listening, admitted = asyncio.Event(), 0
    async with await KubeClient.connect(embedded_server.kubeconfig) as client, asyncio.timeout(60):
        await install_kinds(client)
        controller = asyncio.create_task(
            run_inner_controller(embedded_server.kubeconfig, listening=listening)
        )
        await listening.wait()
        for name, namespace in (
            ("queues", ""),
            ("job", "vision"),
            ("priority", "vision"),
            ("gang", "speech"),
        ):
            for manifest in read(f"{name}.yaml"):
                if manifest["kind"] == "Job":
                    manifest["metadata"]["namespace"] = namespace
                await create(client, RESOURCES[manifest["kind"]], manifest)
        while admitted < 3:
            jobs = json.loads(await client.request("GET", JOBS.path()))["items"]
            admitted = sum(not job["spec"]["suspend"] for job in jobs)
            await asyncio.sleep(0.05)
        controller.cancel()
        await asyncio.wait([controller])

    selectors = [job["spec"]["template"]["spec"]["nodeSelector"] for job in jobs]
    assert selectors == [{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}] * 3


def test_the_flavor_is_that_of_the_nodes_of_berth_apiserver() -> None:
    (flavor,) = [manifest for manifest in read("queues.yaml") if manifest["kind"] == "ResourceFlavor"]
    (node,) = simulated_nodes(NodeCounts(count=1, gpus_per_node=8))

    assert flavor["spec"]["nodeLabels"].items() <= node.labels.items()


def test_the_whole_folder_can_be_decided_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decide", "-f", str(EXAMPLES)]) == 0

    out, err = capsys.readouterr()
    left_out = "PersistentVolumeClaim checkpoints is left out: decisions do not depend on this kind"
    assert err.splitlines() == [f"berth decide: {left_out}"]
    # The Jobs of the examples became Workloads.
    assert "/job-" in out


def test_the_workloads_are_decided_as_the_comment_says(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(EXAMPLES / name) for name in ("queues.yaml", "workloads.yaml")]

    assert main(["decide", "-f", files[0], "-f", files[1]]) == 0

    shown = capsys.readouterr().out.splitlines()
    for workload, want in (("pretrain", "borrows"), ("detect", "admit"), ("segment", "WaitingForQuota")):
        (line,) = [line for line in shown if f"/{workload} " in line]
        assert want in line


def test_the_trace_fits_the_nodes_of_the_documentation() -> None:
    plan = make_plan(
        read_trace(EXAMPLES / "trace.csv"), nodes=NodeCounts(count=4, gpus_per_node=8), run_id=""
    )

    assert (len(plan.jobs), len(plan.names)) == (40, 3)
