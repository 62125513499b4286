"""What would happen if: Jobs that are not submitted, and queues, policies and nodes that differ.

The engine is one that nothing else uses afterwards. What becomes of the cluster without the change is
tried in a copy of it, and the change on the engine itself; the answer is the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import msgspec

from admission.answers.copying import InCopy
from admission.answers.explaining.answer import Answer, as_seen, whole_answer
from admission.answers.explaining.verdict import held_lines
from admission.answers.items import Item, instant
from admission.answers.job_translation import Document, meta_of, translated
from admission.answers.manifest_loader import READERS, is_readable, load
from admission.answers.selection import nearest
from admission.answers.sight import EVERYTHING, Sight
from admission.engine.engine import Engine
from admission.engine.what_if import Difference, Played, differences, play
from admission.reconcile.job.context import JobContext
from api.parsing.times import to_rfc3339
from api.workload import WorkloadKey

# How many objects a question may hold: each costs a search.
MOST_OBJECTS = 500


class BadQuestionError(ValueError):
    """The question cannot be read. The message names what, and what is expected."""


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is not there in the question."""

    kind: str
    name: str
    namespace: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What differs.

    `objects` are manifests: Jobs, objects of other kinds that are queued, pods that name a queue, and
    Workloads are submitted; queues, Cohorts, AdmissionPolicies, Nodes and other kinds that decisions depend
    on take the place of those of the same name. `namespace` is that of objects that name none.
    """

    objects: tuple[Document, ...] = ()
    remove: tuple[Removed, ...] = ()
    namespace: str = "default"


class SubmittedItem(Item, frozen=True, kw_only=True):
    """A Workload of the question. `startsAt` null: it would not start as it is, or no start is known.

    Four of five starts lie between `earliestStart` and `latestStart`, null if it starts now. `isPromised`:
    submitted now it is promised `startsAt`, which ends the interval. `heldBy` has sentences about what holds
    what it lacks.
    """

    namespace: str
    name: str
    owner_kind: str | None
    owner_name: str | None
    starts_now: bool
    starts_at: str | None
    earliest_start: str | None
    latest_start: str | None
    is_promised: bool
    reason: str
    message: str
    held_by: tuple[str, ...]


class ChangedItem(Item, frozen=True, kw_only=True):
    """Another Workload, for which the change makes a difference: its start without it and with it."""

    namespace: str
    name: str
    is_evicted: bool
    started_at: str | None
    starts_at: str | None


class WhatIf(Item, frozen=True, kw_only=True):
    """The answer. `hiddenEvicted` and `hiddenMoved` count changed Workloads that may not be named.

    `notes` say which objects were left out, and why.
    """

    workloads: tuple[SubmittedItem, ...]
    others: tuple[ChangedItem, ...]
    hidden_evicted: int
    hidden_moved: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """What may be seen, and when (Unix seconds). `context`: the cluster's priority classes and settings."""

    now: float
    sight: Sight = EVERYTHING
    context: JobContext | None = None


def read_question(body: bytes | bytearray) -> Question:
    """Return the question in a JSON body. Raises BadQuestionError."""
    try:
        document = msgspec.json.decode(body)
        if isinstance(document, dict):
            for name in document:
                if name not in Question.__struct_fields__:
                    raise BadQuestionError(nearest("field of a question", name, Question.__struct_fields__))
        question = msgspec.convert(document, type=Question)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadQuestionError(f"the body is no question: {error}") from error
    if len(question.objects) + len(question.remove) > MOST_OBJECTS:
        raise BadQuestionError(f"a question holds at most {MOST_OBJECTS} objects")
    return question


def namespaces_of(question: Question) -> frozenset[str]:
    """Return the namespaces that the question is about: the answer tells what is in each of them."""
    named = {question.namespace}
    for document in question.objects:
        # As the client wrote it: what cannot be read may still have the name of an object that is there.
        metadata = document.get("metadata")
        if isinstance(metadata, dict):
            named |= {one for one in _named(document.get("kind"), metadata) if isinstance(one, str)}
    for one in question.remove:
        named |= {*_named(one.kind, {"namespace": one.namespace, "name": one.name})}
    return frozenset(one for one in named if one)


