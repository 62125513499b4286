"""The embedded cluster in a child process, so that it does not share a core with a replay's controller.

    parent ── one JSON line: kubeconfig, nodes, speed ──────▶ child     (stdin)
    parent ◀── "ready", once nodes and kinds exist ────────── child     (stdout)

The child exits when its stdin ends, so it always ends with its parent. Ctrl-C does not reach it: the parent
cleans up first and then closes the pipe.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from admission.cli.common.errors import ExitCode, NotHoldingError, describe
from admission.cli.trial.embedded_cluster import embedded_server, in_background, install_kinds
from api.kube.client import KubeClient
from api.kube.embedded.standins.kubelet import NodeSpec
from api.kube.embedded.standins.standins import StandIns

_READY = b"ready\n"
# A cluster with thousands of nodes must register each of them before it is ready.
_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
# The limit for the one line that lists the nodes to simulate.
_LONGEST_LINE = 64 << 20


class _Order(msgspec.Struct, frozen=True):
    kubeconfig: str
    pace: float
    nodes: list[NodeSpec]


@asynccontextmanager
async def child_cluster(kubeconfig: Path, nodes: Sequence[NodeSpec], *, pace: float) -> AsyncIterator[None]:
    """Run an embedded server with Berth's kinds and simulated control plane parts in a child process.

    `kubeconfig` is written when everything is ready. Raises NotHoldingError if the child does not start.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C goes to the terminal's process group; the child must end only after its
        # parent has cleaned up.
        start_new_session=True,
    )
    assert child.stdin is not None
    try:
        order = _Order(kubeconfig=str(kubeconfig), pace=pace, nodes=list(nodes))
        # Use stdin, because a command line is too short for thousands of nodes.
        child.stdin.write(msgspec.json.encode(order) + b"\n")
        await _wait_ready(child)
        yield
    finally:
        # The end of stdin stops the child, also if this process is killed.
        child.stdin.close()
        await _wait_ended(child)


async def _wait_ready(child: asyncio.subprocess.Process) -> None:
    assert child.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            line = await child.stdout.readline()
    except TimeoutError as error:
        raise NotHoldingError(f"the embedded cluster did not start within {_START_SECONDS:.0f} s") from error
    # An empty line means the end of its stdout: it has exited and printed the cause on stderr.
    if line != _READY:
        raise NotHoldingError("the embedded cluster did not start; see its message above")


async def _wait_ended(child: asyncio.subprocess.Process) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await child.wait()
            return
    # It did not exit in time. Its simulated state ends with it, so a kill loses nothing.
    child.kill()
    await child.wait()


async def _serve() -> None:
    """Serve the cluster in the child process until stdin ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    order = msgspec.json.decode(await reader.readline(), type=_Order)
    async with (
        embedded_server(Path(order.kubeconfig)),
        await KubeClient.connect(order.kubeconfig) as client,
    ):
        await install_kinds(client)
        stand_ins = StandIns(client, nodes=order.nodes, speed=order.pace)
        async with in_background(nodes=stand_ins.run()):
            await stand_ins.wait_ready()
            sys.stdout.buffer.write(_READY)
            sys.stdout.flush()
            # The parent sends nothing more: this returns when it closes the pipe or exits.
            await reader.read()


def _main() -> int:
    """Serve until stdin ends and return the exit code. An error is reported in one sentence."""
    try:
        asyncio.run(_serve())
    except Exception as error:
        message, code = describe(error)
        print(f"embedded cluster: {message}", file=sys.stderr, flush=True)
        return code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(_main())
