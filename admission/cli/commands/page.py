"""`berth page`: the controller's page in a browser, with the rights of the kubeconfig's user."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from admission.cli.common.arguments import Subparsers, add_cluster, add_command, existing_file, port
from admission.cli.common.browsing import open_in_browser
from admission.cli.common.errors import WrongUsageError
from admission.cli.common.running import run
from admission.cli.page.forwarding import forwarded
from admission.cli.page.port_forward import Forwarding, Target, port_forward
from admission.controller.runtime.identity import DEFAULT_NAMESPACE
from api.kube.client import KubeClient
from api.kube.credentials import TokenFile


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
    parser.add_argument(
        "--url", metavar="URL", help="the controller's port http (default: by kubectl port-forward)"
    )
    parser.add_argument(
        "--ca", type=existing_file, metavar="FILE", help="PEM authority of the --url's certificate"
    )
    parser.add_argument(
        "--token-file",
        type=existing_file,
        metavar="FILE",
        help="a token of the cluster, for kubeconfigs with a client certificate (default: the kubeconfig's)",
    )
    parser.add_argument(
        "--controller-namespace",
        metavar="NS",
        default=DEFAULT_NAMESPACE,
        help="where the controller runs (default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=port, default=0, metavar="N", help="of this machine (default: any free port)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    add_cluster(parser)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.url is not None and urlsplit(arguments.url).scheme not in ("http", "https"):
        raise WrongUsageError(f"--url {arguments.url} must begin with http:// or https://")
    if arguments.ca is not None and arguments.url is None:
        raise WrongUsageError("--ca needs the --url whose certificate it verifies")
    return run(_page(arguments))


async def _page(arguments: argparse.Namespace) -> int:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            await KubeClient.connect(arguments.kubeconfig, context=arguments.context)
        )
        forwarding = None if arguments.url else await _forwarding(stack, arguments)
        url = arguments.url if forwarding is None else f"https://127.0.0.1:{forwarding.port}"
        file = arguments.token_file
        authorize = client.authorization if file is None else TokenFile(file, "--token-file").authorization
        if url.startswith("https:") and not await authorize():
            raise WrongUsageError(
                f"{client.origin} has no token, which the controller asks for; give a --token-file, such as"
                " from kubectl create token"
            )
        address = await stack.enter_async_context(
            forwarded(
                url,
                authorize,
                port=arguments.port,
                # The API server leads to the very pod, and authenticated both sides.
                is_verified=arguments.url is not None,
                ca=str(arguments.ca) if arguments.ca is not None else None,
            )
        )
        print(f"PAGE={address}", flush=True)
        print("Ctrl-C ends it", file=sys.stderr, flush=True)
        if not arguments.no_browser:
            open_in_browser(address)
        await (asyncio.Event().wait() if forwarding is None else forwarding.ended())
    raise AssertionError("it ends by a signal, or with kubectl")


async def _forwarding(stack: AsyncExitStack, arguments: argparse.Namespace) -> Forwarding:
    target = Target(
        namespace=arguments.controller_namespace,
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
    )
    return await stack.enter_async_context(port_forward(target))
