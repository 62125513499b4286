"""`berth get`: queues, Workloads with position and reason, policies, reservations and run times."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

import yaml
from rich.table import Table
from rich.text import Text

from admission.cli.common.arguments import Subparsers, add_command, add_kubeconfig, file_or_folder
from admission.cli.common.cluster_engine import ORDER_KINDS, Listing, engine_of, list_cluster, queue_places
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.running import run
from admission.cli.common.settings_file import read_settings
from admission.cli.views.estimate_view import EstimateRow, estimate_rows
from admission.cli.views.json_output import to_api_keys
from admission.cli.views.policy_view import PolicyRow, policy_rows, quotas_in_force
from admission.cli.views.queue_view import QueueRow, queue_rows
from admission.cli.views.reservation_view import ReservationRow, reservation_rows
from admission.cli.views.tables import (
    duration_text,
    make_console,
    make_table,
    names_text,
    print_table,
    quota_text,
    starts_text,
)
from admission.cli.views.workload_view import WorkloadRow, workload_rows
from admission.engine.engine import EngineSettings
from api.kube.client import KubeClient
from api.kube.errors import NotFound
from api.kube.resources import ADMISSION_POLICIES, CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from api.objects.queues import ClusterQueueObject, LocalQueueObject
from api.objects.workloads import WorkloadObject
from api.policy_objects import AdmissionPolicyObject
from api.workload import WorkloadKey

_Row = TypeVar("_Row", QueueRow, WorkloadRow, PolicyRow, ReservationRow, EstimateRow)

# How many Workloads of a reservation the table names; JSON has all of the status.
_SHOWN_USERS = 3


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "get",
        help_line="list queues, Workloads, policies and run times of a cluster",
        description=(
            "Show ClusterQueues with their quota usage; Workloads with their position in the queue (1 is\n"
            "next, in the order of its policy), their expected start (* marks a promise, `after` a lower\n"
            "bound) and why they wait; policies with the ClusterQueues that they govern; reservations and\n"
            "their users; or how long similar Workloads ran that succeeded. The command only reads."
        ),
        examples=(
            "  berth get queues\n"
            "  berth get workloads -n team-a\n"
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
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces (the default)")
    scope.add_argument(
        "-n", "--namespace", metavar="NS", help="only Workloads of NS, or queues that serve it"
    )
    parser.add_argument(
        "--config",
        type=file_or_folder,
        metavar="FILE",
        help="the controller's --config file, for the order of Workloads with admissionFairSharing",
    )
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    add_kubeconfig(parser)


def _run(arguments: argparse.Namespace) -> int:
    for names, get in _KINDS.items():
        if arguments.kind in names:
            return run(get(arguments))
    known = "queues, workloads, policies, reservations and estimates"
    raise WrongUsageError(f"cannot get {arguments.kind!r}; berth get knows {known}")


async def _get_queues(arguments: argparse.Namespace) -> int:
    async with await KubeClient.connect(arguments.kubeconfig) as client:
        try:
            found = await client.list(CLUSTER_QUEUES, type_=ClusterQueueObject)
            queues: Sequence[ClusterQueueObject] = found.items
            if arguments.namespace:
                # A ClusterQueue has no namespace; show those that LocalQueues of this namespace lead to.
                served = await client.list(LOCAL_QUEUES, arguments.namespace, type_=LocalQueueObject)
                names = {queue.spec.cluster_queue for queue in served.items}
                queues = [queue for queue in queues if queue.metadata.name in names]
        except NotFound as error:
            raise _no_kinds(client) from error
        rows = queue_rows(queues, quotas_in_force(await _policies(client)))
    return _show(rows, arguments.output, _queues_table, none="there is no ClusterQueue")


async def _policies(client: KubeClient) -> Sequence[AdmissionPolicyObject]:
    """Return all policies, or none if the kind is not installed: queues work without it."""
    try:
        return (await client.list(ADMISSION_POLICIES, type_=AdmissionPolicyObject)).items
    except NotFound:
        return ()


async def _get_workloads(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.config)
    async with await KubeClient.connect(arguments.kubeconfig) as client:
        # List all namespaces: a position in a ClusterQueue includes Workloads of other namespaces.
        listing = await list_cluster(client, ORDER_KINDS)
        for kind in ("Workload", "LocalQueue"):
            if kind in listing.forbidden:
                raise listing.forbidden[kind]
            if kind not in listing.found:
                raise _no_kinds(client)
    workloads, queues = listing.found["Workload"].items, listing.found["LocalQueue"].items
    now = time.time()
    rows = workload_rows(workloads, queues, now=now, places=_places(listing, settings, now=now))
    if arguments.namespace:
        rows = tuple(row for row in rows if row.namespace == arguments.namespace)
    return _show(rows, arguments.output, _workloads_table, none="there is no Workload")


def _places(listing: Listing, settings: EngineSettings, *, now: float) -> dict[WorkloadKey, int] | None:
    """Return the controller's positions in all queues, or None without permission to read a needed kind."""
    if listing.forbidden:
        for problem in listing.problems:
            print(f"berth get: positions are only by priority and age, because {problem}", file=sys.stderr)
        return None
    # Unreadable objects have no position; `berth explain` and the controller's log report the cause.
    engine, _ = engine_of(listing, settings, now=now)
    queues = listing.found.get("ClusterQueue")
    return queue_places(engine, (queue.metadata.name for queue in queues.items) if queues is not None else ())


