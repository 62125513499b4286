"""`berth explain WORKLOAD`: what every flavor, domain and node offers the Workload, and why it does not fit.

The command reads from the API server and runs the scheduling code itself, so it needs no controller. It does
not show decisions that the controller has not written yet.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from rich.console import Console
from rich.table import Table

from admission.cli.common.arguments import Subparsers, add_command, add_kubeconfig, file_or_folder
from admission.cli.common.cluster_engine import engine_of, list_cluster
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.running import run
from admission.cli.common.settings_file import read_settings
from admission.cli.views.admission_view import AdmissionView, holding_json, holding_lines, holding_of
from admission.cli.views.eviction_view import eviction_lines
from admission.cli.views.json_output import to_api_keys
from admission.cli.views.tables import make_console, make_table, names_text, print_table
from admission.cli.views.workload_view import start_bounds, start_of
from admission.engine.engine import Engine
from admission.flavors.flavor_score import FlavorScore
from admission.preemption.checkpoint_before_eviction import is_saving_at_sigterm
from admission.reconcile.decision_texts import request_text, stop_text
from admission.scheduler.flavor_promotion import FlavorMove
from admission.status.explain import DomainLine, FlavorLines, PodSetLines, TopologyLines
from admission.status.last_eviction import PastEviction, eviction_json, past_eviction
from api.eviction import current_request
from api.keys import PLANNED_START
from api.kube.client import KubeClient
from api.parsing.quantities import to_text
from api.reasons import ConditionType
from api.workload import Admission, Workload, WorkloadKey
from queues.estimates.estimator import shortest_grace_seconds

# How many nodes one line names; the others are only counted.
_NAMED_NODES = 4


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "explain",
        help_line="show why a Workload waits, flavor by flavor and node by node, or where it runs",
        description=(
            "Show what decides on one Workload: its position in the queue, every flavor with the quota free\n"
            "now and at most, every topology domain and node with how many of its pods fit, and why.\n"
            "If it holds quota: where it runs, since when and until when, and which start it was promised.\n"
            "If it was evicted: when, why, for which Workload, and from which checkpoint it continues.\n"
            "Exit code 1 if the Workload holds no quota."
        ),
        examples=(
            "  berth explain -n team-a job-train-7c1f2\n"
            "  berth explain team-a/train                       # the Job's name will do\n"
            "  berth explain team-a/train -o json | jq '.podSets[].flavors[].quota'"
        ),
        run=_run,
    )
    parser.add_argument(
        "workload", metavar="WORKLOAD", help="name of the Workload or its Job; NAMESPACE/NAME, or use -n"
    )
    parser.add_argument("-n", "--namespace", metavar="NS", help="its namespace (default: default)")
    parser.add_argument(
        "--config", type=file_or_folder, metavar="FILE", help="the controller's --config file"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")
    add_kubeconfig(parser)


def _run(arguments: argparse.Namespace) -> int:
    return run(_explain(arguments))


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """When a pending Workload is expected to start (RFC 3339, "" if unknown), and whether that is a promise.

    `after` is the latest known start of a Workload ahead of it, "" if unknown.
    """

    expected: str = ""
    is_promised: bool = False
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The content of the output. `position` counts from 1 and is None if the Workload is in no queue."""

    workload: Workload
    cluster_queue: str
    state: str
    position: int | None
    waiting: int
    reason: str
    message: str
    starts: Starts
    eviction: PastEviction | None
    holding: AdmissionView | None
    # The move to a better flavor that would pay now, where the policy promotes.
    move: FlavorMove | None
    pod_sets: tuple[PodSetLines, ...]


