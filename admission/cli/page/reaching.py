"""The way to a controller's port http: its address, the user's token, and how its certificate is verified."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from admission.cli.common.errors import WrongUsageError
from admission.cli.page.forwarding import Authorize
from admission.cli.page.port_forward import Forwarding, Target, port_forward
from api.kube.client import KubeClient
from api.kube.credentials import TokenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to reach a controller. `forwarding` None: directly at `url`.

    `is_verified` False: the API server leads to the very pod, and authenticated both sides, so that its
    certificate is not verified. `ca` is a PEM file with its authority. `own_namespace` is that of the
    context, None without one.
    """

    url: str
    authorize: Authorize
    is_verified: bool
    ca: str | None
    forwarding: Forwarding | None
    own_namespace: str | None

    @property
    def namespace(self) -> str:
        """The namespace of objects that name none."""
        return self.own_namespace or "default"


@asynccontextmanager
async def way_to_controller(arguments: argparse.Namespace) -> AsyncIterator[Way]:
    """Yield the way that the flags of `way_flags` describe, with the kubeconfig's user.

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
            own_namespace=client.namespace,
        )


async def _forwarding(stack: AsyncExitStack, arguments: argparse.Namespace) -> Forwarding:
    target = Target(
        namespace=arguments.controller_namespace,
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
    )
    return await stack.enter_async_context(port_forward(target))
