"""`berth explain -f`: what becomes of Jobs that are not submitted, and of others because of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import msgspec

from admission.cli.common.cluster_engine import Listing, engine_of
from admission.cli.common.errors import ExitCode, WrongUsageError
from admission.cli.common.job_translation import translated
from admission.cli.common.manifest_files import Manifest
from admission.cli.common.manifest_loader import load
from admission.cli.explaining.answer import Answer, whole_answer
from admission.cli.explaining.verdict import held_lines
from admission.cli.views.summary import seconds_text
from admission.engine.engine import Engine, EngineSettings
from admission.engine.what_if import Difference, Played, differences, play
from api.kube.errors import Forbidden
from api.workload import WorkloadKey, to_rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The Workloads of the files, and what becomes of the cluster with and without them."""

    answers: tuple[Answer, ...]
    before: Played
    after: Played

    @property
    def keys(self) -> tuple[WorkloadKey, ...]:
        """The Workloads that were asked about."""
        return tuple(one.workload.key for one in self.answers)


class Before(NamedTuple):
    """How a question before submitting was asked: the namespace of Jobs without one, the output, the time."""

    namespace: str
    output: str
    now: float


def explain_files(
    manifests: Iterable[Manifest], listing: Listing, settings: EngineSettings, asking: Before
) -> int:
    """Print what becomes of the objects. Raises Forbidden where the reader may not read the whole cluster."""
    now = asking.now
    if listing.is_of_one_namespace or listing.forbidden:
        raise Forbidden(
            "an answer before submitting needs the whole cluster, and "
            + ("; ".join(listing.problems) or "only one namespace may be read")
            + "; ask the controller: POST /v1/what-if"
        )
    objects, notes = translated(manifests, namespace=asking.namespace, now=now)
    before = play(engine_of(listing, settings, now=now)[0], now=now)
    engine, _ = engine_of(listing, settings, now=now)
    notes += load(engine, objects, now=now)
    for note in notes:
        print(f"berth explain: {note}", file=sys.stderr)
    if not objects:
        raise WrongUsageError("the files hold nothing that can be tried")
    answers = tuple(_answers(engine, objects, now=now))
    asked = _Asked(answers=answers, before=before, after=play(engine, now=now))
    if asking.output == "json":
        print(json.dumps(_body(asked)))
    else:
        for line in _lines(asked, now=now):
            print(line)
    start_now = all(asked.after.start_of(key) <= now for key in asked.keys)
    return ExitCode.DONE if start_now and not notes else ExitCode.DOES_NOT_HOLD


def _answers(engine: Engine, objects: list[bytes], *, now: float) -> Iterator[Answer]:
    """Yield the answer for each Workload of the files, before anything is decided."""
    for raw in objects:
        manifest = msgspec.json.decode(raw)
        if manifest.get("kind") == "Workload":
            meta = manifest["metadata"]
            workload = engine.workloads.workload(WorkloadKey(meta.get("namespace", ""), meta["name"]))
            if workload is not None:
                yield whole_answer(engine, workload, now=now)


def _lines(asked: _Asked, *, now: float) -> Iterator[str]:
    for answer in asked.answers:
        key = answer.workload.key
        at, why = asked.after.start_of(key), asked.after.waits.get(key)
        if at <= now:
            yield f"{key}: would start now"
        elif at < inf:
            yield f"{key}: would start at {to_rfc3339(at)} (in {seconds_text(at - now)})"
        else:
            yield f"{key}: would not start as it is, or no start is known"
        if why is not None and at > now:
            yield f"  {why[0]}: {why[1]}"
            yield from (f"  {line}" for line in held_lines(answer, now=now))
    changed = differences(asked.before, asked.after, without=asked.keys)
    if changed:
        yield "and of others:"
        yield from (f"  {_change_text(one, now)}" for one in changed)


def _change_text(one: Difference, now: float) -> str:
    if one.is_evicted:
        return f"{one.key}: would be evicted"
    before = "has no known start" if one.before == inf else f"starts {_when(one.before, now)}"
    after = "would have no known start" if one.after == inf else f"would start {_when(one.after, now)}"
    return f"{one.key}: {before}, {after}"


def _when(at: float, now: float) -> str:
    return "now" if at <= now else f"in {seconds_text(at - now)}"


def _body(asked: _Asked) -> dict[str, Any]:
    return {
        "workloads": [
            {
                "namespace": key.namespace,
                "name": key.name,
                "startsAt": _instant(asked.after.start_of(key)),
                "reason": str(asked.after.waits[key][0]) if key in asked.after.waits else "",
                "message": asked.after.waits[key][1] if key in asked.after.waits else "",
            }
            for key in asked.keys
        ],
        "others": [
            {
                "namespace": one.key.namespace,
                "name": one.key.name,
                "isEvicted": one.is_evicted,
                "startedAt": _instant(one.before),
                "startsAt": _instant(one.after),
            }
            for one in differences(asked.before, asked.after, without=asked.keys)
        ],
    }


def _instant(at: float) -> str | None:
    return None if at == inf else to_rfc3339(at)