async def _explain(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.config)
    async with await KubeClient.connect(arguments.kubeconfig) as client:
        listing = await list_cluster(client)
    # Use the controller's own engine on the cluster's objects, so that no second set of rules can differ.
    engine, problems = engine_of(listing, settings, now=time.time())
    for problem in problems:
        print(f"berth explain: {problem}", file=sys.stderr)
    answer = _answer(engine, _find(engine, arguments))
    if arguments.output == "json":
        print(json.dumps(_to_json(answer)))
    else:
        _print(make_console(), answer)
    # The exit code lets a script wait for the admission: `until berth explain ...`.
    return ExitCode.DONE if answer.holding is not None else ExitCode.DOES_NOT_HOLD


def _find(engine: Engine, arguments: argparse.Namespace) -> Workload:
    # Split at the last slash. Names contain no slash, so with more than one, no Workload is found.
    namespace, _, name = arguments.workload.rpartition("/")
    if namespace and arguments.namespace and namespace != arguments.namespace:
        raise WrongUsageError(f"{arguments.workload} is not in -n {arguments.namespace}; give one of the two")
    namespace = namespace or arguments.namespace or "default"
    # Names of Workloads contain a hash; users know the name of the Job.
    found = engine.workloads.workload(WorkloadKey(namespace, name)) or _of_job(engine, namespace, name)
    if found is None:
        raise WrongUsageError(
            f"namespace {namespace} has no Workload {name}, nor one of a Job {name}; see: berth get workloads"
        )
    return found


def _of_job(engine: Engine, namespace: str, job: str) -> Workload | None:
    """Return the Job's Workload, or None: of several, the one that has not finished, then the latest."""
    own = [
        one
        for one in engine.workloads.workloads()
        if one.key.namespace == namespace and one.owner_name == job
    ]
    return max(own, key=lambda one: (not one.is_finished, one.created_at), default=None)


def _by_uid(engine: Engine, uid: str) -> WorkloadKey | None:
    return next((one.key for one in engine.workloads.workloads() if one.uid == uid), None)


def _answer(engine: Engine, workload: Workload) -> _Answer:
    queue = engine.queues.cluster_queue_of(workload)
    order = [one.key for one in engine.queues.pending(queue)]
    admission = next((held for key, held in engine.workloads.admissions() if key == workload.key), None)
    reason, message = _why(engine, workload)
    return _Answer(
        workload=workload,
        cluster_queue=admission.cluster_queue if admission is not None else queue,
        state=_state(workload, admission),
        position=order.index(workload.key) + 1 if workload.key in order else None,
        waiting=len(order),
        reason=reason,
        message=message,
        starts=_starts(engine, workload, order),
        eviction=past_eviction(workload, lambda uid: _by_uid(engine, uid)),
        holding=holding_of(workload, admission, engine.workloads.estimate(workload))
        if admission is not None
        else None,
        move=engine.promotions.explanation(workload.key, now=time.time()),
        # A Workload with quota needs no list of flavors; its own usage would count against it there.
        pod_sets=()
        if workload.is_finished or admission is not None
        else engine.workloads.explanation(workload),
    )


def _starts(engine: Engine, workload: Workload, order: Sequence[WorkloadKey]) -> Starts:
    if workload.key not in order:
        return Starts()
    # Collect the starts of the whole queue: the latest known one ahead is a lower bound for this Workload.
    queued = (engine.workloads.workload(key) for key in order)
    starts = [start_of(one.annotations) if one is not None else "" for one in queued]
    place = order.index(workload.key)
    return Starts(
        expected=starts[place],
        is_promised=PLANNED_START in workload.annotations,
        after=start_bounds(starts)[place],
    )


def _state(workload: Workload, admission: Admission | None) -> str:
    if workload.is_finished:
        return "finished"
    if admission is None:
        return "pending"
    return "admitted" if workload.is_true(ConditionType.ADMITTED) else "holds quota"


