"""`berth priority`: give a Job another WorkloadPriorityClass."""

from __future__ import annotations

import argparse
import json

from admission.cli.commands.job_control import act, add_target
from admission.cli.common.arguments import Subparsers, add_command
from admission.cli.common.errors import WrongUsageError
from api.keys import PRIORITY_CLASS
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import JOBS, WORKLOAD_PRIORITY_CLASSES


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "priority",
        help_line="give a Job another WorkloadPriorityClass",
        description=(
            "Set the label of a Job that names its WorkloadPriorityClass. Its Workload follows: it moves in\n"
            "the queue, and its new priority decides what it may preempt and what may preempt it."
        ),
        examples="  berth priority train urgent -n team-a",
        run=lambda arguments: act(arguments, _set),
    )
    add_target(parser, "JOB", "name of the Job")
    parser.add_argument("priority_class", metavar="CLASS", help="name of the WorkloadPriorityClass")


async def _set(client: KubeClient, arguments: argparse.Namespace, namespace: str) -> str:
    name, chosen = arguments.target.removeprefix("job/"), arguments.priority_class
    try:
        await client.get(WORKLOAD_PRIORITY_CLASSES, chosen)
    except NotFound as error:
        raise WrongUsageError(f"there is no WorkloadPriorityClass {chosen}") from error
    except Forbidden:
        # A tenant may use classes that it may not read; the controller reports one that does not exist.
        pass
    body = json.dumps({"metadata": {"labels": {PRIORITY_CLASS: chosen}}}).encode()
    try:
        await client.merge_patch(JOBS, name, body, namespace)
    except NotFound as error:
        raise WrongUsageError(f"namespace {namespace} has no Job {name}") from error
    return f"{namespace}/{name} has the priority class {chosen}"
