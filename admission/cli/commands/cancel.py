"""`berth cancel`: delete a Job, its pods and its Workload."""

from __future__ import annotations

import argparse

from admission.cli.commands.job_control import act, add_target
from admission.cli.common.arguments import Subparsers, add_command
from admission.cli.common.errors import WrongUsageError
from api.kube.client import KubeClient
from api.kube.errors import NotFound
from api.kube.resources import JOBS


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "cancel",
        help_line="delete a Job, its pods and its Workload",
        description=(
            "Delete a Job with its pods and its Workload, whether it runs or waits. This cannot be undone;\n"
            "`berth stop` keeps the Job."
        ),
        examples="  berth cancel train -n team-a",
        run=lambda arguments: act(arguments, _cancel),
    )
    add_target(parser, "JOB", "name of the Job")


async def _cancel(client: KubeClient, arguments: argparse.Namespace, namespace: str) -> str:
    name = arguments.target.removeprefix("job/")
    try:
        await client.delete(JOBS, name, namespace)
    except NotFound as error:
        raise WrongUsageError(f"namespace {namespace} has no Job {name}") from error
    return f"{namespace}/{name} is deleted"
