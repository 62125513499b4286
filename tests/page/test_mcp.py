"""`berth mcp`: what an assistant gets, by the SDK's own client over standard input and output."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from admission.controller.http.query_api import QueryApi
from api.http.server import HttpServer
from tests.admission.controller.queries.asking import Asked
from tests.page.test_forwarding import KUBECONFIG

_JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: new, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
"""


@asynccontextmanager
async def assistant(folder: Path, *, user: str = "ada", asked: Asked | None = None) -> AsyncIterator[Client]:
    """Serve /v1 of two teams, and yield a client of `berth mcp` with the token of a user."""
    asked = asked or Asked()
    (folder / "kubeconfig").write_text(KUBECONFIG)
    (folder / "token").write_text(user)
    async with HttpServer(QueryApi(asked.service, asked.callers).routes()) as server:
        flags = ["--kubeconfig", str(folder / "kubeconfig"), "--token-file", str(folder / "token")]
        command = ["-m", "admission.cli", "mcp", "--url", server.url, *flags]
        async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
            yield client


def text(result: CallToolResult) -> str:
    """Return what the client's user reads."""
    return "".join(one.text for one in result.content if isinstance(one, TextContent))


def names(result: CallToolResult) -> list[str]:
    """Return the names on a page."""
    assert result.structured_content is not None, text(result)
    return [one["name"] for one in result.structured_content["items"]]


async def test_its_tools_are_read_only_and_have_a_schema(tmp_path: Path) -> None:
    async with assistant(tmp_path) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}

    assert sorted(tools) == ["explain", "list_promises", "list_queues", "list_workloads", "what_if"]
    assert {one.annotations is not None and one.annotations.read_only_hint for one in tools.values()} == {
        True
    }
    assert tools["explain"].input_schema["required"] == ["name"]
    assert all(one["description"] for one in tools["what_if"].input_schema["properties"].values())


async def test_a_tenant_reads_its_work_and_no_name_of_others(tmp_path: Path) -> None:
    async with assistant(tmp_path) as client:
        work = await client.call_tool("list_workloads", {"status": "pending"})
        queues = await client.call_tool("list_queues")
        why = await client.call_tool("explain", {"name": "c", "namespace": "ada"})
        what_if = await client.call_tool("what_if", {"manifests": _JOB, "namespace": "ada"})

    assert names(work) == ["c", "b", "a"]
    assert names(queues) == ["queue-a"]
    assert why.structured_content is not None
    assert "verdict" in why.structured_content
    assert what_if.structured_content is not None
    assert [one["ownerName"] for one in what_if.structured_content["workloads"]] == ["new"]
    assert not any("bob" in text(one) or "queue-b" in text(one) for one in (work, queues, why, what_if))


@pytest.mark.parametrize(
    ("tool", "given", "want"),
    [
        pytest.param(
            "explain",
            {"name": "d", "namespace": "bob"},
            "ada may not list workloads.kueue.x-k8s.io in namespace bob",
            id="a namespace of others",
        ),
        pytest.param(
            "explain",
            {"name": "none", "namespace": "ada"},
            "namespace ada has no Workload none",
            id="no object",
        ),
        pytest.param("explain", {"name": "../d", "namespace": "ada"}, "'../d' is no name", id="a path"),
        pytest.param("list_workloads", {"status": "waiting"}, "", id="a status that none has"),
        pytest.param("what_if", {"manifests": "[1", "namespace": "ada"}, "are no YAML", id="no YAML"),
        pytest.param(
            "what_if", {"manifests": "- 1", "namespace": "ada"}, "an object with a kind", id="a list"
        ),
    ],
)
async def test_what_cannot_be_answered_is_one_sentence(
    tmp_path: Path, tool: str, given: dict[str, Any], want: str
) -> None:
    async with assistant(tmp_path) as client:
        result = await client.call_tool(tool, given)

    assert want in text(result)
    assert result.is_error is bool(want)


async def test_an_unknown_token_is_refused_in_one_sentence(tmp_path: Path) -> None:
    async with assistant(tmp_path, user="unknown") as client:
        result = await client.call_tool("list_workloads")

    assert result.is_error
    assert text(result).endswith(": the API server does not accept the token")