async def _get_policies(arguments: argparse.Namespace) -> int:
    rows = policy_rows(await _needed_policies(arguments))
    return _show(rows, arguments.output, _policies_table, none="there is no AdmissionPolicy")


async def _get_reservations(arguments: argparse.Namespace) -> int:
    rows = reservation_rows(await _needed_policies(arguments), now=time.time())
    if arguments.namespace:
        rows = tuple(row for row in rows if row.namespace == arguments.namespace)
    return _show(rows, arguments.output, _reservations_table, none="there is no reservation")


async def _needed_policies(arguments: argparse.Namespace) -> Sequence[AdmissionPolicyObject]:
    """Return all policies. Raises WrongUsageError if the kind is not installed, because the user named it."""
    async with await KubeClient.connect(arguments.kubeconfig) as client:
        try:
            return (await client.list(ADMISSION_POLICIES, type_=AdmissionPolicyObject)).items
        except NotFound as error:
            raise _no_kinds(client, "berth.dev/v1alpha1") from error


async def _get_estimates(arguments: argparse.Namespace) -> int:
    async with await KubeClient.connect(arguments.kubeconfig) as client:
        try:
            found = await client.list(WORKLOADS, arguments.namespace, type_=WorkloadObject)
        except NotFound as error:
            raise _no_kinds(client) from error
    rows = estimate_rows(found.items)
    return _show(
        rows,
        arguments.output,
        _estimates_table,
        none="no Workload has succeeded so far, so there are no run times",
    )


def _no_kinds(client: KubeClient, version: str = "kueue.x-k8s.io/v1beta2") -> WrongUsageError:
    return WrongUsageError(
        f"{client.server} does not serve {version};"
        " install the kinds with: berth crds | kubectl apply --server-side -f -"
    )


def _show(rows: Sequence[_Row], output: str, table: Callable[[Sequence[_Row]], Table], *, none: str) -> int:
    """Print the rows as JSON, YAML or a table; `none` is printed instead of an empty table."""
    if output == "table":
        console = make_console()
        if rows:
            print_table(console, table(rows))
        else:
            console.print(none)
        return ExitCode.DONE
    bodies = [to_api_keys(asdict(row)) for row in rows]
    if output == "json":
        print(json.dumps(bodies, indent=2))
    else:
        print(yaml.safe_dump(bodies, sort_keys=False), end="")
    return ExitCode.DONE


