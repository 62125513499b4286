"""`berth usage`: the GPU-hours that queues, namespaces or users have used, waited for and lost."""

from __future__ import annotations

import argparse

import msgspec

from admission.answers.usage import Usage, UsageBy, UsageItem
from admission.cli.common.arguments import Subparsers, add_cluster, add_command
from admission.cli.common.errors import ExitCode
from admission.cli.common.running import run
from admission.cli.common.way_flags import add_way, check_way
from admission.cli.listing.output import print_bodies
from admission.cli.page.asking import controller_of
from admission.cli.views.columns import Column, print_rows


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "usage",
        help_line="show GPU-hours used, waited for and lost, by queue, namespace or user",
        description=(
            "Show what Workloads have used since a time: GPU-hours of all attempts, hours that they\n"
            "waited, GPU-hours of attempts that were evicted without a checkpoint, and the cost by the\n"
            "prices of nodes and flavors. Deleted Workloads count too, by day, for 100 days. It shows the\n"
            "namespaces that you may read, and asks the controller: without --url, kubectl forwards a\n"
            "port to it."
        ),
        examples=(
            "  berth usage\n"
            "  berth usage --by user --since 30d\n"
            "  berth usage --by namespace --since 2026-01-01T00:00:00Z -o json\n"
            "  berth usage --by user -n team-a"
        ),
        run=_run,
    )
    parser.add_argument(
        "--by", choices=[one.value for one in UsageBy], default=UsageBy.QUEUE.value, help="default: queue"
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        default="7d",
        help="a duration before now, or a time (default: %(default)s)",
    )
    parser.add_argument("-n", "--namespace", metavar="NS,…", help="only Workloads of these namespaces")
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    add_way(parser)
    add_cluster(parser)


def _run(arguments: argparse.Namespace) -> int:
    check_way(arguments)
    return run(_show(arguments))


async def _show(arguments: argparse.Namespace) -> int:
    query = {"by": arguments.by, "since": arguments.since}
    if arguments.namespace is not None:
        query["namespace"] = arguments.namespace
    async with controller_of(arguments) as (asking, _):
        found = msgspec.convert(await asking.usage(query), Usage)
    if arguments.output != "table":
        print_bodies(msgspec.to_builtins(found), arguments.output)
    elif found.items:
        print_rows(found.items, _columns(found.by), is_wide=True)
    else:
        print(f"no Workload that you may see has existed since {found.since}")
    return ExitCode.DONE


def _columns(by: UsageBy) -> list[Column[UsageItem]]:
    return [
        Column(heading=by.upper(), cell=lambda row: row.name or "(unknown)"),
        Column(heading="WORKLOADS", cell=lambda row: str(row.workloads), is_right=True),
        Column(heading="GPU-HOURS", cell=lambda row: f"{row.gpu_hours_used:,.1f}", is_right=True),
        Column(heading="WAITED-HOURS", cell=lambda row: f"{row.hours_waited:,.1f}", is_right=True),
        Column(heading="LOST", cell=lambda row: f"{row.gpu_hours_lost:,.1f}", is_right=True),
        Column(heading="EVICTIONS", cell=lambda row: str(row.evictions), is_right=True),
        Column(heading="COST", cell=lambda row: f"{row.cost:,.2f}", is_right=True),
    ]
