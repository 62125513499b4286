"""`berth decide`: decisions for a cluster described in files. A dry run, also used by conformance tests.

There are two forms of input: manifests (`-f`); and cases (`--jsonl`), one JSON line each with the objects,
the time and whether fair sharing is on. The result of a case that cannot be decided is its error, and the
command continues with the next one.

Manifests describe a cluster: bound Pods that no topology placed use capacity of their nodes, as in the
controller. A case is a recording of one scheduling cycle only. Kueue's cycle never reads Pods, because a
separate reconciler counts them. The recordings were made without it, so the Pods of a case are not counted.
Source: Kueue, pkg/controller/tas/pod_usage_controller.go; pkg/scheduler/scheduler_tas_test.go.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from admission.answers.job_translation import translated
from admission.answers.manifest_loader import load
from admission.cli.common.arguments import Subparsers, add_command, add_manifests, file_or_folder, positive
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.manifest_files import read_manifests
from admission.cli.common.settings_file import read_settings
from admission.cli.views.tables import duration_text, make_console, make_table, print_table
from admission.decisions.decision import Admit, Evict, Plan, Wait
from admission.engine.engine import Engine, EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from api.parsing.quantities import to_text
from api.parsing.times import to_seconds
from api.reasons import ConditionType
from api.workload import Admission, Workload, WorkloadKey

# Without --cycles a run ends when nothing more can be decided. This limit ends a run that never would.
_MOST_CYCLES = 100_000


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "decide",
        help_line="show decisions for a cluster described in files, offline",
        description=(
            "Show which Workloads would be admitted in a cluster described by manifests, without a cluster.\n"
            "Jobs and JobSets become the Workloads that a cluster would create for them, in the namespace\n"
            "default where they name none. Documents that decisions do not depend on are named on stderr."
        ),
        examples=(
            "  kubectl get clusterqueues,localqueues,resourceflavors,workloads,namespaces -A -o yaml"
            " | berth decide -f -\n"
            "  berth decide -f queues.yaml -f workloads/ --cycles 1 -o json\n"
            "  berth decide --jsonl < cases.jsonl"
        ),
        run=_run,
    )
    add_manifests(parser)
    parser.add_argument("--config", type=file_or_folder, metavar="FILE", help="Kueue's Configuration file")
    parser.add_argument(
        "--cycles", type=positive, metavar="N", help="stop after N cycles (default: when all is decided)"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")
    parser.add_argument(
        "--jsonl",
        action="store_true",
        help="read a recorded case per line from stdin (Pods are not counted), print a result per line",
    )


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.config)
    if arguments.jsonl:
        if arguments.filename:
            raise WrongUsageError("--jsonl reads cases from stdin; leave out -f")
        return _run_cases(settings, arguments.cycles)
    if not arguments.filename:
        raise WrongUsageError("nothing to decide on: give manifests with -f FILE (- for stdin), or --jsonl")
    return _run_manifests(arguments, settings)


# --- decisions -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class CaseResult:
    """What the cycles decided: the last decision for each Workload, and the engine's state afterwards."""

    engine: Engine
    last_words: dict[WorkloadKey, Admit | Evict | Wait] = field(default_factory=dict)
    plans: dict[WorkloadKey, Plan] = field(default_factory=dict)
    cycles: int = 0


def decide(engine: Engine, *, now: float, cycles: int | None) -> CaseResult:
    """Run at most `cycles` cycles at `now` (Unix seconds); None: until nothing more can be decided."""
    verdict = CaseResult(engine)
    # Nothing happens between cycles: evicted Workloads keep their quota. So each queue becomes
    # empty in the end.
    while verdict.cycles < (cycles or _MOST_CYCLES) and engine.wake_heads(now=now):
        verdict.cycles += 1
        for decision in engine.cycle(now=now):
            if isinstance(decision, Plan):
                # A promise is not the last decision: the same Workload also gets a reason why it waits.
                verdict.plans[decision.key] = decision
                continue
            verdict.last_words[decision.key] = decision
    return verdict


def to_result(verdict: CaseResult, name: str) -> dict[str, Any]:
    """Return the result of a case: Workloads that hold quota, were evicted, or remain in the queues."""
    engine, words = verdict.engine, verdict.last_words
    left: dict[str, list[str]] = {}
    inadmissible: dict[str, list[str]] = {}
    for queue in engine.queues.cluster_queues():
        for pending in engine.queues.pending(queue):
            # As in Kueue, distinguish Workloads that will be tried again from those that wait for a change.
            place = inadmissible if pending.is_parked else left
            place.setdefault(queue, []).append(str(pending.key))
    return {
        "name": name,
        # A slice that another has replaced shows its admission until it finishes.
        "admissions": {
            str(key): _admission(admission)
            for key, admission in sorted(
                (*engine.workloads.admissions(), *engine.workloads.replaced()), key=lambda one: one[0]
            )
        },
        "evictions": {
            str(word.key): str(word.preemption_reason or word.reason)
            for word in words.values()
            if isinstance(word, Evict)
        },
        "waiting": {
            str(workload.key): reason
            for workload in engine.workloads.workloads()
            if (reason := _waiting_reason(workload, words.get(workload.key))) is not None
        },
        "left": left,
        "inadmissible": inadmissible,
    }


def _waiting_reason(workload: Workload, word: Admit | Evict | Wait | None) -> str | None:
    # A decision of these cycles takes precedence over a condition from before them.
    if isinstance(word, Wait):
        return str(word.reason)
    condition = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    if isinstance(word, Admit) or condition is None or condition.status:
        return None
    return condition.reason


