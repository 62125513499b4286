"""`berth mcp`: answers assistants and CI by the Model Context Protocol, with the rights of the user."""

from __future__ import annotations

import argparse
import importlib.util
from contextlib import AsyncExitStack

from admission.cli.common.arguments import Subparsers, add_cluster, add_command
from admission.cli.common.errors import WrongUsageError
from admission.cli.common.running import run
from admission.cli.common.way_flags import add_way, check_way
from admission.cli.page.asking import queries
from admission.cli.page.reaching import way_to_controller


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "mcp",
        help_line="answer assistants and CI by the Model Context Protocol, read-only",
        description=(
            "Serve the Model Context Protocol on standard input and output, for an assistant or a CI job\n"
            "that starts this command. Its tools list Workloads, queues and promises, explain a Workload,\n"
            "and say what would happen if a manifest was applied. They change nothing, and show what the\n"
            "user of the kubeconfig may read. Needs the package mcp: pip install 'berth-queue[mcp]'.\n"
            "Without --url, kubectl forwards a port to the controller, as for berth page."
        ),
        examples=(
            "  berth mcp --context prod\n"
            "  kubectl create token viewer -n team-a > token; berth mcp --token-file token\n"
            '  {"mcpServers": {"berth": {"command": "berth", "args": ["mcp"]}}}    # an assistant\'s file'
        ),
        run=_run,
    )
    add_way(parser)
    add_cluster(parser)


def _run(arguments: argparse.Namespace) -> int:
    check_way(arguments)
    if importlib.util.find_spec("mcp") is None:
        raise WrongUsageError(
            "berth mcp needs the package mcp; install it with: pip install 'berth-queue[mcp]'"
        )
    return run(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> int:
    # Imported late: it is there with the extra alone.
    from admission.cli.page.mcp_tools import make_server

    async with AsyncExitStack() as stack:
        way = await stack.enter_async_context(way_to_controller(arguments))
        asking = await stack.enter_async_context(queries(way))
        await make_server(asking, namespace=way.namespace).run_stdio_async()
    return 0
