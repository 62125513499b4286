"""`berth page`: the controller's page in a browser, with the rights of the kubeconfig's user."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack

from admission.cli.common.arguments import Subparsers, add_cluster, add_command, port
from admission.cli.common.browsing import open_in_browser
from admission.cli.common.running import run
from admission.cli.common.way_flags import add_way, check_way
from admission.cli.page.forwarding import forwarded
from admission.cli.page.reaching import way_to_controller


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "page",
        help_line="open the page of a controller in a browser: queues, quota, racks, starts, decisions",
        description=(
            "Open the page of a cluster's controller in a browser, until Ctrl-C. It is served on this\n"
            "machine alone, and shows what the user of the kubeconfig may read: with the right to list\n"
            "Workloads in one namespace, the work of that namespace, and counts of all other.\n"
            "Without --url, kubectl forwards a port to the controller, which takes the right to create\n"
            "pods/portforward in its namespace."
        ),
        examples=(
            "  berth page\n"
            "  berth page --context prod --port 9000 --no-browser\n"
            "  berth page --url https://berth.example.com    # a controller that is reached otherwise\n"
            "  kubectl create token viewer -n team-a > token; berth page --token-file token"
        ),
        run=_run,
    )
    add_way(parser)
    parser.add_argument(
        "--port", type=port, default=0, metavar="N", help="of this machine (default: any free port)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    add_cluster(parser)


def _run(arguments: argparse.Namespace) -> int:
    check_way(arguments)
    return run(_page(arguments))


async def _page(arguments: argparse.Namespace) -> int:
    async with AsyncExitStack() as stack:
        way = await stack.enter_async_context(way_to_controller(arguments))
        address = await stack.enter_async_context(
            forwarded(way.url, way.authorize, port=arguments.port, is_verified=way.is_verified, ca=way.ca)
        )
        print(f"PAGE={address}", flush=True)
        print("Ctrl-C ends it", file=sys.stderr, flush=True)
        if not arguments.no_browser:
            open_in_browser(address)
        await (asyncio.Event().wait() if way.forwarding is None else way.forwarding.ended())
    raise AssertionError("it ends by a signal, or with kubectl")
