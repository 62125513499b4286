"""`berth get`: queues, Workloads with position and reason, policies, reservations and run times.

What each kind reads and prints is in `admission.cli.listing`; only the module of the kind that was asked for
is imported.
"""

from __future__ import annotations

import argparse

from admission.cli.common.arguments import (
    Subparsers,
    add_cluster,
    add_command,
    add_scope,
    file_or_folder,
)
from admission.cli.common.errors import WrongUsageError
from admission.cli.common.loading import load
from admission.cli.common.running import run
from admission.cli.common.way_flags import add_way
from admission.cli.listing.output import OUTPUTS

_KINDS = {
    ("queues", "queue", "clusterqueues", "clusterqueue", "cq"): ("queues", "get_queues"),
    ("workloads", "workload", "kwl", "wl"): ("workloads", "get_workloads"),
    ("policies", "policy", "admissionpolicies", "admissionpolicy", "apol"): ("policies", "get_policies"),
    ("reservations", "reservation"): ("policies", "get_reservations"),
    ("estimates", "estimate"): ("estimates", "get_estimates"),
}


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "get",
        help_line="list queues, Workloads, policies and run times of a cluster",
        description=(
            "Show ClusterQueues with their quota usage; Workloads with their position in the queue (1 is\n"
            "next), their expected start (* marks a promise, `after` a lower bound, `never` that it cannot\n"
            "start as it is) and why they wait; policies with the ClusterQueues that they govern;\n"
            "reservations and their users; or how long similar Workloads ran that succeeded.\n"
            "The command only reads, and with a tenant's rights shows what the tenant may read. Positions\n"
            "that these do not show are asked of the controller: by kubectl port-forward, or --url.\n"
            "A narrow terminal shows fewer columns, -o wide all of them."
        ),
        examples=(
            "  berth get queues\n"
            "  berth get workloads -n team-a --status pending\n"
            "  berth get workloads --watch\n"
            "  berth get workloads -l team=vision --sort-by ageSeconds -o wide\n"
            "  berth get workloads --controller -o wide\n"
            "  berth get policies\n"
            "  berth get reservations\n"
            "  berth get estimates -n team-a\n"
            "  berth get workloads -o json | jq '.[] | select(.status == \"pending\")'"
        ),
        run=_run,
    )
    parser.add_argument(
        "kind", metavar="queues|workloads|policies|reservations|estimates", help="what to show"
    )
    add_scope(parser, "only Workloads of NS, or queues that serve it")
    parser.add_argument(
        "-l", "--selector", metavar="LABELS", help="only Workloads with these labels, as kubectl"
    )
    parser.add_argument(
        "--status",
        metavar="WORD,…",
        help="only Workloads that are pending, deactivated, quotaReserved, admitted or finished",
    )
    parser.add_argument("--sort-by", metavar="FIELD", help="a field of -o json")
    parser.add_argument("-w", "--watch", action="store_true", help="print rows again when they change")
    parser.add_argument(
        "--config",
        type=file_or_folder,
        metavar="FILE",
        help="the controller's --config file, for the order of Workloads with admissionFairSharing",
    )
    parser.add_argument("-o", "--output", choices=OUTPUTS, default="table")
    parser.add_argument(
        "--controller",
        action="store_true",
        help="Workloads as the controller knows them, with the interval of each start (-o wide, json)",
    )
    add_way(parser)
    add_cluster(parser)


def _run(arguments: argparse.Namespace) -> int:
    for names, (module, function) in _KINDS.items():
        if arguments.kind in names:
            if arguments.controller and module != "workloads":
                raise WrongUsageError(f"--controller shows workloads; give {arguments.kind} without it")
            if arguments.controller:
                module, function = "controller_rows", "get_from_controller"
            kind = load(f"admission.cli.listing.{module}")
            return run(getattr(kind, function)(arguments))
    known = "queues, workloads, policies, reservations and estimates"
    raise WrongUsageError(f"cannot get {arguments.kind!r}; berth get knows {known}")