def _queues_table(rows: Sequence[QueueRow]) -> Table:
    columns = ("NAME", "COHORT", "STRATEGY", "ACTIVE", "PENDING", "RESERVING", "ADMITTED", "FLAVOR")
    table = make_table(*columns, "RESOURCE", "USED", right=("PENDING", "RESERVING", "ADMITTED"))
    is_plain = not make_console().is_terminal
    for row in rows:
        for cells in _queue_lines(row, is_plain=is_plain):
            table.add_row(*cells)
    return table


def _queue_lines(row: QueueRow, *, is_plain: bool) -> list[list[str | Text]]:
    """Return a line for each flavor-resource; only the first line names the queue itself."""
    active = {True: "yes", False: f"no: {row.message or row.reason}", None: "unknown"}[row.active]
    counts = [str(row.pending), str(row.reserving), str(row.admitted)]
    queue: list[str | Text] = [row.name, row.cohort, row.strategy, active, *counts]
    blank: list[str | Text] = [""] * len(queue)
    quotas: list[list[str | Text]] = [
        [quota.flavor, quota.resource, quota_text(quota, is_plain=is_plain)] for quota in row.quotas
    ]
    # A queue without quota is probably a mistake; without this line it would not be listed.
    lines = quotas or [["", "", "no quota"]]
    return [[*(blank if place else queue), *line] for place, line in enumerate(lines)]


def _workloads_table(rows: Sequence[WorkloadRow]) -> Table:
    table = make_table(
        *("NAMESPACE", "NAME", "QUEUE", "CLUSTERQUEUE", "STATUS", "POSITION", "AGE", "STARTS", "REASON"),
        "MESSAGE",
        right=("POSITION",),
    )
    for row in rows:
        table.add_row(
            *(row.namespace, row.name, row.queue, row.cluster_queue, row.status),
            "" if row.position is None else str(row.position),
            duration_text(row.age_seconds),
            starts_text(row, now=time.time()),
            row.reason,
            row.message,
        )
    return table


def _reservations_table(rows: Sequence[ReservationRow]) -> Table:
    columns = ("NAME", "POLICY", "NAMESPACE", "LOCALQUEUE", "KEEPS", "START", "END", "STATE", "USED BY")
    table = make_table(*columns, "MESSAGE")
    for row in rows:
        own = (row.name, row.policy, row.namespace, row.local_queue, ", ".join(row.keeps))
        users = names_text(row.users, most=_SHOWN_USERS, count=row.user_count)
        table.add_row(*own, row.start, row.end, row.state, users, row.message)
    return table


def _estimates_table(rows: Sequence[EstimateRow]) -> Table:
    columns = ("NAMESPACE", "NAME", "PODS", "RUNS", "MEDIAN", "90%", "LONGEST", "DECLARED")
    table = make_table(*columns, right=("RUNS",))
    for row in rows:
        declared = row.declared_seconds
        table.add_row(
            *(row.namespace, row.stem, row.shape, str(row.runs)),
            *(duration_text(one) for one in (row.median_seconds, row.p90_seconds, row.longest_seconds)),
            "" if declared is None else duration_text(declared),
        )
    return table


def _policies_table(rows: Sequence[PolicyRow]) -> Table:
    columns = ("NAME", "PRECEDENCE", "ACCEPTED", "CLUSTERQUEUES", "SECTIONS", "MESSAGE")
    table = make_table(*columns, right=("PRECEDENCE", "CLUSTERQUEUES"))
    words = {True: "yes", False: "no", None: "unknown"}
    for row in rows:
        table.add_row(
            row.name,
            str(row.precedence),
            words[row.accepted],
            str(row.cluster_queue_count),
            ",".join(row.sections),
            row.message,
        )
    return table


_KINDS = {
    ("queues", "queue", "clusterqueues", "clusterqueue", "cq"): _get_queues,
    ("workloads", "workload", "kwl", "wl"): _get_workloads,
    ("policies", "policy", "admissionpolicies", "admissionpolicy", "apol"): _get_policies,
    ("reservations", "reservation"): _get_reservations,
    ("estimates", "estimate"): _get_estimates,
}