def _why(engine: Engine, workload: Workload) -> tuple[str, str]:
    """Return reason and message: what keeps it from being tried, or else the result of the last attempt."""
    # A problem of the queue takes precedence, because the condition may be older.
    problem = engine.workloads.queue_problem(workload)
    if problem is not None and not workload.is_finished and not engine.workloads.is_holding(workload.key):
        return str(problem[0]), problem[1]
    request = current_request(workload)
    if request is not None:
        return request.reason.value, request_text(request)
    if is_saving_at_sigterm(workload):
        evicted = workload.conditions[ConditionType.EVICTED]
        return evicted.reason, f"{stop_text(shortest_grace_seconds(workload))}: {evicted.message}"
    allowed = workload.conditions.get(ConditionType.DISRUPTION_ALLOWED)
    if workload.is_evicted and allowed is not None and not allowed.status:
        # It is to be evicted, but a PodDisruptionBudget or the API server holds the eviction back.
        evicted = workload.conditions[ConditionType.EVICTED]
        return evicted.reason, f"{allowed.message}: {evicted.message}"
    condition = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    if condition is None or condition.status:
        return "", ""
    return condition.reason, condition.message


# --- JSON ------------------------------------------------------------------------------------------------


def _to_json(answer: _Answer) -> dict[str, object]:
    return {
        "namespace": answer.workload.key.namespace,
        "name": answer.workload.key.name,
        "clusterQueue": answer.cluster_queue,
        "state": answer.state,
        "position": answer.position,
        "waiting": answer.waiting,
        "reason": answer.reason,
        "message": answer.message,
        "expectedStart": answer.starts.expected,
        "expectedAfter": answer.starts.after,
        "isPromised": answer.starts.is_promised,
        "lastEviction": eviction_json(answer.eviction),
        "evictions": sum(answer.workload.evictions.values()),
        "holding": holding_json(answer.holding) if answer.holding is not None else None,
        "betterFlavor": _move_json(answer.move) if answer.move is not None else None,
        "podSets": [to_api_keys(asdict(one)) for one in answer.pod_sets],
    }


def _move_json(move: FlavorMove) -> dict[str, object]:
    return {
        "from": list(move.former),
        "to": list(move.flavors),
        "gain": move.gain,
        "lostSeconds": move.lost_seconds,
    }


# --- text ------------------------------------------------------------------------------------------------


def _print(console: Console, answer: _Answer) -> None:
    place = f", {answer.position} of {answer.waiting} in the queue" if answer.position else ""
    queue = answer.cluster_queue or "no ClusterQueue"
    console.print(f"{answer.workload.key}: {answer.state} in {queue}{place}", style="bold")
    if answer.message:
        console.print(f"{answer.reason}: {answer.message}", style="yellow")
    now = time.time()
    for line in eviction_lines(answer.workload, answer.eviction, now=now):
        console.print(line)
    if answer.starts.expected:
        word = "promised to start" if answer.starts.is_promised else "expected to start"
        console.print(f"{word} at {answer.starts.expected}")
    elif answer.starts.after:
        console.print(f"expected to start after {answer.starts.after}, by the order of the queue")
    if answer.holding is not None:
        for line in holding_lines(answer.holding, now=now):
            console.print(line)
        _print_admission(console, answer.holding.admission)
    if answer.move is not None:
        console.print(f"\n{answer.move.message}; it may be moved there")
    for pod_set in answer.pod_sets:
        _print_pod_set(console, pod_set)


def _print_admission(console: Console, admission: Admission) -> None:
    for one in admission.pod_sets:
        flavors = ", ".join(f"{flavor} for {name}" for name, flavor in sorted(one.flavors.items()))
        console.print(f"\npod set {one.name}, {one.count} pods, runs on {flavors}")
        for domain in one.topology.domains if one.topology is not None else ():
            console.print(f"  {' / '.join(domain.values)}: {domain.count} pods")


