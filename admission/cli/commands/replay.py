"""`berth replay`: create the first Jobs of a recorded trace as real Job objects, and report on them."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from admission.cli.common.arguments import Subparsers, add_command, add_trace, speed
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.job_manifests import gpu_of
from admission.cli.common.running import run
from admission.cli.trial.replay_clusters import Stage, StandInMode, embedded_stage, existing_stage
from admission.cli.trial.replay_plan import ReplayPlan, make_plan
from admission.cli.trial.replay_run import ReplayFinding, ReplayRun
from admission.cli.trial.work_folder import WorkFolder
from admission.cli.views.summary import checks, percent_text, print_waits
from admission.cli.views.tables import make_console
from admission.simulation.audit import UsageInterval
from admission.simulation.shapes import default_speed, estimated_end
from admission.simulation.traces import TraceError, first_submitted, read_trace
from api.parsing.durations import seconds_text

_SECONDS_PER_HOUR = 3600.0


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "replay",
        help_line="run a recorded trace as real Jobs and report on it",
        description=(
            "Replay the first Jobs of a trace by submit time as suspended Jobs on simulated nodes, and\n"
            "report waits, utilisation and whether any quota was ever exceeded. The trace is a CSV file\n"
            "with the columns user, num_gpu, submit_time and duration (minutes), and optionally job_id.\n"
            "Each user gets a namespace and a ClusterQueue of equal quota in one cohort. Without\n"
            "--kubeconfig everything runs on an embedded server; with it, only the nodes are simulated,\n"
            "and nothing is left behind. The last line is `jobs N finished N failed N lost N\n"
            "quota-exceeded N`; with -o json the line before it is the report."
        ),
        examples=(
            "  berth replay --jobs jobs.csv --limit 2000\n"
            "  berth replay --jobs jobs.csv --limit 200 --kubeconfig ~/.kube/config --controller\n"
            "  berth replay --jobs jobs.csv --limit 500 --nodes 32x8 --speed 300 -o json"
        ),
        run=_run,
    )
    add_trace(parser)
    parser.add_argument(
        "--speed",
        type=speed,
        metavar="S",
        help="trace seconds per real second (default: ends within 8 minutes, at most 600)",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="replay on this cluster (default: embedded)")
    parser.add_argument(
        "--controller", action="store_true", help="with --kubeconfig: start a controller as well"
    )
    parser.add_argument(
        "--stand-ins",
        type=StandInMode,
        choices=tuple(StandInMode),
        default=StandInMode.AUTO,
        help="with --kubeconfig: what to simulate besides the nodes (default: what a bare server lacks)",
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.kubeconfig is None and arguments.controller:
        raise WrongUsageError("--controller goes with --kubeconfig; the embedded cluster has one of its own")
    plan = _plan(arguments)
    pace = arguments.speed or default_speed(plan.jobs, gpus=plan.nodes.gpus)
    seconds = estimated_end(plan.jobs, gpus=plan.nodes.gpus) / pace
    # Use stderr, because stdout with -o json must contain only the report.
    sentence = f"replaying {len(plan.jobs)} Jobs of {len(plan.names)} tenants on {plan.nodes} GPUs"
    print(
        f"{sentence} at speed {pace:g}; takes at least {seconds_text(seconds)}", file=sys.stderr, flush=True
    )
    # The folder is kept only if the run failed, because its logs help to find the cause.
    with WorkFolder("berth-replay-") as folder:
        stage = _stage(arguments, plan, pace, folder.path)
        return folder.ended(run(_replay(stage, plan, pace, arguments)))


def _plan(arguments: argparse.Namespace) -> ReplayPlan:
    # On a shared cluster, names must differ from those of another replay.
    run_id = secrets.token_hex(2) if arguments.kubeconfig is not None else ""
    try:
        jobs = first_submitted(read_trace(arguments.jobs), arguments.limit)
        return make_plan(jobs, nodes=arguments.nodes, run_id=run_id)
    except TraceError as error:
        raise WrongUsageError(str(error)) from error


def _stage(
    arguments: argparse.Namespace, plan: ReplayPlan, pace: float, folder: Path
) -> AbstractAsyncContextManager[Stage]:
    if arguments.kubeconfig is None:
        return embedded_stage(folder / "kubeconfig", plan, pace=pace)
    return existing_stage(
        arguments.kubeconfig,
        plan,
        pace=pace,
        with_controller=arguments.controller,
        stand_ins=arguments.stand_ins,
    )


async def _replay(
    stage: AbstractAsyncContextManager[Stage], plan: ReplayPlan, pace: float, arguments: argparse.Namespace
) -> int:
    async with stage as (client, recorder):
        finding = await ReplayRun(client=client, recorder=recorder, plan=plan, pace=pace).play()
    if arguments.output == "json":
        print(json.dumps(_to_object(finding, plan, pace, arguments), ensure_ascii=False))
    else:
        _print_tables(finding, plan, pace)
    # This is always the last line, also after JSON, because scripts read it.
    print(finding.report.totals, flush=True)
    return ExitCode.DONE if finding.report.totals.is_good else ExitCode.DOES_NOT_HOLD


def _print_tables(finding: ReplayFinding, plan: ReplayPlan, pace: float) -> None:
    console = make_console()
    print_waits(console, finding.report, finding.audit, plan.tenancies, pace)
    console.print()
    for sentence in (*_sentences(finding, pace), *checks(finding.audit, gaps=finding.gaps), *finding.lost):
        console.print(sentence)


def _sentences(finding: ReplayFinding, pace: float) -> Iterator[str]:
    # These sentences explain the components of the figures in the table.
    report, shares = finding.report, finding.report.shares
    yield f"Speed {pace:g}, {seconds_text(finding.real_seconds)} in real time; waits are in the trace's time."
    yield (
        f"GPUs were busy {percent_text(report.utilisation_while_submitting)} of the time while Jobs came,"
        f" {percent_text(report.utilisation)} until the last one ended."
    )
    yield (
        f"Of all waiting {percent_text(shares.quota)} was for quota, {percent_text(shares.nodes)} for a node"
        f" with room, {percent_text(shares.machine)} is machine latency"
        f" (at this speed a second is {seconds_text(pace)})."
    )


def _to_object(
    finding: ReplayFinding, plan: ReplayPlan, pace: float, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return the report as one JSON object."""
    report = finding.report
    return {
        "settings": {
            "jobs": str(arguments.jobs),
            "limit": arguments.limit,
            "nodes": str(plan.nodes),
            "speed": pace,
            "run_seconds": round(finding.real_seconds, 1),
        },
        "totals": asdict(report.totals),
        "everyone": asdict(report.everyone),
        "tenants": {
            tenancy.tenant: {
                **asdict(report.tenants[tenancy.tenant]),
                **_borrowed(finding, tenancy.cluster_queue, plan.flavor, pace),
            }
            for tenancy in plan.tenancies
        },
        "utilisation": report.utilisation,
        "utilisation_while_submitting": report.utilisation_while_submitting,
        "wait_shares": asdict(report.shares),
        "audit": {
            "versions": finding.audit.versions,
            "gaps": finding.gaps,
            "exceeded": [str(breach) for breach in finding.audit.exceeded],
        },
        "lost": list(finding.lost),
    }


def _borrowed(finding: ReplayFinding, cluster_queue: str, flavor: str, pace: float) -> dict[str, float]:
    # Use the recorder's own count, not what the controller reports.
    usage = finding.audit.usage.get((cluster_queue, gpu_of(flavor)), UsageInterval())
    return {
        "borrowed_gpu_hours": usage.borrowed_seconds * pace / _SECONDS_PER_HOUR,
        "most_gpus": usage.peak_used,
    }
