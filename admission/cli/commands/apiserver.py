"""`berth apiserver`: only the embedded API server with simulated nodes, for tests and experiments."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from admission.cli.common.arguments import NodeCounts, Subparsers, add_command, add_nodes, port
from admission.cli.common.running import run
from admission.cli.trial.embedded_cluster import (
    check_may_write,
    embedded_server,
    in_background,
    install_kinds,
    write_kubeconfig,
)
from admission.cli.trial.simulated_nodes import pool_nodes
from api.kube.client import KubeClient
from api.kube.embedded.standins.kubelet import NodeSpec
from api.kube.embedded.standins.standins import StandIns

_DEFAULT_NODES = NodeCounts(count=16, gpus_per_node=8)
_POOL = "node"
# The GPU of examples/queues.yaml, so that its flavor matches these nodes.
_GPU_PRODUCT = "NVIDIA-A100-SXM4-80GB"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "apiserver",
        help_line="run only the embedded API server with simulated nodes",
        description=(
            "Run the embedded API server with Berth's kinds, simulated GPU nodes, and stand-ins for\n"
            "scheduler, Job controller and kubelet. Berth's controller is not included.\n"
            "The nodes match the flavor in examples/queues.yaml. Pods run for\n"
            "berth.dev/simulated-runtime-seconds (default 1). State is kept in memory; Ctrl-C ends it.\n"
            "When everything is ready, FILE is written and KUBECONFIG=FILE is printed."
        ),
        examples=(
            "  berth apiserver --kubeconfig /tmp/k\n"
            "  berth apiserver --port 6443 --nodes 138x8 --kubeconfig /tmp/k &\n"
            "  KUBECONFIG=/tmp/k kubectl get nodes"
        ),
        run=_run,
    )
    parser.add_argument(
        "--port", type=port, default=0, metavar="N", help="port on 127.0.0.1 (default 0: any free port)"
    )
    add_nodes(parser, _DEFAULT_NODES)
    parser.add_argument(
        "--kubeconfig", type=Path, required=True, metavar="FILE", help="where to write the kubeconfig"
    )


def simulated_nodes(counts: NodeCounts) -> tuple[NodeSpec, ...]:
    """Return the nodes. Those with GPUs have the label of an A100."""
    product = _GPU_PRODUCT if counts.gpus_per_node else ""
    return pool_nodes(_POOL, counts.count, counts.gpus_per_node, product=product, is_tainted=False)


def _run(arguments: argparse.Namespace) -> int:
    check_may_write(arguments.kubeconfig)
    return run(_serve(arguments.kubeconfig, arguments.nodes, arguments.port))


async def _serve(kubeconfig: Path, nodes: NodeCounts, number: int) -> int:
    with tempfile.TemporaryDirectory(prefix="berth-apiserver-") as folder:
        # Write the user's file only when everything is ready, so that scripts can wait for it.
        own = Path(folder) / "kubeconfig"
        async with embedded_server(own, port=number) as server, await KubeClient.connect(str(own)) as client:
            await install_kinds(client)
            stand_ins = StandIns(client, nodes=simulated_nodes(nodes))
            async with in_background(nodes=stand_ins.run()):
                await stand_ins.wait_ready()
                write_kubeconfig(server, kubeconfig)
                print(f"KUBECONFIG={kubeconfig}", flush=True)
                await asyncio.Event().wait()
    raise AssertionError("the server runs until it is interrupted")
