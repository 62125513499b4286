"""Tries what would help a Workload, each change on an engine of its own, for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

from admission.cli.common.cluster_engine import Listing, engine_of
from admission.cli.explaining.answer import Answer
from admission.engine.engine import Engine, EngineSettings
from admission.engine.remedies import Remedy, Trial, remedies
from admission.engine.what_if import play
from api.queueing import ClusterQueue
from api.workload import Workload

# A trial builds the whole cluster: in a very large one, only the first changes are tried.
MOST_SECONDS = 10.0


class _OutOfTime(Exception):
    """The time for trials is over."""


def found_remedies(
    engine: Engine, answer: Answer, build: Callable[[], Engine], *, now: float
) -> tuple[Remedy, ...]:
    """Return what would let the Workload start earlier. `build` returns one more engine of the cluster."""
    if answer.holding is not None or answer.state != "pending" or answer.is_partial:
        return ()
    ends_at = time.monotonic() + MOST_SECONDS

    def trial(changed: Workload | ClusterQueue) -> float:
        if time.monotonic() > ends_at:
            raise _OutOfTime
        tried = build()
        tried.objects.upsert(changed, now=now)
        return play(tried, now=now).start_of(answer.workload.key)

    found: list[Remedy] = []
    with suppress(_OutOfTime):
        starts_at = _present_start(answer, trial)
        if starts_at > now:
            # What was found before the time is over is kept.
            found.extend(remedies(engine, answer.workload, answer.lacking, trial, starts_at=starts_at))
    return tuple(found)


def _present_start(answer: Answer, trial: Trial) -> float:
    """Return the start as things are: the known one, or that of a trial without a change."""
    if not answer.starts.can_start:
        return inf
    return answer.starts.at if answer.starts.at < inf else trial(answer.workload)


def builder(listing: Listing, settings: EngineSettings, *, now: float) -> Callable[[], Engine]:
    """Return what builds one engine after the other with the objects of the listing."""
    return lambda: engine_of(listing, settings, now=now)[0]
