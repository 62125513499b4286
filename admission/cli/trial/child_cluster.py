"""The embedded cluster in a process of its own, so that a replay's controller need not share a core with it.

    parent ── one JSON line: where, which nodes, how fast ──▶ child     (stdin)
    parent ◀── "ready", once nodes and kinds are there ────── child     (stdout)

The child ends when its stdin ends, and so with its parent, however that one ends. It takes no part in Ctrl-C:
its parent comes first and closes the pipe.
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
from api.kube.embedded.standins import NodeSpec, StandIns

_READY = b"ready\n"
# A cluster of thousands of nodes registers each of them first.
_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
# Caps the one line that says which nodes to simulate.
_LONGEST_LINE = 64 << 20


class _Order(msgspec.Struct, frozen=True):
    kubeconfig: str
    pace: float
    nodes: list[NodeSpec]


@asynccontextmanager
async def child_cluster(kubeconfig: Path, nodes: Sequence[NodeSpec], *, pace: float) -> AsyncIterator[None]:
    """Run an embedded server with Berth's kinds, and stand-ins for all else, in a child process.

    `kubeconfig` is written when everything is ready. Raises NotHoldingError where the child does not start.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C goes to the whole group of a terminal; this one is to end only when its
        # parent has cleaned up.
        start_new_session=True,
    )
    assert child.stdin is not None
    try:
        order = _Order(kubeconfig=str(kubeconfig), pace=pace, nodes=list(nodes))
        # By stdin, as thousands of nodes are too many for a command line.
        child.stdin.write(msgspec.json.encode(order) + b"\n")
        await _wait_ready(child)
        yield
    finally:
        # Its end is the sign to stop, also where this process is killed and can tell nobody.
        child.stdin.close()
        await _wait_ended(child)


async def _wait_ready(child: asyncio.subprocess.Process) -> None:
    assert child.stdout is not None
    line = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(_START_SECONDS):
            line = await child.stdout.readline()
    # An empty line is the end of its stdout: it has died and said why on stderr.
    if line != _READY:
        raise NotHoldingError("the embedded cluster did not start; its own message stands above")


async def _wait_ended(child: asyncio.subprocess.Process) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await child.wait()
            return
    # It had its time; what it simulates is gone with it, so nothing is lost.
    child.kill()
    await child.wait()


async def _serve() -> None:
    """Be the child."""
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
            # Nothing more is ever sent: this returns when the parent closes the pipe or dies.
            await reader.read()


def _main() -> int:
    """Serve until stdin ends; an error is one sentence, as everywhere."""
    try:
        asyncio.run(_serve())
    except Exception as error:
        message, code = describe(error)
        print(f"embedded cluster: {message}", file=sys.stderr, flush=True)
        return code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(_main())
