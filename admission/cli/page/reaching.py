"""The way to a controller's port http: its address, the user's token, and how its certificate is verified."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from admission.cli.common.arguments import existing_file
from admission.cli.common.errors import WrongUsageError
from admission.cli.page.forwarding import Authorize
from admission.cli.page.port_forward import Forwarding, Target, port_forward
from admission.controller.runtime.identity import DEFAULT_NAMESPACE
from api.kube.client import KubeClient
from api.kube.credentials import TokenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to reach a controller. `forwarding` None: directly at `url`.

    `is_verified` False: the API server leads to the very pod, and authenticated both sides, so that its
    certificate is not verified. `ca` is a PEM file with its authority. `namespace` is that of the context.
    """

    url: str
    authorize: Authorize
    is_verified: bool
    ca: str | None
    forwarding: Forwarding | None
    namespace: str


def add_way(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where the controller is, and with which token it is asked."""
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


def check_way(arguments: argparse.Namespace) -> None:
    """Raise WrongUsageError for flags that contradict each other."""
    if arguments.url is not None and urlsplit(arguments.url).scheme not in ("http", "https"):
        raise WrongUsageError(f"--url {arguments.url} must begin with http:// or https://")
    if arguments.ca is not None and arguments.url is None:
        raise WrongUsageError("--ca needs the --url whose certificate it verifies")


@asynccontextmanager
async def way_to_controller(arguments: argparse.Namespace) -> AsyncIterator[Way]:
    """Yield the way that the flags of `add_way` describe, with the kubeconfig's user.

    Raises WrongUsageError without a token, UnreachableError if no port can be forwarded, and what
    `KubeClient.connect` raises.
    """
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
        yield Way(
            url=url,
            authorize=authorize,
            is_verified=arguments.url is not None,
            ca=str(arguments.ca) if arguments.ca is not None else None,
            forwarding=forwarding,
            namespace=client.namespace or "default",
        )


async def _forwarding(stack: AsyncExitStack, arguments: argparse.Namespace) -> Forwarding:
    target = Target(
        namespace=arguments.controller_namespace,
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
    )
    return await stack.enter_async_context(port_forward(target))
