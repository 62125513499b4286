"""Evictions as the sender asks for them, on the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from admission.controller.writer.requests import KubeSender
from admission.decisions.api_writes import Purpose, Verb, Write
from api.kube import resources
from api.kube.client import MERGE_PATCH, Body, KubeClient
from api.kube.errors import KubeError, NotFound, TooManyRequests
from tests.embedded import EmbeddedCluster

Object = dict[str, Any]


@pytest.fixture
async def client(embedded_server: EmbeddedCluster) -> AsyncIterator[KubeClient]:
    """Give a client of a server with one pod that runs."""
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": {"app": "a"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
        }
        await client.request("POST", resources.PODS.path("default"), body=Body(msgspec.json.encode(pod)))
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await client.request(
            "PATCH",
            resources.PODS.path("default", "p", "status"),
            body=Body(msgspec.json.encode({"status": status}), MERGE_PATCH),
        )
        yield client


def eviction() -> Write:
    """Return the eviction of the pod."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}
    return Write(
        verb=Verb.EVICT,
        kind="Pod",
        namespace="default",
        name="p",
        body=msgspec.json.encode(body),
        purpose=Purpose.EVICT_POD,
    )


async def test_an_evicted_pod_is_asked_to_go(client: KubeClient) -> None:
    assert await KubeSender(client).send(eviction(), timeout_seconds=30.0) == b""

    path = resources.PODS.path("default", "p")
    try:
        pod = msgspec.json.decode(await client.request("GET", path))
    except NotFound:
        return
    assert "deletionTimestamp" in pod["metadata"]


async def test_what_a_budget_refuses_is_refused_and_holds_up_no_other_write(client: KubeClient) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    path = resources.POD_DISRUPTION_BUDGETS.path("default")
    await client.request("POST", path, body=Body(msgspec.json.encode(budget)))

    with pytest.raises(KubeError, match="disruption budget") as refused:
        await KubeSender(client).send(eviction(), timeout_seconds=30.0)

    # The executor takes that one for a call for patience with all writes.
    assert not isinstance(refused.value, TooManyRequests)


async def test_a_list_has_every_object_in_the_form_of_the_watch(client: KubeClient) -> None:
    (pod,) = await KubeSender(client).list_all("Pod")

    found = msgspec.json.decode(pod)
    assert (found["kind"], found["metadata"]["name"]) == ("Pod", "p")
    assert "managedFields" not in found["metadata"]


async def test_the_list_of_a_kind_that_is_not_served_is_empty(client: KubeClient) -> None:
    assert await KubeSender(client).list_all("Workload") == []
