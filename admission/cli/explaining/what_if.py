"""`berth explain -f`: what becomes of Jobs that are not submitted, and of others because of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import msgspec

from admission.answers.starts import interval_text
from admission.answers.what_if import Asker, ChangedItem, Question, SubmittedItem, WhatIf, what_if
from admission.cli.common.cluster_engine import Listing, engine_of
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.manifest_files import Manifest
from admission.controller.queries.copies import ask_in_copy
from admission.engine.engine import EngineSettings
from api.parsing.durations import seconds_text
from api.parsing.times import to_seconds


def question_of(manifests: Iterable[Manifest], namespace: str) -> Question:
    """Return the question what becomes of the objects; `namespace` is that of objects that name none."""
    documents = tuple(msgspec.json.decode(one.raw) for one in manifests)
    return Question(objects=documents, namespace=namespace)


def answer_here(question: Question, listing: Listing, settings: EngineSettings, *, now: float) -> WhatIf:
    """Return what becomes of the objects, by the whole cluster that was listed."""
    engine, _ = engine_of(listing, settings, now=now)
    return what_if(engine, question, ask_in_copy, Asker(now=now))


def print_what_if(answer: WhatIf, output: str, *, now: float) -> ExitCode:
    """Print the answer. Raises WrongUsageError if nothing could be tried."""
    for note in answer.notes:
        print(f"berth explain: {note}", file=sys.stderr)
    if not answer.workloads and not answer.others and answer.notes:
        raise WrongUsageError("the files hold nothing that can be tried")
    if output == "json":
        print(msgspec.json.encode(answer).decode())
    else:
        for line in what_if_lines(answer, now=now):
            print(line)
    start_now = all(one.starts_now for one in answer.workloads)
    return ExitCode.DONE if start_now and not answer.notes else ExitCode.DOES_NOT_HOLD


def what_if_lines(answer: WhatIf, *, now: float) -> Iterator[str]:
    """Yield the answer as text; `now` is in Unix seconds."""
    for one in answer.workloads:
        key = f"{one.namespace}/{one.name}"
        if one.starts_now:
            yield f"{key}: would start now"
        elif one.starts_at is not None:
            wait = seconds_text(to_seconds(one.starts_at) - now)
            yield f"{key}: would start at {one.starts_at} (in {wait}){_within(one)}"
        else:
            yield f"{key}: would not start as it is, or no start is known"
        if one.reason:
            yield f"  {one.reason}: {one.message}"
            yield from (f"  {line}" for line in one.held_by)
    if answer.others:
        yield "and of others:"
        yield from (f"  {_change_text(one, now)}" for one in answer.others)
    if answer.hidden_evicted or answer.hidden_moved:
        yield (
            f"and of Workloads that you may not see: {answer.hidden_evicted} would be evicted,"
            f" {answer.hidden_moved} would start at another time"
        )


def _within(one: SubmittedItem) -> str:
    if one.is_promised or one.earliest_start is None or one.latest_start is None:
        return ""
    return f", {interval_text(one.earliest_start, one.latest_start)}"


def _change_text(one: ChangedItem, now: float) -> str:
    key = f"{one.namespace}/{one.name}"
    if one.is_evicted:
        return f"{key}: would be evicted"
    before = "has no known start" if one.started_at is None else f"starts {_when(one.started_at, now)}"
    after = (
        "would have no known start" if one.starts_at is None else f"would start {_when(one.starts_at, now)}"
    )
    return f"{key}: {before}, {after}"


def _when(at: str, now: float) -> str:
    seconds = to_seconds(at) - now
    return "now" if seconds <= 0 else f"in {seconds_text(seconds)}"
