"""Where training jobs run, as kubectl asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import msgspec
import pytest

from admission.controller.http.training_job_api import TrainingJobApi
from admission.controller.http.visibility import render_error
from api.http.server import HttpServer
from api.kube import resources
from api.kube.client import KubeClient
from tests.admission.controller.extending import node_object, pod_object
from tests.embedded import EmbeddedCluster

ROOT = "/apis/visibility.berth.dev/v1alpha1"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PODS = (
    pod_object("a-0", namespace="x", job="bert", node="n0"),
    pod_object("a-1", namespace="x", job="bert", node="n1"),
    pod_object("a-2", namespace="x", job="bert", node="n1"),
    pod_object("waits", namespace="x", job="bert"),
    pod_object("done", namespace="x", job="bert", node="n2"),
    pod_object("later", namespace="x", job="queued"),
    pod_object("b-0", namespace="y", job="bert", node="plain"),
    pod_object("other", namespace="x", node="n2"),
)
NODES = (*(node_object(f"n{number}", fabric=f"fabric-{number}") for number in range(3)), node_object("plain"))


@pytest.fixture
async def url(embedded_server: EmbeddedCluster) -> AsyncIterator[str]:
    """Give the API of a cluster with these pods."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await KubeClient.connect(embedded_server.kubeconfig))
        for node in NODES:
            await client.create(resources.NODES, msgspec.json.encode(node))
        await fill(client, PODS)
        done = msgspec.json.encode({"status": {"phase": "Succeeded"}})
        await client.merge_patch(resources.PODS, "done", done, "x", subresource="status")
        server = HttpServer(TrainingJobApi(client).routes(), render_error=render_error)
        await stack.enter_async_context(server)
        yield server.url


async def fill(client: KubeClient, pods: Iterable[dict[str, Any]]) -> None:
    for name in ("x", "y"):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await client.create(resources.NAMESPACES, msgspec.json.encode(namespace))
    for pod in pods:
        await client.create(resources.PODS, msgspec.json.encode(pod), pod["metadata"]["namespace"])


async def ask(url: str, path: str, **headers: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url + path, headers=headers) as answer:
        return answer.status, await answer.json()


@pytest.mark.covers("000_35")
async def test_a_job_is_shown_with_its_nodes_and_fabrics(url: str) -> None:
    status, found = await ask(url, f"{ROOT}/namespaces/x/trainingjobplacements/bert")

    assert status == 200
    assert (found["kind"], found["metadata"]["name"], found["metadata"]["namespace"]) == (
        "TrainingJobPlacement",
        "bert",
        "x",
    )
    assert found["metadata"]["creationTimestamp"]
    assert found["status"] == {
        "pods": 3,
        "nodes": [{"name": "n0", "pods": 1}, {"name": "n1", "pods": 2}],
        "fabrics": ["fabric-0", "fabric-1"],
    }


async def test_lists_are_of_one_namespace_or_of_all(url: str) -> None:
    async def names(path: str) -> list[tuple[str, str]]:
        _, found = await ask(url, path)
        assert found["kind"] == "TrainingJobPlacementList"
        return [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in found["items"]]

    # A job none of whose pods has a node is nowhere.
    assert await names(f"{ROOT}/namespaces/x/trainingjobplacements") == [("x", "bert")]
    assert await names(f"{ROOT}/trainingjobplacements") == [("x", "bert"), ("y", "bert")]


async def test_kubectl_gets_a_table(url: str) -> None:
    _, found = await ask(url, f"{ROOT}/trainingjobplacements", **TABLE)

    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "Pods", "Nodes", "Fabrics"]
    assert [row["cells"] for row in found["rows"]] == [
        ["bert", 3, "n0:1,n1:2", "fabric-0,fabric-1"],
        ["bert", 1, "plain:1", "<none>"],
    ]
    assert found["rows"][1]["object"]["metadata"]["namespace"] == "y"


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("namespaces/x/trainingjobplacements/none", '"none" not found', id="an unknown job"),
        pytest.param("namespaces/x/trainingjobplacements/queued", '"queued" not found', id="a waiting one"),
        pytest.param(
            "namespaces/x%2Fpods%2F..%2F../trainingjobplacements",
            'namespaces "x/pods/../.." not found',
            id="a namespace that is a path",
        ),
    ],
)
async def test_nothing_is_found_of(url: str, path: str, want: str) -> None:
    status, found = await ask(url, f"{ROOT}/{path}")

    assert (status, found["reason"]) == (404, "NotFound")
    assert want in found["message"]


async def test_discovery_names_the_resource(url: str) -> None:
    _, group = await ask(url, "/apis/visibility.berth.dev")
    _, listed = await ask(url, ROOT)

    assert group["preferredVersion"]["groupVersion"] == "visibility.berth.dev/v1alpha1"
    (resource,) = listed["resources"]
    assert (resource["name"], resource["namespaced"], resource["verbs"]) == (
        "trainingjobplacements",
        True,
        ["get", "list"],
    )
