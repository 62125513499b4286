"""What a controller answers where the reader's own rights show only a part: asked of its /v1.

Its answer has no objects, only what they amount to, so it is printed beside what the Workload itself says.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from rich.console import Console

from admission.answers.explaining.answer import Answer
from admission.answers.explaining.verdict import history_lines
from admission.answers.what_if import Question, WhatIf
from admission.cli.explaining.text import print_evictions, print_holding
from admission.cli.page.asking import controller_of
from api.parsing.durations import seconds_text
from api.parsing.times import to_seconds


async def explanation(arguments: argparse.Namespace, target: tuple[str, str]) -> dict[str, Any]:
    """Return the controller's explanation. Raises a CommandError that says why it cannot be asked."""
    async with controller_of(arguments) as (asking, _):
        return await asking.explain(*target, with_help=True)


async def what_if(arguments: argparse.Namespace, question: Question) -> WhatIf:
    """Return the controller's answer to the question. Raises a CommandError."""
    async with controller_of(arguments) as (asking, _):
        return msgspec.convert(await asking.what_if(msgspec.to_builtins(question)), WhatIf)


def print_explanation(console: Console, answer: Answer, body: Mapping[str, Any], *, now: float) -> None:
    """Print the controller's explanation; `answer` is what the Workload's own object says."""
    place = f", {body['position']} of {body['waiting']} in the queue" if body["position"] else ""
    queue = body["clusterQueue"] or "no ClusterQueue"
    console.print(f"{answer.workload.key}: {body['state']} in {queue}{place}", style="bold")
    if body["holding"] is None:
        console.print(body["verdict"])
    if body["message"]:
        console.print(f"{body['reason']}: {body['message']}", style="yellow")
    print_evictions(console, answer, now=now)
    for line in (*_held_lines(body, now), *_help_lines(body, now), *history_lines(answer)):
        console.print(line)
    print_holding(console, answer, now=now)
    # A controller of an older release does not say it.
    if (run_time := body.get("runTime")) and run_time["summary"]:
        console.print(run_time["summary"])
    if body["podSets"]:
        console.print("\n-o json has the flavors and domains that were tried.")


def _held_lines(body: Mapping[str, Any], now: float) -> Iterator[str]:
    hidden = body["heldByHidden"]
    if not (body["heldBy"] or hidden) or not body["canStart"]:
        return
    lack = body["lacks"][0]
    yield f"who holds {lack['resource']} of flavor {lack['flavor']}:"
    for one in body["heldBy"]:
        until = "of unknown length"
        if one["expectedEnd"]:
            word = "was" if to_seconds(one["expectedEnd"]) < now else "is"
            until = f"{word} expected to end at {one['expectedEnd']}"
        kept = f"; not preempted: {one['keptBy']}" if one["keptBy"] else ""
        yield f"  {one['namespace']}/{one['name']} ({one['amount']}), {until}{kept}"
    if hidden:
        yield f"  and {hidden['count']} that you may not see ({hidden['amount']})"


def _help_lines(body: Mapping[str, Any], now: float) -> Iterator[str]:
    if body["help"]:
        yield "what would help, tried on the present state:"
    for one in body["help"]:
        wait = to_seconds(one["startsAt"]) - now
        yield f"  {one['change']}: starts {'now' if wait <= 0 else f'in {seconds_text(wait)}'}"
