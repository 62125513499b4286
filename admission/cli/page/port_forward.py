"""A port of this machine that leads to the controller's port http, as `kubectl port-forward` makes it.

kubectl speaks the streaming protocol of every kubelet that is in use; there is no second implementation
here. When kubectl ends, its port is free for any other user of this machine, who must not get what is meant
for the controller: a command that uses the port waits for `ended` meanwhile.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

from admission.cli.common.errors import UnreachableError, WrongUsageError

# The port of the controller's Deployment; its container names it http.
REMOTE_PORT = 8090
_SECONDS = 30.0
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The controller's Deployment, and the cluster that it runs in."""

    namespace: str
    kubeconfig: str | None = None
    context: str | None = None
    deployment: str = "berth-controller"

    def command(self, kubectl: str) -> Sequence[str]:
        """Return kubectl's command line."""
        cluster = [("--kubeconfig", self.kubeconfig), ("--context", self.context)]
        flags = [word for flag, value in cluster if value is not None for word in (flag, value)]
        where = ("--namespace", self.namespace, "--address", "127.0.0.1")
        return (
            kubectl,
            *flags,
            "port-forward",
            *where,
            f"deployment/{self.deployment}",
            f":{REMOTE_PORT}",
        )


class Forwarding:
    """A kubectl that forwards `port` of this machine to the controller."""

    def __init__(self, port: int, process: asyncio.subprocess.Process) -> None:
        self.port = port
        self._process = process

    async def ended(self) -> NoReturn:
        """Wait while kubectl forwards. Raises UnreachableError with what it says at its end."""
        # It also writes a line for each connection, and would block if they were not read.
        _, said = await self._process.communicate()
        raise UnreachableError(f"kubectl port-forward has ended: {_last_line(said)}; start the command again")


@asynccontextmanager
async def port_forward(target: Target) -> AsyncIterator[Forwarding]:
    """Yield a port of this machine that leads to the controller's, until the end.

    Raises WrongUsageError without kubectl, and UnreachableError with what kubectl says if it cannot forward.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise WrongUsageError(
            "kubectl is not installed, which forwards the controller's port; give its --url"
        )
    process = await asyncio.create_subprocess_exec(
        *target.command(kubectl), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield Forwarding(await _port(process, target), process)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")


async def _port(process: asyncio.subprocess.Process, target: Target) -> int:
    assert process.stdout is not None, "asked for"
    assert process.stderr is not None, "asked for"
    try:
        async with asyncio.timeout(_SECONDS):
            line = await process.stdout.readline()
            if (found := _FORWARDING.match(line)) is not None:
                return int(found[1])
            said = (await process.stderr.read()).decode(errors="replace")
    except TimeoutError:
        said = f"kubectl port-forward did not begin within {_SECONDS:g} s"
    raise UnreachableError(
        f"Deployment {target.namespace}/{target.deployment} cannot be reached: {said.strip()};"
        " give the --url of a controller, or its namespace by --controller-namespace"
    )
