"""The node's labels on the embedded API server, beside labels of other writers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from admission.node_agent.shell.node_labels_writer import FIELD_MANAGER, NodeLabelsWriter
from api.kube.client import KubeClient
from api.kube.errors import NotFound
from api.kube.resources import NODES
from tests.embedded import EmbeddedCluster

MODEL, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
VERSION = "berth.dev/node-agent-version"
T4 = {MODEL: "Tesla-T4", MEMORY: "15109"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubeClient]:
    """Give a client of an API server with the node `gpu-1`, which has a label of its own."""
    async with (
        EmbeddedCluster(tmp_path) as cluster,
        await KubeClient.connect(cluster.kubeconfig, user_agent="kubelet") as client,
    ):
        metadata = {"name": "gpu-1", "labels": {"zone": "a"}}
        await client.create(NODES, json.dumps({"metadata": metadata}).encode())
        yield client


def writer(client: KubeClient, version: str = "1.0") -> NodeLabelsWriter:
    """Return the writer of an agent that has just started."""
    return NodeLabelsWriter(client, "gpu-1", version)


async def metadata(client: KubeClient) -> dict[str, Any]:
    """Return the metadata of the node."""
    found: dict[str, Any] = json.loads(await client.get(NODES, "gpu-1"))["metadata"]
    return found


async def set_labels(client: KubeClient, labels: Mapping[str, str | None]) -> None:
    """Set labels as `kubectl label` does; None removes one."""
    await client.merge_patch(NODES, "gpu-1", json.dumps({"metadata": {"labels": labels}}).encode())


async def test_labels_are_written_beside_those_that_are_there(client: KubeClient) -> None:
    written = await writer(client).write(T4)

    found = await metadata(client)
    assert written.changed
    assert found["labels"] == {"zone": "a", **T4}
    assert found["annotations"] == {VERSION: "1.0"}
    assert FIELD_MANAGER in {entry["manager"] for entry in found["managedFields"]}


async def test_nothing_is_sent_while_nothing_changes(client: KubeClient) -> None:
    await writer(client).write(T4)
    before = await metadata(client)

    written = await writer(client).write(T4)

    assert not written.changed
    assert await metadata(client) == before


async def test_a_label_that_no_longer_holds_goes_also_after_a_restart(client: KubeClient) -> None:
    await writer(client).write(T4)

    await writer(client).write({MODEL: "Tesla-T4"})

    assert (await metadata(client))["labels"] == {"zone": "a", MODEL: "Tesla-T4"}


async def test_another_version_of_the_agent_takes_its_labels_over(client: KubeClient) -> None:
    await writer(client, "2.0").write({**T4, "nvidia.com/gpu.family": "turing"})

    assert (await writer(client, "1.0").write(T4)).changed

    found = await metadata(client)
    assert found["labels"] == {"zone": "a", **T4}
    assert found["annotations"] == {VERSION: "1.0"}


async def test_without_any_label_nothing_of_the_agent_stays(client: KubeClient) -> None:
    await writer(client).write(T4)

    assert (await writer(client).write({})).changed

    found = await metadata(client)
    assert found["labels"] == {"zone": "a"}
    assert not found.get("annotations")
    assert not (await writer(client).write({})).changed


@pytest.mark.parametrize("is_first", [True, False], ids=["before the agent", "after the agent"])
async def test_a_label_of_another_writer_is_left_alone_and_named(client: KubeClient, is_first: bool) -> None:
    if not is_first:
        await writer(client).write(T4)
    await set_labels(client, {MODEL: "Tesla-T4-SHARED"})

    written = await writer(client).write(T4)

    assert (await metadata(client))["labels"] == {"zone": "a", **T4, MODEL: "Tesla-T4-SHARED"}
    assert written.left_alone == (f"label {MODEL} is 'Tesla-T4-SHARED' by another writer and not 'Tesla-T4'",)
    assert not (await writer(client).write(T4)).changed


async def test_a_label_that_was_removed_by_hand_comes_back(client: KubeClient) -> None:
    await writer(client).write(T4)
    await set_labels(client, {MODEL: None})

    assert (await writer(client).write(T4)).changed

    assert (await metadata(client))["labels"] == {"zone": "a", **T4}


async def test_a_node_that_is_not_there_is_an_error(client: KubeClient) -> None:
    with pytest.raises(NotFound, match="gpu-2"):
        await NodeLabelsWriter(client, "gpu-2", "1.0").find_node()