def _print_pod_set(console: Console, pod_set: PodSetLines) -> None:
    console.print(f"\npod set {pod_set.name}, {pod_set.count} pods", style="bold")
    columns = ("FLAVOR", "RESOURCE", "WANTED", "FREE", "AT MOST", "RESULT")
    table = make_table(*columns, right=("WANTED", "FREE", "AT MOST"))
    for flavor in pod_set.flavors:
        for line in _quota_lines(flavor):
            table.add_row(*line)
    print_table(console, table)
    scored = [(one.flavor, one.score) for one in pod_set.flavors if one.score is not None]
    if scored:
        console.print("\nscores of the flavors; of those that fit now the highest one is taken", style="bold")
        print_table(console, _score_table(scored))
    for flavor in pod_set.flavors:
        if flavor.topology is not None:
            _print_topology(console, flavor.flavor, flavor.topology)


def _score_table(scored: Sequence[tuple[str, FlavorScore]]) -> Table:
    columns = ("SCORE", "WAIT", "COST", "LOSS", "GENERATION", "FRAGMENTATION")
    table = make_table("FLAVOR", *columns, right=columns)
    for flavor, one in sorted(scored, key=lambda each: -each[1].score):
        terms = one.terms
        table.add_row(
            flavor,
            f"{one.score:.3f}",
            f"{one.wait:.2f} ({terms.wait_seconds:.0f} s)",
            f"{one.cost:.2f} ({'no price' if terms.cost is None else f'{terms.cost:.2f}'})",
            f"{one.loss:.2f} ({terms.lost_seconds:.0f} s)",
            f"{one.generation:.2f} ({terms.generation or 'unknown'})",
            f"{one.fragmentation:.2f} ({terms.left_over:.0%} left over)",
        )
    return table


def _quota_lines(flavor: FlavorLines) -> Iterator[tuple[str, ...]]:
    # A flavor that is excluded has no amounts to compare.
    if flavor.refusal:
        yield flavor.flavor, "", "", "", "", flavor.refusal
    for one in flavor.quota:
        amounts = [to_text(one.resource, amount) for amount in (one.wanted, one.free, one.most)]
        if one.fits:
            result = "fits"
        # Waiting does not help in this case, so the text differs from "more needed".
        elif one.wanted > one.most:
            result = "more than this ClusterQueue can ever use"
        else:
            # Usage may exceed a lowered quota. Then the whole request is needed.
            result = f"{to_text(one.resource, one.wanted - max(one.free, 0))} more needed"
        yield flavor.flavor, one.resource, *amounts, result


def _print_topology(console: Console, flavor: str, topology: TopologyLines) -> None:
    console.print(f"\ntopology of flavor {flavor}: {topology.problem or topology.wanted}", style="bold")
    if topology.problem:
        return
    table = make_table(
        "DOMAIN", "PODS THAT FIT", "WHEN EMPTY", "RESULT", right=("PODS THAT FIT", "WHEN EMPTY")
    )
    for line in _merged(topology.domains, len(topology.levels)):
        table.add_row(*line)
    print_table(console, table)
    # Group nodes by reason: fifty nodes with the same taint are one line.
    if topology.left_out:
        console.print("left out:")
    for refusal, nodes in groupby(sorted(topology.left_out, key=lambda one: one[1]), key=lambda one: one[1]):
        console.print(f"  {names_text([name for name, _ in nodes], most=_NAMED_NODES)}: {refusal}")


def _merged(domains: Sequence[DomainLine], depth: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield a line for each domain; hosts with the same parent and the same result share a line."""

    def kind(one: DomainLine) -> tuple[object, ...]:
        # Racks have lines of their own, because their names show where to look. Hosts are too many for that.
        alike = one.values[:-1] if one.level == depth - 1 else one.values
        return one.level, alike, one.fits, one.fits_empty, one.refusal

    for _, group in groupby(domains, key=kind):
        lines = list(group)
        first = lines[0]
        name = "  " * first.level + names_text([one.values[-1] for one in lines], most=_NAMED_NODES)
        yield name, str(first.fits), str(first.fits_empty), first.refusal