def _named(kind: object, metadata: dict[str, Any]) -> Iterator[Any]:
    yield metadata.get("namespace")
    if kind == "Namespace":
        yield metadata.get("name")


def what_if(engine: Engine, question: Question, in_copy: InCopy, asker: Asker) -> WhatIf:
    """Return what would happen. The engine is of no use afterwards. Raises BadQuestionError."""
    now = asker.now
    before = in_copy(lambda: play(engine, now=now))
    objects, notes = _objects(question, asker)
    notes += load(engine, objects, now=now)
    for one in question.remove:
        _remove(engine, one, now)
    answers = tuple(_answers(engine, objects, asker))
    after = play(engine, now=now)
    changed = differences(before, after, without={one.workload.key for one in answers})
    seen = [one for one in changed if asker.sight.sees(one.key.namespace)]
    hidden = [one for one in changed if not asker.sight.sees(one.key.namespace)]
    return WhatIf(
        workloads=tuple(_submitted(engine, as_seen(one, asker.sight), after, now=now) for one in answers),
        others=tuple(map(_changed, seen)),
        hidden_evicted=sum(one.is_evicted for one in hidden),
        hidden_moved=sum(not one.is_evicted for one in hidden),
        notes=notes,
    )


def _objects(question: Question, asker: Asker) -> tuple[list[bytes], tuple[str, ...]]:
    documents = question.objects
    try:
        return translated(documents, namespace=question.namespace, now=asker.now, context=asker.context)
    # What a field of any type does to code that reads Jobs of an API server, which has checked them.
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        raise BadQuestionError(f"an object cannot be read: {error}") from error


def _remove(engine: Engine, one: Removed, now: float) -> None:
    if one.kind not in READERS:
        raise BadQuestionError(nearest("kind that decisions depend on", one.kind, READERS))
    key: Any = (one.namespace, one.name) if one.namespace else one.name
    try:
        engine.objects.remove(READERS[one.kind].kind, key, now=now)
    except (TypeError, ValueError, AssertionError) as error:
        raise BadQuestionError(f"{one.kind} {one.name} is named with its namespace, or has none") from error


def _answers(engine: Engine, objects: Sequence[bytes], asker: Asker) -> Iterator[Answer]:
    """Yield the answer for each Workload of the question, before anything is decided.

    One that cannot be read is in no engine; of that name there may be another.
    """
    for raw in objects:
        manifest = msgspec.json.decode(raw)
        if manifest.get("kind") == "Workload" and is_readable("Workload", raw):
            meta = meta_of(manifest)
            workload = engine.workloads.workload(WorkloadKey(meta.namespace, meta.name))
            if workload is not None:
                yield whole_answer(engine, workload, now=asker.now, sight=asker.sight)


def _submitted(engine: Engine, answer: Answer, after: Played, *, now: float) -> SubmittedItem:
    workload, promises = answer.workload, engine.promises
    at, why = after.start_of(workload.key), after.waits.get(workload.key)
    waits = at > now
    is_promised = waits and promises.planned(workload.key) is not None
    interval = None
    if is_promised:
        interval = promises.start_interval(workload.key)
    elif now < at < inf:
        interval = promises.forecast_interval(at, now=now)
    reason, message = why if why is not None and waits else ("", "")
    return SubmittedItem(
        namespace=workload.key.namespace,
        name=workload.key.name,
        owner_kind=workload.owner_kind,
        owner_name=workload.owner_name,
        starts_now=not waits,
        starts_at=_instant(at),
        earliest_start=instant(interval.earliest_at) if interval is not None else None,
        latest_start=instant(interval.latest_at) if interval is not None else None,
        is_promised=is_promised,
        reason=str(reason),
        message=message,
        held_by=tuple(held_lines(answer, now=now)) if waits else (),
    )


def _changed(one: Difference) -> ChangedItem:
    return ChangedItem(
        namespace=one.key.namespace,
        name=one.key.name,
        is_evicted=one.is_evicted,
        started_at=_instant(one.before),
        starts_at=_instant(one.after),
    )


def _instant(at: float) -> str | None:
    return None if at == inf else to_rfc3339(at)
