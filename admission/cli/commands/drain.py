"""`berth drain`: stop a queue and all that runs in it."""

from __future__ import annotations

import argparse

from admission.cli.commands.job_control import act, add_target, is_queue, stop_queue
from admission.cli.common.arguments import Subparsers, add_command
from admission.cli.common.errors import WrongUsageError
from api.kube.client import KubeClient


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "drain",
        help_line="stop a queue and all that runs in it",
        description=(
            "Let a queue admit nothing more, and stop what runs in it: Jobs are asked to save first where\n"
            "their policy says so, and queue again. `berth resume` undoes it.\n"
            "queue/NAME is a LocalQueue, clusterqueue/NAME a ClusterQueue."
        ),
        examples="  berth drain queue/main -n team-a\n  berth drain clusterqueue/speech",
        run=lambda arguments: act(arguments, _drain),
    )
    add_target(parser, "queue/NAME|clusterqueue/NAME", "the queue")


async def _drain(client: KubeClient, arguments: argparse.Namespace, namespace: str) -> str:
    if not is_queue(arguments.target):
        raise WrongUsageError(
            f"{arguments.target} names no queue: use queue/NAME or clusterqueue/NAME; for a Job: berth stop"
        )
    return await stop_queue(client, arguments.target, namespace, "HoldAndDrain")
