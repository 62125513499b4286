"""The tools of `berth mcp`: the questions of /v1, described for programs that choose among them.

Each tool is one request with the user's token, so it shows what /v1 shows that user. A refusal is the
controller's own sentence, marked as an error. Their JSON schemas come from the signatures below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Annotated, Any, TypeVar

import yaml
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from admission.cli.common.errors import CommandError
from admission.cli.page.asking import Queries

T = TypeVar("T")
_READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_INSTRUCTIONS = (
    "Berth decides which Job runs next on a shared cluster. Workloads wait in LocalQueues of namespaces,"
    " which lead to ClusterQueues with quota. Times are RFC 3339 in UTC. Nothing here changes the cluster."
)
# A page that an assistant can read; `continue` leads on.
_PAGE = 50

Name = Annotated[str, Field(description="name of the Workload, or of its Job")]
Namespace = Annotated[str, Field(description="namespace; empty for that of the kubeconfig's context")]
Namespaces = Annotated[str, Field(description="namespaces, separated by commas; empty for all that you see")]
Continue = Annotated[str, Field(description="`continue` of the page before; empty for the first page")]
Limit = Annotated[int, Field(description="items on the page", ge=1, le=1000)]


def make_server(queries: Queries, *, namespace: str) -> MCPServer[Any]:
    """Return the server. `namespace` is the one that a tool asks for if none is named."""
    server = MCPServer[Any]("berth", instructions=_INSTRUCTIONS, log_level="WARNING")
    for tool in _Tools(queries, namespace).all():
        server.tool(annotations=_READ_ONLY)(tool)
    return server


class _Tools:
    """The tools. Their docstrings are what a client reads."""

    def __init__(self, queries: Queries, namespace: str) -> None:
        self._queries = queries
        self._namespace = namespace

    def all(self) -> tuple[Any, ...]:
        """Return the functions."""
        return (self.list_workloads, self.list_queues, self.list_promises, self.explain, self.what_if)

    async def list_workloads(
        self,
        namespace: Namespaces = "",
        status: Annotated[
            str, Field(description="pending, quotaReserved, admitted, finished, deactivated; by commas")
        ] = "",
        cluster_queue: Annotated[str, Field(description="name of a ClusterQueue; empty for all")] = "",
        limit: Limit = _PAGE,
        after: Continue = "",
    ) -> dict[str, Any]:
        """List Workloads with status, position, expected or promised start, and why they wait.

        They are sorted by position. `hidden` counts those that you may not see.
        """
        query = _given(namespace=namespace, status=status, clusterQueue=cluster_queue, **{"continue": after})
        return await _told(
            self._queries.list("workloads", {**query, "sort": "position", "limit": str(limit)})
        )

    async def list_queues(self, limit: Limit = _PAGE, after: Continue = "") -> dict[str, Any]:
        """List ClusterQueues with quota (nominal, used, borrowed, lent, available), and how much waits."""
        query = _given(**{"continue": after})
        return await _told(self._queries.list("clusterqueues", {**query, "limit": str(limit)}))

    async def list_promises(
        self, namespace: Namespaces = "", limit: Limit = _PAGE, after: Continue = ""
    ) -> dict[str, Any]:
        """List promised starts, the next one first, with how often and why each has moved."""
        query = _given(namespace=namespace, **{"continue": after})
        return await _told(self._queries.list("promises", {**query, "limit": str(limit)}))

    async def explain(
        self,
        name: Name,
        namespace: Namespace = "",
        with_help: Annotated[
            bool, Field(description="also try which changes would let it start earlier; takes some seconds")
        ] = False,
    ) -> dict[str, Any]:
        """Explain what becomes of a Workload or Job: a verdict, its start, what it lacks, what holds that."""
        found = await _told(self._queries.explain(namespace or self._namespace, name, with_help=with_help))
        # Every node with its counts: of no use to an assistant, and thousands of lines in a large cluster.
        return {key: value for key, value in found.items() if key != "podSets"}

    async def what_if(
        self,
        manifests: Annotated[
            str,
            Field(description="YAML or JSON documents: Jobs to submit, or queues, policies, nodes"),
        ],
        namespace: Namespace = "",
    ) -> dict[str, Any]:
        """Say what would happen if manifests were applied: starts, and which Workloads wait longer or stop.

        Nothing is applied.
        """
        question = {"objects": _documents(manifests), "namespace": namespace or self._namespace}
        return await _told(self._queries.what_if(question))


def _given(**query: str) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


async def _told(asking: Awaitable[T]) -> T:
    """Return the answer, or raise the sentence that says why there is none."""
    try:
        return await asking
    except CommandError as error:
        raise ToolError(str(error)) from error


def _documents(manifests: str) -> list[Mapping[str, Any]]:
    try:
        documents = [one for one in yaml.safe_load_all(manifests) if one is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ToolError(f"the manifests are no YAML: {' '.join(str(error).split())}") from error
    for one in documents:
        if not isinstance(one, dict):
            raise ToolError(f"a manifest is an object with a kind, and not {str(one)[:64]!r}")
    return documents
