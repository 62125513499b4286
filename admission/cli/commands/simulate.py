"""`berth simulate`: run a trace on a virtual clock with each policy, using the controller's own engine.

The calendar file holds quota windows and reservations, as in a policy's spec.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import yaml

from admission.cli.commands.simulate_flags import (
    add_attempt_flags,
    add_checkpoint_flags,
    add_fault_flags,
    add_work_flags,
)
from admission.cli.common.arguments import (
    NodeCounts,
    Subparsers,
    add_command,
    add_trace,
    existing_file,
)
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.trial.simulate_progress import make_progress
from admission.cli.views.simulate_table import print_figures, to_table
from admission.simulation.figures import Figures, figures_of
from admission.simulation.policies import COMPARED, POLICIES
from admission.simulation.report.page import html_page
from admission.simulation.settings import (
    Checkpoints,
    EstimateKind,
    Faults,
    FlavorSetting,
    Setting,
    check_fits,
    loaded,
)
from admission.simulation.traces import TraceError, TraceJob, first_submitted, read_trace
from admission.simulation.virtual_run import PolicyRun, simulate
from api.objects.common import Meta
from api.objects.policies import AdmissionPolicyObject
from api.parsing.problems import SpecError
from api.policy import KUEUE, AdmissionPolicy
from api.policy_objects import to_admission_policy

# What the calendar file may contain.
_SECTIONS = frozenset({"quotaWindows", "reservations"})


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    names = "\n".join(f"  {policy.name:<20} {policy.summary}" for policy in POLICIES.values())
    parser = add_command(
        subparsers,
        "simulate",
        help_line="run a recorded trace on a virtual clock and compare policies",
        description=(
            "Run a trace on a virtual clock, once for each policy, and compare how long its Jobs wait. The\n"
            "controller's own code decides; no server and no Redis are needed. The trace is a CSV file\n"
            "with the columns user, num_gpu, submit_time and duration (minutes), and optionally job_id,\n"
            "job_type and reservation (of the --calendar).\n"
            "Equal command lines give equal figures (except run_seconds).\n\npolicies:\n" + names
        ),
        examples=(
            "  berth simulate --jobs jobs.csv --policy fifo,best-effort\n"
            "  berth simulate --jobs jobs.csv --nodes 64x8 --load 1.2 --limit 5000 -o json\n"
            "  berth simulate --jobs jobs.csv --node-mtbf-hours 2000\n"
            "  berth simulate --jobs jobs.csv --policy fifo,easy -o html > report.html"
        ),
        run=_run,
    )
    add_trace(parser)
    parser.add_argument(
        "--policy",
        type=_policies,
        default=COMPARED,
        metavar="NAME,…",
        help="policies from the list above (default: all except those that preempt)",
    )
    parser.add_argument(
        "--calendar",
        type=existing_file,
        metavar="FILE",
        help="quota windows and reservations, as in a policy's spec, for all policies",
    )
    parser.add_argument(
        "--flavors",
        type=existing_file,
        metavar="FILE",
        help="ResourceFlavors that divide the --nodes: a YAML list of name, nodes and optionally labels,"
        " costPerGpuHour and nodeMtbfHours",
    )
    add_work_flags(parser)
    add_attempt_flags(parser)
    add_fault_flags(parser)
    add_checkpoint_flags(parser)
    parser.add_argument(
        "-o", "--output", choices=("table", "json", "html"), default="table", help="default: %(default)s"
    )


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for name in re.split(r"[,\s]+", text.strip()) if name))
    unknown = [name for name in names if name not in POLICIES]
    if unknown or not names:
        what = f"{unknown[0]!r} is not a policy" if unknown else "no policy is named"
        raise argparse.ArgumentTypeError(f"{what}; there are {', '.join(POLICIES)}")
    return names


def _run(arguments: argparse.Namespace) -> int:
    setting = _setting(arguments)
    jobs = _jobs(arguments, setting)
    runs: dict[str, PolicyRun] = {}
    with make_progress(len(jobs), arguments.policy) as progress:
        for name in arguments.policy:
            runs[name] = simulate(jobs, setting, POLICIES[name], progress=progress.of(name))
    for name, run in runs.items():
        for problem in run.calendar_problems:
            print(f"berth simulate: {name}: {problem}", file=sys.stderr)
    price = arguments.cost_per_gpu_hour
    figures = {
        name: figures_of(run, gpus=setting.gpus, cost_per_gpu_hour=price) for name, run in runs.items()
    }
    if arguments.output == "table":
        print_figures(figures)
        return ExitCode.DONE
    report = _to_object(arguments, setting, jobs, figures)
    if arguments.output == "json":
        print(json.dumps(report, ensure_ascii=False))
    else:
        courses = {name: run.courses for name, run in runs.items()}
        print(html_page(report, to_table(figures), courses, gpus=setting.gpus), end="")
    return ExitCode.DONE


def _setting(arguments: argparse.Namespace) -> Setting:
    calendar = _read_calendar(arguments.calendar) if arguments.calendar is not None else KUEUE
    return Setting(
        quota_windows=calendar.quota_windows,
        reservations=calendar.reservations,
        flavors=_read_flavors(arguments.flavors, arguments.nodes) if arguments.flavors is not None else (),
        nodes=arguments.nodes.count,
        gpus_per_node=arguments.nodes.gpus_per_node,
        queues=arguments.queues,
        estimates=arguments.estimates,
        declaring_share=arguments.declaring_share,
        save_seconds=arguments.save_seconds,
        restart_seconds=arguments.restart_seconds,
        checkpoint_interval_seconds=arguments.checkpoint_interval_seconds,
        min_runtime_seconds=arguments.min_runtime_seconds,
        faults=Faults(
            node_mtbf_hours=arguments.node_mtbf_hours,
            repair_seconds=arguments.repair_seconds,
            crash_mtbf_gpu_hours=arguments.crash_mtbf_gpu_hours,
            seed=arguments.seed,
        ),
        checkpoints=Checkpoints(
            least_interval_seconds=arguments.checkpoint_minutes[0] * 60,
            most_interval_seconds=arguments.checkpoint_minutes[1] * 60,
            publishing_share=arguments.publishing_share,
            notice_seconds=arguments.notice_seconds,
            on_sigterm=arguments.save_on_sigterm,
            seed=arguments.seed,
        ),
    )


def _jobs(arguments: argparse.Namespace, setting: Setting) -> tuple[TraceJob, ...]:
    try:
        jobs = loaded(first_submitted(read_trace(arguments.jobs), arguments.limit), arguments.load)
        check_fits(jobs, setting)
    except TraceError as error:
        raise WrongUsageError(str(error)) from error
    return jobs


def _to_object(
    arguments: argparse.Namespace,
    setting: Setting,
    jobs: tuple[TraceJob, ...],
    figures: Mapping[str, Figures],
) -> dict[str, Any]:
    """Return the report as one JSON object."""
    left_out = ("run", "output", "jobs", "policy")
    settings = {
        name: str(value) if isinstance(value, Path | NodeCounts | EstimateKind) else value
        for name, value in vars(arguments).items()
        if name not in left_out
    }
    # Its default depends on the kind of estimates.
    settings["declaring_share"] = setting.share_declaring
    return {
        "settings": {"jobs": str(arguments.jobs), "job_count": len(jobs), **settings},
        "policies": {name: _policy_figures(of_policy) for name, of_policy in figures.items()},
    }


def _policy_figures(figures: Figures) -> dict[str, Any]:
    """Return the figures without those that do not apply to this policy."""
    return {name: value for name, value in asdict(figures).items() if value is not None}


def _read_flavors(path: Path, nodes: NodeCounts) -> tuple[FlavorSetting, ...]:
    """Return the flavors in the file. Raises WrongUsageError that names file and field."""
    try:
        flavors = msgspec.convert(yaml.safe_load(path.read_text()), tuple[FlavorSetting, ...])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise WrongUsageError(f"{path}: {error}") from error
    if len({one.name for one in flavors}) < len(flavors):
        raise WrongUsageError(f"{path}: two flavors have the same name")
    found = sum(one.nodes for one in flavors)
    if found != nodes.count:
        raise WrongUsageError(f"{path}: the flavors have {found} nodes, but --nodes is {nodes}")
    return flavors


def _read_calendar(path: Path) -> AdmissionPolicy:
    """Return a policy with only the file's sections. Raises WrongUsageError that names file and field."""
    try:
        spec = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise WrongUsageError(f"{path}: {error}") from error
    if not isinstance(spec, dict) or not spec.keys() <= _SECTIONS:
        raise WrongUsageError(
            f"{path} must be a mapping with quotaWindows, reservations or both, as in a policy"
        )
    # YAML has parsed timestamps as dates; JSON writes them as RFC 3339, which the model expects.
    body = msgspec.json.encode(spec)
    try:
        return to_admission_policy(
            AdmissionPolicyObject(metadata=Meta(name="calendar"), spec=msgspec.Raw(body))
        )
    except SpecError as error:
        raise WrongUsageError(f"{path}: {error}") from error