def _admission(admission: Admission) -> dict[str, Any]:
    return {
        "clusterQueue": admission.cluster_queue,
        "podSets": [
            {
                "name": one.name,
                "count": one.count,
                "flavors": dict(one.flavors),
                "usage": {name: to_text(name, amount) for name, amount in one.usage.items()},
                "topology": [
                    {"values": list(domain.values), "count": domain.count} for domain in one.topology.domains
                ]
                if one.topology is not None
                else None,
            }
            for one in admission.pod_sets
        ],
    }


# --- cases -----------------------------------------------------------------------------------------------


class _Case(msgspec.Struct, rename="camel"):
    name: str
    now: str
    objects: tuple[msgspec.Raw, ...]
    fair_sharing: bool = False


_CASE = msgspec.json.Decoder(_Case)
_NOT_IN_A_CYCLE = frozenset({"Pod"})


def _run_cases(settings: EngineSettings, cycles: int | None) -> int:
    code = ExitCode.DONE
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        try:
            case = _CASE.decode(line)
            now = to_seconds(case.now)
        # JSON that is nested too deep makes a case unreadable; the cases after it are still answered.
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            code = ExitCode.WRONG_USAGE
            result = {"name": _name_of(line), "error": f"the case cannot be read: {error}"}
        else:
            result = _decide_case(case, settings, now=now, cycles=cycles)
        print(json.dumps(result), flush=True)
    return code


def _decide_case(case: _Case, settings: EngineSettings, *, now: float, cycles: int | None) -> dict[str, Any]:
    # Each case gets a new engine, so that no state of one case affects the next.
    engine = Engine(replace(settings, fair_sharing=FairPreemption()) if case.fair_sharing else settings)
    problems = load(engine, case.objects, now=now, without=_NOT_IN_A_CYCLE)
    if problems:
        return {"name": case.name, "error": "; ".join(problems)}
    return to_result(decide(engine, now=now, cycles=cycles), case.name)


def _name_of(line: bytes) -> str:
    """Return the name of an unreadable case, or "" if the name cannot be read either."""
    try:
        return str(json.loads(line)["name"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


# --- manifests -------------------------------------------------------------------------------------------


def _run_manifests(arguments: argparse.Namespace, settings: EngineSettings) -> int:
    now = time.time()
    engine = Engine(settings)
    manifests = read_manifests(arguments.filename, sys.stdin)
    documents = [msgspec.json.decode(one.raw) for one in manifests]
    objects, notes = translated(documents, namespace="default", now=now)
    problems = load(engine, objects, now=now)
    verdict = decide(engine, now=now, cycles=arguments.cycles)
    if arguments.output == "json":
        print(json.dumps(to_result(verdict, ", ".join(arguments.filename))))
    else:
        _print_table(verdict, now=now)
    # Print problems last, where they stay visible. The decisions were made without these objects.
    for problem in (*notes, *problems):
        print(f"berth decide: {problem}", file=sys.stderr)
    return ExitCode.WRONG_USAGE if problems else ExitCode.DONE


@dataclass(frozen=True, slots=True)
class _Row:
    queue: str
    position: str
    workload: str
    decision: str
    style: str
    flavor: str
    why: str


def _print_table(verdict: CaseResult, *, now: float) -> None:
    rows = list(_rows(verdict, now=now))
    if not rows:
        print("No Workload holds quota or waits for it.")
        return
    table = make_table("QUEUE", "POSITION", "WORKLOAD", "DECISION", "FLAVOR", "MESSAGE", right=["POSITION"])
    for row in rows:
        table.add_row(
            row.queue, row.position, row.workload, row.decision, row.flavor, row.why, style=row.style
        )
    console = make_console()
    print_table(console, table)


def _rows(verdict: CaseResult, *, now: float) -> Iterator[_Row]:
    engine, words = verdict.engine, verdict.last_words
    for queue in engine.queues.cluster_queues():
        admitted = [(key, one) for key, one in engine.workloads.admissions() if one.cluster_queue == queue]
        # List new admissions first, because the user asked about those.
        for key, admission in sorted(admitted, key=lambda pair: not isinstance(words.get(pair[0]), Admit)):
            yield _holding_row(queue, str(key), admission, words.get(key))
        for position, pending in enumerate(engine.queues.pending(queue), start=1):
            word = words.get(pending.key)
            waited = duration_text(max(0.0, now - pending.queued_at))
            why = f"{word.reason}: {word.message}" if isinstance(word, Wait) else f"waits since {waited}"
            decision = "parked" if pending.is_parked else "waits"
            yield _Row(queue, str(position), str(pending.key), decision, "yellow", "", why)
    for workload in sorted(engine.workloads.workloads(), key=lambda workload: workload.key):
        problem = engine.workloads.queue_problem(workload)
        if problem is not None and not workload.is_finished and not engine.workloads.is_holding(workload.key):
            yield _Row("", "", str(workload.key), "not queued", "red", "", f"{problem[0]}: {problem[1]}")


def _holding_row(queue: str, workload: str, admission: Admission, word: Admit | Evict | Wait | None) -> _Row:
    flavors = ", ".join(sorted({name for one in admission.pod_sets for name in one.flavors.values()}))
    match word:
        case Admit():
            decision, style = ("admit" if word.is_admitted else "reserve"), "green"
            why = "borrows from its cohort" if word.borrows else ""
        case Evict():
            decision, style, why = "evict", "red", word.message
        case _:
            decision, style, why = "holds", "", ""
    return _Row(queue, "", workload, decision, style, flavors, why)
