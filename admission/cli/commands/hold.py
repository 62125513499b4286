"""`berth hold`: keep a waiting Job from starting, or a queue from admitting."""

from __future__ import annotations

import argparse

from admission.cli.commands.job_control import (
    act,
    add_target,
    is_queue,
    set_active,
    stop_queue,
    workload_of_job,
)
from admission.cli.common.arguments import Subparsers, add_command
from admission.cli.common.errors import NotHoldingError
from admission.cli.views.workload_view import job_of, phase
from api.kube.client import KubeClient


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "hold",
        help_line="keep a waiting Job from starting, or a queue from admitting",
        description=(
            "Keep a Job that waits from starting, or a queue from admitting more. What runs goes on: a Job\n"
            "that runs is refused here, see `berth stop`. `berth resume` undoes it.\n"
            "A queue is named with its kind: queue/NAME is a LocalQueue, clusterqueue/NAME a ClusterQueue."
        ),
        examples="  berth hold train -n team-a\n  berth hold clusterqueue/speech",
        run=lambda arguments: act(arguments, _hold),
    )
    add_target(parser, "JOB|queue/NAME|clusterqueue/NAME", "the Job or queue")


async def _hold(client: KubeClient, arguments: argparse.Namespace, namespace: str) -> str:
    if is_queue(arguments.target):
        return await stop_queue(client, arguments.target, namespace, "Hold")
    workload = await workload_of_job(client, arguments.target, namespace)
    name = f"{namespace}/{job_of(workload) or workload.metadata.name}"
    if phase(workload) != "pending":
        raise NotHoldingError(f"{name} is {phase(workload)} and does not wait; to end its run: berth stop")
    await set_active(client, workload, is_active=False)
    return f"{name} is held"
