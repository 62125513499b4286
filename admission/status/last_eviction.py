"""The last eviction of a Workload that has not started again: when, why, for which preemptor, what it lost.

It is computed from the objects alone: the Evicted condition, its message (which names the preemptor's uid, as
Kueue's does), the counts in the status, and the last reported checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from api.jobs.checkpoint_annotations import CheckpointFacts, checkpoint_facts
from api.parsing.times import to_rfc3339
from api.workload import Workload, WorkloadKey

# Kueue's message: "Preempted to accommodate a workload (UID: …, JobUID: …) due to …".
_PREEMPTOR = re.compile(r"\(UID: ([^,)]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEviction:
    """The last eviction of a Workload that has not started again. `at` is in Unix seconds.

    `preemptor_uid` is empty if it was not preempted for another Workload, and `preemptor` is None if that
    Workload no longer exists. `ran_seconds` is how long all `attempts` ran together.
    """

    at: float
    reason: str
    preemptor_uid: str
    preemptor: WorkloadKey | None
    facts: CheckpointFacts
    ran_seconds: float
    attempts: int


def past_eviction(workload: Workload, key_of: Callable[[str], WorkloadKey | None]) -> PastEviction | None:
    """Return the last eviction of a Workload that has not started since, None if there is none.

    `key_of` finds a Workload by its uid.
    """
    evicted = workload.eviction
    if evicted is None or workload.is_finished:
        return None
    named = _PREEMPTOR.search(evicted.message)
    uid = named[1] if named is not None else ""
    return PastEviction(
        at=evicted.at,
        reason=evicted.reason,
        preemptor_uid=uid,
        preemptor=key_of(uid) if uid else None,
        facts=checkpoint_facts(workload),
        ran_seconds=float(workload.accumulated_execution_seconds),
        attempts=sum(workload.evictions.values()),
    )


def eviction_json(found: PastEviction | None) -> dict[str, Any] | None:
    """Return the eviction as the HTTP API's JSON, None for none."""
    if found is None:
        return None
    saved_at = found.facts.saved_at
    return {
        "at": to_rfc3339(found.at),
        "reason": found.reason,
        "preemptorUid": found.preemptor_uid,
        "preemptor": str(found.preemptor) if found.preemptor is not None else "",
        "checkpointTime": to_rfc3339(saved_at) if saved_at is not None else "",
        "checkpointStep": found.facts.step,
        "lostSeconds": lost_seconds(found),
    }


def lost_seconds(found: PastEviction) -> float | None:
    """Return how much of its run time is lost, in seconds; None if it has reported no checkpoint.

    After several attempts the loss may be smaller: when the last one began, and for how long it waited
    before that, is not known.
    """
    saved_at = found.facts.saved_at
    if saved_at is None:
        return None
    # Never more than all attempts ran, however old the checkpoint is.
    since = max(0.0, found.at - saved_at)
    return min(since, found.ran_seconds) if found.ran_seconds else since
