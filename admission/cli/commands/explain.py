"""`berth explain WORKLOAD`: what becomes of a Workload, who holds what it lacks, and what would help.

The command reads from the API server and runs the scheduling code itself, so it needs no controller. It does
not show decisions that the controller has not written yet. A reader who may not read the whole cluster gets
the controller's answer. With -f it asks about objects that are not submitted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace

from admission.answers.explaining.answer import Answer, find_workload, partial_answer, whole_answer
from admission.answers.explaining.body import to_body
from admission.answers.explaining.trials import found_remedies
from admission.answers.what_if import Question, WhatIf
from admission.cli.common.arguments import (
    Subparsers,
    add_cluster,
    add_command,
    add_manifests,
    file_or_folder,
)
from admission.cli.common.cluster_engine import (
    Listing,
    engine_of,
    kinds_for,
    list_cluster,
    published_places,
)
from admission.cli.common.errors import (
    CommandError,
    ExitCode,
    NotHoldingError,
    UnreachableError,
    WrongUsageError,
)
from admission.cli.common.manifest_files import read_manifests
from admission.cli.common.priority_classes import priority_classes
from admission.cli.common.running import run
from admission.cli.common.settings_file import read_settings_of_cluster
from admission.cli.common.way_flags import add_way, check_way
from admission.cli.explaining.records import job_without_workload, promise_history
from admission.cli.explaining.text import print_answer
from admission.cli.explaining.what_if import answer_here, print_what_if, question_of
from admission.cli.listing.rights import unreadable
from admission.cli.views.tables import make_console
from admission.controller.queries.copies import ask_in_copy
from admission.engine.engine import EngineSettings
from api.kube.client import KubeClient

# A trial decides the whole cluster: in a very large one, only the first changes are tried.
MOST_SECONDS = 10.0


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "explain",
        help_line="show when a Workload starts, why it waits, who holds what it lacks, and what would help",
        description=(
            "Show what becomes of one Workload: a verdict, its position and start, what it lacks and who\n"
            "holds that, what would help (each change is tried first), and every flavor, topology domain\n"
            "and node with its counts. If it holds quota: where it runs, since when and until when, and\n"
            "which start it was promised. If it was evicted: when, why, for which Workload, and from which\n"
            "checkpoint it continues. A Job without a Workload shows why it has none.\n"
            "With -f, show what would become of Jobs that are not submitted yet: when they start, and\n"
            "which Workloads they delay or evict.\n"
            "With rights in one namespace alone, the controller is asked, which knows the whole queue: by\n"
            "kubectl port-forward, or --url. Where that is not possible, the answer is what the Workload's\n"
            "own object says.\n"
            "Exit code 1 if the Workload holds no quota, or with -f would not start now."
        ),
        examples=(
            "  berth explain -n team-a job-train-7c1f2\n"
            "  berth explain team-a/train                       # the Job's name will do\n"
            "  berth explain -f job.yaml -n team-a              # before it is submitted\n"
            "  berth explain team-a/train -o json | jq '.verdict, .help'"
        ),
        run=_run,
    )
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        nargs="?",
        help="name of the Workload or its Job; NAMESPACE/NAME, or use -n",
    )
    add_manifests(parser)
    parser.add_argument(
        "-n", "--namespace", metavar="NS", help="its namespace (default: the context's, else default)"
    )
    parser.add_argument(
        "--config", type=file_or_folder, metavar="FILE", help="the controller's --config file"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")
    add_way(parser)
    add_cluster(parser)


def _run(arguments: argparse.Namespace) -> int:
    check_way(arguments)
    if arguments.workload is None and not arguments.filename:
        raise WrongUsageError("name a Workload or its Job, or give manifests with -f")
    if arguments.workload is not None and arguments.filename:
        raise WrongUsageError(f"{arguments.workload} and -f exclude each other; leave one out")
    return run(_explain(arguments))


async def _explain(arguments: argparse.Namespace) -> int:
    settings, now = read_settings_of_cluster(arguments.config), time.time()
    async with await KubeClient.connect(arguments.kubeconfig, context=arguments.context) as client:
        namespace, name = _target(arguments, client)
        listing = await list_cluster(client, kinds_for(settings), namespace=namespace)
        if arguments.filename:
            asked = [*read_manifests(arguments.filename, sys.stdin), *await priority_classes(client)]
            question = question_of(asked, namespace)
            if arguments.url is not None or _is_partial(listing) or listing.forbidden:
                found = await _asked_of_controller(arguments, question, listing)
            else:
                found = answer_here(question, listing, settings, now=now)
            return print_what_if(found, arguments.output, now=now)
        is_asked = arguments.url is not None
        answer = await _answer(
            client, listing, settings, (namespace, name), now=now, is_partial=is_asked or _is_partial(listing)
        )
        if answer.is_partial:
            code = await _print_by_controller(arguments, answer, now=now)
            if code is not None:
                return code
    if arguments.output == "json":
        print(json.dumps(to_body(answer, now=now)))
    else:
        print_answer(make_console(), answer, now=now)
    # The exit code lets a script wait for the admission: `until berth explain ...`.
    return ExitCode.DONE if answer.holding is not None else ExitCode.DOES_NOT_HOLD


def _target(arguments: argparse.Namespace, client: KubeClient) -> tuple[str, str]:
    # Split at the last slash. Names contain no slash, so with more than one, no Workload is found.
    namespace, _, name = (arguments.workload or "").rpartition("/")
    if namespace and arguments.namespace and namespace != arguments.namespace:
        raise WrongUsageError(f"{arguments.workload} is not in -n {arguments.namespace}; give one of the two")
    return namespace or arguments.namespace or client.namespace or "default", name


async def _answer(
    client: KubeClient,
    listing: Listing,
    settings: EngineSettings,
    target: tuple[str, str],
    *,
    now: float,
    is_partial: bool,
) -> Answer:
    # Without this right, a Workload that exists would be said not to.
    if "Workload" in listing.forbidden:
        raise unreadable(listing.forbidden["Workload"], target[0])
    # Use the controller's own engine on the cluster's objects, so that no second set of rules can differ.
    engine, problems = engine_of(listing, settings, now=now)
    for problem in problems if not is_partial else ():
        print(f"berth explain: {problem}", file=sys.stderr)
    workload = find_workload(engine, *target)
    if workload is None:
        raise await _not_found(client, *target)
    history = await promise_history(client, workload.key.namespace, workload.key.name)
    if is_partial:
        places = await published_places(client, listing)
        queue = engine.queues.cluster_queue_of(workload)
        answer = partial_answer(engine, workload, queue, places.get(workload.key))
        return replace(answer, history=history)
    answer = whole_answer(engine, workload, now=now)
    ends_at = time.monotonic() + MOST_SECONDS
    helping = found_remedies(engine, answer, ask_in_copy, now=now, is_over=lambda: time.monotonic() > ends_at)
    return replace(answer, history=history, remedies=helping)


def _is_partial(listing: Listing) -> bool:
    return listing.is_of_one_namespace or "ClusterQueue" in listing.forbidden


async def _asked_of_controller(arguments: argparse.Namespace, question: Question, listing: Listing) -> WhatIf:
    # Imported late: most readers need no HTTP client beside that of the API server.
    from admission.cli.explaining import from_controller

    try:
        return await from_controller.what_if(arguments, question)
    except CommandError as error:
        if arguments.url is not None:
            raise
        why = "; ".join(listing.problems) or "only one namespace may be read"
        raise UnreachableError(
            f"an answer before submitting needs the whole cluster: {why}; and the controller: {error}"
        ) from error


async def _print_by_controller(arguments: argparse.Namespace, answer: Answer, *, now: float) -> int | None:
    """Print the controller's answer, and return the exit code; None if it cannot be asked."""
    from admission.cli.explaining import from_controller

    key = answer.workload.key
    try:
        body = await from_controller.explanation(arguments, (key.namespace, key.name))
    except CommandError as error:
        if arguments.url is not None:
            raise
        print(f"berth explain: the controller knows more, and cannot be asked: {error}", file=sys.stderr)
        return None
    if arguments.output == "json":
        print(json.dumps({**body, "history": answer.history}))
    else:
        from_controller.print_explanation(make_console(), answer, body, now=now)
    return ExitCode.DONE if body["holding"] is not None else ExitCode.DOES_NOT_HOLD


async def _not_found(client: KubeClient, namespace: str, name: str) -> WrongUsageError | NotHoldingError:
    why = await job_without_workload(client, namespace, name)
    if why is not None:
        return NotHoldingError(why)
    return WrongUsageError(
        f"namespace {namespace} has no Workload {name}, nor one of a Job {name}; see: berth get workloads"
    )
