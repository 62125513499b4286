"""Tries what would help a Workload, each change on a copy of the engine, for a bounded time.

A change helps if the Workload then starts at once or is promised a start. A start that is only forecast is no
help: others may still be let before it, and it comes later in almost half of all cases (`bench.answers`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf

from admission.answers.copying import InCopy
from admission.answers.explaining.answer import Answer
from admission.engine.engine import Engine
from admission.engine.remedies import Remedy, Trial, remedies
from admission.engine.what_if import play
from api.queueing import ClusterQueue
from api.workload import Workload


class _OutOfTime(Exception):
    """The time for trials is over."""


def found_remedies(
    engine: Engine, answer: Answer, in_copy: InCopy, *, now: float, is_over: Callable[[], bool]
) -> tuple[Remedy, ...]:
    """Return what would let the Workload start earlier. What was found before the time is over is kept.

    `in_copy` runs a function so that none of its changes last, `is_over` says whether the time is over.
    """
    if answer.holding is not None or answer.state != "pending" or answer.is_partial:
        return ()

    def start(changed: Workload | ClusterQueue, *, is_certain: bool) -> float:
        if is_over():
            raise _OutOfTime

        def played() -> float:
            engine.objects.upsert(changed, now=now)
            outcome, key = play(engine, now=now), answer.workload.key
            return outcome.start_of(key) if key in outcome.promised or not is_certain else inf

        return in_copy(played)

    found: list[Remedy] = []
    with suppress(_OutOfTime):
        starts_at = _present_start(answer, partial(start, is_certain=False))
        if starts_at > now:
            trial = partial(start, is_certain=True)
            found.extend(remedies(engine, answer.workload, answer.lacking, trial, starts_at=starts_at))
    return tuple(found)


def _present_start(answer: Answer, trial: Trial) -> float:
    """Return the start as things are: the known one, or that of a trial without a change."""
    if not answer.starts.can_start:
        return inf
    return answer.starts.at if answer.starts.at < inf else trial(answer.workload)
