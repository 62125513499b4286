"""`berth get`: what people and scripts are shown of a cluster."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from admission.cli.common.job_manifests import GPU, cluster_queue, local_queue, namespace
from admission.cli.trial.embedded_cluster import create, install_kinds
from api.kube.client import KubeClient
from api.kube.errors import Forbidden
from api.kube.resources import (
    ADMISSION_POLICIES,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACES,
    WORKLOADS,
    Resource,
)


@pytest.fixture
def cluster(bare_server: str) -> str:
    """Give the kubeconfig of a cluster with two queues of one cohort and two waiting Workloads."""
    asyncio.run(_fill(bare_server))
    return bare_server


async def _fill(kubeconfig: str) -> None:
    async with await KubeClient.connect(kubeconfig) as client:
        await install_kinds(client)
        for name in ("speech", "vision"):
            queue = cluster_queue(name, flavor="a100", nominal={GPU: 8}, cohort="research")
            await create(client, CLUSTER_QUEUES, queue)
            await create(client, NAMESPACES, namespace(name))
            await create(client, LOCAL_QUEUES, local_queue("main", name, name))
        status = {
            "flavorsReservation": [
                {"name": "a100", "resources": [{"name": GPU, "total": "10", "borrowed": "2"}]}
            ],
            "fairSharing": {"weightedShare": 0},
        }
        body = json.dumps({"status": status}).encode()
        await client.merge_patch(CLUSTER_QUEUES, "speech", body, subresource="status")
        for name, priority in (("low", 1), ("high", 2)):
            await create(client, WORKLOADS, _workload(name, priority))


def _workload(name: str, priority: int) -> dict[str, Any]:
    container = {"name": "main", "image": "x"}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "speech"},
        "spec": {"queueName": "main", "priority": priority, "podSets": [pod_set]},
    }


def test_queues_are_shown_with_their_use(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["get", "queues", "--kubeconfig", cluster]) == ExitCode.DONE

    heading, speech, vision = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["NAME", "COHORT", "STRATEGY"]
    assert speech.split()[:3] == ["speech", "research", "BestEffortFIFO"]
    assert speech.endswith("10/8 (+2 borrowed)")
    assert vision.endswith("0/8")


def test_workloads_are_shown_in_the_order_of_the_queue(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", "workloads", "-n", "speech", "--kubeconfig", cluster]) == ExitCode.DONE

    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["high", "pending", "1"]
    assert second.split()[:3] == ["low", "pending", "2"]


def shown_order(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, int]]:
    """Return the Workloads as they are listed, with their positions."""
    assert main(["get", "workloads", "-o", "json", "--kubeconfig", kubeconfig]) == ExitCode.DONE
    return [(row["name"], row["position"]) for row in json.loads(capsys.readouterr().out)]


def test_positions_follow_the_order_that_the_policy_asks_for(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_order_by_length(cluster))

    assert shown_order(cluster, capsys) == [("high", 1), ("short", 2), ("long", 3), ("low", 4)]


async def _order_by_length(kubeconfig: str) -> None:
    """Put the shortest first, and a short one behind a long one."""
    async with await KubeClient.connect(kubeconfig) as client:
        policy = {
            "apiVersion": "berth.dev/v1alpha1",
            "kind": "AdmissionPolicy",
            "metadata": {"name": "short-first"},
            "spec": {"ordering": {"mode": "ShortestPredicted"}, "estimates": {}},
        }
        await create(client, ADMISSION_POLICIES, policy)
        for name, seconds in (("long", 9000), ("short", 60)):
            workload = _workload(name, 1)
            workload["spec"] = {**workload["spec"], "maximumExecutionTimeSeconds": seconds}
            await create(client, WORKLOADS, workload)


def test_where_not_all_may_be_read_positions_are_by_priority_and_age_and_say_so(
    cluster: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_order_by_length(cluster))
    read = KubeClient.list

    async def read_what_is_allowed(client: KubeClient, resource: Resource, *given: Any, **more: Any) -> Any:
        if resource is ADMISSION_POLICIES:
            raise Forbidden("you may not list them")
        return await read(client, resource, *given, **more)

    monkeypatch.setattr(KubeClient, "list", read_what_is_allowed)

    main(["get", "workloads", "-n", "speech", "-o", "json", "--kubeconfig", cluster])

    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert ([row["position"] for row in rows], rows[0]["name"]) == ([1, 2, 3, 4], "high")
    want = "only by priority and age, because admissionpolicies may not be read: you may not list them"
    assert want in err


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_scripts_get_rows_with_the_names_of_the_api(
    output: str, read: object, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(read)
    assert main(["get", "workloads", "-o", output, "--kubeconfig", cluster]) == ExitCode.DONE

    row = read(capsys.readouterr().out)[0]
    assert (row["name"], row["clusterQueue"], row["position"]) == ("high", "speech", 1)


def test_the_queues_of_a_namespace_are_those_that_serve_it(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", "queues", "-n", "vision", "-o", "json", "--kubeconfig", cluster]) == ExitCode.DONE

    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["vision"]


@pytest.mark.parametrize("kind", ["queues", "workloads"])
def test_a_server_without_the_kinds_is_named_with_the_fix(
    kind: str, bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["get", kind, "--kubeconfig", bare_server]) == ExitCode.WRONG_USAGE

    assert "berth crds | kubectl apply --server-side -f -" in capsys.readouterr().err


def test_an_empty_cluster_is_said_to_be_empty(bare_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_install(bare_server))

    main(["get", "queues", "--kubeconfig", bare_server])
    main(["get", "workloads", "--kubeconfig", bare_server])

    assert capsys.readouterr().out.splitlines() == ["there is no ClusterQueue", "there is no Workload"]


async def _install(kubeconfig: str) -> None:
    async with await KubeClient.connect(kubeconfig) as client:
        await install_kinds(client)
