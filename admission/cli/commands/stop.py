"""`berth stop`: stop a Job and give its quota back. It waits until it is resumed."""

from __future__ import annotations

import argparse

from admission.cli.commands.job_control import act, add_target, set_active, workload_of_job
from admission.cli.common.arguments import Subparsers, add_command
from admission.cli.common.errors import NotHoldingError
from admission.cli.views.workload_view import job_of
from api.kube.client import KubeClient


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "stop",
        help_line="stop a Job and give its quota back",
        description=(
            "Stop a Job that runs or waits: its Workload is deactivated, its pods end with their grace\n"
            "period, and its quota comes free. It does not start again before `berth resume`."
        ),
        examples="  berth stop train -n team-a\n  berth resume train -n team-a",
        run=lambda arguments: act(arguments, _stop),
    )
    add_target(parser, "JOB", "name of the Job or of its Workload")


async def _stop(client: KubeClient, arguments: argparse.Namespace, namespace: str) -> str:
    workload = await workload_of_job(client, arguments.target, namespace)
    if workload.spec.active is False:
        raise NotHoldingError(f"{namespace}/{arguments.target} is stopped already")
    await set_active(client, workload, is_active=False)
    return f"{namespace}/{job_of(workload) or workload.metadata.name} is stopped"
