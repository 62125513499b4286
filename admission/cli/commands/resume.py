"""`berth resume`: let a stopped Job queue again, or a stopped queue admit again."""

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
from admission.cli.views.workload_view import job_of
from api.kube.client import KubeClient


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "resume",
        help_line="let a stopped Job queue again, or a stopped queue admit again",
        description=(
            "Undo `berth stop`, `berth hold` and `berth drain`: a Job queues again, a queue admits again.\n"
            "A queue is named with its kind: queue/NAME is a LocalQueue, clusterqueue/NAME a ClusterQueue."
        ),
        examples="  berth resume train -n team-a\n  berth resume queue/main -n team-a",
        run=lambda arguments: act(arguments, _resume),
    )
    add_target(parser, "JOB|queue/NAME|clusterqueue/NAME", "the Job or queue")


async def _resume(client: KubeClient, arguments: argparse.Namespace, namespace: str) -> str:
    if is_queue(arguments.target):
        return await stop_queue(client, arguments.target, namespace, "None")
    workload = await workload_of_job(client, arguments.target, namespace)
    if workload.spec.active is not False:
        raise NotHoldingError(f"{namespace}/{arguments.target} is not stopped")
    await set_active(client, workload, is_active=True)
    return f"{namespace}/{job_of(workload) or workload.metadata.name} queues again"
